// DDP communication hooks: implementations of c10d::CommHookInterface that reduce a bucket of gradients to its mean
// over the ranks. The reducer owns its hook; state that must survive a new reducer is shared.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>

#include "trainer/config/distributed.h"
#include "trainer/distributed/powersgd.h"
#include "trainer/distributed/process_group.h"
#include "trainer/distributed/shared_memory_hook.h"

namespace oarlock {

struct CommHookState {
  std::shared_ptr<PowerSgdState> powersgd;           // required for CommHook::kPowerSgd
  std::shared_ptr<SharedMemoryState> shared_memory;  // for CommHook::kNone; null if the ranks share no memory
};

// Creates the hook that `config` selects. Returns null for the reducer's built-in all-reduce. The group must outlive
// the hook. Gradients become their mean over the ranks, approximately for hooks that compress.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpConfig& config, const ProcessGroup& group,
                                                        const CommHookState& state);

}  // namespace oarlock
