// The device that a rank trains on: selection, configuration, synchronization, memory statistics and peak
// throughput. device.cc is independent of CUDA; device_cuda.cc or no_cuda.cc is selected by OARLOCK_CUDA.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/config/config.h"

namespace oarlock {

// ---- selection ----

struct DeviceRequest {
  DeviceKind kind = DeviceKind::kAuto;
  std::vector<int64_t> gpu_ids{};  // indexed by local rank; indices among the visible devices. Empty: 0, 1, 2, ...
  Fallback fallback = Fallback::kNone;
};

// This rank on its node.
struct LocalRank {
  int rank = 0;
  int world_size = 1;
  bool has_own_devices = false;  // only its own devices are visible to each rank: srun --gpus-per-task
};

// CUDA support of the build and the machine.
struct CudaDevices {
  bool in_build = false;
  bool has_driver = true;    // a driver is installed and new enough for the build
  bool is_filtered = false;  // CUDA_VISIBLE_DEVICES is set
  int visible = 0;           // after CUDA_VISIBLE_DEVICES
  int files = 0;             // of count_device_files()
};

struct DeviceChoice {
  std::optional<int> cuda;    // index among the visible devices; nullopt for the CPU
  std::string warning;        // for the log; set if the request could not be met
  bool has_lost_gpu = false;  // DeviceKind::kAuto selected the CPU because a GPU or its driver failed
};

// Local rank n uses device n. If fewer devices are visible than the node has ranks, and each rank has its own ones,
// it takes device 0. DeviceKind::kAuto selects CUDA if the build and the machine support it, otherwise the CPU. Fails
// with kUnavailable if CUDA was requested but is not available, or if there are fewer devices than ranks; with
// kDeviceFailed if the machine has a file for the device, but CUDA does not show it. With Fallback::kCpu selects the
// CPU with a warning instead. kConfig if gpu_ids has fewer entries than the node has ranks. Pure.
Result<DeviceChoice> choose_device(const DeviceRequest& request, const LocalRank& local, const CudaDevices& devices);

struct SelectedDevice {
  c10::Device device = c10::kCPU;
  std::string warning;  // for the log; empty if there is none
  bool has_lost_gpu = false;
};

// Applies choose_device() to this machine, and makes the device current.
Result<SelectedDevice> select_device(const DeviceRequest& request, const LocalRank& local);

// Returns the CUDA devices that are visible to this process, without `is_filtered` and `files`. Throws c10::Error if a
// device or its driver has failed, but not if there is no device.
CudaDevices cuda_devices();

// Number of NVIDIA's device files in a directory (nvidia0, nvidia1, ...) that this process may open. A batch system may
// deny access to the devices of other jobs.
int count_device_files(const std::filesystem::path& directory);

void make_current(int cuda_index);

// ---- configuration ----

// Applies the section "cuda" to this process. Must be called on the training thread, before the model is built. With
// cuda.graphs the thread's current stream becomes a side stream, because a step must be captured on the stream on which
// the gradient hooks were created. kConfig if a setting needs a CUDA device.
Result<void> configure_device(const CudaConfig& config, c10::Device device);

// The part of configure_device() that sets LibTorch's global switches, with and without CUDA.
void apply_global_settings(const CudaConfig& config);

// ---- synchronization ----

using DeviceTimeout = std::optional<std::chrono::milliseconds>;  // nullopt: no limit

// Blocks until the device has finished all work on its current stream. Throws c10::DistBackendError after `timeout`:
// the collective of a replayed CUDA graph may wait for a lost rank, which NCCL's watchdog cannot detect. Returns
// immediately on the CPU.
void synchronize_device(c10::Device device, DeviceTimeout timeout);

// Polls is_done() until it returns true. Throws c10::DistBackendError after `timeout`.
void poll_until(const std::function<bool()>& is_done, DeviceTimeout timeout);

// ---- information ----

struct DeviceMemory {
  int64_t allocated_bytes = 0;  // by tensors
  int64_t reserved_bytes = 0;   // by LibTorch's caching allocator, including its cache
  int64_t peak_bytes = 0;       // highest allocated_bytes since the start of the process
  int64_t limit_bytes = 0;      // cuda.memory_fraction of the device's memory
  int64_t retries = 0;          // allocations that succeeded only after the cache was released
  int64_t out_of_memory = 0;    // allocations that failed
};

// nullopt on the CPU. Inexpensive: queries LibTorch's allocator, not the device.
std::optional<DeviceMemory> device_memory(c10::Device device);

// The name that CUDA reports; empty on the CPU.
std::string device_name(c10::Device device);

// Adds the host, and the CUDA device if there is one, to the message of kDeviceFailed. Returns other errors unchanged.
// Pure.
Error with_location(Error error, const std::string& host, c10::Device device);

struct DeviceVersions {
  std::string cuda;  // empty in a build without CUDA
  std::string nccl;
};
DeviceVersions device_versions();

enum class MatmulPrecision { kFloat32, kTf32, kHalf };  // kHalf: float16 or bfloat16

// Peak throughput according to the data sheet, which is the denominator of the model FLOPs utilization (MFU):
// floating-point operations per second of dense matrix products, with tensor cores if they support the precision.
// `device` is the name that CUDA reports, such as "NVIDIA H100 80GB HBM3". nullopt for an unknown device. Pure.
std::optional<double> peak_flops(std::string_view device, MatmulPrecision precision);

}  // namespace oarlock
