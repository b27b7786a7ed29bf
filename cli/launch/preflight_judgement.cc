#include "cli/launch/preflight_judgement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace oarlock::launch {
namespace {

using Nodes = std::vector<std::optional<NodeHealth>>;

std::string name_of(const Nodes& nodes, int node) {
  const std::optional<NodeHealth>& health = nodes[static_cast<size_t>(node)];
  return health && !health->host.empty() ? fmt::format("node rank {} ({})", node, health->host)
                                         : fmt::format("node rank {}", node);
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
    for (const char* check : {kDevicesCheck, kStorageCheck, kSharedMemoryCheck}) judge_check(check);
  }

  void judge_silence() {
    const auto silent = std::ranges::count_if(nodes_, [](const auto& node) { return !node; });
    const bool is_minority = 2 * static_cast<size_t>(silent) < nodes_.size();
    for (int node = 0; node < size(); ++node) {
      if (nodes_[static_cast<size_t>(node)]) continue;
      constexpr std::string_view kSilent = "did not answer in time";
      if (is_minority) {
        verdict_.failed.push_back({node, std::string(kSilent), /*is_silent=*/true});
      } else {
        verdict_.unattributed.push_back(fmt::format("{} {}", name_of(nodes_, node), kSilent));
      }
    }
  }

  void judge_clocks() {
    std::vector<std::chrono::milliseconds> offsets;
    for (const auto& node : nodes_) {
      if (node) offsets.push_back(node->clock_offset);
    }
    if (offsets.size() < 2) return;
    const std::chrono::milliseconds usual = median(offsets);
    for (int node = 0; node < size(); ++node) {
      const auto& health = nodes_[static_cast<size_t>(node)];
      if (!health) continue;
      const auto offset = health->clock_offset - usual;
      if (std::chrono::abs(offset) - health->clock_uncertainty <= kMaxClockOffset) continue;
      const std::string difference =
          fmt::format("its clock differs by {:.1f} s", std::chrono::duration<double>(offset).count());
      if (offsets.size() > 2) {
        fail(node, fmt::format("{} from the median of all nodes", difference));
      } else {
        verdict_.unattributed.push_back(
            fmt::format("{}: {} from that of the other node", name_of(nodes_, node), difference));
      }
    }
  }

  void judge_links(const std::vector<LinkHealth>& links) {
    std::vector<const LinkHealth*> rest;
    for (const LinkHealth& link : links) rest.push_back(&link);
    std::vector<FailedNode> slow_nodes;
    while (const std::optional<int> worst = find_slow_node(rest)) {
      slow_nodes.push_back({*worst, describe_links(*worst, rest)});
      std::erase_if(rest, [&](const LinkHealth* link) { return link->from == *worst || link->to == *worst; });
    }
    const bool has_good = std::ranges::any_of(rest, [&](const LinkHealth* link) { return !is_slow(*link); });
    if (!has_good && !links.empty()) {
      rest.clear();
      slow_nodes.clear();
      for (const LinkHealth& link : links) rest.push_back(&link);
    }
    for (FailedNode& node : slow_nodes) fail(node.node, std::move(node.reason));
    for (const LinkHealth* link : rest) {
      if (!is_slow(*link)) continue;
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

  void fail(int node, std::string reason) {
    const auto known = std::ranges::find(verdict_.failed, node, &FailedNode::node);
    if (known != verdict_.failed.end()) {
      known->reason += "; " + reason;
    } else {
      verdict_.failed.push_back({node, std::move(reason)});
    }
  }

  void judge_check(const std::string& check) {
    std::vector<FailedNode> failed;
    size_t answered = 0;
    for (int node = 0; node < size(); ++node) {
      const auto& health = nodes_[static_cast<size_t>(node)];
      if (!health) continue;
      ++answered;
      const auto failure = std::ranges::find(health->failures, check, &CheckFailure::check);
      if (failure != health->failures.end())
        failed.push_back({node, fmt::format("{}: {}", failure->check, failure->message)});
    }
    if (failed.size() > 1 && failed.size() == answered) {
      verdict_.unattributed.push_back(fmt::format("all {} nodes that answered fail: {}", answered, failed[0].reason));
      return;
    }
    for (FailedNode& node : failed) fail(node.node, std::move(node.reason));
  }

  bool is_slow(const LinkHealth& link) const {
    if (!link.milliseconds || !link.mbps) return true;
    return (limits_.min_mbps && *link.mbps < *limits_.min_mbps) ||
           (limits_.max_milliseconds && *link.milliseconds > *limits_.max_milliseconds);
  }

  // Returns the node with the largest share of slow links that these can be blamed on; absent if there is none.
  std::optional<int> find_slow_node(const std::vector<const LinkHealth*>& links) const {
    struct Count {
      int links = 0;
      int slow = 0;
      std::set<int> slow_peers = {};
    };
    std::map<int, Count> counts;
    for (const LinkHealth* link : links) {
      for (const auto& [node, peer] : {std::pair(link->from, link->to), std::pair(link->to, link->from)}) {
        Count& count = counts[node];
        ++count.links;
        if (!is_slow(*link)) continue;
        ++count.slow;
        count.slow_peers.insert(peer);
      }
    }
    std::optional<int> worst;
    for (const auto& [node, count] : counts) {
      if (2 * count.slow <= count.links || count.slow_peers.size() < 2) continue;
      const auto is_worse = [&](const Count& other) {
        const int difference = count.slow * other.links - other.slow * count.links;
        return difference != 0 ? difference > 0 : count.slow > other.slow;
      };
      if (!worst || is_worse(counts.at(*worst))) worst = node;
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

  // The medians of the slow links of a node that have a connection.
  std::string describe_links(int node, const std::vector<const LinkHealth*>& links) const {
    int all = 0;
    int slow = 0;
    std::vector<double> milliseconds;
    std::vector<double> mbps;
    for (const LinkHealth* link : links) {
      if (link->from != node && link->to != node) continue;
      ++all;
      if (!is_slow(*link)) continue;
      ++slow;
      if (!link->milliseconds || !link->mbps) continue;
      milliseconds.push_back(*link->milliseconds);
      mbps.push_back(*link->mbps);
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

std::vector<int> preflight_distances(int nodes) {
  std::vector<int> out;
  for (const int distance : {1, 2, 4}) {
    if (distance < nodes) out.push_back(distance);
  }
  return out;
}

}  // namespace oarlock::launch
