// Kubernetes Events: their bodies, the aggregation of repeated ones into series, the spam filter, and a background
// thread that writes them, so that no reconcile waits for them.
#pragma once

#include <condition_variable>
#include <cstdint>
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
#include "kube/client/client.h"
#include "kube/client/request.h"
#include "operator/core/model.h"

namespace oarlock::control {

struct EventSource {
  std::string controller = "oarlock.dev/operator";
  std::string instance;  // name of the operator's pod
};

// A name that the nanoseconds of `time` make unique.
std::string event_name(const Job& job, SystemTime time);

// JSON of an events.k8s.io/v1 Event about the job.
std::string event_body(const Job& job, const EmitEvent& event, const EventSource& source, SystemTime time);

// Decides which API calls the events of all jobs need, with the constants of client-go's recorder (tools/events). The
// first occurrence of an event is created as an Event, the second turns it into a series, and from then on its count is
// patched every kRefresh and when the series has finished, which is after kFinish without another occurrence.
//
// A token bucket per job limits new Events, as client-go's spam filter does: kBurst, and one more every kRefill.
// Not thread-safe.
class EventSeries {
 public:
  static constexpr int kBurst = 25;
  static constexpr auto kRefill = std::chrono::minutes(5);
  static constexpr auto kFinish = std::chrono::minutes(6);
  static constexpr auto kRefresh = std::chrono::minutes(30);
  // The limit of remembered events, and of remembered jobs. Beyond it, a repeated event is created as a new one, and a
  // job may write kBurst events again.
  static constexpr size_t kMaxKnown = 10000;

  struct Write {
    kube::ObjectKey key;
    std::string create;  // body of the POST; for a patch, the body to create if the Event does not exist anymore
    std::string patch;   // body of the PATCH; empty: this is a create
  };

  explicit EventSeries(EventSource source);

  // Returns nothing if the event needs no call, or if it was discarded by the spam filter.
  std::optional<Write> add(const Job& job, const EmitEvent& event, SystemTime now, SteadyTime steady);

  // Returns the writes that are due. To be called about once a minute.
  std::vector<Write> tick(SteadyTime steady);

  uint64_t rate_limited() const { return rate_limited_; }  // events discarded by the spam filter
  size_t size() const { return entries_.size(); }          // remembered events
  size_t jobs() const { return buckets_.size(); }          // jobs whose token bucket is not full

 private:
  // The Event of a series. It is allocated only for repeated events, because most events occur once and thousands of
  // them wait for kFinish.
  struct Repeated {
    kube::ObjectKey key;
    std::string body;
    int written = 1;  // the count that was written last
    SteadyTime last_write{};
  };
  struct Entry {
    int count = 1;
    SystemTime first_observed{};
    SystemTime last_observed{};
    SteadyTime last_steady{};
    std::unique_ptr<Repeated> repeated;  // null: it occurred once
  };
  struct Bucket {
    double tokens = kBurst;
    SteadyTime at{};
  };

  size_t identity_of(const Job& job, const EmitEvent& event) const;
  bool take_token(const std::string& job_uid, SteadyTime steady);
  void drop_full_buckets(SteadyTime steady);
  static Write series_write(const Entry& entry, SteadyTime steady);

  const EventSource source_;
  const std::string salt_;  // random: messages contain text from pods, which must not be able to forge an identity
  uint64_t rate_limited_ = 0;
  // Thousands of jobs have an entry in each, so the keys are hashes of 64 bits, not texts.
  std::unordered_map<size_t, Entry> entries_;   // by identity_of()
  std::unordered_map<size_t, Bucket> buckets_;  // by the hash of the job's uid
};

// A write that gets no response, or 429 or 5xx, is repeated up to kMaxTries times, with pauses that grow to kMaxPause.
// Every discarded event is reported to OnDrop. Thread-safe.
class EventRecorder {
 public:
  static constexpr size_t kMaxQueue = 1000;  // queued writes; beyond it, those of the busiest namespace are discarded
  static constexpr int kMaxTries = 12;       // as in client-go
  static constexpr auto kMaxPause = std::chrono::seconds(60);

  // Called with the recorder's mutex held. `reason` is rate_limited (spam filter), queue_full, refused (by the API
  // server), unwritable (after kMaxTries) or stopped (the program ends).
  using OnDrop = std::function<void(const char* reason)>;

  EventRecorder(
      kube::Client client, EventSource source, std::shared_ptr<const Clock> clock, const Logger& log,
      OnDrop on_drop = [](const char*) {});
  ~EventRecorder();  // calls stop()
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  void start();

  // Tries once to write each queued event. After the first write without a response the remaining ones are discarded.
  void stop();

  // Queues the event and returns immediately.
  void record(const Job& job, const EmitEvent& event);

  // Performs the queued writes that are due, on the calling thread; the background thread calls it in a loop. Returns
  // whether all of them succeeded. Failed writes remain in the queue, unless the API server refused them.
  bool flush() { return write_queue(false); }

 private:
  struct Pending {
    EventSeries::Write write;
    int tries = 0;
    SteadyTime due{};
  };
  enum class WriteResult { kWritten, kRefused, kRetry, kUnreachable };

  WriteResult write(const EventSeries::Write& write, std::chrono::seconds& pause) const;
  bool write_queue(bool is_last);
  std::deque<Pending> take_due(bool is_last);
  // Called with the mutex held.
  bool drop_from_busiest_namespace(const std::string& namespace_name);
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
  int unreachable_ = 0;  // consecutive writes without a response
  std::jthread thread_;
};

}  // namespace oarlock::control
