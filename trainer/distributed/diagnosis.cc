#include "trainer/distributed/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tuple>
#include <vector>

namespace oarlock {
namespace {

std::string place(const Activity& activity) {
  return fmt::format("step {}, {}, collective {}", activity.step, activity.phase, activity.collective);
}

// How far a rank has come. Steps first: a replayed CUDA graph counts no collectives.
std::tuple<int64_t, int64_t> progress(const Activity& activity) { return {activity.step, activity.collective}; }

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

std::string diagnose(const Activity& own, std::span<const PeerReport> peers) {
  std::vector<int> silent;
  std::vector<int> gone;
  std::vector<const PeerReport*> behind;
  bool ahead = false;
  for (const PeerReport& peer : peers) {
    if (peer.state == PeerReport::State::kSilent) silent.push_back(peer.rank);
    if (peer.state == PeerReport::State::kGone) gone.push_back(peer.rank);
    if (peer.state != PeerReport::State::kAnswers) continue;
    ahead |= progress(peer.activity) > progress(own);
    if (progress(peer.activity) < progress(own)) behind.push_back(&peer);
  }
  // A rank that is behind may itself wait for a silent one.
  const char* const how = silent.empty() ? "has not arrived" : "is behind, too";
  std::vector<std::string> parts;
  parts.reserve(behind.size() + 2);
  for (const PeerReport* peer : behind)
    parts.push_back(fmt::format("rank {} {} (it is at {})", peer->rank, how, place(peer->activity)));
  if (!silent.empty()) {
    parts.insert(parts.begin(), fmt::format("{} {} not answer (stopped, or the host is cut off)", ranks_text(silent),
                                            silent.size() == 1 ? "does" : "do"));
  }
  if (!gone.empty()) {
    parts.push_back(fmt::format("{} {} ended", ranks_text(gone), gone.size() == 1 ? "has" : "have"));
  }
  if (parts.empty()) {
    parts.emplace_back(ahead ? "the other ranks went on without this one"
                             : "every rank answers and none is behind: look at the network between them");
  }
  return fmt::format("{}; this rank is at {}", fmt::join(parts, "; "), place(own));
}

}  // namespace oarlock
