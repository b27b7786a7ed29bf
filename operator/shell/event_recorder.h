// Writes the Events, without keeping a reconcile waiting: on a thread of its own, and what is said again and again as
// one Event with a series (events.k8s.io/v1), with the times of client-go's recorder (tools/events).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "operator/core/model.h"
#include "operator/kube/client.h"
#include "operator/shell/event.h"

namespace oarlock::control {

// Which events are written, without threads or I/O: the first of a kind as an Event of its own, the second makes a
// series of it, and from then on its count is written every half an hour and when it has ended (6 minutes of silence).
// At most kBurst Events of one job at once, and one more every five minutes, as client-go's spam filter.
class EventSeries {
 public:
  static constexpr int kBurst = 25;
  static constexpr auto kRefill = std::chrono::minutes(5);
  static constexpr auto kFinish = std::chrono::minutes(6);
  static constexpr auto kRefresh = std::chrono::minutes(30);
  // Events, and jobs, that are remembered. Beyond it a repeated event is written as a new one, and some job may write
  // kBurst events again.
  static constexpr size_t kMostKnown = 10000;

  struct Write {
    kube::ObjectKey key;
    std::string create;  // body of a POST; of a patch: what to create where the Event is gone
    std::string patch;   // empty: it is a create
  };

  explicit EventSeries(EventSource source) : source_(std::move(source)) {}

  uint64_t rate_limited() const { return rate_limited_; }  // events that the spam filter has discarded so far

  std::optional<Write> add(const Job& job, const EmitEvent& event, SystemTime now, SteadyTime steady);
  std::vector<Write> tick(SteadyTime steady);  // what is due; call it about once a minute
  size_t size() const { return entries_.size(); }
  size_t jobs() const { return buckets_.size(); }  // that have written events lately

 private:
  // The Event of a series. Most events happen once: thousands of them wait for their six minutes to pass without it.
  struct Repeated {
    kube::ObjectKey key;
    std::string body;
    int written = 1;
    SteadyTime last_write{};
  };
  struct Entry {
    int count = 1;
    SystemTime first_observed{};
    SystemTime last_observed{};
    SteadyTime last_steady{};
    std::unique_ptr<Repeated> repeated;  // null: it happened once
  };
  struct Bucket {
    double tokens = kBurst;
    SteadyTime at{};
  };

  bool may_create(const std::string& job_uid, SteadyTime steady);
  void drop_full_buckets(SteadyTime steady);
  static Write series_write(const Entry& entry, SteadyTime steady);

  const EventSource source_;
  uint64_t rate_limited_ = 0;
  std::unordered_map<std::string, Entry> entries_;   // by all that makes two events the same
  std::unordered_map<std::string, Bucket> buckets_;  // by the job's uid; full ones are dropped
};

// A write that the API server does not answer, or answers with 429 or 5xx, is repeated: at most kMaxTries times, after
// pauses that grow to kLongestPause. Every event that is discarded is counted.
class EventRecorder {
 public:
  static constexpr size_t kQueue = 1000;  // writes that wait; beyond this, the busiest namespace's are discarded
  static constexpr int kMaxTries = 12;    // as client-go's
  static constexpr auto kLongestPause = std::chrono::seconds(60);

  // Why an event was discarded: rate_limited (by the spam filter), queue_full, refused (by the API server), unwritable
  // (after kMaxTries) or stopped (the program ends). Called with the recorder's lock held.
  using OnDrop = std::function<void(const char* reason)>;

  EventRecorder(
      kube::Client client, EventSource source, std::shared_ptr<const Clock> clock, const Logger& log,
      OnDrop on_drop = [](const char*) {});
  ~EventRecorder();  // stops
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void start();
  void stop();  // after one try to write what is in the queue; at the first that is not answered the rest is discarded

  // Thread-safe, and returns at once.
  void record(const Job& job, const EmitEvent& event);

  // Writes what is queued and due, on the calling thread: the thread does nothing else. False: a write failed; it stays
  // in the queue until it is due again, unless it was refused.
  bool flush() { return write_queue(false); }

 private:
  struct Pending {
    EventSeries::Write write;
    int tries = 0;
    SteadyTime due{};
  };
  enum class Outcome { kWritten, kRefused, kRetry, kUnreachable };

  Outcome write(const EventSeries::Write& write, std::chrono::seconds& pause) const;
  bool write_queue(bool is_last);
  std::deque<Pending> take_due(bool is_last);
  // These with the lock held.
  bool drop_from_busiest_namespace(const std::string& name_space);
  void retry_after(const Pending& one, int tries, std::chrono::seconds pause);
  std::chrono::nanoseconds time_to_next_round() const;

  const kube::Client client_;
  const std::shared_ptr<const Clock> clock_;
  const Logger log_;
  const OnDrop on_drop_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  EventSeries series_;
  SteadyTime last_tick_{};
  std::deque<Pending> queue_;
  int unreachable_ = 0;  // writes in a row that were not answered
  std::jthread thread_;
};

}  // namespace oarlock::control
