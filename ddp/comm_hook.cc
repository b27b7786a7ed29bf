#include "ddp/comm_hook.h"

#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace oarlock {
namespace {

// The size of a chunk between two barriers: large enough for few barriers, small enough that the data is still in the
// caches when the other ranks read it.
constexpr size_t kSlotBytes = size_t{256} << 10;

}  // namespace

std::shared_ptr<SharedMemoryState> SharedMemoryState::open(const ProcessGroup& group) {
  const auto backend = group.c10d()->getBackend(c10::DeviceType::CPU);
  std::unique_ptr<SharedMemory> memory = SharedMemory::open(group, kSlotBytes, backend->getBackendOptions()->timeout);
  if (!memory) return nullptr;
  return std::shared_ptr<SharedMemoryState>(new SharedMemoryState(group, std::move(memory)));
}

SharedMemoryState::SharedMemoryState(const ProcessGroup& group, std::unique_ptr<SharedMemory> memory)
    : group_(group), memory_(std::move(memory)), divisor_(group.world_size()) {}

void SharedMemoryState::begin_backward() {
  collecting_ = true;
  backward_pass_ = torch::autograd::get_current_graph_task_id();
}

c10::intrusive_ptr<c10::ivalue::Future> SharedMemoryState::average(at::Tensor gradients, bool is_last) {
  const Bucket bucket{std::move(gradients), c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get())};
  if (collecting_) {
    collected_.push_back(bucket);
    if (is_last && torch::autograd::get_current_graph_task_id() != backward_pass_) finish_backward();
  } else {
    average_bucket(bucket);
  }
  return bucket.done;
}

void SharedMemoryState::finish_backward() {
  collecting_ = false;
  for (const Bucket& bucket : std::exchange(collected_, {})) average_bucket(bucket);
}

void SharedMemoryState::average_bucket(const Bucket& bucket) {
  group_.count_collective();
  const at::Tensor& gradients = bucket.gradients;
  const int64_t chunk_size = static_cast<int64_t>(memory_->slot_bytes() / gradients.itemsize());
  for (int64_t begin = 0; begin < gradients.numel(); begin += chunk_size)
    average_chunk(gradients.narrow(0, begin, std::min(chunk_size, gradients.numel() - begin)));
  bucket.done->markCompleted(gradients);
}

void SharedMemoryState::average_chunk(at::Tensor chunk) {
  at::Tensor own = slot(group_.rank(), chunk);
  at::mul_out(own, chunk, at::Scalar(1.0 / divisor_));
  memory_->barrier();
  at::add_out(chunk, slot(0, chunk), slot(1, chunk));
  for (int rank = 2; rank < group_.world_size(); ++rank) chunk.add_(slot(rank, chunk));
  // The other slot is free: every rank has passed the barrier after it read that slot.
  next_slot_ = (next_slot_ + 1) % SharedMemory::kSlots;
}

at::Tensor SharedMemoryState::slot(int rank, const at::Tensor& like) const {
  return at::from_blob(memory_->slot(rank, next_slot_).data(), like.sizes(), like.options());
}

namespace {

// fp16_compress_hook and bf16_compress_hook of torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py.
class CompressHook final : public c10d::CommHookInterface {
 public:
  CompressHook(at::ScalarType type, c10::intrusive_ptr<c10d::ProcessGroup> group)
      : type_(type), group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::Tensor& buffer = bucket.getBuffer();
    std::vector<at::Tensor> compressed = {buffer.to(type_).div_(group_->getSize())};
    const auto reduced = group_->allreduce(compressed)->getFuture();
    return reduced->then(
        [buffer](c10::ivalue::Future& future) { return c10::IValue(buffer.copy_(future.value().toTensorVector()[0])); },
        c10::TensorType::get());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  at::ScalarType type_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpOptions& config, const ProcessGroup& group,
                                                        const CommHookState& state) {
  switch (config.comm_hook) {
    case CommHook::kNone:
      if (state.user_hook) return std::make_unique<UserHook>(state.user_hook);
      if (!state.shared_memory) return nullptr;
      return std::make_unique<SharedMemoryHook>(state.shared_memory);
    case CommHook::kFp16:
      return std::make_unique<CompressHook>(at::kHalf, group.c10d());
    case CommHook::kBf16:
      return std::make_unique<CompressHook>(at::kBFloat16, group.c10d());
    case CommHook::kPowerSgd:
      return std::make_unique<PowerSgdHook>(state.powersgd, group.c10d());
  }
  return nullptr;
}

}  // namespace oarlock
