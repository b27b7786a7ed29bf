// The messages of the regroup protocol (docs/recovery.md). Each message describes the complete state of its sender, so
// that a lost, repeated or late message cannot change the outcome: a newer one replaces it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock::recovery {

// Identifies one process of a rank among all processes that the job has had. A launcher derives it from its own random
// number and a counter. 0: none.
using ProcessId = uint64_t;

enum class RankPhase {
  kStarting,  // the process runs, and has not yet joined
  kJoined,    // left its group, if any, and waits for the next one with its state in memory
  kRunning,   // received its position in a group
  kExited,    // failed
  kFinished   // exited with code 0
};

// The state of one rank, as its launcher reports it.
struct RankReport {
  RankPhase phase = RankPhase::kStarting;
  ProcessId process = 0;
  int64_t generation = -1;  // of the group that the process is in, or was in last; -1: none
  int64_t step = -1;        // completed optimizer steps of the state in memory; -1: none. With kJoined only
  std::string digest;       // of that state; may be empty
  std::string reason;       // why the process left its group
  // As a shell reports it: of this process with kExited, otherwise of the process that it replaced. 0 with kExited: the
  // launcher stopped the process for a restart. Reset when the process receives its position.
  int exit_code = 0;

  bool operator==(const RankReport&) const = default;
};

// From a launcher to the coordinator: all ranks of its node.
struct NodeReport {
  int node = 0;
  uint64_t launcher = 0;    // random; distinguishes the launchers that a node has had
  uint64_t sequence = 0;    // increases with each report of this launcher
  int64_t generation = -1;  // the newest one that this launcher knows of
  int64_t uncharged = 0;    // the most uncharged generations that this launcher knows of
  // The newest order that the launcher has received. It ignores older ones from then on.
  uint64_t coordinator = 0;
  uint64_t order_sequence = 0;
  uint64_t first_coordinator = 0;  // the first one whose order the launcher has received; 0: none
  bool is_stopping = false;        // the launcher was requested to stop: its ranks end and do not start again
  std::vector<RankReport> ranks;
  int64_t member_of = -1;  // the generation of the newest group that the launcher was in; -1: none
  // The newest complete group that the launcher knows of, for a coordinator that may not know it: its generation, and
  // the launcher of each node, 0 for a node outside of it. A new coordinator obtains the members from these reports.
  int64_t group = -1;
  std::vector<uint64_t> launchers;
  int64_t fence = -1;  // the newest generation that a rank has found in the fence of the checkpoint directory

  bool operator==(const NodeReport&) const = default;
};

enum class OrderKind {
  kForm,  // all ranks leave their groups and join that of `generation`; failed ranks start again
  kRun,   // the group of `generation` is complete; its members receive their assignments
  kEnd    // the job ends here: all ranks finished, or the group cannot recover
};

// From the coordinator to all launchers.
struct Order {
  uint64_t coordinator = 0;  // random; distinguishes the coordinators that a job has had
  uint64_t sequence = 0;     // increases with each order of this coordinator
  OrderKind kind = OrderKind::kForm;
  int64_t generation = 0;
  int64_t uncharged = 0;            // generations up to this one that are no restarts, because nodes were added
  bool is_growth = false;           // kForm: ranks leave between two steps, because nodes are added and none is lost
  bool respawn = true;              // kForm: failed ranks may start now; false during the back-off
  std::vector<ProcessId> kill;      // kForm: processes that did not leave their group in time
  std::vector<int> nodes;           // kRun: the nodes of the group, in ascending order
  std::vector<uint64_t> launchers;  // kRun: the launcher of each of `nodes`
  std::vector<ProcessId> members;   // kRun: the process of each rank of the group: those of the first node, then ...
  int donor = -1;                   // kRun: the rank whose state all ranks take; -1: the newest checkpoint, if any
  int64_t step = -1;                // kRun: completed optimizer steps of the donor's state
  std::string reason;               // kForm and kEnd
  bool success = false;             // kEnd: all ranks finished
  // kEnd: for the launcher that receives this order only. Another launcher has taken the place of it.
  bool is_replaced = false;

  bool operator==(const Order&) const = default;
};

// From a rank to its launcher: RegroupChannel::regroup() was called.
struct JoinRequest {
  int64_t generation = -1;
  int64_t step = -1;
  std::string digest;
  std::string reason;
  // The process id of a program that can be started ahead of time as a standby process (standby.h); 0: it cannot.
  int standby_process = 0;
  // Of a process that starts as rank 0: the newest generation of this attempt that has claimed the checkpoint
  // directory, if the process can read it. Of a rank 0 that leaves a group because the group cannot claim the
  // directory: the generation of the other group that holds it, which is at least `generation`; the launcher has been
  // replaced, and ends.
  int64_t fence = -1;

  bool operator==(const JoinRequest&) const = default;
};

// From a launcher to a rank.
struct RankCommand {
  enum class Kind {
    kLeave,   // leave the group of `generation`, and join the next one
    kAssign,  // the group of `generation` is complete
    kEnd      // the group cannot recover; exit with kPeerLost
  };
  Kind kind = Kind::kLeave;
  int64_t generation = -1;
  bool is_growth = false;  // kLeave: between two steps, together with all other ranks
  int rank = 0;
  int world_size = 1;
  int donor = -1;
  int64_t step = -1;
  std::string store_host;
  int store_port = 0;
  std::string store_prefix;
  std::string reason;

  bool operator==(const RankCommand&) const = default;
};

// ---- Encoding --------------------------------------------------------------------------------------------------
// One JSON object per line. Parsers accept text from the network: every field has a type, a range and a maximum length,
// and a violation fails with kDataErr.

inline constexpr size_t kMaxTextLength = 300;              // bytes of `reason`; encoders truncate it
inline constexpr size_t kMaxDigestLength = 128;            // bytes
inline constexpr size_t kMaxRanksPerNode = 1024;           // in a report
inline constexpr size_t kMaxWorldSize = 1'000'000;         // members of an order
inline constexpr size_t kMaxLineLength = size_t{1} << 24;  // bytes of a line after authentication

std::string to_json(const NodeReport& report);
std::string to_json(const Order& order);
std::string to_json(const JoinRequest& request);
std::string to_json(const RankCommand& command);

Result<NodeReport> node_report_from_json(std::string_view text);
Result<Order> order_from_json(std::string_view text);
Result<JoinRequest> join_request_from_json(std::string_view text);
Result<RankCommand> rank_command_from_json(std::string_view text);

}  // namespace oarlock::recovery
