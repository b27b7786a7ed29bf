// Writes Kubernetes Events on a background thread, so that no reconcile waits for them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/log.h"
#include "operator/core/model.h"
#include "operator/kube/client/client.h"
#include "operator/shell/event_series.h"

namespace oarlock::control {

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
  // These with the mutex held.
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
  int unreachable_ = 0;  // consecutive writes without a response
  std::jthread thread_;
};

}  // namespace oarlock::control
