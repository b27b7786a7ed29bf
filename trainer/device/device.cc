#include "trainer/device/device.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr std::chrono::microseconds kPollInterval(50);

int device_index(const DeviceRequest& request, const LocalRank& local, const CudaDevices& devices) {
  if (!request.gpu_ids.empty()) return static_cast<int>(request.gpu_ids[static_cast<size_t>(local.rank)]);
  return local.has_own_devices && devices.visible < local.world_size ? 0 : local.rank;
}

// Returns why the rank cannot use CUDA device `index`, or nullopt if it can.
std::optional<std::string> cuda_problem(const DeviceRequest& request, const LocalRank& local, int index,
                                        const CudaDevices& devices) {
  if (!devices.in_build) return "device: cuda is not in this build; use device: cpu, or a build with -DOARLOCK_CUDA=ON";
  if (devices.visible == 0) {
    return "device: cuda, but this machine shows no CUDA device; check the driver and CUDA_VISIBLE_DEVICES, or use "
           "device: cpu";
  }
  if (index < devices.visible) return std::nullopt;
  if (!request.gpu_ids.empty()) {
    return fmt::format(
        "gpu_ids: [{}] gives local rank {} the device {}, but {} are visible, numbered from 0 (after "
        "CUDA_VISIBLE_DEVICES); correct gpu_ids",
        fmt::join(request.gpu_ids, ", "), local.rank, index, devices.visible);
  }
  return fmt::format(
      "local rank {} of {} has no CUDA device: {} visible; start at most {} ranks on this node, or use "
      "device: cpu",
      local.rank, local.world_size, devices.visible, devices.visible);
}

}  // namespace

Result<DeviceChoice> choose_device(const DeviceRequest& request, const LocalRank& local, const CudaDevices& devices) {
  if (request.kind == DeviceKind::kCpu) return DeviceChoice{};
  const bool has_gpu_ids = !request.gpu_ids.empty();
  RETURN_IF_ERROR(check_gpu_ids(request.gpu_ids, local.world_size));
  const bool cuda_required = request.kind == DeviceKind::kCuda || has_gpu_ids;
  if (!cuda_required && devices.visible == 0) {
    return DeviceChoice{std::nullopt, devices.in_build ? "no CUDA device is visible: training on the CPU" : ""};
  }
  const int index = device_index(request, local, devices);
  const std::optional<std::string> problem = cuda_problem(request, local, index, devices);
  if (!problem) return DeviceChoice{index, ""};
  if (request.fallback == Fallback::kNone) return fail(ExitCode::kUnavailable, *problem);
  return DeviceChoice{std::nullopt, fmt::format("{}; distributed.fallback: cpu: training on the CPU", *problem)};
}

Result<SelectedDevice> select_device(const DeviceRequest& request, const LocalRank& local) {
  const CudaDevices devices = request.kind == DeviceKind::kCpu ? CudaDevices{} : cuda_devices();
  ASSIGN_OR_RETURN(const DeviceChoice choice, choose_device(request, local, devices));
  if (!choice.cuda) return SelectedDevice{c10::kCPU, choice.warning};
  make_current(*choice.cuda);
  return SelectedDevice{c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*choice.cuda)), choice.warning};
}

void apply_global_settings(const CudaConfig& config) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(config.tf32);
  context.setAllowTF32CuDNN(config.tf32);
  context.setBenchmarkCuDNN(config.cudnn_benchmark);
  if (!config.deterministic) return;
  // cuBLAS is deterministic only with a workspace of fixed size, which it reads from this variable when its handle is
  // created.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  context.setDeterministicCuDNN(true);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // the trainer never reads uninitialized memory
}

void poll_until(const std::function<bool()>& is_done, DeviceTimeout timeout) {
  const auto begin = std::chrono::steady_clock::now();
  while (!is_done()) {
    TORCH_CHECK_WITH(DistBackendError, !timeout || std::chrono::steady_clock::now() - begin < *timeout,
                     "the device did not finish a step within ", static_cast<double>(timeout->count()) / 1000,
                     " s, the timeout of a collective");
    std::this_thread::sleep_for(kPollInterval);
  }
}

namespace {

constexpr double kTera = 1e12;

struct DataSheet {
  std::string_view part;  // a word of the device's name; the first match counts
  double float32;
  double tf32;  // equals float32 if the device has no TF32
  double half;
};

// From NVIDIA's data sheets, without sparsity.
constexpr std::array<DataSheet, 10> kDataSheets = {{
    {"H200", 66.9 * kTera, 494.7 * kTera, 989.4 * kTera},
    {"H100 PCIe", 51.2 * kTera, 378 * kTera, 756 * kTera},
    {"H100", 66.9 * kTera, 494.7 * kTera, 989.4 * kTera},
    {"A100", 19.5 * kTera, 156 * kTera, 312 * kTera},
    {"L40S", 91.6 * kTera, 183 * kTera, 362 * kTera},
    {"L4", 30.3 * kTera, 60 * kTera, 121 * kTera},
    {"A10G", 31.2 * kTera, 35 * kTera, 70 * kTera},
    {"A10", 31.2 * kTera, 62.5 * kTera, 125 * kTera},
    {"V100", 15.7 * kTera, 15.7 * kTera, 125 * kTera},
    {"T4", 8.1 * kTera, 8.1 * kTera, 65 * kTera},
}};

// Matches whole words only: "L4" does not match "NVIDIA L40".
bool contains_word(std::string_view device, std::string_view part) {
  const size_t at = device.find(part);
  if (at == std::string_view::npos) return false;
  const size_t end = at + part.size();
  return end == device.size() || device[end] == ' ' || device[end] == '-';
}

}  // namespace

std::optional<double> peak_flops(std::string_view device, MatmulPrecision precision) {
  for (const DataSheet& sheet : kDataSheets) {
    if (!contains_word(device, sheet.part)) continue;
    switch (precision) {
      case MatmulPrecision::kFloat32:
        return sheet.float32;
      case MatmulPrecision::kTf32:
        return sheet.tf32;
      case MatmulPrecision::kHalf:
        return sheet.half;
    }
  }
  return std::nullopt;
}

}  // namespace oarlock
