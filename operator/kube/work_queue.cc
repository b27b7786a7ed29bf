#include "operator/kube/work_queue.h"

#include <algorithm>

namespace oarlock::kube {

void QueueState::add(const ObjectKey& key, SteadyTime now) {
  if (shutting_down_ || !dirty_.emplace(key, now).second) return;
  if (!processing_.contains(key)) ready_.push_back(key);
  if (observer_ != nullptr) observer_->on_add(depth());
}

void QueueState::add_after(const ObjectKey& key, std::chrono::milliseconds delay, SteadyTime now) {
  if (shutting_down_) return;
  if (delay.count() <= 0) return add(key, now);
  const SteadyTime due = now + delay;
  const auto [it, is_new] = waiting_.emplace(key, due);
  if (!is_new && it->second <= due) return;
  it->second = due;
  delayed_.push({due, key});
}

void QueueState::add_rate_limited(const ObjectKey& key, SteadyTime now) {
  const int failures = failures_[key]++;
  if (observer_ != nullptr) observer_->on_retry();
  std::chrono::milliseconds delay = options_.longest_delay;
  if (failures < 40) delay = std::min(delay, options_.base_delay * (int64_t{1} << failures));
  add_after(key, delay, now);
}

int QueueState::failures(const ObjectKey& key) const {
  const auto it = failures_.find(key);
  return it == failures_.end() ? 0 : it->second;
}

void QueueState::move_due(SteadyTime now) {
  while (!delayed_.empty() && delayed_.top().due <= now) {
    const Delayed top = delayed_.top();
    delayed_.pop();
    const auto it = waiting_.find(top.key);
    if (it == waiting_.end() || it->second != top.due) continue;  // an earlier add has taken its place
    waiting_.erase(it);
    add(top.key, now);
  }
}

std::optional<ObjectKey> QueueState::get(SteadyTime now) {
  move_due(now);
  if (ready_.empty()) return std::nullopt;
  ObjectKey key = std::move(ready_.front());
  ready_.pop_front();
  const auto since = dirty_.find(key);
  const Seconds waited = now - since->second;
  dirty_.erase(since);
  processing_[key] = now;
  if (observer_ != nullptr) observer_->on_get(depth(), waited);
  return key;
}

std::optional<SteadyTime> QueueState::next_due() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.top().due;
}

void QueueState::done(const ObjectKey& key, SteadyTime now) {
  const auto it = processing_.find(key);
  if (it == processing_.end()) return;
  if (observer_ != nullptr) observer_->on_done(now - it->second);
  processing_.erase(it);
  if (dirty_.contains(key) && !shutting_down_) ready_.push_back(key);
}

void QueueState::shut_down() {
  shutting_down_ = true;
  ready_.clear();
}

Seconds QueueState::unfinished(SteadyTime now) const {
  Seconds sum{0};
  for (const auto& [key, since] : processing_) sum += now - since;
  return sum;
}

Seconds QueueState::longest(SteadyTime now) const {
  Seconds longest{0};
  for (const auto& [key, since] : processing_) longest = std::max<Seconds>(longest, now - since);
  return longest;
}

void WorkQueue::add(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.add(key, clock_->steady());
  changed_.notify_one();
}

void WorkQueue::add_after(const ObjectKey& key, std::chrono::milliseconds delay) {
  const std::lock_guard lock(mutex_);
  state_.add_after(key, delay, clock_->steady());
  changed_.notify_one();  // somebody may wait for a later one
}

void WorkQueue::add_rate_limited(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.add_rate_limited(key, clock_->steady());
  changed_.notify_one();
}

void WorkQueue::forget(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.forget(key);
}

int WorkQueue::failures(const ObjectKey& key) const {
  const std::lock_guard lock(mutex_);
  return state_.failures(key);
}

std::optional<ObjectKey> WorkQueue::get() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (state_.shutting_down()) return std::nullopt;
    const SteadyTime now = clock_->steady();
    if (std::optional<ObjectKey> key = state_.get(now)) {
      if (state_.depth() > 0) changed_.notify_one();
      return key;
    }
    if (const auto due = state_.next_due()) {
      changed_.wait_for(lock, *due - now);
    } else {
      changed_.wait(lock);
    }
  }
}

void WorkQueue::done(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.done(key, clock_->steady());
  changed_.notify_one();
}

void WorkQueue::shut_down() {
  const std::lock_guard lock(mutex_);
  state_.shut_down();
  changed_.notify_all();
}

size_t WorkQueue::depth() const {
  const std::lock_guard lock(mutex_);
  return state_.depth();
}

Seconds WorkQueue::unfinished() const {
  const std::lock_guard lock(mutex_);
  return state_.unfinished(clock_->steady());
}

Seconds WorkQueue::longest() const {
  const std::lock_guard lock(mutex_);
  return state_.longest(clock_->steady());
}

}  // namespace oarlock::kube
