// Floating-point operations of what LibTorch computes, counted from the shapes as torch.utils.flop_counter does: two
// for each multiply-add of matrix products, convolutions and attention; what is done element by element does not count.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>

namespace oarlock {

// Counts what this thread computes while it lives. One at a time on a thread.
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
