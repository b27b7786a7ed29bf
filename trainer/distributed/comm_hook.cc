#include "trainer/distributed/comm_hook.h"

#include "trainer/distributed/average_hook.h"
#include "trainer/distributed/powersgd.h"

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

class SharedMemoryHook final : public c10d::CommHookInterface {
 public:
  explicit SharedMemoryHook(std::shared_ptr<SharedMemoryAverage> averaging) : averaging_(std::move(averaging)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return averaging_->add(bucket.getBuffer());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  std::shared_ptr<SharedMemoryAverage> averaging_;
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpConfig& config, const HookParts& parts) {
  const c10::intrusive_ptr<c10d::ProcessGroup>& group = parts.group.c10d();
  switch (config.comm_hook) {
    case CommHook::kNone:
      if (parts.averaging) return std::make_unique<SharedMemoryHook>(parts.averaging);
      if (parts.group.device().is_cuda() || !AverageHook::is_for(parts.gradient_bytes)) return nullptr;
      return std::make_unique<AverageHook>(group, parts.waiting);
    case CommHook::kFp16:
      return std::make_unique<CompressHook>(at::kHalf, group);
    case CommHook::kBf16:
      return std::make_unique<CompressHook>(at::kBFloat16, group);
    case CommHook::kPowerSgd:
      return std::make_unique<PowerSgdHook>(parts.powersgd, group);
  }
  return nullptr;
}

}  // namespace oarlock
