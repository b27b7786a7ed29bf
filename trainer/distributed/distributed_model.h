// DistributedDataParallel on LibTorch's own c10d::Reducer: gradients are averaged over the ranks in buckets, while the
// backward pass still goes on. The order of the calls is that of torch.nn.parallel.DistributedDataParallel.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/ddp.h"
#include "trainer/distributed/parameter_check.h"
#include "trainer/distributed/process_group.h"
#include "trainer/nn/named_tensors.h"

namespace c10d {
class Logger;
}  // namespace c10d

namespace oarlock {

class PowerSgdState;
class ResumableReducer;
class SharedMemoryAverage;
struct LearnedReduction;
struct ReductionState;

// What one synchronised backward pass sends.
struct GradientTraffic {
  int64_t buckets = 0;
  int64_t bytes = 0;
};

class DistributedModel {
 public:
  // Called by all ranks of the group, which must outlive the model. The module is on its device. Afterwards parameters
  // and buffers are rank 0's. kConfig, on all ranks, when a parameter or buffer differs in name, shape or type from
  // rank 0's; the message names it. kConfig as convert_sync_batch_norm() (sync_batch_norm.h).
  // `waiting` is called in every backward pass that averages over the ranks, when this rank's own gradients are done
  // and those of the others are waited for (on a CUDA device: when the host has given all of it to the device).
  static Result<std::unique_ptr<DistributedModel>> create(std::shared_ptr<torch::nn::Module> module,
                                                          const RankGroup& group, const DdpConfig& config,
                                                          std::function<void()> waiting = {});
  ~DistributedModel();
  DistributedModel(const DistributedModel&) = delete;
  DistributedModel& operator=(const DistributedModel&) = delete;

  // Runs `compute_loss`, which calls the module's forward, and returns its loss (a scalar).
  at::Tensor forward(const std::function<at::Tensor()>& compute_loss);

  // From the loss of the last forward(). Afterwards the gradients are the mean over the ranks of the mean over each
  // rank's batch; under no_sync() they are this rank's own, added to what was there. Throws Failure (failure.h,
  // kConfig) where a parameter was not used and ddp.find_unused_parameters is off.
  void backward(const at::Tensor& loss);

  // While one lives, gradients accumulate locally. It must cover the forward as well as the backward pass.
  class NoSync {
   public:
    explicit NoSync(DistributedModel& model) : model_(model), before_(model.synchronize_) {
      model.synchronize_ = false;
    }
    ~NoSync() { model_.synchronize_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedModel& model_;
    bool before_;
  };

  // Rank 0's parameters and buffers to all ranks; buffers only (running statistics) before an evaluation.
  void broadcast_state();
  void broadcast_buffers();

  void clear_gradients();

  // From now on every update that follows an averaging is reported by step_done(), with a float32 scalar on the device
  // that is not 0 where the step was skipped: then what the averaging keeps from step to step becomes again what it was
  // before that step.
  void allow_skipped_steps();
  void step_done(const at::Tensor& skipped);

  // ---- what a checkpoint holds of the averaging (reduction_state.h) ----

  // Called by all ranks between two steps, before reduction_state().
  void settle_reduction();
  // Called by rank 0; by all ranks, where it holds what only they have.
  ReductionState reduction_state() const;
  bool reduction_needs_all_ranks() const;
  // On rank 0: takes out of `saved`, which a run of so many ranks left, what this one cannot go on with. Empty, or why
  // PowerSGD begins afresh.
  std::string keep_what_fits(ReductionState& saved, int world_size) const;
  // Called by all ranks before the first forward(), with what has been kept; the tensors on rank 0.
  void restore_reduction(const ReductionState& saved);

  torch::nn::Module& module() { return *module_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  std::vector<NamedTensor> buffers() const { return unique_buffers(*module_); }
  GradientTraffic traffic() const { return traffic_; }
  // Whether gradients are averaged in memory that the ranks share, and not by the group's backend.
  bool shares_memory() const { return averaging_ != nullptr; }

 private:
  DistributedModel(std::shared_ptr<torch::nn::Module> module, const RankGroup& group, const DdpConfig& config,
                   std::function<void()> waiting);
  Result<void> verify_against_rank_0() const;
  std::vector<NamedTensor> trained() const;
  std::vector<std::vector<size_t>> first_buckets(const std::vector<at::Tensor>& trained) const;
  void build_reducer(const LearnedReduction* before = nullptr);
  void rebuild_buckets();
  void gradients_are_done();
  void check_all_were_reduced() const;

  std::shared_ptr<torch::nn::Module> module_;
  const RankGroup& group_;
  DdpConfig config_;
  std::function<void()> waiting_;
  std::vector<NamedTensor> parameters_;
  std::shared_ptr<ResumableReducer> reducer_;  // null in a world of one, or where nothing is trainable
  std::shared_ptr<c10d::Logger> logger_;
  std::shared_ptr<PowerSgdState> powersgd_;         // null without it
  std::shared_ptr<SharedMemoryAverage> averaging_;  // null where the group's backend averages
  std::vector<LearnedReduction> learned_;           // of each rank; of a static graph, once it is known
  GradientTraffic traffic_;
  bool may_skip_steps_ = false;
  bool synchronize_ = true;
  bool buffers_are_stale_ = true;          // require_forward_param_sync of distributed.py
  bool delayed_reduction_queued_ = false;  // static_graph: once, in the first synchronised backward
};

}  // namespace oarlock
