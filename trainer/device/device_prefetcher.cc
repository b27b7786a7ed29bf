#include "trainer/device/device_prefetcher.h"

#include <utility>

#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

class CpuPrefetcher final : public DevicePrefetcher {
 public:
  CpuPrefetcher(BatchSource source, const PrefetchOptions& options) : source_(std::move(source)), options_(options) {}

  std::optional<Batch> next() override {
    std::optional<Batch> batch = source_();
    if (batch && options_.channels_last) {
      for (auto& [name, tensor] : batch->tensors) tensor = channels_last(tensor);
    }
    return batch;
  }

 private:
  BatchSource source_;
  PrefetchOptions options_;
};

}  // namespace

std::unique_ptr<DevicePrefetcher> make_cpu_prefetcher(BatchSource source, const PrefetchOptions& options) {
  return std::make_unique<CpuPrefetcher>(std::move(source), options);
}

Batch to_device(Batch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  for (auto& [name, tensor] : batch.tensors) tensor = tensor.to(device, /*non_blocking=*/true);
  return batch;
}

}  // namespace oarlock
