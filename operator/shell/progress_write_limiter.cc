#include "operator/shell/progress_write_limiter.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace oarlock::control {

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
    remove({rotation_.front().name_space, rotation_.front().jobs.front()}, true);
  }
  credit_ = std::min(credit_, kBurst * interval_);
}

bool ProgressWriteLimiter::is_waiting(const kube::ObjectKey& job) const {
  const auto it = by_name_.find(job.name_space);
  return it != by_name_.end() && std::ranges::find(it->second->jobs, job.name) != it->second->jobs.end();
}

int64_t ProgressWriteLimiter::position_of(const kube::ObjectKey& job) const {
  const Rotation::iterator own = by_name_.at(job.name_space);
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
  auto it = by_name_.find(job.name_space);
  if (it == by_name_.end()) {
    it = by_name_.emplace(job.name_space, rotation_.insert(rotation_.end(), Waiting{job.name_space, {}})).first;
  }
  it->second->jobs.push_back(job.name);
}

void ProgressWriteLimiter::remove(const kube::ObjectKey& job, bool served) {
  const auto it = by_name_.find(job.name_space);
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
