#include "trainer/data/batch.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace oarlock {
namespace {

// Returns whether no other tensor shares the memory. The fence orders later writes after the reads of former owners.
bool is_sole_owner(const at::Tensor& tensor) {
  const bool sole = tensor.use_count() == 1 && tensor.storage().use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);
  return sole;
}

bool has_capacity(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  return tensor.defined() && tensor.scalar_type() == type && tensor.storage().nbytes() >= bytes;
}

}  // namespace

at::Tensor& Batch::allocate(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor& tensor = tensors[name];
  if (!pinned && has_capacity(tensor, sizes, type) && is_sole_owner(tensor)) {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {
    tensor = at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned));
  }
  return tensor;
}

at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor out = at::empty(sizes, type);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(out.data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + out.nbytes()) / page * page;
  // This is a hint. The kernel may still use small pages.
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return out;
}

}  // namespace oarlock
