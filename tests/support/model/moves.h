// Events that a cluster and its users cause independently of the operator.
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
    kRegroup,  // the launchers continue with the pods that run
    kResume,
    kStop,  // a pod that is being deleted has terminated
    // The following moves are faults. Their number on one path is limited.
    kFail,
    kDisconnect,  // a launcher loses the connection to that of node rank 0
    kEvict,
    kDelete,
    kDisrupt,
    kLose,
    kVanish,  // PodGC, an autoscaler or kubectl removes a terminated pod
    kSuspend,
    kEdit,
    kScale,  // kubectl scale of an elastic job
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
  // Whether the move lets the job progress. kStop is excluded, because a pod on a dead node never terminates.
  bool is_benign() const { return kind < Kind::kStop; }
};

std::string to_string(const Move& move);

// Returns the moves that can change the cluster. `disconnects`: whether launchers may lose their connection.
std::vector<Move> moves_in(const SimCluster& cluster, const std::vector<int>& exit_codes, bool steps,
                           bool disconnects = false);

// Returns whether the cluster changed.
bool apply(const Move& move, SimCluster& cluster);

}  // namespace oarlock::test
