// Ends the process when a collective has failed that the host does not wait for.
//
// With NCCL the host goes on while the device works, and then waits for the device: without an end where another rank
// did not come. NCCL's own watchdog finds out after the group's time-out and sets the group's state at once, but throws
// only a minute later (Watchdog::runLoop in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp leaves that long for a
// dump), so it is the state that is watched. With Gloo the call that waits throws, and there is nothing to watch.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "common/error.h"

namespace oarlock {

class RankGroup;

enum class GroupState {
  kWorks,
  kTimedOut,  // a collective took longer than the group's time-out
  kBroken     // the connection to another rank is lost
};

// Of a group of make_nccl_group() (process_group.h). Any thread.
GroupState nccl_state(const RankGroup& group);

// What a state means for this rank; nothing where all is well. Pure.
std::optional<Error> verdict(GroupState state, std::chrono::milliseconds timeout);

class CollectiveWatch {
 public:
  using Look = std::function<GroupState()>;

  // Looks from now on. The verdict is thrown as a Failure (failure.h) on the watch's own thread, where nobody can catch
  // it: what exit_on_terminate() installed tells it and ends the process, as for all that threads of a library throw.
  CollectiveWatch(Look look, std::chrono::milliseconds timeout,
                  std::chrono::milliseconds interval = std::chrono::milliseconds(100));

 private:
  std::jthread thread_;  // stops with the watch
};

}  // namespace oarlock
