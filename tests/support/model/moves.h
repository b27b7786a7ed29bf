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
    kFinish,  // the trainer's part is complete, and a sidecar continues
    kTick,
    kStep,
    kRegroup,  // the launchers continue with the pods that run
    kResume,
    kAdmit,        // Kueue admits the job with all nodes
    kAdmitPartly,  // with minNodes
    kStop,         // a pod that is being deleted has terminated
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
    kScale,        // kubectl scale of an elastic job
    kEditProfile,  // a user creates, changes or deletes the TrainingProfile
    kDeleteJob,
    kDeleteService,
    kDeletePolicy,
    kEditPolicy,
    kPreempt,         // Kueue evicts the job
    kDeleteWorkload,  // an administrator deletes it
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

// What may happen in the cluster, in addition to the events of any cluster.
struct MoveOptions {
  std::vector<int> exit_codes = {1};  // exit codes of failures
  bool steps = false;                 // rank 0 reports its progress
  bool disconnects = false;           // launchers may lose the connection to node rank 0, and end
  bool sidecars = false;              // a pod may continue after its trainer has ended
};

// Returns the moves that can change the cluster.
std::vector<Move> moves_in(const SimCluster& cluster, const MoveOptions& options);

// Returns whether the cluster changed.
bool apply(const Move& move, SimCluster& cluster);

}  // namespace oarlock::test
