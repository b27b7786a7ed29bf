// The decisions of the coordinator of the regroup protocol (docs/recovery.md): when the group of the next generation is
// complete, which rank is the donor, and when the group ends instead. It performs no I/O and reads no clock. The
// launcher of node rank 0 runs it. A replacement needs no state of its predecessor: the reports contain the
// generation, which is also the number of used restarts, and the launchers of the newest group.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "recovery/messages.h"

namespace oarlock::recovery {

struct CoordinatorOptions {
  int nodes = 1;
  int ranks_per_node = 1;
  // The smallest group. With fewer than all nodes, the group that forms continues without nodes that are not connected
  // for `shrink_after`, and takes in their replacements later. Node rank 0 is in every group. A launcher must end its
  // ranks, and never connect again, before this time has passed since its last connection.
  std::optional<int> min_nodes{};  // absent: all nodes
  int max_restarts = 0;            // generations after the first one, except those that add nodes
  bool is_replacement = false;     // of a lost coordinator; the generation must be known to one of the launchers
  bool restarts_finished = false;  // ranks that finished start again with the others; otherwise a failure then is final
  bool replaces_nodes = false;     // a launcher that was requested to stop will be replaced; otherwise the group ends
  std::chrono::milliseconds leave_timeout{60'000};  // until a rank that does not leave its group is killed
  std::chrono::milliseconds form_timeout{300'000};  // until an incomplete group ends the job
  std::chrono::milliseconds shrink_after{240'000};
  std::chrono::milliseconds backoff{0};  // the first delay of restart_backoff(), after short generations
};

// A rank whose process is replaced more often than this while one group forms ends the group.
inline constexpr int kMaxStartFailures = 3;

// Returns whether a new process of the rank may succeed after one that failed with this exit code: after a death by
// signal, after an exit code without a meaning in docs/exit-codes.md, and after the loss of another rank (76), which
// may reach a rank that cannot keep its state. A permanent failure would repeat; an interrupted rank was requested to
// stop; a failed device needs another node.
bool is_recoverable_in_place(int exit_code);

// The same for a rank that has ended with an exit code other than 0. A temporary failure (75) of a process that was
// never in a group may also pass: it has neither saved a checkpoint nor stopped together with the others.
bool can_start_again(const RankReport& ended);

// Not thread-safe. A value: the model checker copies it.
class Coordinator {
 public:
  struct RankSlot {
    RankReport report;
    int start_failures = 0;
  };
  struct NodeSlot {
    bool is_expected = true;  // the group that forms waits for it; in the group that runs
    uint64_t launcher = 0;    // the newest one; 0: none yet
    uint64_t sequence = 0;    // of its last report
    bool connected = false;
    std::optional<SteadyTime> lost_at{};  // since when it is not connected
    bool acknowledged = false;            // it has received the order to form the current group
    bool is_stopping = false;             // it was requested to stop
    bool is_new = false;                  // this coordinator is the first one that it has met
    int64_t member_of = -1;               // NodeReport::member_of
  };
  // The newest complete group that is known, of this coordinator or of a predecessor.
  struct KnownGroup {
    int64_t generation = -1;
    std::vector<uint64_t> launchers;  // by node rank; 0: the node is not in it, or its launcher is not known
  };
  // Everything that the decisions depend on.
  struct State {
    OrderKind kind = OrderKind::kForm;
    int64_t generation = 0;         // of the group that runs or forms
    int64_t newest_seen = -1;       // the newest generation that any rank was in
    int64_t uncharged = 0;          // of the generations up to this one
    std::vector<RankSlot> ranks;    // by rank
    std::vector<NodeSlot> nodes;    // by node rank
    std::vector<uint64_t> retired;  // launchers that were replaced
    KnownGroup known;
    int64_t fence = -1;                // the newest NodeReport::fence
    std::vector<int> group;            // nodes of the last complete group
    std::vector<ProcessId> members;    // of that group, by rank in it
    std::vector<ProcessId> receivers;  // members that had no state, or an older one
    int donor = -1;                    // of the last complete group
    int64_t step = -1;                 // of that donor
    std::vector<ProcessId> kill;
    int lost_handovers = 0;                // consecutive groups whose donor was lost before all had its state
    int short_generations = 0;             // consecutive ones
    std::optional<SteadyTime> began_at;    // when the last group was complete
    std::optional<SteadyTime> leave_at;    // when to kill ranks that have not left
    std::optional<SteadyTime> form_at;     // when to end an incomplete group
    std::optional<SteadyTime> formed_at;   // when the group began to form
    std::optional<SteadyTime> respawn_at;  // end of the back-off
    std::string reason;
    int cause = -1;          // the rank that `reason` names
    bool has_cause = false;  // `reason` names a rank that ended, not one that lost a peer
    bool is_growth = false;  // the group that forms adds nodes, and its ranks leave between two steps
    bool success = false;
    bool is_replaced = false;    // another coordinator has taken the place of this one, whose orders are void
    uint64_t sequence = 0;       // of the current order
    uint64_t form_sequence = 0;  // of the first order to form the current group
  };

  // `id` is random. The initial order forms a group.
  Coordinator(const CoordinatorOptions& options, uint64_t id);

  // Events. Each returns true if order() has changed and must be sent to all launchers.
  bool received(const NodeReport& report, SteadyTime now);
  bool time_passed(SteadyTime now);
  // The connection of a launcher was closed, or nothing has arrived over it since `since`, although the launcher sends
  // reports regularly (its lease). Its next report ends that state.
  bool disconnected(int node, uint64_t launcher, SteadyTime now, std::optional<SteadyTime> since = {});
  // The launcher of this coordinator was requested to stop, and its ranks have ended.
  bool stop();

  // The current order, for all launchers, and for each one that connects.
  Order order() const;
  // The order that ends a launcher whose reports no longer affect the group.
  Order order_for_retired() const;
  std::optional<SteadyTime> deadline() const;  // when to call time_passed()
  // When the group that forms continues without the nodes that are missing; absent if none is, or if it needs them.
  std::optional<SteadyTime> leave_out_at() const;
  // Whether a launcher was replaced or left out, which is final. Its reports no longer affect the group.
  bool is_retired(uint64_t launcher) const;
  const State& state() const { return state_; }

 private:
  int world_size() const { return options_.nodes * options_.ranks_per_node; }  // with all nodes
  bool is_expected(int rank) const {
    return state_.nodes[static_cast<size_t>(rank / options_.ranks_per_node)].is_expected;
  }
  std::optional<ProcessId> member(int rank) const;
  int rank_of_member(int member) const;
  bool is_ready(int node) const;
  bool is_in_phase(RankPhase phase) const;
  bool has_group_finished() const;
  void leave_out(SteadyTime now);
  bool learn(const NodeReport& report);
  bool is_former_member(int node, uint64_t launcher, int64_t member_of) const;
  bool is_admitted(const NodeReport& report) const;
  void retire_former_members();
  bool has_left(int rank) const;
  static std::string describe_stop(int node);
  void begin_forming(SteadyTime now, bool is_growth);
  void find_cause();
  void forget_reports(int node);
  void decide(SteadyTime now);
  void complete(SteadyTime now);
  void end(std::string_view reason, bool success = false);
  std::optional<std::string> find_obstacle() const;
  void count_lost_handover();

  CoordinatorOptions options_;
  uint64_t id_;
  State state_;
};

}  // namespace oarlock::recovery
