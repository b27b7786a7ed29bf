// Gradients are averaged as they are, on the CPU. What DDP does without a hook, with less work for small buckets:
// a bucket is divided at once instead of gradient by gradient, and a short last bucket, for which the ranks would have
// to wait, takes a shorter way.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <chrono>

namespace oarlock {

class AverageHook final : public c10d::CommHookInterface {
 public:
  explicit AverageHook(c10::intrusive_ptr<c10d::ProcessGroup> group);

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  c10::intrusive_ptr<c10::ivalue::Future> exchange(at::Tensor& bucket);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  bool exchanges_;
  std::chrono::milliseconds timeout_;  // the group's; of itself, Gloo waits for a send or receive without an end
  at::Tensor received_;                // kept from step to step
};

}  // namespace oarlock
