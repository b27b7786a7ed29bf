#include "operator/shell/stall_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/rules.h"
#include "common/contract.h"
#include "common/text.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

constexpr std::chrono::minutes kMaxAge{1};  // of reports that are returned
constexpr size_t kMaxWord = 40;

// The texts of a pod, which is not trusted.
void sanitize(RankActivity& rank) {
  for (std::string* text : {&rank.updated_at, &rank.program, &rank.state, &rank.wait_channel})
    *text = sanitize_line(*text, kMaxWord);
}

}  // namespace

StallProbe::StallProbe(Options options, Connect connect, OnReports on_reports, std::shared_ptr<const Clock> clock)
    : options_(options), connect_(std::move(connect)), on_reports_(std::move(on_reports)), clock_(std::move(clock)) {}

StallProbe::~StallProbe() { stop(); }

void StallProbe::start() {
  for (size_t i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
}

void StallProbe::stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

std::optional<std::vector<StallReport>> StallProbe::reports(const kube::ObjectKey& job, const Stall& stall) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[job];
  const SteadyTime now = clock_->steady();
  const bool is_old = entry.reports && now - entry.changed > kMaxAge;
  if (entry.uid != stall.uid || entry.since != stall.since || is_old)
    entry = {.uid = stall.uid, .since = stall.since, .reports = std::nullopt, .changed = now};
  if (entry.reports) return entry.reports;
  if (now - entry.changed > options_.max_wait) return std::vector<StallReport>();
  if (entry.is_waiting) return std::nullopt;
  const auto same =
      std::ranges::count_if(waiting_, [&](const auto& one) { return one.first.namespace_name == job.namespace_name; });
  if (waiting_.size() >= options_.max_waiting || std::cmp_greater_equal(same, options_.max_of_namespace))
    return std::nullopt;
  Stall bounded = stall;
  if (bounded.nodes.size() > options_.max_requests) bounded.nodes.resize(options_.max_requests);
  waiting_.emplace_back(job, std::move(bounded));
  entry.is_waiting = true;
  changed_.notify_one();
  return std::nullopt;
}

void StallProbe::forget(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  entries_.erase(job);
}

void StallProbe::run(const std::stop_token& stop) {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return !waiting_.empty(); });
    if (stop.stop_requested()) return;
    const auto next = std::ranges::min_element(
        waiting_, {}, [this](const auto& one) { return last_turns_[one.first.namespace_name]; });
    const kube::ObjectKey job = next->first;
    const Stall stall = std::move(next->second);
    waiting_.erase(next);
    if (waiting_.empty()) last_turns_.clear();  // bounds its size
    last_turns_[job.namespace_name] = ++turns_;
    const auto wanted = [&] {
      const auto entry = entries_.find(job);
      return entry != entries_.end() && entry->second.uid == stall.uid && entry->second.since == stall.since;
    };
    if (!wanted()) continue;
    lock.unlock();
    std::vector<StallReport> reports = request(stall, stop);
    lock.lock();
    if (stop.stop_requested()) return;
    if (!wanted()) continue;
    entries_[job].reports = std::move(reports);
    entries_[job].changed = clock_->steady();
    lock.unlock();
    on_reports_(job);
  }
}

std::vector<StallReport> StallProbe::request(const Stall& stall, const std::stop_token& stopped) const {
  const SteadyTime end = clock_->steady() + options_.job_limit;
  std::vector<StallReport> out;
  size_t requests = 0;
  for (const Stall::Node& node : stall.nodes) {
    StallReport report{.node_rank = node.node_rank};
    bool is_silent = false;
    // A launcher reports all ranks of its node; otherwise, each rank reports itself.
    for (int i = 0; i < stall.ranks_per_node; ++i) {
      if (requests == options_.max_requests || clock_->steady() >= end || stopped.stop_requested()) return out;
      ++requests;
      const std::string url = "http://" + endpoint(node.host, stall.port + i);
      const SteadyTime begin = clock_->steady();
      const auto body = request_status(connect_, url, {stall.uid, std::nullopt}, options_.timeout, stopped);
      // A launcher whose ranks have reported nothing has no server, so that a refused connection shows nothing.
      if (!body && (i > 0 || clock_->steady() - begin < options_.timeout)) continue;
      report.answered = body.has_value();
      is_silent = !body;
      if (!body) break;
      const std::vector<RankActivity> ranks = rank_activities_from_json(*body, api::rules::kMaxProcessesPerNode);
      report.ranks.insert(report.ranks.end(), ranks.begin(), ranks.end());
      if (ranks.size() > 1) break;
    }
    std::ranges::for_each(report.ranks, sanitize);
    if (report.answered || is_silent) out.push_back(std::move(report));
  }
  return out;
}

}  // namespace oarlock::control
