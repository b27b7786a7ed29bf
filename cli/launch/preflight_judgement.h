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
  bool operator==(const PreflightVerdict&) const = default;
};

// Returns the verdict about a group. `nodes` is indexed by node rank; an absent element is a node that did not answer.
// `links` are empty if the network was not measured.
//
// - A check that all of several nodes fail is not a fault of the nodes, and names none.
// - Nodes that did not answer fail if they are fewer than half of all.
// - A clock fails if its offset differs from the median by more than kMaxClockOffset. Two clocks name no node.
// - A node fails if more than half of its links are slow, to at least two other nodes, and the links between the
//   remaining nodes are not all slow. The node with the largest share of slow links is judged first, and its links then
//   count for no other. Slow links that no failed node explains are named themselves: those of two nodes, for example.
PreflightVerdict judge_preflight(const std::vector<std::optional<NodeHealth>>& nodes,
                                 const std::vector<LinkHealth>& links, const PreflightLimits& limits);

// Returns the distances d at which each node n sends to node (n + d) mod `nodes`: at most three, however many nodes
// there are, so that each node has up to six links with different others.
std::vector<int> preflight_distances(int nodes);

}  // namespace oarlock::launch
