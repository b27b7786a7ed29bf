#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "ddp/library_errors.h"
#include "ddp/process_group.h"

namespace oarlock {
namespace {

// Shuts down as torch.distributed.destroy_process_group() does, unless the ranks have left the group. The destructor of
// ProcessGroupNCCL alone would abort, with a warning.
class NcclProcessGroup final : public c10d::ProcessGroup {
 public:
  using ProcessGroup::ProcessGroup;
  ~NcclProcessGroup() override {
    try {
      if (!*aborted_) shutdown();
    } catch (const std::exception&) {  // the ranks no longer need the group, and the process exits
    }
  }

  const std::shared_ptr<std::atomic<bool>>& aborted() const { return aborted_; }

 private:
  std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

bool is_nccl_in_build() { return true; }

void disable_nccl_watchdog_exit() {
  constexpr std::array<std::pair<const char*, const char*>, 3> kVariables = {{
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},      // does not end the process
      {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0"},  // does not sleep, as the group's destructor waits for this thread
      {"TORCH_NCCL_DUMP_ON_TIMEOUT", "0"},           // nor does the thread that watches that one end the process
  }};
  for (const auto& [name, value] : kVariables) ::setenv(name, value, /*overwrite=*/0);
}

Result<ProcessGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, const ProcessGroupOptions& options) {
  if (!options.device.is_cuda()) {
    return fail(ExitCode::kConfig, "backend nccl needs a CUDA device; use gloo on the CPU");
  }
  const auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  nccl_options->timeout = options.timeout;
  const auto prefix = c10::make_intrusive<c10d::PrefixStore>("nccl", store);
  const auto backend =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(prefix, options.rank, options.world_size, nccl_options);
  auto group = c10::make_intrusive<NcclProcessGroup>(prefix, options.rank, options.world_size);
  group->setBoundDeviceId(options.device);  // setBackend() passes it on, so that barriers know their device
  group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  group->setGroupName("ranks");
  try {
    backend->eagerConnectSingleDevice(
        options.device);  // rather than in the first collective, so that a failure names the phase
  } catch (const c10::DistBackendError& error) {
    Error reason = to_error(error.what_without_backtrace(), FaultOrigin::kCollective);
    reason.message = fmt::format("NCCL cannot connect rank {} of {} on {}: {}", options.rank, options.world_size,
                                 options.device.str(), reason.message);
    return tl::make_unexpected(std::move(reason));
  }
  // Aborts the communicators: their kernels end, and calls that wait for the device return.
  const auto abort = [backend, aborted = group->aborted()] {
    *aborted = true;
    backend->abort();
  };
  return ProcessGroup(std::move(group), options.device, abort);
}

// Every CUDA call returns an error that has corrupted the device's context.
std::string device_error() {
  const cudaError_t error = cudaStreamQuery(nullptr);
  return error == cudaSuccess || error == cudaErrorNotReady ? "" : cudaGetErrorString(error);
}

GroupState nccl_group_state(const ProcessGroup& group) {
  switch (group.c10d()->getDefaultBackend()->getError()) {
    case c10d::ErrorType::SUCCESS:
      return GroupState::kHealthy;
    case c10d::ErrorType::TIMEOUT:
      return GroupState::kTimedOut;
    case c10d::ErrorType::COMM_ERROR:
    case c10d::ErrorType::REMOTE_ERROR:
      return GroupState::kBroken;
  }
  return GroupState::kHealthy;
}

}  // namespace oarlock
