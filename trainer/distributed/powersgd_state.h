// What PowerSGD keeps from one step to the next, as PowerSGDState of
// torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "trainer/config/ddp.h"
#include "trainer/distributed/process_group.h"

namespace oarlock {

class PowerSgdState {
 public:
  // Of one bucket, flat, so that one collective takes all of its matrices.
  struct Factors {
    at::Tensor p;  // may be undefined: written anew in every step
    at::Tensor q;
  };

  explicit PowerSgdState(const PowerSgdConfig& config);

  // As when training began.
  void forget();

  // What is kept by bucket is of buckets that are no more.
  void buckets_changed();

  // ---- steps that may be skipped ----

  // From now on every step is followed by settle().
  void allow_skipped_steps() { may_skip_ = true; }

  // Called by the hook before it replaces a bucket's error or factors, with what they were; an undefined tensor stands
  // for zeros. Only the first call of a step counts. Does nothing where no step may be skipped.
  void keep_error(size_t bucket);
  void keep_factor(size_t bucket);

  // After the step's update. `skipped` is a float32 scalar on the gradients' device; where it is not 0, the errors and
  // factors become again what they were before the step: what a value that is not finite left there would never
  // disappear. Does not wait for a CUDA device.
  void settle(const at::Tensor& skipped);

  // Of random factors; the same on all ranks.
  uint64_t next_seed();

  // All but the tensors; the same on all ranks.
  nlohmann::json values() const;
  // Empty, or why `values` of another process's state cannot be taken over.
  std::string misfit(const nlohmann::json& values, const std::map<std::string, at::Tensor>& tensors,
                     int world_size) const;

  // Both are called by all ranks. save() gives rank 0 the tensors of all of them, in host memory and by name; nobody
  // writes to them. restore() takes them from rank 0; `like` has the type and device of each bucket.
  std::map<std::string, at::Tensor> save(const RankGroup& group) const;
  void restore(const nlohmann::json& values, const std::map<std::string, at::Tensor>& tensors, const RankGroup& group,
               const std::vector<at::TensorOptions>& like);

  const PowerSgdConfig config;
  int64_t iteration = 0;
  std::map<size_t, at::Tensor> errors;  // by bucket, this rank's own; replaced in every step, never written to
  std::map<size_t, Factors> factors;    // by bucket, the same on all ranks

 private:
  std::mt19937 random_;  // numpy.random.RandomState's generator
  uint64_t draws_ = 0;   // from it
  bool may_skip_ = false;
  std::map<size_t, at::Tensor> errors_before_;   // the step under way, by bucket
  std::map<size_t, at::Tensor> factors_before_;  // q, copied
};

}  // namespace oarlock
