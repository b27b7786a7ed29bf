// Counts the floating-point operations of LibTorch from the shapes, as torch.utils.flop_counter does: two for each
// multiply-add of matrix products, convolutions and attention. Element-wise operations are not counted.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace oarlock {

// Counts the operations of this thread during its lifetime. A thread can have one counter at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  int64_t flops() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace oarlock
