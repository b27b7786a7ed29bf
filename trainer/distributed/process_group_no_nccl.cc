// In place of process_group_nccl.cc in a build without OARLOCK_CUDA.
#include "trainer/distributed/process_group.h"

#include "trainer/distributed/collective_watch.h"

namespace oarlock {

bool nccl_in_build() { return false; }

Result<RankGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>&, const GroupOptions&) {
  return fail(ExitCode::kUnavailable,
              "distributed.backend: nccl is not in this build; use gloo, or a build with -DOARLOCK_CUDA=ON");
}

std::string device_fault() { return ""; }

GroupState nccl_state(const RankGroup&) { return GroupState::kWorks; }

}  // namespace oarlock
