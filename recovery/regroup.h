// The interface of a rank to the regroup protocol (docs/recovery.md): after the loss of a rank, the survivors keep
// their state in memory, and all ranks form the group of the next generation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/stop_flag.h"

namespace oarlock {

// The state that a rank holds in memory when it leaves a group.
struct RecoveryState {
  int64_t completed_step = -1;  // optimizer steps; -1: a newcomer without state
  // Of everything that must be equal on all ranks that completed this step. May be empty; otherwise, two ranks with the
  // same step and different digests make the state inconsistent.
  std::string digest;
  // The newest generation of this attempt that has claimed the checkpoint directory; -1: not known. A newcomer reports
  // it, so that a new coordinator recognizes launchers that return after they were replaced. A member of a group
  // reports it only if another group of this generation or a later one holds the claim: the launcher, which was
  // replaced, then ends, and regroup() returns kPeerLost.
  int64_t fence = -1;

  bool operator==(const RecoveryState&) const = default;
};

// The position of a rank in the group of the next generation.
struct Assignment {
  int64_t generation = 0;
  int rank = 0;
  int world_size = 1;
  int donor = -1;     // the rank whose state all ranks take; -1: every rank starts from the newest checkpoint, if any
  int64_t step = -1;  // optimizer steps that the donor's state has completed; -1 without a donor
  // The TCPStore of the group. The rank 0 of the new generation serves it on `store_port`.
  std::string store_host;
  int store_port = 0;
  std::string store_prefix;  // of every key of this generation

  bool operator==(const Assignment&) const = default;
};

// One object per rank process. regroup() is called by one thread at a time; regroup_requested() by any thread.
class RegroupChannel {
 public:
  virtual ~RegroupChannel() = default;

  // Reports that this rank has left the group of `generation`, because of `reason`, with `state` in memory, and blocks
  // until the group of a later generation is complete. From this call on, the rank must not use the connections of the
  // old group. A newcomer passes the generation -1 and a state without a step. Calling it again for the generation of
  // the last assignment reports that this group failed, too, for example because the donor was lost while it sent its
  // state.
  //
  // kPeerLost: the group cannot recover in place; the rank exits with this code, and the group restarts from the newest
  // checkpoint. kTempFail: `stop` was raised. kUnavailable: there is no connection to the launcher.
  virtual Result<Assignment> regroup(int64_t generation, const RecoveryState& state, std::string_view reason,
                                     const StopFlag& stop) = 0;

  // Returns true if another rank has left the group of `generation`, so that this rank must leave it, too. Does not
  // block and performs no system call; it may be polled between steps and by the peer monitor.
  virtual bool regroup_requested(int64_t generation) const = 0;

  // Returns true if other ranks wait to join this group, so that its ranks must leave it together, between two steps.
  // As regroup_requested() otherwise.
  virtual bool growth_requested(int64_t generation) const = 0;
};

}  // namespace oarlock
