// What a cluster and its users do on their own.
#pragma once

#include <string>
#include <vector>

#include "tests/support/model/worlds.h"

namespace oarlock::test {

struct Move {
  enum class Kind : uint8_t {
    kSchedule,
    kStart,
    kSucceed,
    kTick,
    kStep,
    kResume,
    kStop,  // a pod that is being deleted has stopped
    // From here on they are faults: a path has only so many.
    kFail,
    kEvict,
    kDelete,
    kDisrupt,
    kLose,
    kVanish,  // PodGC, an autoscaler or kubectl removes a pod that has ended
    kSuspend,
    kEdit,
    kDeleteJob,
    kDeleteService,
    kDeletePolicy,
    kEditPolicy,
    kFreeNames,
  };
  Kind kind = Kind::kTick;
  std::string pod;
  int exit_code = 0;

  bool is_fault() const { return kind >= Kind::kFail; }
  // What a world that is kind to the job does; a pod on a dead node never stops.
  bool is_kind() const { return kind < Kind::kStop; }
};

std::string to_string(const Move& move);

// Those that may do something.
std::vector<Move> moves_in(const SimCluster& cluster, const std::vector<int>& exit_codes, bool steps);

// False: nothing happened.
bool apply(const Move& move, SimCluster& cluster);

}  // namespace oarlock::test
