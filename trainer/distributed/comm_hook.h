// What DDP does with a bucket of gradients instead of averaging it as it is.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <functional>
#include <memory>

#include "trainer/config/ddp.h"
#include "trainer/distributed/powersgd_state.h"
#include "trainer/distributed/process_group.h"
#include "trainer/distributed/shared_memory_average.h"

namespace oarlock {

struct HookParts {
  const RankGroup& group;  // outlives the hook
  int64_t gradient_bytes = 0;
  std::function<void()> waiting;  // called before a hook waits for other ranks with nothing left to compute; or empty
  std::shared_ptr<PowerSgdState> powersgd;         // for CommHook::kPowerSgd
  std::shared_ptr<SharedMemoryAverage> averaging;  // for CommHook::kNone; null: the ranks share no memory
};

// Null where DDP's own way is best. Gradients come out as their mean over the ranks, or near it.
std::unique_ptr<c10d::CommHookInterface> make_comm_hook(const DdpConfig& config, const HookParts& parts);

}  // namespace oarlock
