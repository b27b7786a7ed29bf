// Explores every state that a small job can reach in the regroup protocol (docs/recovery.md), with the coordinator and
// the launchers' agents as they are in the programs, and with modeled processes, connections and checkpoints. Any
// process, launcher or node may fail at any point; messages are delayed, reordered, lost and repeated.
#pragma once

#include <cstddef>
#include <string>

namespace oarlock::test {

// A bug in the protocol, for the test of the search itself.
enum class PlantedBug {
  kNone,
  kIncompleteGroup,    // the coordinator counts a rank that has not left its group as waiting
  kOldestDonor,        // the rank with the oldest state is the donor
  kTornStateReported,  // a rank whose state was partly overwritten reports it as a valid one
  kStaleReport,        // the coordinator accepts reports in any order
  kNoAcknowledgement,  // the coordinator counts reports that were sent before its order to form a group
  kReplacedMember,     // a process that replaced a member receives the position of that member
  kNoKill,             // a rank that hangs is not killed
  kStaysInGroup,       // a rank continues to train in the group that it has reported to have left
  kLeftOutReturns,     // a launcher that was left out returns with the state of its ranks
  kTooFewNodes,        // the group shrinks below the smallest size
  kSparseRanks,        // the ranks of a smaller group keep their numbers
  kForgottenGroup,     // a new coordinator forms generation 0 although there were earlier groups
  kForgottenMembers,   // a coordinator without a group admits all launchers, also those that were replaced
  kSharedFence,        // a group trains although another one of its generation or a later one has claimed the fence
};

struct RegroupModelOptions {
  int nodes = 2;
  int ranks_per_node = 1;
  int min_nodes = 0;  // of a group; 0: all
  int steps = 2;      // of the training
  int faults = 2;     // kills, hangs, lost nodes, broken connections, repeated messages
  int max_restarts = 2;
  bool backoff = false;
  bool checkpoints = true;
  bool from_start = false;  // otherwise the first group already trains
  bool returns = false;     // the faults are launchers that are cut off, live on while they are replaced, and return
  // With `returns`: nothing is cut off while a group forms, so that all states can be searched.
  bool cuts_in_steady_groups = false;
  bool cut_off_coordinator_ends = false;  // with `returns`: only launchers of other nodes than node rank 0 return
  PlantedBug bug = PlantedBug::kNone;
  size_t max_states = 3'000'000;
};

struct RegroupModelResult {
  std::string violation;  // with the events that lead to it; empty if none was found
  size_t states = 0;
  size_t transitions = 0;
  bool is_complete = false;   // all states were explored
  bool saw_success = false;   // the training finished
  bool saw_recovery = false;  // the training finished after a fault, from the state of a donor
  bool saw_fallback = false;  // the job ended because it could not recover
  bool saw_shrunk = false;    // a smaller group trained
  bool saw_grown = false;     // a larger group trained after a smaller one
  size_t most_generations = 0;
};

// Returns the first violation of an invariant: two groups train at the same time; a rank trains with a state that
// another member of its group does not have, in the bits that depend on the sizes of the groups; a launcher that was
// replaced is in a group again; a donor lacks steps that an earlier group has completed; a group is too small,
// or its ranks are not numbered from 0 to its size, or rank 0 is another one; a completed step of a survivor is lost;
// an outdated rank writes a checkpoint; the job can no longer finish; the job ends although its budget is not spent.
RegroupModelResult check_regroup(const RegroupModelOptions& options);

}  // namespace oarlock::test
