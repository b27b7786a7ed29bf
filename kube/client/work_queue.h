// Work queue of object keys with the semantics of client-go's util/workqueue. At most one worker processes a key at a
// time; adding a queued key again has no effect; a key that is added while it is being processed is processed once
// more; of several delayed adds of a key, the earliest takes effect; failures are retried with exponential backoff. In
// addition, namespaces are served round-robin.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "common/clock.h"
#include "kube/client/request.h"

namespace oarlock::kube {

using Seconds = std::chrono::duration<double>;

// Receives the queue's metrics. `depth` is the number of keys that wait for a worker. It is called with the queue's
// lock held, so it must return quickly and must not call the queue.
class QueueObserver {
 public:
  virtual ~QueueObserver() = default;
  virtual void on_add(size_t depth) = 0;
  virtual void on_get(size_t depth, Seconds waited) = 0;
  virtual void on_done(Seconds worked) = 0;
  virtual void on_retry() = 0;
};

// FIFO queue of keys that serves the namespaces round-robin, so that a namespace with thousands of keys delays only its
// own keys. Not thread-safe.
class FairQueue {
 public:
  // REQUIRES: the key is not in the queue.
  void push(const ObjectKey& key) {
    std::deque<std::string>& names = names_[key.namespace_name];
    if (names.empty()) turns_.push_back(key.namespace_name);
    names.push_back(key.name);
    ++size_;
  }

  // Removes and returns the oldest key of the namespace whose turn it is. REQUIRES: the queue is not empty.
  ObjectKey pop() {
    const auto names = names_.find(turns_.front());
    turns_.pop_front();
    ObjectKey key{names->first, std::move(names->second.front())};
    names->second.pop_front();
    if (names->second.empty()) {
      names_.erase(names);
    } else {
      turns_.push_back(key.namespace_name);
    }
    --size_;
    return key;
  }

  void clear() { *this = {}; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  std::unordered_map<std::string, std::deque<std::string>> names_;  // by namespace; no entry is empty
  std::deque<std::string> turns_;                                   // the namespaces of names_ in order of service
  size_t size_ = 0;
};

// The work queue without threads and clock: the caller passes the time, which must never decrease. Not thread-safe.
class QueueState {
 public:
  struct Options {
    std::chrono::milliseconds base_delay{5};     // after the first failure; it doubles with each further failure
    std::chrono::milliseconds max_delay{60000};  // as in the Job controller
  };

  explicit QueueState(Options options, QueueObserver* observer = nullptr) : options_(options), observer_(observer) {}

  void add(const ObjectKey& key, SteadyTime now);
  void add_after(const ObjectKey& key, std::chrono::milliseconds delay, SteadyTime now);
  // Adds the key after a delay that grows with its number of failures, and counts one more failure.
  void add_rate_limited(const ObjectKey& key, SteadyTime now);
  // Resets the number of failures of the key.
  void forget(const ObjectKey& key) { failures_.erase(key); }
  // Cancels the delayed add of the key, if any.
  void cancel_delayed(const ObjectKey& key);
  int failures(const ObjectKey& key) const;

  // Queues the keys whose delay has ended, and returns the oldest key of the namespace whose turn it is. Returns
  // nullopt if no key is ready before next_due().
  std::optional<ObjectKey> get(SteadyTime now);
  // End of the earliest delay; nullopt if no key is delayed.
  std::optional<SteadyTime> next_due() const;
  // Records progress in processing the key, so that its time in longest_running() starts again.
  void report_progress(const ObjectKey& key, SteadyTime now);
  // Must be called when processing of a key that get() returned has ended.
  void done(const ObjectKey& key, SteadyTime now);

  // Ignores all further adds, and drops the queued keys. Keys that are being processed are not processed again.
  void shut_down();
  bool shutting_down() const { return shutting_down_; }

  size_t depth() const { return ready_.size(); }
  size_t processing() const { return processing_.size(); }
  size_t delayed() const { return delayed_.size(); }  // at most one entry per key
  // Sum over the keys being processed of the time since get() (client-go's unfinished_work_seconds).
  Seconds unfinished_work(SteadyTime now) const;
  // Longest time since the last progress of a key being processed (client-go's longest_running_processor_seconds).
  Seconds longest_running(SteadyTime now) const;

 private:
  struct Delayed {
    SteadyTime due;
    const ObjectKey* key;  // that of due_
    bool operator<(const Delayed& other) const { return due != other.due ? due < other.due : *key < *other.key; }
  };
  struct Processing {
    SteadyTime since;
    SteadyTime progress;
  };
  void queue_due(SteadyTime now);

  const Options options_;
  QueueObserver* const observer_;
  FairQueue ready_;
  std::unordered_map<ObjectKey, SteadyTime>
      dirty_;  // keys to process, and since when; those in processing_ are not in ready_
  std::unordered_map<ObjectKey, Processing> processing_;
  std::set<Delayed> delayed_;                      // by time
  std::unordered_map<ObjectKey, SteadyTime> due_;  // the time of each key of delayed_
  std::unordered_map<ObjectKey, int> failures_;
  bool shutting_down_ = false;
};

// The thread-safe work queue. The observer must outlive it.
class WorkQueue {
 public:
  WorkQueue(QueueState::Options options, std::shared_ptr<const Clock> clock, QueueObserver* observer = nullptr)
      : clock_(std::move(clock)), state_(options, observer) {}

  void add(const ObjectKey& key);
  void add_after(const ObjectKey& key, std::chrono::milliseconds delay);
  void add_rate_limited(const ObjectKey& key);
  void forget(const ObjectKey& key);
  void cancel_delayed(const ObjectKey& key);
  int failures(const ObjectKey& key) const;

  // Blocks until a key is ready. Returns nullopt after shut_down().
  std::optional<ObjectKey> get();
  void report_progress(const ObjectKey& key);
  void done(const ObjectKey& key);
  void shut_down();

  size_t depth() const;
  size_t delayed() const;
  Seconds unfinished_work() const;
  Seconds longest_running() const;

 private:
  template <typename Change>
  void change(Change apply);

  const std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  QueueState state_;
  std::condition_variable changed_;
};

}  // namespace oarlock::kube
