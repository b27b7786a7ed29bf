#include "cli/launch/preflight_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "common/error.h"

namespace oarlock::launch {
namespace {

// Of the at most three links in one direction (preflight_distances()): more than half.
constexpr int kMinSlowLinks = 2;

constexpr size_t kMaxReasons = 4;  // of a message

using Nodes = std::vector<std::optional<NodeHealth>>;

std::string name_of(const Nodes& nodes, int node) {
  const std::optional<NodeHealth>& health = nodes[static_cast<size_t>(node)];
  return health && !health->host.empty() ? fmt::format("node rank {} ({})", node, health->host)
                                         : fmt::format("node rank {}", node);
}

// Returns one line.
std::string describe_verdict(const PreflightVerdict& verdict) {
  const size_t count = verdict.failed.size() + verdict.unattributed.size();
  std::vector<std::string> reasons;
  for (const FailedNode& node : verdict.failed | std::views::take(kMaxReasons))
    reasons.push_back(fmt::format("node rank {}: {}", node.node, node.reason));
  for (const std::string& reason : verdict.unattributed | std::views::take(kMaxReasons - reasons.size()))
    reasons.push_back(reason);
  std::string out = fmt::format("{}", fmt::join(reasons, "; "));
  if (reasons.size() < count) out += fmt::format("; and {} more", count - reasons.size());
  return out;
}

template <typename Value>
Value median(std::vector<Value> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class Judge {
 public:
  Judge(const Nodes& nodes, const PreflightLimits& limits) : nodes_(nodes), limits_(limits) {}

  void judge_checks() {
    const auto answered =
        static_cast<size_t>(std::ranges::count_if(nodes_, [](const auto& node) { return node.has_value(); }));
    // Devices and memory belong to a node alone, unless all nodes lack what the job requests.
    for (const char* check : {kDevicesCheck, kSharedMemoryCheck}) {
      const auto failed = nodes_that_fail(check);
      const bool is_of_all = failed.size() == answered && nodes_.size() > 1;
      if (is_of_all && !failed.empty()) report(failed, answered);
      if (!is_of_all) fail(failed);
    }
    fail_minority(nodes_that_fail(kStorageCheck), answered);
    if (const auto failed = nodes_that_fail(kStorageSpaceCheck); !failed.empty()) report(failed, answered);
  }

  void judge_silence() {
    std::vector<FailedNode> failed;
    for (int node = 0; node < size(); ++node) {
      if (!nodes_[static_cast<size_t>(node)]) failed.push_back({node, "did not answer in time", /*is_silent=*/true});
    }
    fail_minority(std::move(failed), nodes_.size());
  }

  void judge_clocks() {
    std::vector<std::chrono::milliseconds> offsets;
    for (const auto& node : nodes_) {
      if (node) offsets.push_back(node->clock_offset);
    }
    if (offsets.empty()) return;
    const std::chrono::milliseconds usual = median(offsets);
    std::vector<FailedNode> failed;
    for (int node = 0; node < size(); ++node) {
      const auto& health = nodes_[static_cast<size_t>(node)];
      if (!health) continue;
      const auto offset = health->clock_offset - usual;
      if (std::chrono::abs(offset) - health->clock_uncertainty <= kMaxClockOffset) continue;
      failed.push_back({node, fmt::format("its clock differs by {:.1f} s from the median of all nodes",
                                          std::chrono::duration<double>(offset).count())});
    }
    fail_minority(std::move(failed), offsets.size());
  }

  void judge_links(const std::vector<LinkHealth>& links) {
    std::vector<const LinkHealth*> slow;
    for (const LinkHealth& link : links) {
      if (is_slow(link)) slow.push_back(&link);
    }
    std::vector<const LinkHealth*> unexplained = slow;
    std::vector<FailedNode> failed;
    while (const std::optional<int> worst = find_slow_node(unexplained)) {
      failed.push_back({*worst, describe_links(*worst, links)});
      std::erase_if(unexplained, [&](const LinkHealth* link) { return link->from == *worst || link->to == *worst; });
    }
    if (unexplained.empty() && is_minority(failed.size(), nodes_.size()))
      return fail_minority(std::move(failed), nodes_.size());
    for (const LinkHealth* link : slow) {
      verdict_.unattributed.push_back(fmt::format("the link from {} to {}: {}", name_of(nodes_, link->from),
                                                  name_of(nodes_, link->to), describe(link->milliseconds, link->mbps)));
    }
  }

  void summarize(const std::vector<LinkHealth>& links) {
    std::optional<double> milliseconds;
    std::optional<double> mbps;
    for (const LinkHealth& link : links) {
      if (!link.milliseconds || !link.mbps) continue;
      milliseconds = std::max(milliseconds.value_or(0), *link.milliseconds);
      mbps = std::min(mbps.value_or(*link.mbps), *link.mbps);
    }
    if (!mbps) return;
    verdict_.summary =
        fmt::format("{} links between {} nodes; the slowest has {:.0f} Mbit/s, the longest round trip {:.2f} ms",
                    links.size(), size(), *mbps, *milliseconds);
  }

  PreflightVerdict verdict() {
    std::ranges::sort(verdict_.failed, {}, &FailedNode::node);
    return std::move(verdict_);
  }

 private:
  int size() const { return static_cast<int>(nodes_.size()); }

  std::vector<FailedNode> nodes_that_fail(const std::string& check) const {
    std::vector<FailedNode> out;
    for (int node = 0; node < size(); ++node) {
      const auto& health = nodes_[static_cast<size_t>(node)];
      if (!health) continue;
      const auto failure = std::ranges::find(health->failures, check, &CheckFailure::check);
      if (failure != health->failures.end())
        out.push_back({node, fmt::format("{}: {}", failure->check, failure->message)});
    }
    return out;
  }

  // A job with one node has no others to compare it with.
  bool is_minority(size_t failed, size_t judged) const { return 2 * failed < judged || nodes_.size() == 1; }

  // Reports a failure of which the nodes are not known to be the cause.
  void report(const std::vector<FailedNode>& failed, size_t judged) {
    verdict_.unattributed.push_back(fmt::format("{}: {} ({} of {} nodes)", name_of(nodes_, failed[0].node),
                                                failed[0].reason, failed.size(), judged));
  }

  void fail_minority(std::vector<FailedNode> failed, size_t judged) {
    if (failed.empty()) return;
    if (!is_minority(failed.size(), judged)) return report(failed, judged);
    fail(std::move(failed));
  }

  void fail(std::vector<FailedNode> failed) {
    for (FailedNode& node : failed) {
      const auto known = std::ranges::find(verdict_.failed, node.node, &FailedNode::node);
      if (known != verdict_.failed.end()) {
        known->reason += "; " + node.reason;
      } else {
        verdict_.failed.push_back(std::move(node));
      }
    }
  }

  bool is_slow(const LinkHealth& link) const {
    if (!link.milliseconds || !link.mbps) return true;
    return (limits_.min_mbps && *link.mbps < *limits_.min_mbps) ||
           (limits_.max_milliseconds && *link.milliseconds > *limits_.max_milliseconds);
  }

  // Returns the node that explains most of the slow links, if it has enough in one direction; absent if there is none.
  std::optional<int> find_slow_node(const std::vector<const LinkHealth*>& slow) const {
    struct Count {
      int sending = 0;
      int receiving = 0;
    };
    std::vector<Count> counts(nodes_.size());
    for (const LinkHealth* link : slow) {
      ++counts[static_cast<size_t>(link->from)].sending;
      ++counts[static_cast<size_t>(link->to)].receiving;
    }
    std::optional<int> worst;
    int most = 0;
    for (int node = 0; node < size(); ++node) {
      const Count& count = counts[static_cast<size_t>(node)];
      if (std::max(count.sending, count.receiving) < kMinSlowLinks || count.sending + count.receiving <= most) continue;
      most = count.sending + count.receiving;
      worst = node;
    }
    return worst;
  }

  std::string describe(std::optional<double> milliseconds, std::optional<double> mbps) const {
    if (!milliseconds || !mbps) return "no connection";
    std::string out = fmt::format("{:.0f} Mbit/s", *mbps);
    if (limits_.min_mbps) out += fmt::format(" (at least {:.0f})", *limits_.min_mbps);
    out += fmt::format(", round trip {:.2f} ms", *milliseconds);
    if (limits_.max_milliseconds) out += fmt::format(" (at most {:g})", *limits_.max_milliseconds);
    return out;
  }

  // Describes the slow links of a node by the medians of those that have a connection.
  std::string describe_links(int node, const std::vector<LinkHealth>& links) const {
    int all = 0;
    int slow = 0;
    std::vector<double> milliseconds;
    std::vector<double> mbps;
    for (const LinkHealth& link : links) {
      if (link.from != node && link.to != node) continue;
      ++all;
      if (!is_slow(link)) continue;
      ++slow;
      if (!link.milliseconds || !link.mbps) continue;
      milliseconds.push_back(*link.milliseconds);
      mbps.push_back(*link.mbps);
    }
    const std::string medians =
        mbps.empty() ? describe(std::nullopt, std::nullopt) : describe(median(milliseconds), median(mbps));
    return fmt::format("network: {} of its {} links are slow: {}", slow, all, medians);
  }

  const Nodes& nodes_;
  const PreflightLimits& limits_;
  PreflightVerdict verdict_;
};

}  // namespace

PreflightVerdict judge_preflight(const std::vector<std::optional<NodeHealth>>& nodes,
                                 const std::vector<LinkHealth>& links, const PreflightLimits& limits) {
  Judge judge(nodes, limits);
  judge.judge_checks();
  judge.judge_silence();
  judge.judge_clocks();
  judge.judge_links(links);
  judge.summarize(links);
  return judge.verdict();
}

PreflightOutcome outcome_of(const PreflightVerdict& verdict, int node_rank) {
  if (verdict.has_passed()) return {0, -1, node_rank == 0 ? verdict.summary : ""};
  const auto own = std::ranges::find(verdict.failed, node_rank, &FailedNode::node);
  if (own != verdict.failed.end()) return {to_int(ExitCode::kDeviceFailed), node_rank, own->reason};
  const std::string message = describe_verdict(verdict);
  if (verdict.failed.empty()) return {to_int(ExitCode::kTempFail), -1, message};
  // A node that does not respond cannot report its failure.
  const bool is_silent = std::ranges::all_of(verdict.failed, &FailedNode::is_silent);
  if (node_rank == 0 && is_silent) return {to_int(ExitCode::kDeviceFailed), verdict.failed.front().node, message};
  return {to_int(ExitCode::kPeerLost), -1, message};
}

std::vector<int> preflight_distances(int nodes) {
  std::vector<int> out;
  for (const int distance : {1, 2, 4}) {
    if (distance < nodes) out.push_back(distance);
  }
  return out;
}

}  // namespace oarlock::launch
