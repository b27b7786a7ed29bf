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
#include <string>

#include "common/error.h"
#include "trainer/distributed/watchdog.h"

namespace oarlock {

class RankGroup;

enum class GroupState {
  kWorks,
  kTimedOut,  // a collective took longer than the group's time-out
  kBroken     // the connection to another rank is lost
};

// Of a group of make_nccl_group() (process_group.h). Any thread.
GroupState nccl_state(const RankGroup& group);

// The error of this rank's own GPU, in CUDA's words; empty where it has none. A connection breaks on the rank whose GPU
// fails, too, and that rank is the one to blame. Any thread.
std::string device_fault();

// What a state means for this rank; nothing where all is well. Pure.
std::optional<Error> verdict(GroupState state, std::chrono::milliseconds timeout, const std::string& device_fault = "");

// Whether to give up on connecting the ranks, which neither NCCL nor Gloo ends on a signal, and NCCL not when a rank is
// lost meanwhile. `signal`: one that asked the process to stop, or 0. Pure.
std::optional<Error> connect_verdict(std::chrono::milliseconds elapsed, std::chrono::milliseconds timeout, int signal);

class CollectiveWatch {
 public:
  using Look = std::function<GroupState()>;

  // The verdict ends the process (watchdog.h). `fault` is called when the group is broken.
  CollectiveWatch(Look look, std::chrono::milliseconds timeout,
                  std::chrono::milliseconds interval = std::chrono::milliseconds(100),
                  std::function<std::string()> fault = {});

 private:
  Watchdog watchdog_;
};

}  // namespace oarlock
