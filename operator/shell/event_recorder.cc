#include "operator/shell/event_recorder.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "operator/core/text.h"

namespace oarlock::control {
namespace {

constexpr auto kTick = std::chrono::minutes(1);

std::chrono::seconds pause_after(int failures) { return std::chrono::seconds(int64_t{1} << std::min(failures, 10)); }

}  // namespace

EventRecorder::EventRecorder(kube::Client client, EventSource source, std::shared_ptr<const Clock> clock,
                             const Logger& log, OnDrop on_drop)
    : client_(std::move(client)),
      clock_(std::move(clock)),
      log_(log),
      on_drop_(std::move(on_drop)),
      series_(std::move(source)) {}

EventRecorder::~EventRecorder() { stop(); }

void EventRecorder::record(const Job& job, const EmitEvent& event) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= kMaxQueue) {
    on_drop_("queue_full");
    if (!drop_from_busiest_namespace(job.metadata.name_space)) return;
  }
  const uint64_t rate_limited = series_.rate_limited();
  const SteadyTime now = clock_->steady();
  if (auto write = series_.add(job, event, clock_->now(), now)) {
    queue_.push_back({.write = std::move(*write), .due = now});
    changed_.notify_all();
  } else if (series_.rate_limited() > rate_limited) {
    on_drop_("rate_limited");
  }
}

// Discards the last event of the namespace with the most queued events, so that no namespace displaces the events of
// the others. Returns false if that is the namespace of the new event.
bool EventRecorder::drop_from_busiest_namespace(const std::string& name_space) {
  std::map<std::string_view, size_t> counts;
  for (const Pending& one : queue_) ++counts[one.write.key.name_space];
  const auto busiest = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  if (busiest == counts.end() || counts[name_space] >= busiest->second) return false;
  const auto last = std::find_if(queue_.rbegin(), queue_.rend(),
                                 [&](const Pending& one) { return one.write.key.name_space == busiest->first; });
  queue_.erase(std::next(last).base());
  return true;
}

EventRecorder::WriteResult EventRecorder::write(const EventSeries::Write& write, std::chrono::seconds& pause) const {
  using Kind = kube::ApiErrorKind;
  kube::ApiResult<std::string> response;
  if (!write.patch.empty()) response = client_.patch(kube::events(), write.key, write.patch, {});
  // The API server deletes Events after an hour, but a series may last longer.
  const bool is_deleted = !response && response.error().kind == Kind::kNotFound;
  if (write.patch.empty() || is_deleted)
    response = client_.create(kube::events(), write.key.name_space, write.create, {});
  // The name is unique, so an existing Event was created by an earlier try whose response was lost.
  if (response || response.error().kind == Kind::kAlreadyExists) return WriteResult::kWritten;
  log_.warn("failed to write an event", {{"namespace", write.key.name_space},
                                         {"event", write.key.name},
                                         {"error", sanitize_line(response.error().message)}});
  if (response.error().retry_after) pause = std::max(pause, *response.error().retry_after);
  switch (response.error().kind) {
    case Kind::kTransport:
      return WriteResult::kUnreachable;
    case Kind::kTooManyRequests:
    case Kind::kServer:
    case Kind::kConflict:
    case Kind::kUnauthorized:
      return WriteResult::kRetry;
    default:
      return WriteResult::kRefused;
  }
}

std::deque<EventRecorder::Pending> EventRecorder::take_due(bool is_last) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_->steady();
  // tick() visits all events, so it does not run for each new one.
  if (now - last_tick_ >= kTick) {
    last_tick_ = now;
    for (EventSeries::Write& due : series_.tick(now)) queue_.push_back({.write = std::move(due), .due = now});
  }
  std::deque<Pending> out;
  std::deque<Pending> later;
  for (Pending& one : queue_) (is_last || one.due <= now ? out : later).push_back(std::move(one));
  queue_ = std::move(later);
  return out;
}

bool EventRecorder::write_queue(bool is_last) {
  const std::deque<Pending> due = take_due(is_last);
  bool all_written = true;
  for (auto one = due.begin(); one != due.end(); ++one) {
    std::chrono::seconds pause = pause_after(one->tries);
    const WriteResult result = write(one->write, pause);
    const std::lock_guard lock(mutex_);
    if (result != WriteResult::kUnreachable) unreachable_ = 0;
    if (result == WriteResult::kWritten) continue;
    all_written = false;
    if (result == WriteResult::kUnreachable) {
      // The other writes would time out as well, so they are delayed; the next round starts with another event.
      pause = pause_after(unreachable_++);
      for (auto other = std::next(one); other != due.end(); ++other) retry_after(*other, other->tries, pause);
    }
    if (result == WriteResult::kRefused) {
      on_drop_("refused");
    } else {
      retry_after(*one, one->tries + 1, pause);
    }
    if (result == WriteResult::kUnreachable) break;
  }
  const std::lock_guard lock(mutex_);
  for (; is_last && !queue_.empty(); queue_.pop_front()) on_drop_("stopped");
  return all_written;
}

void EventRecorder::retry_after(const Pending& one, int tries, std::chrono::seconds pause) {
  if (tries >= kMaxTries) return on_drop_("unwritable");
  queue_.push_back({one.write, tries, clock_->steady() + std::min<std::chrono::seconds>(pause, kMaxPause)});
}

std::chrono::nanoseconds EventRecorder::time_to_next_round() const {
  const SteadyTime now = clock_->steady();
  std::chrono::nanoseconds time = kTick;
  for (const Pending& one : queue_) time = std::min<std::chrono::nanoseconds>(time, one.due - now);
  return time;
}

void EventRecorder::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      write_queue(false);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, time_to_next_round(), [&] { return time_to_next_round().count() <= 0; });
    }
    write_queue(true);
  });
}

void EventRecorder::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

}  // namespace oarlock::control
