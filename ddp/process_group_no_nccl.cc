// Replaces process_group_nccl.cc in a build without OARLOCK_CUDA.
#include "ddp/process_group.h"

namespace oarlock {

bool is_nccl_in_build() { return false; }

void disable_nccl_watchdog_exit() {}

Result<ProcessGroup> make_nccl_group(const c10::intrusive_ptr<c10d::Store>&, const ProcessGroupOptions&) {
  return fail(ExitCode::kUnavailable, "backend nccl is not in this build; use gloo, or a build with -DOARLOCK_CUDA=ON");
}

std::string device_error() { return ""; }

GroupState nccl_group_state(const ProcessGroup&) { return GroupState::kHealthy; }

}  // namespace oarlock
