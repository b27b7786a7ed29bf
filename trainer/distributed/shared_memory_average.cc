#include "trainer/distributed/shared_memory_average.h"

#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <utility>

namespace oarlock {
namespace {

// A rank writes as much, then all meet: few meetings, and what was written is still in the caches when it is read.
constexpr size_t kSlotBytes = size_t{256} << 10;

}  // namespace

std::shared_ptr<SharedMemoryAverage> SharedMemoryAverage::open(const RankGroup& group) {
  const auto backend = group.c10d()->getBackend(c10::DeviceType::CPU);
  std::unique_ptr<SharedMemory> memory = SharedMemory::open(group, kSlotBytes, backend->getBackendOptions()->timeout);
  if (!memory) return nullptr;
  return std::shared_ptr<SharedMemoryAverage>(new SharedMemoryAverage(group, std::move(memory)));
}

SharedMemoryAverage::SharedMemoryAverage(const RankGroup& group, std::unique_ptr<SharedMemory> memory)
    : group_(group), memory_(std::move(memory)) {}

c10::intrusive_ptr<c10::ivalue::Future> SharedMemoryAverage::add(at::Tensor gradients) {
  const Bucket bucket{std::move(gradients), c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())};
  if (collects_) {
    collected_.push_back(bucket);
  } else {
    average(bucket);
  }
  return bucket.done;
}

void SharedMemoryAverage::backward_ends() {
  collects_ = false;
  for (const Bucket& bucket : std::exchange(collected_, {})) average(bucket);
}

void SharedMemoryAverage::average(const Bucket& bucket) {
  group_.count_collective();
  const at::Tensor& gradients = bucket.gradients;
  const int64_t longest = static_cast<int64_t>(memory_->slot_bytes() / gradients.itemsize());
  for (int64_t begin = 0; begin < gradients.numel(); begin += longest)
    average_part(gradients.narrow(0, begin, std::min(longest, gradients.numel() - begin)));
  bucket.done->markCompleted(gradients);
}

void SharedMemoryAverage::average_part(at::Tensor part) {
  at::Tensor own = slot(group_.rank(), part);
  at::mul_out(own, part, at::Scalar(1.0 / group_.world_size()));
  memory_->meet();
  at::add_out(part, slot(0, part), slot(1, part));
  for (int rank = 2; rank < group_.world_size(); ++rank) part.add_(slot(rank, part));
  // All have read the other slot: they have come to this meeting since.
  turn_ = (turn_ + 1) % SharedMemory::kSlots;
}

at::Tensor SharedMemoryAverage::slot(int rank, const at::Tensor& like) const {
  return at::from_blob(memory_->slot(rank, turn_).data(), like.sizes(), like.options());
}

}  // namespace oarlock
