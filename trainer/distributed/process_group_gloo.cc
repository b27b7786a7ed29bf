#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trainer/distributed/process_group.h"

namespace oarlock {

RankGroup make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, const GroupOptions& options) {
  const auto gloo_options = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  const auto prefix = c10::make_intrusive<c10d::PrefixStore>("gloo", store);
  const auto backend =
      c10::make_intrusive<c10d::ProcessGroupGloo>(prefix, options.rank, options.world_size, gloo_options);
  backend->setTimeout(options.timeout);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefix, options.rank, options.world_size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("ranks");
  return RankGroup(std::move(group), at::kCPU);
}

}  // namespace oarlock
