#include "trainer/distributed/comm_hook.h"

namespace oarlock {
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

std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpConfig& config, const ProcessGroup& group,
                                                        const CommHookState& state) {
  switch (config.comm_hook) {
    case CommHook::kNone:
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
