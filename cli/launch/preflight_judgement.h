// The judgement of a preflight: which nodes have failed, given the reports of their launchers. Pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace oarlock::launch {

// What a node checks without the others. The names are those of messages.
inline constexpr const char* kDevicesCheck = "devices";
inline constexpr const char* kStorageCheck = "storage";
inline constexpr const char* kStorageSpaceCheck = "storage space";  // names no node: the nodes share the volume
inline constexpr const char* kSharedMemoryCheck = "shared memory";

struct CheckFailure {
  std::string check;
  std::string message;  // one line

  bool operator==(const CheckFailure&) const = default;
};

// What the launcher of a node has reported.
struct NodeHealth {
  std::string host;
  std::vector<CheckFailure> failures = {};
  std::chrono::milliseconds clock_offset{0};       // its clock minus that of node rank 0
  std::chrono::milliseconds clock_uncertainty{0};  // the offset may differ by this much
};

// One direction of the network between two nodes, numbered by their node ranks.
struct LinkHealth {
  int from = 0;
  int to = 0;
  std::optional<double> milliseconds = {};  // of a round trip; absent: no connection
  std::optional<double> mbps = {};          // 10^6 bits in a second; absent: no connection
};

struct PreflightLimits {
  std::optional<double> min_mbps = {};
  std::optional<double> max_milliseconds = {};
};

// A clock that differs by more from the median of all nodes fails.
inline constexpr std::chrono::milliseconds kMaxClockOffset{1000};

struct FailedNode {
  int node = 0;
  std::string reason;      // one line
  bool is_silent = false;  // it did not answer

  bool operator==(const FailedNode&) const = default;
};

struct PreflightVerdict {
  std::vector<FailedNode> failed = {};         // in the order of their node ranks, each once
  std::vector<std::string> unattributed = {};  // failures that no single node explains; one line each
  std::string summary = {};                    // of the measurements; empty without any

  bool has_passed() const { return failed.empty() && unattributed.empty(); }
};

// The result of one launcher.
struct PreflightOutcome {
  // 0: the ranks may start. kDeviceFailed: this node has failed, or, on node rank 0, another one does not respond.
  // kPeerLost: another node has failed. kTempFail: no single node explains the failure. 128 + n: signal n.
  int exit_code = 0;
  int failed_node = -1;   // that with kDeviceFailed
  std::string message{};  // one line; with exit code 0 a summary of the measurements, on node rank 0

  bool operator==(const PreflightOutcome&) const = default;
};

// Returns the verdict about a group. `nodes` is indexed by node rank; an absent element is a node that did not answer.
// `links` are empty if the network was not measured.
//
// One rule applies to the checks, the silence, the clocks and the links: the nodes that fail are named if they are
// fewer than half of those that were judged, and explain everything. Otherwise none is named. The only node of a job
// always is.
//
// - A clock fails if its offset differs from the median of all by more than kMaxClockOffset.
// - A node fails the network if more than half of the links on which it sends, or of those on which it receives, are
//   slow: at least two. The node with the most slow links is judged first, and its links then count for no other. If a
//   slow link remains, which no failed node explains, all slow links are reported without a node.
PreflightVerdict judge_preflight(const std::vector<std::optional<NodeHealth>>& nodes,
                                 const std::vector<LinkHealth>& links, const PreflightLimits& limits);

// Returns what the verdict means for the launcher of a node. Its message does not grow with the group.
PreflightOutcome outcome_of(const PreflightVerdict& verdict, int node_rank);

// Returns the distances d at which each node n sends to node (n + d) mod `nodes`: at most three, however many nodes
// there are, so that each node has up to six links with different others.
std::vector<int> preflight_distances(int nodes);

}  // namespace oarlock::launch
