#include "operator/shell/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "common/text.h"
#include "operator/core/progress.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxPhase = 60;
constexpr size_t kMaxTime = 40;

bool equals_except_times(RankStatus a, const RankStatus& b) {
  a.updated_at = b.updated_at;
  a.usage_seconds = b.usage_seconds;
  return a == b;
}

}  // namespace

ProgressPoller::ProgressPoller(ProgressOptions options, Connect connect, OnChange on_change,
                               std::shared_ptr<const Clock> clock)
    : options_(options),
      slow_threads_(std::clamp(options.slow_threads, 1, std::max(1, options.threads - 1))),
      failed_threads_(std::max(1, slow_threads_ - 1)),
      connect_(std::move(connect)),
      on_change_(std::move(on_change)),
      clock_(std::move(clock)) {}

ProgressPoller::~ProgressPoller() { stop(); }

void ProgressPoller::start() {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

void ProgressPoller::stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void ProgressPoller::set_address(Target& target, const std::string& uid, const std::string& url) {
  active_ += (url.empty() ? 0 : 1);
  active_ -= (target.url.empty() ? 0 : 1);
  target.uid = uid;
  target.url = url;
  target.generation = ++generations_;
  target.is_in_flight = false;
  target.group = Group::kSlow;
  target.probe.last_poll.reset();
}

void ProgressPoller::watch(const kube::ObjectKey& job, const std::string& uid, const std::string& host, int port,
                           std::optional<int64_t> checkpoint_request) {
  const std::string url = "http://" + endpoint(host, port);
  const std::lock_guard lock(mutex_);
  Target& target = targets_[job];
  const bool is_requested = checkpoint_request && target.checkpoint_request != checkpoint_request;
  target.checkpoint_request = checkpoint_request;
  if (is_requested) target.has_unsent_request = true;
  const bool is_same = target.uid == uid && target.url == url;
  if (is_same && !is_requested) return;
  if (target.uid != uid) target.probe = {};
  if (!is_same) set_address(target, uid, url);
  target.wait = options_.interval;
  target.due = clock_->steady();
  ++changes_;
  changed_.notify_one();
}

void ProgressPoller::pause(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  const auto it = targets_.find(job);
  if (it == targets_.end() || it->second.url.empty()) return;
  const std::optional<StatusPoll> last_poll = it->second.probe.last_poll;
  set_address(it->second, it->second.uid, "");
  it->second.probe.last_poll = last_poll;
}

void ProgressPoller::forget(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  const auto it = targets_.find(job);
  if (it == targets_.end()) return;
  set_address(it->second, "", "");
  targets_.erase(it);
  if (last_polls_.size() > targets_.size()) last_polls_.clear();  // bounds its size; the turns start again
}

RankProbe ProgressPoller::latest(const kube::ObjectKey& job, const std::string& uid) const {
  const std::lock_guard lock(mutex_);
  const auto it = targets_.find(job);
  return it == targets_.end() || it->second.uid != uid ? RankProbe() : it->second.probe;
}

size_t ProgressPoller::active_jobs() const {
  const std::lock_guard lock(mutex_);
  return active_;
}

ProgressPoller::PollResult ProgressPoller::poll(const std::string& url, const StatusQuery& query,
                                                const std::stop_token& stop) const {
  const SteadyTime started = clock_->steady();
  PollResult out;
  const std::optional<std::string> body = request_status(connect_, url, query, options_.timeout, stop);
  out.took = clock_->steady() - started;
  if (!body) return out;
  out.launcher = launcher_status_from_json(*body);
  if (out.launcher) out.launcher->in_pod_restarts.reason = sanitize_line(out.launcher->in_pod_restarts.reason);
  out.status = rank_status_from_json(*body);
  if (out.status) {
    out.status->phase = sanitize_line(out.status->phase, kMaxPhase);
    out.status->updated_at = sanitize_line(out.status->updated_at, kMaxTime);
    out.status->recovered_ranks = sanitize_line(out.status->recovered_ranks, kMaxPhase);
    out.status->recovery_reason = sanitize_line(out.status->recovery_reason);
  }
  return out;
}

bool ProgressPoller::has_thread(Group group) const {
  const int failed = in_flight_.at(static_cast<size_t>(Group::kFailed));
  const int slow = in_flight_.at(static_cast<size_t>(Group::kSlow)) + failed;
  return group == Group::kPrompt || (slow < slow_threads_ && (group == Group::kSlow || failed < failed_threads_));
}

// Returns the target to poll next: due targets come first, of these the ones with a request that was not sent, then the
// groups by turns, then the longest waiting one.
ProgressPoller::Targets::iterator ProgressPoller::next_target(SteadyTime now) {
  const auto order_of = [&](const Targets::value_type& entry) {
    const auto& [job, target] = entry;
    if (target.due > now) return std::tuple(true, true, uint64_t{0}, target.due);
    const auto turns = last_polls_.find(job.namespace_name);
    const uint64_t last = turns == last_polls_.end() ? 0 : turns->second.at(static_cast<size_t>(target.group));
    return std::tuple(false, !target.has_unsent_request, last, target.due);
  };
  auto next = targets_.end();
  decltype(order_of(*next)) best;
  for (auto it = targets_.begin(); it != targets_.end(); ++it) {
    const Target& target = it->second;
    if (target.url.empty() || target.is_in_flight || !has_thread(target.group)) continue;
    if (const auto order = order_of(*it); next == targets_.end() || order < best) {
      next = it;
      best = order;
    }
  }
  return next;
}

bool ProgressPoller::record(const kube::ObjectKey& job, uint64_t generation, const StatusQuery& query,
                            SystemTime started, PollResult result) {
  const auto it = targets_.find(job);
  if (it == targets_.end() || it->second.generation != generation) return false;  // of an earlier address
  Target& target = it->second;
  target.is_in_flight = false;
  target.group = !result.status ? Group::kFailed : result.took <= options_.prompt ? Group::kPrompt : Group::kSlow;
  target.wait = result.status ? options_.interval : std::min(target.wait * 2, options_.max_interval);
  const bool is_requested = target.checkpoint_request != query.checkpoint;  // since the poll was sent
  target.due = is_requested ? clock_->steady() : clock_->steady() + target.wait;
  target.probe.last_poll = {started, result.status.has_value(), result.status || result.launcher};
  const bool is_launcher_new = result.launcher && target.probe.launcher != result.launcher;
  if (is_launcher_new) target.probe.launcher = std::move(result.launcher);
  if (!result.status) return is_launcher_new;
  target.probe.status_sent_at = started;
  std::optional<RankStatus>& last = target.probe.last_status;
  const bool has_changed = !last || !equals_except_times(*result.status, *last);
  const bool has_started = last && last->phase == kPhaseOfStart && result.status->phase != kPhaseOfStart;
  if (!last || has_started || last->step != result.status->step || last->attempt != result.status->attempt) {
    target.probe.step_received_at = clock_->now();
  }
  if (last && last->attempt != result.status->attempt) target.probe.highest = {};
  raise_to(target.probe.highest.step, result.status->step);
  raise_to(target.probe.highest.checkpoint_step, result.status->checkpoint_step);
  last = std::move(result.status);
  return has_changed;
}

void ProgressPoller::run(const std::stop_token& stop) {
  const std::chrono::nanoseconds gap(static_cast<int64_t>(1e9 / options_.rate));
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const SteadyTime now = clock_->steady();
    const auto next = next_target(now);
    if (next == targets_.end()) {
      changed_.wait(lock, stop, [&, seen = changes_] { return changes_ != seen; });
      continue;
    }
    if (const SteadyTime start = std::max(next->second.due, earliest_poll_); start > now) {
      changed_.wait_for(lock, stop, start - now, [&, seen = changes_] { return changes_ != seen; });
      continue;
    }
    earliest_poll_ = std::max(earliest_poll_ + gap, now);
    const Group group = next->second.group;
    const auto index = static_cast<size_t>(group);
    ++in_flight_.at(index);
    last_polls_[next->first.namespace_name].at(index) = ++polls_;
    next->second.is_in_flight = true;
    next->second.has_unsent_request = false;
    const kube::ObjectKey job = next->first;
    const uint64_t generation = next->second.generation;
    const StatusQuery query{next->second.uid, next->second.checkpoint_request};
    const std::string url = next->second.url;
    const SystemTime started = clock_->now();
    lock.unlock();
    PollResult result = poll(url, query, stop);
    lock.lock();
    --in_flight_.at(index);
    if (group != Group::kPrompt) {
      ++changes_;  // another thread may start a poll of these groups now
      changed_.notify_one();
    }
    if (!record(job, generation, query, started, std::move(result))) continue;
    lock.unlock();
    on_change_(job);
    lock.lock();
  }
}

ProgressWriteLimiter::ProgressWriteLimiter(std::shared_ptr<const Clock> clock, double rate)
    : clock_(std::move(clock)),
      interval_(static_cast<int64_t>(1e9 / rate)),
      credited_until_(clock_->steady()),
      credit_(kBurst * interval_) {}

std::optional<std::chrono::milliseconds> ProgressWriteLimiter::time_until_turn(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  add_credit();
  if (!is_waiting(job)) add(job);
  const std::chrono::nanoseconds needed = (position_of(job) + 1) * interval_;
  if (needed > credit_) return std::chrono::ceil<std::chrono::milliseconds>(needed - credit_);
  credit_ -= interval_;
  remove(job, true);
  return std::nullopt;
}

void ProgressWriteLimiter::forget(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  if (is_waiting(job)) remove(job, false);
}

void ProgressWriteLimiter::add_credit() {
  const SteadyTime now = clock_->steady();
  credit_ += now - credited_until_;
  credited_until_ = now;
  // A token that is not used within the burst is that of a job that has not called again. Such a job loses its place,
  // so that it does not stop those behind it.
  while (credit_ > kBurst * interval_ && !rotation_.empty()) {
    credit_ -= interval_;
    remove({rotation_.front().namespace_name, rotation_.front().jobs.front()}, true);
  }
  credit_ = std::min(credit_, kBurst * interval_);
}

bool ProgressWriteLimiter::is_waiting(const kube::ObjectKey& job) const {
  const auto it = by_name_.find(job.namespace_name);
  return it != by_name_.end() && std::ranges::find(it->second->jobs, job.name) != it->second->jobs.end();
}

int64_t ProgressWriteLimiter::position_of(const kube::ObjectKey& job) const {
  const Rotation::iterator own = by_name_.at(job.namespace_name);
  const int64_t index = std::ranges::find(own->jobs, job.name) - own->jobs.begin();
  int64_t before = index;
  bool is_ahead = true;  // of the own namespace
  for (auto it = rotation_.begin(); it != rotation_.end(); ++it) {
    if (it == own) {
      is_ahead = false;
    } else {
      before += std::min(std::ssize(it->jobs), index + (is_ahead ? 1 : 0));
    }
  }
  return before;
}

void ProgressWriteLimiter::add(const kube::ObjectKey& job) {
  auto it = by_name_.find(job.namespace_name);
  if (it == by_name_.end()) {
    it = by_name_.emplace(job.namespace_name, rotation_.insert(rotation_.end(), Waiting{job.namespace_name, {}})).first;
  }
  it->second->jobs.push_back(job.name);
}

void ProgressWriteLimiter::remove(const kube::ObjectKey& job, bool served) {
  const auto it = by_name_.find(job.namespace_name);
  const Rotation::iterator waiting = it->second;
  waiting->jobs.erase(std::ranges::find(waiting->jobs, job.name));
  if (waiting->jobs.empty()) {
    by_name_.erase(it);
    rotation_.erase(waiting);
  } else if (served) {
    rotation_.splice(rotation_.end(), rotation_, waiting);
  }
}

}  // namespace oarlock::control
