// Keys of objects to look at, with the semantics of client-go's workqueue: a key is never worked on by two workers, a
// key added many times is done once, one added while it is worked on is done again, a delayed add keeps the earlier
// time, and failures wait longer each time. Beyond that, as in controller-runtime's priority queue, a key may be added
// with a low priority. Of the keys of one priority the namespaces take turns.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "common/clock.h"
#include "operator/kube/fair_queue.h"
#include "operator/kube/object_key.h"

namespace oarlock::kube {

using Seconds = std::chrono::duration<double>;

// kLow: it is taken when no other key is there, or when it has waited for Options::longest_wait. A key that is added
// with both has the normal one.
enum class Priority { kNormal, kLow };

// Keys that wait for a worker.
struct QueueDepth {
  size_t normal = 0;
  size_t low = 0;

  size_t all() const { return normal + low; }
  bool operator==(const QueueDepth&) const = default;
};

// Told of what happens in the queue, under its lock: must be quick and must not call back.
class QueueObserver {
 public:
  virtual ~QueueObserver() = default;
  virtual void on_add(QueueDepth depth) = 0;
  virtual void on_get(QueueDepth depth, Seconds waited) = 0;
  virtual void on_done(Seconds worked) = 0;
  virtual void on_retry() = 0;
};

// The semantics, without threads: whoever calls says what time it is. Times never go back.
class QueueState {
 public:
  struct Options {
    std::chrono::milliseconds base_delay{5};         // after the first failure; doubles with each
    std::chrono::milliseconds longest_delay{60000};  // as the Job controller's
    std::chrono::milliseconds longest_wait{30000};   // of a key of low priority, in the queue
  };

  explicit QueueState(Options options, QueueObserver* observer = nullptr) : options_(options), observer_(observer) {}

  void add(const ObjectKey& key, SteadyTime now, Priority priority = Priority::kNormal);
  void add_after(const ObjectKey& key, std::chrono::milliseconds delay, SteadyTime now,
                 Priority priority = Priority::kNormal);
  void add_rate_limited(const ObjectKey& key, SteadyTime now);
  void forget(const ObjectKey& key) { failures_.erase(key); }
  int failures(const ObjectKey& key) const;

  // Moves what is due into the queue, and takes the next key of the higher priority, which is the oldest one of its
  // namespace. Empty: nothing to do before next_due().
  std::optional<ObjectKey> get(SteadyTime now);
  std::optional<SteadyTime> next_due() const;
  // The work on this key has got further: its time in longest() starts again.
  void progressed(const ObjectKey& key, SteadyTime now);
  void done(const ObjectKey& key, SteadyTime now);

  // From here on nothing is added; keys that are worked on are not done again.
  void shut_down();
  bool shutting_down() const { return shutting_down_; }

  QueueDepth depth() const { return {ready_.size(), low_.size()}; }
  size_t in_work() const { return processing_.size(); }
  size_t delayed() const { return delayed_.size(); }  // at most one entry for each key
  Seconds unfinished(SteadyTime now) const;           // sum of the time that the keys in work have taken so far
  Seconds longest(SteadyTime now) const;              // of the one whose last progress (or begin) is longest ago

 private:
  struct Delayed {
    SteadyTime due;
    ObjectKey key;
    auto operator<=>(const Delayed&) const = default;
  };
  struct Waiting {
    SteadyTime due;
    Priority priority = Priority::kNormal;
  };
  struct InWork {
    SteadyTime since;
    SteadyTime progress;
  };
  struct Dirty {
    SteadyTime since;
    Priority priority = Priority::kNormal;
  };

  void move_due(SteadyTime now);
  void enqueue(const ObjectKey& key, Priority priority);
  void raise(const ObjectKey& key, Dirty& dirty);
  FairQueue& next_queue(SteadyTime now);

  const Options options_;
  QueueObserver* const observer_;
  FairQueue ready_;
  FairQueue low_;                               // of low priority
  std::unordered_map<ObjectKey, Dirty> dirty_;  // to be done, and since when; those in work in neither queue
  std::unordered_map<ObjectKey, InWork> processing_;
  std::set<Delayed> delayed_;                       // by time
  std::unordered_map<ObjectKey, Waiting> waiting_;  // the keys of delayed_
  std::unordered_map<ObjectKey, int> failures_;
  bool shutting_down_ = false;
};

// The same for threads. The observer must outlive it. Of the threads that wait one looks at the clock and the others
// sleep until they are needed (leader and followers): were all to wait for the next due key, all would wake for it.
class WorkQueue {
 public:
  WorkQueue(QueueState::Options options, std::shared_ptr<const Clock> clock, QueueObserver* observer = nullptr)
      : clock_(std::move(clock)), state_(options, observer) {}

  void add(const ObjectKey& key);
  void add_after(const ObjectKey& key, std::chrono::milliseconds delay, Priority priority = Priority::kNormal);
  void add_rate_limited(const ObjectKey& key);
  void forget(const ObjectKey& key);
  int failures(const ObjectKey& key) const;

  std::optional<ObjectKey> get();  // waits; empty after shut_down()
  void progressed(const ObjectKey& key);
  void done(const ObjectKey& key);
  void shut_down();

  QueueDepth depth() const;
  Seconds unfinished() const;
  Seconds longest() const;

 private:
  template <typename Change>
  void change(Change apply);
  void wake_one();

  const std::shared_ptr<const Clock> clock_;
  mutable std::mutex mutex_;
  QueueState state_;
  std::condition_variable work_;  // the followers
  std::condition_variable due_;   // the one that waits for the next due key
  int followers_ = 0;             // that wait
  bool clock_is_watched_ = false;
};

}  // namespace oarlock::kube
