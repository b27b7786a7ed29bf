#include "trainer/device/device.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr std::chrono::microseconds kPollInterval(50);

int device_index(const DeviceRequest& request, const LocalRank& local, const CudaDevices& devices) {
  if (!request.gpu_ids.empty()) return static_cast<int>(request.gpu_ids[static_cast<size_t>(local.rank)]);
  return local.has_own_devices && devices.visible < local.world_size ? 0 : local.rank;
}

// Whether the machine has the device, but CUDA does not show it.
bool is_lost(int index, const CudaDevices& devices) {
  return devices.in_build && devices.has_driver && !devices.is_filtered && index >= devices.visible &&
         index < devices.files;
}

std::string lost_device_text(int index, const LocalRank& local, const CudaDevices& devices) {
  return fmt::format(
      "local rank {} of {} needs CUDA device {}, but CUDA shows {} of the {} GPUs of this machine: a GPU or its driver "
      "failed",
      local.rank, local.world_size, index, devices.visible, devices.files);
}

// Returns why the rank cannot use CUDA device `index`, or nullopt if it can.
std::optional<Error> cuda_problem(const DeviceRequest& request, const LocalRank& local, int index,
                                  const CudaDevices& devices) {
  const auto unavailable = [](std::string message) { return Error{ExitCode::kUnavailable, std::move(message)}; };
  if (!devices.in_build)
    return unavailable("device: cuda is not in this build; use device: cpu, or a build with -DOARLOCK_CUDA=ON");
  if (is_lost(index, devices)) {
    return Error{ExitCode::kDeviceFailed,
                 lost_device_text(index, local, devices) +
                     "; look for Xid lines in the node's kernel log, and drain the node if it fails again"};
  }
  if (devices.visible == 0) {
    return unavailable(
        "device: cuda, but this machine shows no CUDA device; check the driver and CUDA_VISIBLE_DEVICES, or use "
        "device: cpu");
  }
  if (index < devices.visible) return std::nullopt;
  if (!request.gpu_ids.empty()) {
    return unavailable(
        fmt::format("gpu_ids: [{}] gives local rank {} the device {}, but {} are visible, numbered from 0 (after "
                    "CUDA_VISIBLE_DEVICES); correct gpu_ids",
                    fmt::join(request.gpu_ids, ", "), local.rank, index, devices.visible));
  }
  return unavailable(
      fmt::format("local rank {} of {} has no CUDA device: {} visible; start at most {} ranks on this node, or use "
                  "device: cpu",
                  local.rank, local.world_size, devices.visible, devices.visible));
}

}  // namespace

Result<DeviceChoice> choose_device(const DeviceRequest& request, const LocalRank& local, const CudaDevices& devices) {
  if (request.kind == DeviceKind::kCpu) return DeviceChoice{};
  const bool has_gpu_ids = !request.gpu_ids.empty();
  RETURN_IF_ERROR(check_gpu_ids(request.gpu_ids, local.world_size));
  const bool cuda_required = request.kind == DeviceKind::kCuda || has_gpu_ids;
  const int index = device_index(request, local, devices);
  if (!cuda_required && devices.visible == 0) {
    if (is_lost(index, devices)) {
      return DeviceChoice{.cuda = std::nullopt,
                          .warning = lost_device_text(index, local, devices) + ": training on the CPU",
                          .has_lost_gpu = true};
    }
    return DeviceChoice{std::nullopt, devices.in_build ? "no CUDA device is visible: training on the CPU" : ""};
  }
  std::optional<Error> problem = cuda_problem(request, local, index, devices);
  if (!problem) return DeviceChoice{index, ""};
  if (request.fallback == Fallback::kNone) return tl::make_unexpected(*std::move(problem));
  return DeviceChoice{std::nullopt,
                      fmt::format("{}; distributed.fallback: cpu: training on the CPU", problem->message)};
}

int count_device_files(const std::filesystem::path& directory) {
  int count = 0;
  visit_directory(directory, [&](const std::filesystem::path& path) {
    constexpr std::string_view kPrefix = "nvidia";
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix)) return;
    const std::string number = name.substr(kPrefix.size());
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return;
    const FileDescriptor device(::open(path.c_str(), O_RDWR | O_CLOEXEC));  // fails with EIO or ENODEV if it is lost
    if (device.open() || (errno != EPERM && errno != EACCES)) ++count;
  });
  return count;
}

Result<SelectedDevice> select_device(const DeviceRequest& request, const LocalRank& local) {
  CudaDevices devices;
  if (request.kind != DeviceKind::kCpu) devices = cuda_devices();
  if (devices.in_build) {
    devices.is_filtered = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
    devices.files = count_device_files("/dev");
  }
  ASSIGN_OR_RETURN(const DeviceChoice choice, choose_device(request, local, devices));
  if (!choice.cuda) return SelectedDevice{c10::kCPU, choice.warning, choice.has_lost_gpu};
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

Error with_location(Error error, const std::string& host, c10::Device device) {
  if (error.code != ExitCode::kDeviceFailed) return error;
  const std::string cuda = device.is_cuda() ? ", " + device.str() : "";
  return {error.code, fmt::format("host {}{}: {}", host, cuda, error.message)};
}

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
