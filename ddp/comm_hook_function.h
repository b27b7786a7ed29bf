// User-defined communication hooks, as those of DistributedDataParallel.register_comm_hook() in Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <concepts>
#include <functional>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace oarlock {

// Starts the reduction of a bucket, and returns a future of the tensor, with the shape and type of bucket.getBuffer(),
// that replaces it. c10d::GradBucket (torch/csrc/distributed/c10d/comm.hpp) has the members of Python's GradBucket in
// camel case.
using CommHookFunction = std::function<c10::intrusive_ptr<c10::ivalue::Future>(c10d::GradBucket& bucket)>;

// Returns `hook`, which returns a future or a tensor, as a CommHookFunction.
template <std::invocable<c10d::GradBucket&> Hook>
CommHookFunction make_comm_hook_function(Hook hook) {
  if constexpr (std::is_convertible_v<std::invoke_result_t<Hook&, c10d::GradBucket&>, at::Tensor>) {
    return [hook = std::move(hook)](c10d::GradBucket& bucket) mutable {
      const at::Tensor reduced = hook(bucket);
      const std::vector<c10::Device> devices =
          reduced.is_cpu() ? std::vector<c10::Device>{} : std::vector<c10::Device>{reduced.device()};
      auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), devices);
      done->markCompleted(reduced);
      return done;
    };
  } else {
    return CommHookFunction(std::move(hook));
  }
}

}  // namespace oarlock
