#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include "trainer/device/device.h"
#include "trainer/device/settings.h"

namespace oarlock {

Result<c10::Device> select_device(DeviceKind kind, int local_rank, int local_world_size) {
  if (kind == DeviceKind::kCpu) return c10::Device(c10::kCPU);
  const int count = c10::cuda::device_count();
  if (count == 0) {
    if (kind == DeviceKind::kAuto) return c10::Device(c10::kCPU);
    return fail(ExitCode::kUnavailable,
                "device: cuda, but this machine shows no CUDA device; check the driver and CUDA_VISIBLE_DEVICES, or "
                "use device: cpu");
  }
  if (local_rank >= count) {
    return fail(ExitCode::kUnavailable, fmt::format("local rank {} of {} has no CUDA device: {} visible; start at most "
                                                    "{} ranks on this node, or use device: cpu",
                                                    local_rank, local_world_size, count, count));
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(local_rank));
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
}

Result<void> configure_device(const CudaConfig& config, c10::Device device) {
  if (config.graphs && !device.is_cuda()) {
    return fail(ExitCode::kConfig, "cuda.graphs needs a CUDA device; remove it, or use device: cuda");
  }
  apply_global_settings(config);
  if (!device.is_cuda()) return {};
  at::globalContext().lazyInitDevice(at::kCUDA);  // the allocator must know its devices
  c10::cuda::CUDACachingAllocator::setMemoryFraction(config.memory_fraction, device.index());
  if (config.graphs)
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  return {};
}

std::optional<DeviceMemory> device_memory(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return DeviceMemory{stats.allocated_bytes[kAll].current, stats.reserved_bytes[kAll].current,
                      stats.allocated_bytes[kAll].peak};
}

DeviceVersions device_versions() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  return {fmt::format("{}.{}", runtime / 1000, runtime % 1000 / 10),
          fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)};
}

}  // namespace oarlock
