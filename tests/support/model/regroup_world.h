// The state of the model of the regroup protocol: the coordinator, the launchers' agents, and modeled processes,
// connections and checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recovery/coordinator.h"
#include "recovery/node_agent.h"

namespace oarlock::test::regroup {

using namespace recovery;  // NOLINT: this model is about its types

inline constexpr int64_t kTorn = -2;       // the step of a state that is partly overwritten
inline constexpr int kBitsOfCounter = 20;  // of a ProcessId; the others are those of its launcher

enum class Activity {
  kStarts,
  kWaits,     // in RegroupChannel::regroup()
  kMeets,     // received its assignment; waits at the store for the others
  kReceives,  // takes over the donor's state
  kTrains,
  kReduces  // contributed the gradients of its next step
};

// One process of a rank.
struct Process {
  ProcessId id = 0;
  int rank = 0;
  bool is_alive = true;
  bool is_stopped = false;  // SIGSTOP, or a hang
  bool is_attached = true;  // its launcher exists; false after the node was cut off and replaced
  bool has_finished = false;
  Activity activity = Activity::kStarts;
  int64_t generation = -1;
  std::string group;        // the store prefix of its group; empty: none
  bool must_leave = false;  // between two steps, as nodes join
  int group_rank = 0;
  int group_size = 0;
  int donor = -1;  // its rank in the group
  int64_t group_step = -1;
  int64_t step = -1;        // of the state that it holds
  int64_t bits = 0;         // of that state: the sizes of the groups that have trained it, a digit for each step
  bool is_corrupt = false;  // it is the partly overwritten one
  std::vector<RankCommand> inbox;
};

struct Node {
  std::optional<NodeAgent> agent;  // empty: the launcher does not run
  bool is_connected = false;
  std::vector<NodeReport> reports;       // in flight
  std::vector<Order> orders;             // in flight
  std::optional<NodeReport> old_report;  // delivered; may arrive again
  std::optional<Order> old_order;
};

// A launcher that was cut off, and continues with its ranks. Nothing reaches it until it returns.
struct Exile {
  Node node;
  std::optional<Coordinator> coordinator;  // of node rank 0
  uint64_t coordinator_id = 0;
};

struct World {
  std::optional<Coordinator> coordinator;
  uint64_t coordinator_id = 0;
  uint64_t coordinators = 0;  // so far
  uint64_t launchers = 0;     // so far
  std::vector<Node> nodes;
  std::vector<std::optional<Exile>> exiles;        // by node rank: the launcher that was cut off last
  std::vector<std::vector<uint64_t>> in_training;  // by node rank: its launchers, in the order of their first group
  int64_t trained_step = 0;                        // the newest one
  std::vector<Process> processes;
  // Contributions to the all-reduce of a step in a group, by rank: the step and the bits of the contributed state.
  std::map<std::pair<std::string, int64_t>, std::map<int, std::pair<int64_t, int64_t>>> contributions;
  std::map<std::string, std::vector<ProcessId>> met;  // members that met at the store of a group
  int64_t trained_generation = -1;                    // of the last completed step
  std::string trained_group;
  int64_t fence = -1;  // generation whose rank 0 may write checkpoints
  ProcessId fence_owner = 0;
  int64_t checkpoint = 0;  // step of the newest one; 0 is the initial state
  int64_t checkpoint_bits = 0;
  int smallest_trained = 0;  // ranks of the smallest group that has trained; 0: none
  bool has_grown = false;
  int faults = 0;
  int charged_faults = 0;  // those after which a group must form again
  bool recovered = false;
  bool has_succeeded = false;
  bool has_ended = false;
  std::string violation;
};

inline uint64_t launcher_of(const Process& process) { return process.id >> kBitsOfCounter; }

// Returns the id of the launcher that runs on the node, or 0.
inline uint64_t launcher_of(const Node& node) {
  const bool has_started = node.agent && node.agent->state().processes > 0;
  return has_started ? node.agent->state().slots[0].report.process >> kBitsOfCounter : 0;
}

// Writes the parts of a world that its future depends on. Equal worlds have equal keys.
std::string write_key(const World& world);

}  // namespace oarlock::test::regroup
