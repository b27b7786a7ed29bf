// Replaces the *_cuda.cc files in a build without OARLOCK_CUDA.
#include "trainer/device/device.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/device/step_graph.h"

namespace oarlock {
namespace {

constexpr char kNoGraphs[] = "cuda.graphs is not in this build; remove it, or use a build with -DOARLOCK_CUDA=ON";

}  // namespace

CudaDevices cuda_devices() { return {}; }

void make_current(int) {}

Result<void> configure_device(const CudaConfig& config, c10::Device) {
  if (config.graphs) return fail(ExitCode::kConfig, kNoGraphs);
  apply_global_settings(config);
  return {};
}

void synchronize_device(c10::Device, DeviceTimeout) {}

std::optional<DeviceMemory> device_memory(c10::Device) { return std::nullopt; }

std::string device_name(c10::Device) { return ""; }

DeviceVersions device_versions() { return {}; }

std::unique_ptr<DevicePrefetcher> make_device_prefetcher(BatchSource source, at::Device,
                                                         const PrefetchOptions& options) {
  return make_cpu_prefetcher(std::move(source), options);
}

Result<std::unique_ptr<StepGraph>> make_step_graph(at::Device, const Logger&, const StepGraphOptions&) {
  return fail(ExitCode::kUnavailable, kNoGraphs);
}

}  // namespace oarlock
