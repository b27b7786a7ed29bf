#include "trainer/data/batch.h"

#include <ATen/ops/empty.h>

#include <atomic>

namespace oarlock {
namespace {

// Nobody but the batch can see the tensor's memory, and what others have read from it happened before.
bool is_ours_alone(const at::Tensor& tensor) {
  const bool alone = tensor.use_count() == 1 && tensor.storage().use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);
  return alone;
}

bool holds(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  return tensor.defined() && tensor.scalar_type() == type && tensor.storage().nbytes() >= bytes;
}

}  // namespace

at::Tensor& Batch::allocate(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor& tensor = tensors[name];
  if (!pinned && holds(tensor, sizes, type) && is_ours_alone(tensor)) {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {
    tensor = at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned));
  }
  return tensor;
}

}  // namespace oarlock
