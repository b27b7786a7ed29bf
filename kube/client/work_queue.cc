#include "kube/client/work_queue.h"

#include <algorithm>

namespace oarlock::kube {

void QueueState::add(const ObjectKey& key, SteadyTime now) {
  if (shutting_down_ || !dirty_.emplace(key, now).second) return;
  if (!processing_.contains(key)) ready_.push(key);
  if (observer_ != nullptr) observer_->on_add(depth());
}

void QueueState::add_after(const ObjectKey& key, std::chrono::milliseconds delay, SteadyTime now) {
  if (shutting_down_) return;
  if (delay.count() <= 0) return add(key, now);
  const SteadyTime due = now + delay;
  const auto [it, is_new] = due_.emplace(key, due);
  if (!is_new && it->second <= due) return;
  if (!is_new) delayed_.erase({it->second, &it->first});
  it->second = due;
  delayed_.insert({due, &it->first});
}

void QueueState::add_rate_limited(const ObjectKey& key, SteadyTime now) {
  const int failures = failures_[key]++;
  if (observer_ != nullptr) observer_->on_retry();
  std::chrono::milliseconds delay = options_.max_delay;
  if (failures < 40) delay = std::min(delay, options_.base_delay * (int64_t{1} << failures));
  add_after(key, delay, now);
}

void QueueState::cancel_delayed(const ObjectKey& key) {
  const auto it = due_.find(key);
  if (it == due_.end()) return;
  delayed_.erase({it->second, &it->first});
  due_.erase(it);
}

int QueueState::failures(const ObjectKey& key) const {
  const auto it = failures_.find(key);
  return it == failures_.end() ? 0 : it->second;
}

void QueueState::queue_due(SteadyTime now) {
  while (!delayed_.empty() && delayed_.begin()->due <= now) {
    const auto it = due_.find(*delayed_.begin()->key);
    delayed_.erase(delayed_.begin());
    add(due_.extract(it).key(), now);
  }
}

std::optional<ObjectKey> QueueState::get(SteadyTime now) {
  queue_due(now);
  if (ready_.empty()) return std::nullopt;
  ObjectKey key = ready_.pop();
  const auto dirty = dirty_.find(key);
  const Seconds waited = now - dirty->second;
  dirty_.erase(dirty);
  processing_[key] = {now, now};
  if (observer_ != nullptr) observer_->on_get(depth(), waited);
  return key;
}

std::optional<SteadyTime> QueueState::next_due() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->due;
}

void QueueState::report_progress(const ObjectKey& key, SteadyTime now) {
  if (const auto it = processing_.find(key); it != processing_.end()) it->second.progress = now;
}

void QueueState::done(const ObjectKey& key, SteadyTime now) {
  const auto it = processing_.find(key);
  if (it == processing_.end()) return;
  if (observer_ != nullptr) observer_->on_done(now - it->second.since);
  processing_.erase(it);
  if (dirty_.contains(key) && !shutting_down_) ready_.push(key);
}

void QueueState::shut_down() {
  shutting_down_ = true;
  ready_.clear();
}

Seconds QueueState::unfinished_work(SteadyTime now) const {
  Seconds sum{0};
  for (const auto& [key, work] : processing_) sum += now - work.since;
  return sum;
}

Seconds QueueState::longest_running(SteadyTime now) const {
  Seconds longest{0};
  for (const auto& [key, work] : processing_) longest = std::max<Seconds>(longest, now - work.progress);
  return longest;
}

// Applies a change, and wakes a thread only if there is a key to return or an earlier time to wait for.
template <typename Change>
void WorkQueue::change(Change apply) {
  const std::lock_guard lock(mutex_);
  const size_t depth = state_.depth();
  const std::optional<SteadyTime> due = state_.next_due();
  apply();
  if (state_.depth() > depth || state_.next_due() != due) changed_.notify_one();
}

void WorkQueue::add(const ObjectKey& key) {
  change([&] { state_.add(key, clock_->steady()); });
}

void WorkQueue::add_after(const ObjectKey& key, std::chrono::milliseconds delay) {
  change([&] { state_.add_after(key, delay, clock_->steady()); });
}

void WorkQueue::add_rate_limited(const ObjectKey& key) {
  change([&] { state_.add_rate_limited(key, clock_->steady()); });
}

void WorkQueue::forget(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.forget(key);
}

void WorkQueue::cancel_delayed(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.cancel_delayed(key);
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
      // More delayed keys may have become ready, and this thread may be the only one that waited until the next is due.
      if (state_.depth() > 0 || state_.next_due()) changed_.notify_one();
      return key;
    }
    if (const std::optional<SteadyTime> due = state_.next_due()) {
      changed_.wait_for(lock, *due - now);
    } else {
      changed_.wait(lock);
    }
  }
}

void WorkQueue::report_progress(const ObjectKey& key) {
  const std::lock_guard lock(mutex_);
  state_.report_progress(key, clock_->steady());
}

void WorkQueue::done(const ObjectKey& key) {
  change([&] { state_.done(key, clock_->steady()); });
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

size_t WorkQueue::delayed() const {
  const std::lock_guard lock(mutex_);
  return state_.delayed();
}

Seconds WorkQueue::unfinished_work() const {
  const std::lock_guard lock(mutex_);
  return state_.unfinished_work(clock_->steady());
}

Seconds WorkQueue::longest_running() const {
  const std::lock_guard lock(mutex_);
  return state_.longest_running(clock_->steady());
}

}  // namespace oarlock::kube
