#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include "trainer/device/device.h"

namespace oarlock {

CudaDevices cuda_devices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const bool has_driver = error != cudaErrorInsufficientDriver && error != cudaErrorStubLibrary;
  TORCH_CHECK(error == cudaSuccess || error == cudaErrorNoDevice || !has_driver,
              "CUDA error: ", cudaGetErrorString(error));
  return {.in_build = true, .has_driver = has_driver, .visible = error == cudaSuccess ? count : 0};
}

void make_current(int cuda_index) { c10::cuda::set_device(static_cast<c10::DeviceIndex>(cuda_index)); }

Result<void> configure_device(const CudaConfig& config, c10::Device device) {
  if (config.graphs && !device.is_cuda()) {
    return fail(ExitCode::kConfig, "cuda.graphs needs a CUDA device; remove it, or use device: cuda");
  }
  apply_global_settings(config);
  if (!device.is_cuda()) return {};
  at::globalContext().lazyInitDevice(at::kCUDA);  // initializes the allocator
  c10::cuda::CUDACachingAllocator::setMemoryFraction(config.memory_fraction, device.index());
  if (config.graphs)
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  return {};
}

void synchronize_device(c10::Device device, DeviceTimeout timeout) {
  if (!device.is_cuda()) return;
  at::cuda::CUDAEvent done;
  done.record(c10::cuda::getCurrentCUDAStream(device.index()));
  poll_until([&] { return done.query(); }, timeout);
}

std::optional<DeviceMemory> device_memory(c10::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const double fraction = c10::cuda::CUDACachingAllocator::getMemoryFraction(device.index());
  const auto whole = static_cast<double>(at::cuda::getDeviceProperties(device.index())->totalGlobalMem);
  return DeviceMemory{.allocated_bytes = stats.allocated_bytes[kAll].current,
                      .reserved_bytes = stats.reserved_bytes[kAll].current,
                      .peak_bytes = stats.allocated_bytes[kAll].peak,
                      .limit_bytes = static_cast<int64_t>(fraction * whole),
                      .retries = stats.num_alloc_retries,
                      .out_of_memory = stats.num_ooms};
}

std::string device_name(c10::Device device) {
  return device.is_cuda() ? at::cuda::getDeviceProperties(device.index())->name : "";
}

DeviceVersions device_versions() {
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
  return {fmt::format("{}.{}", runtime / 1000, runtime % 1000 / 10),
          fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)};
}

}  // namespace oarlock
