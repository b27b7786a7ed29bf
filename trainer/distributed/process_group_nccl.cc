#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "trainer/distributed/process_group.h"

namespace oarlock {

bool nccl_in_build() { return true; }

Result<RankGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& options) {
  if (!options.device.is_cuda()) {
    return fail(ExitCode::kConfig, "distributed.backend: nccl needs device: cuda; use gloo on the cpu");
  }
  const auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  nccl_options->timeout = options.timeout;
  const auto prefix = c10::make_intrusive<c10d::PrefixStore>("nccl", store);
  const auto backend =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(prefix, options.rank, options.world_size, nccl_options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefix, options.rank, options.world_size);
  group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
  group->setBoundDeviceId(options.device);  // barriers know their device, and communicators are made at once
  group->setGroupName("ranks");
  return RankGroup(std::move(group), options.device);
}

}  // namespace oarlock
