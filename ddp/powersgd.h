// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727): the ranks exchange a gradient M as two low-rank
// factors, M ~ P Q^T. The algorithm and its state are those of powerSGD_hook and PowerSGDState in
// torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "ddp/options.h"
#include "ddp/process_group.h"

namespace oarlock {

// State that PowerSGD keeps from one step to the next. It outlives the reducer that owns the hook.
class PowerSgdState {
 public:
  // Factors of all matrices of one bucket, flattened, so that one collective reduces them together.
  struct Factors {
    at::Tensor p;  // overwritten in every step; may be undefined
    at::Tensor q;
  };

  explicit PowerSgdState(const PowerSgdOptions& config);

  // Returns to the state of a new run.
  void reset();

  // Discards the state of all buckets, because the reducer has rebuilt them.
  void discard_buckets();

  // ---- skipped steps ----

  // From now on every step must be followed by finish_step().
  void enable_skipped_steps() { skipping_enabled_ = true; }

  // Called by the hook before it replaces a bucket's error or factors, to back up the old value; an undefined tensor
  // stands for zeros. Only the first call in a step has an effect, and only after enable_skipped_steps().
  void backup_error(size_t bucket);
  void backup_factor(size_t bucket);

  // Called after the optimizer step. `skipped` is a float32 scalar on the gradients' device. If it is not 0, errors and
  // factors are reset to their values before the step, because non-finite values would never disappear from them. Does
  // not synchronize with a CUDA device.
  void finish_step(const at::Tensor& skipped);

  // The seed for random factors; the same on all ranks.
  uint64_t next_seed();

  // ---- checkpoints ----

  // The state without its tensors; the same on all ranks.
  nlohmann::json values() const;
  // Returns why a saved state cannot be loaded, or an empty string if it can.
  std::string incompatibility(const nlohmann::json& values, const std::map<std::string, at::Tensor>& tensors,
                              int world_size) const;

  // Both are called by all ranks. save() returns the tensors of all ranks on rank 0, by name and in host memory; they
  // are immutable. load() distributes them from rank 0; like[bucket] has the type and device of a bucket.
  std::map<std::string, at::Tensor> save(const ProcessGroup& group) const;
  void load(const nlohmann::json& values, const std::map<std::string, at::Tensor>& tensors, const ProcessGroup& group,
            const std::vector<at::TensorOptions>& like);

  const PowerSgdOptions config;
  int64_t iteration = 0;
  std::map<size_t, at::Tensor> errors;  // by bucket, of this rank; replaced in every step, never modified in place
  std::map<size_t, Factors> factors;    // by bucket, the same on all ranks

 private:
  std::mt19937 random_;  // the generator of numpy.random.RandomState
  uint64_t draws_ = 0;   // numbers drawn from random_
  bool skipping_enabled_ = false;
  std::map<size_t, at::Tensor> saved_errors_;   // by bucket, before the current step
  std::map<size_t, at::Tensor> saved_factors_;  // copies of q, by bucket, before the current step
};

class PowerSgdHook final : public c10d::CommHookInterface {
 public:
  // `state` belongs to the buckets of the reducer that owns this hook.
  PowerSgdHook(std::shared_ptr<PowerSgdState> state, c10::intrusive_ptr<c10d::ProcessGroup> group);

  // Blocks until the factors of the bucket are reduced. With chained futures, ranks could start their collectives in
  // different orders, and Gloo matches collectives by order.
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  struct Matrix {
    at::Tensor gradient;  // [n, m], a view of the bucket
    at::Tensor p;         // [n, rank], a view of the bucket's factors
    at::Tensor q;         // [m, rank], a view of the bucket's factors
  };

  int64_t rank_of(const at::Tensor& matrix) const;
  bool should_compress(const at::Tensor& matrix) const;
  std::vector<Matrix> allocate_factors(const std::vector<at::Tensor>& matrices, size_t bucket, bool& fresh);
  void initialize_q(const std::vector<Matrix>& matrices, bool fresh);
  void orthogonalize(const at::Tensor& matrix) const;
  void compress(c10d::GradBucket& bucket);
  void reduce_factors(const std::vector<Matrix>& matrices, PowerSgdState::Factors& factors);

  std::shared_ptr<PowerSgdState> state_;
  const PowerSgdOptions& config_;  // of the state
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace oarlock
