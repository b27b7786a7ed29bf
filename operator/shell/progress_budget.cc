#include "operator/shell/progress_budget.h"

#include <algorithm>

namespace oarlock::control {

ProgressBudget::ProgressBudget(std::shared_ptr<const Clock> clock, double rate)
    : clock_(std::move(clock)), gap_(static_cast<int64_t>(1e9 / rate)) {}

std::optional<std::chrono::milliseconds> ProgressBudget::time_until_turn(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_->steady();
  auto it = turns_.find(job);
  if (it == turns_.end()) {
    const SteadyTime turn = std::max(next_turn_, now - (kBurst - 1) * gap_);
    next_turn_ = turn + gap_;
    if (turn <= now) return std::nullopt;
    it = turns_.emplace(job, turn).first;
  }
  if (it->second > now) return std::chrono::ceil<std::chrono::milliseconds>(it->second - now);
  turns_.erase(it);
  return std::nullopt;
}

void ProgressBudget::forget(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  turns_.erase(job);
}

}  // namespace oarlock::control
