// What DDP does with a bucket of gradients instead of averaging it as it is.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <functional>
#include <memory>

#include "trainer/config/ddp.h"
#include "trainer/distributed/powersgd_state.h"

namespace oarlock {

// Null where DDP's own way is best. The hook keeps the group. Gradients come out as their mean over the ranks, or near
// it. `waiting` (may be empty) is called before a hook waits for other ranks with nothing left to compute. `powersgd`
// is for CommHook::kPowerSgd.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpConfig& config,
                                                        const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                                        at::Device device, int64_t gradient_bytes,
                                                        const std::function<void()>& waiting,
                                                        const std::shared_ptr<PowerSgdState>& powersgd);

}  // namespace oarlock
