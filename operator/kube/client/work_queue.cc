#include "operator/kube/client/work_queue.h"

#include <algorithm>

namespace oarlock::kube {

void QueueState::enqueue(const ObjectKey& key, Priority priority) {
  (priority == Priority::kLow ? low_ : ready_).push(key);
}

// Moves a key of low priority to the normal queue.
void QueueState::raise_priority(const ObjectKey& key, Dirty& dirty) {
  dirty.priority = Priority::kNormal;
  if (low_.erase(key)) ready_.push(key);
}

void QueueState::add(const ObjectKey& key, SteadyTime now, Priority priority) {
  if (shutting_down_) return;
  const auto [it, is_new] = dirty_.emplace(key, Dirty{now, priority});
  if (!is_new) {
    if (priority < it->second.priority) raise_priority(key, it->second);
    return;
  }
  if (!processing_.contains(key)) enqueue(key, priority);
  if (observer_ != nullptr) observer_->on_add(depth());
}

void QueueState::add_after(const ObjectKey& key, std::chrono::milliseconds delay, SteadyTime now, Priority priority) {
  if (shutting_down_) return;
  if (delay.count() <= 0) return add(key, now, priority);
  const SteadyTime due = now + delay;
  const auto [it, is_new] = waiting_.emplace(key, Waiting{due, priority});
  it->second.priority = std::min(it->second.priority, priority);
  if (!is_new && it->second.due <= due) return;
  if (!is_new) delayed_.erase({it->second.due, key});
  it->second.due = due;
  delayed_.insert({due, key});
}

void QueueState::add_rate_limited(const ObjectKey& key, SteadyTime now) {
  const int failures = failures_[key]++;
  if (observer_ != nullptr) observer_->on_retry();
  std::chrono::milliseconds delay = options_.max_delay;
  if (failures < 40) delay = std::min(delay, options_.base_delay * (int64_t{1} << failures));
  add_after(key, delay, now);
}

int QueueState::failures(const ObjectKey& key) const {
  const auto it = failures_.find(key);
  return it == failures_.end() ? 0 : it->second;
}

void QueueState::queue_due(SteadyTime now) {
  while (!delayed_.empty() && delayed_.begin()->due <= now) {
    const ObjectKey key = std::move(delayed_.extract(delayed_.begin()).value().key);
    const auto it = waiting_.find(key);
    const Priority priority = it->second.priority;
    waiting_.erase(it);
    add(key, now, priority);
  }
}

FairQueue& QueueState::next_queue(SteadyTime now) {
  if (low_.empty()) return ready_;
  const bool has_waited = now - dirty_.at(low_.front()).since >= options_.max_wait;
  return ready_.empty() || has_waited ? low_ : ready_;
}

std::optional<ObjectKey> QueueState::get(SteadyTime now) {
  queue_due(now);
  FairQueue& queue = next_queue(now);
  if (queue.empty()) return std::nullopt;
  ObjectKey key = queue.pop();
  const auto dirty = dirty_.find(key);
  const Seconds waited = now - dirty->second.since;
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
  if (const auto dirty = dirty_.find(key); dirty != dirty_.end() && !shutting_down_)
    enqueue(key, dirty->second.priority);
}

void QueueState::shut_down() {
  shutting_down_ = true;
  ready_.clear();
  low_.clear();
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
  const size_t depth = state_.depth().all();
  const std::optional<SteadyTime> due = state_.next_due();
  apply();
  if (state_.depth().all() > depth) {
    wake_one();
  } else if (state_.next_due() != due) {
    has_waiting_leader_ ? due_.notify_one() : work_.notify_one();
  }
}

// A thread that was notified but does not run yet counts as waiting; therefore get() wakes another thread for the keys
// that remain.
void WorkQueue::wake_one() { followers_ > 0 ? work_.notify_one() : due_.notify_one(); }

void WorkQueue::add(const ObjectKey& key) {
  change([&] { state_.add(key, clock_->steady()); });
}

void WorkQueue::add_after(const ObjectKey& key, std::chrono::milliseconds delay, Priority priority) {
  change([&] { state_.add_after(key, delay, clock_->steady(), priority); });
}

void WorkQueue::add_rate_limited(const ObjectKey& key) {
  change([&] { state_.add_rate_limited(key, clock_->steady()); });
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
    std::optional<ObjectKey> key = state_.get(now);
    const std::optional<SteadyTime> due = state_.next_due();
    if (key) {
      const bool needs_leader = due && !has_waiting_leader_;
      if (state_.depth().all() > 0 || needs_leader) wake_one();
      return key;
    }
    if (due && !has_waiting_leader_) {
      has_waiting_leader_ = true;
      due_.wait_for(lock, *due - now);
      has_waiting_leader_ = false;
    } else {
      ++followers_;
      work_.wait(lock);
      --followers_;
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
  work_.notify_all();
  due_.notify_all();
}

QueueDepth WorkQueue::depth() const {
  const std::lock_guard lock(mutex_);
  return state_.depth();
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
