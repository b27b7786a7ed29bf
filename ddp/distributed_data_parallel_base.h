// DistributedDataParallel on LibTorch's c10d::Reducer, for a module of any type: gradients are averaged over the ranks
// in buckets, overlapping with the backward pass. The order of calls is that of
// torch.nn.parallel.DistributedDataParallel (torch/nn/parallel/distributed.py). Programs use DistributedDataParallel
// (distributed_data_parallel.h), which adds the type; the trainer, which also recovers from the loss of a rank, uses
// this class.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "ddp/comm_hook_function.h"
#include "ddp/named_tensors.h"
#include "ddp/options.h"
#include "ddp/process_group.h"

namespace c10d {
class Logger;
}

namespace oarlock {

struct CommHookState;
struct LeftReducer;
class ResumableReducer;
struct ReducerState;
struct ReductionState;

// Data that one synchronized backward pass sends.
struct GradientTraffic {
  int64_t buckets = 0;
  int64_t bytes = 0;
};

class DistributedDataParallelBase {
 public:
  // Called by all ranks of the group, which must outlive the object; the caller may replace its value between leave()
  // and join(). The module must be on its device. Afterwards parameters and buffers have the
  // values of rank 0. Fails with kConfig on all ranks if a parameter or buffer differs from rank 0's in name, shape or
  // type, or has sparse gradients that the communication hook cannot compress; the message names it. Fails as
  // convert_sync_batchnorm().
  // In a group that is not connected, join() must follow before the first forward().
  // `on_wait` is called in every synchronized backward pass when this rank's gradients are complete and only those of
  // the other ranks are missing (on a CUDA device: when the host has enqueued the whole backward pass).
  static Result<std::unique_ptr<DistributedDataParallelBase>> create(std::shared_ptr<torch::nn::Module> module,
                                                                     const ProcessGroup& group,
                                                                     const DdpOptions& config,
                                                                     std::function<void()> on_wait = {});
  ~DistributedDataParallelBase();
  DistributedDataParallelBase(const DistributedDataParallelBase&) = delete;
  DistributedDataParallelBase& operator=(const DistributedDataParallelBase&) = delete;

  // ---- a step with the loss at hand ----

  // Runs `compute_loss`, which calls the module's forward, and returns its loss (a scalar).
  at::Tensor forward(const std::function<at::Tensor()>& compute_loss);

  // Runs the backward pass from the loss of the last forward(). Afterwards the gradients are the mean over the ranks of
  // the mean over each rank's batch; under NoSync this rank's gradients are accumulated locally. Throws an
  // ErrorException (common/error.h) with kConfig if a parameter was not used and find_unused_parameters is off.
  void backward(const at::Tensor& loss);

  // ---- a step whose program calls backward() on any function of the outputs ----

  // begin_forward() precedes the module's forward pass, and end_forward() follows it with the tensors of its output.
  // The gradients are then averaged during the backward pass from any function of `outputs`, as after
  // torch.nn.parallel.DistributedDataParallel.forward(). Without gradients (at::NoGradGuard) only buffers are
  // broadcast. begin_forward() throws an ErrorException with kConfig if the last backward pass did not use all
  // parameters and find_unused_parameters is off. With it, end_forward() replaces the tensors by equal ones, so that
  // the loss need not depend on all of them; it always replaces parameters and inputs that the module returns. The
  // object must outlive the backward pass.
  void begin_forward();
  void end_forward(const std::vector<at::Tensor*>& outputs);

  // Accumulates gradients locally while in scope, as no_sync() of distributed.py. It must cover the forward as well as
  // the backward pass.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallelBase& model) : model_(model), previous_(model.synchronize_) {
      model.synchronize_ = false;
    }
    ~NoSync() { model_.synchronize_ = previous_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallelBase& model_;
    bool previous_;
  };

  // Replaces the all-reduce of the gradients by `hook`, as register_comm_hook() of distributed.py. Called by all ranks
  // before the first forward(). Throws an ErrorException with kConfig after it, or if options.comm_hook or another hook
  // is set. Has no effect in a group of one rank.
  void register_comm_hook(CommHookFunction hook);

  // Calls `steps`, in which the ranks may call forward() different numbers of times, as join() of distributed.py:
  // DistributedDataParallel::join() describes it. (distributed_data_parallel_join.cc)
  void run_with_uneven_inputs(const std::function<void()>& steps, const JoinOptions& options);

  // Broadcasts the parameters and buffers of the rank `source`; or its buffers alone (running statistics), before an
  // evaluation.
  void broadcast_state(int source = 0);
  void broadcast_buffers(int source = 0);

  void zero_grad();

  // From now on every optimizer step after a synchronized backward pass must be reported by finish_step(). `skipped` is
  // a float32 scalar on the device. If it is not 0, the step was skipped, and the state of the communication hook is
  // reset to its value before the step.
  void enable_skipped_steps();
  void finish_step(const at::Tensor& skipped);

  // ---- recovery without a checkpoint (docs/recovery-engine.md) ----

  // From now on all ranks have the same buffers after every synchronized backward pass: synchronize_buffers(), which
  // follows it, replaces the broadcast before the next forward pass. The values and the number of collectives are the
  // same.
  void broadcast_buffers_after_backward() { buffers_after_backward_ = true; }
  void synchronize_buffers();

  // Returns why the state cannot be transferred to a rank that replaces a lost one; empty if it can.
  std::string recovery_obstacle() const;

  // Releases everything that uses the group: the reducer with its buckets, the gradients, and the shared memory. Called
  // before the group is destroyed, also if join() was not called or has failed. `steps_completed` states whether a
  // backward pass of all ranks was completed since create() or join().
  void leave(bool steps_completed);
  // Returns the state that another rank needs to call join(), as JSON. Called after leave().
  std::string state_for_joining() const;
  // Called by all ranks of a new group, with the same state, once their parameters and buffers are equal. If the state
  // is of a group with another number of ranks, the buckets are built as in a new run. If another rank is lost before
  // the first step is complete, state_for_joining() returns `state` after leave(false).
  Result<void> join(const std::string& state);

  // Returns why a group with another number of ranks cannot train this model; empty if it can.
  std::string resize_obstacle(int world_size) const;
  // Sets whether the gradients may be averaged in shared memory from the next join() on.
  void allow_shared_memory(bool allowed) { config_.shared_memory = allowed; }

  // ---- the checkpoint's section on gradient reduction (reducer.h) ----

  // Called by all ranks between two steps, before reduction_state().
  void synchronize_reduction_state();
  // Called by rank 0, or by all ranks if is_reduction_state_collective(). After leave(), the state with which a group
  // of the same size continues.
  ReductionState reduction_state() const;
  // Whether reduction_state() is complete after leave(). It is not after the first step of a new run, because the other
  // ranks take part in the choice of the buckets for the second one.
  bool is_reduction_state_known() const;
  // Whether the state includes tensors that only the other ranks have.
  bool is_reduction_state_collective() const;
  // Called on rank 0. Removes the parts of `saved`, which a run of `world_size` ranks wrote, that this run cannot load.
  // Returns why PowerSGD starts without its state, or an empty string.
  std::string drop_incompatible_state(ReductionState& saved, int world_size) const;
  // Called by all ranks before the first forward(), with the result of drop_incompatible_state(); the tensors are
  // needed on rank 0 only.
  void load_reduction_state(const ReductionState& saved);

  torch::nn::Module& module() { return *module_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  std::vector<NamedTensor> buffers() const { return unique_buffers(*module_); }
  GradientTraffic traffic() const { return traffic_; }
  // Whether gradients are averaged in memory that the ranks share instead of by the group's backend.
  bool uses_shared_memory() const;

 private:
  // The state of run_with_uneven_inputs().
  struct Join {
    JoinOptions options;
    int active_ranks = 0;  // number of ranks that take part in the last step
    int highest_rank = 0;  // the highest of these ranks
  };

  DistributedDataParallelBase(std::shared_ptr<torch::nn::Module> module, const ProcessGroup& group,
                              const DdpOptions& config, std::function<void()> on_wait);
  Result<void> verify_against_rank_0() const;
  std::string first_sparse_parameter() const;  // empty if there is none
  std::vector<NamedTensor> trainable_parameters() const;
  std::vector<std::vector<size_t>> initial_buckets(const std::vector<at::Tensor>& trainable,
                                                   const std::vector<bool>& sparse) const;
  Result<void> check_uneven_inputs(const JoinOptions& options) const;
  int gradient_divisor() const;
  void open_shared_memory();
  void build_reducer(const ReducerState* saved = nullptr);
  void rebuild_buckets();
  bool records_graph() const { return config_.static_graph && !delayed_reduction_queued_; }
  void prepare_for_backward(const std::vector<at::Tensor>& outputs);
  void collect_gradients();
  void on_local_gradients_ready();
  void check_all_reduced() const;
  void announce_step(bool has_gradients);
  void shadow_step(bool has_gradients, bool synchronizes);

  std::shared_ptr<torch::nn::Module> module_;
  const ProcessGroup& group_;
  DdpOptions config_;
  std::function<void()> on_wait_;
  std::vector<NamedTensor> parameters_;
  std::shared_ptr<ResumableReducer> reducer_;  // null with one rank, or if no parameter is trainable
  std::shared_ptr<c10d::Logger> logger_;
  const std::unique_ptr<CommHookState> hook_state_;
  std::vector<ReducerState> rank_states_;  // of each rank, for a static graph once it is known
  GradientTraffic traffic_;
  bool skipping_enabled_ = false;
  bool buffers_after_backward_ = false;
  bool has_joined_ = false;            // a group, which was not left
  std::unique_ptr<LeftReducer> left_;  // with which the next reducer must begin; null: like that of a new run
  std::optional<Join> join_;           // during run_with_uneven_inputs()
  bool synchronize_ = true;
  bool synchronizing_ = false;             // whether the current forward pass is followed by a reduction
  bool is_unchecked_ = false;              // whether begin_forward() must check the last reduction
  bool sync_buffers_in_forward_ = true;    // require_forward_param_sync of distributed.py
  bool delayed_reduction_queued_ = false;  // static graph: set in the first synchronized backward pass
};

}  // namespace oarlock
