// Gradients are averaged as they are, on the CPU. What DDP does without a hook, with less work for a small model: a
// bucket is divided at once instead of gradient by gradient, and a short last bucket, for which the ranks would have to
// wait, takes a shorter way. For a large model DDP's own way is better: it divides while it copies into the bucket, and
// so reads the gradients once less.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <chrono>
#include <functional>

namespace oarlock {

class AverageHook final : public c10d::CommHookInterface {
 public:
  // Whether a model with so many bytes of gradients is small.
  static bool is_for(int64_t gradient_bytes) { return gradient_bytes <= kShort; }

  // `waiting`, unless it is empty, is called before the last bucket's exchange.
  AverageHook(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void()> waiting);

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  c10::intrusive_ptr<c10::ivalue::Future> exchange(at::Tensor& bucket);

  // Beyond it the bytes count more than the rounds.
  static constexpr int64_t kShort = int64_t{1} << 20;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::function<void()> waiting_;
  bool exchanges_;
  std::chrono::milliseconds timeout_;  // the group's; of itself, Gloo waits for a send or receive without an end
  at::Tensor received_;                // kept from step to step
};

}  // namespace oarlock
