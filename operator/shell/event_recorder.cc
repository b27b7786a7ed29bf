#include "operator/shell/event_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/contract.h"
#include "common/json_access.h"
#include "common/random.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxName = 253;
constexpr size_t kMaxNote = 1024;
constexpr size_t kMaxReason = 128;  // of reason and action
constexpr size_t kMaxInstance = 128;
constexpr size_t kSaltBytes = 16;

}  // namespace

std::string event_name(const Job& job, SystemTime time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  const std::string suffix = fmt::format(".{:x}", nanoseconds);
  return job.metadata.name.substr(0, kMaxName - suffix.size()) + suffix;
}

std::string event_body(const Job& job, const EmitEvent& event, const EventSource& source, SystemTime time) {
  Json body = {{"apiVersion", "events.k8s.io/v1"},
               {"kind", "Event"},
               {"metadata", {{"name", event_name(job, time)}, {"namespace", job.metadata.namespace_name}}},
               {"eventTime", to_rfc3339_micro(time)},
               {"reportingController", source.controller},
               {"reportingInstance", source.instance.substr(0, kMaxInstance)},
               {"type", event.type == EmitEvent::Type::kWarning ? "Warning" : "Normal"},
               {"reason", sanitize_line(event.reason, kMaxReason)},
               {"action", sanitize_line(event.action, kMaxReason)},
               {"note", sanitize_line(event.message, kMaxNote)},
               {"regarding",
                {{"apiVersion", kApiVersion},
                 {"kind", kKind},
                 {"namespace", job.metadata.namespace_name},
                 {"name", job.metadata.name},
                 {"uid", job.metadata.uid},
                 {"resourceVersion", job.metadata.resource_version}}}};
  if (!event.pod.empty()) {
    body["related"] = {
        {"apiVersion", "v1"}, {"kind", "Pod"}, {"namespace", job.metadata.namespace_name}, {"name", event.pod}};
  }
  return dump_json(body);
}

EventSeries::EventSeries(EventSource source) : source_(std::move(source)), salt_(random_hex(kSaltBytes)) {}

// Events with the same identity are occurrences of the same event. Unlike in client-go the message is part of the
// identity; otherwise an event about attempt 2 would only increase the count of the one about attempt 1.
size_t EventSeries::identity_of(const Job& job, const EmitEvent& event) const {
  std::string text = salt_ + job.metadata.uid;
  for (const std::string& part : {std::string(event.type == EmitEvent::Type::kWarning ? "W" : "N"), event.reason,
                                  event.action, event.pod, event.message}) {
    text += '\0';
    text += part;
  }
  return std::hash<std::string>()(text);
}

// A full bucket is equivalent to no bucket.
void EventSeries::drop_full_buckets(SteadyTime steady) {
  std::erase_if(buckets_, [&](const auto& item) {
    const std::chrono::duration<double> elapsed = steady - item.second.at;
    return item.second.tokens + elapsed / kRefill >= kBurst;
  });
}

bool EventSeries::take_token(const std::string& job_uid, SteadyTime steady) {
  const size_t job = std::hash<std::string>()(job_uid);
  if (buckets_.size() >= kMaxKnown && !buckets_.contains(job)) {
    drop_full_buckets(steady);
    if (buckets_.size() >= kMaxKnown) buckets_.erase(buckets_.begin());
  }
  Bucket& bucket = buckets_.try_emplace(job, Bucket{.tokens = kBurst, .at = steady}).first->second;
  const std::chrono::duration<double> elapsed = steady - bucket.at;
  bucket.tokens = std::min<double>(kBurst, bucket.tokens + elapsed / kRefill);
  bucket.at = steady;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

EventSeries::Write EventSeries::series_write(const Entry& entry, SteadyTime steady) {
  Repeated& repeated = *entry.repeated;
  const Json series = {{"count", entry.count}, {"lastObservedTime", to_rfc3339_micro(entry.last_observed)}};
  Json body = Json::parse(repeated.body);
  body["series"] = series;
  repeated.written = entry.count;
  repeated.last_write = steady;
  return {.key = repeated.key, .create = body.dump(), .patch = Json{{"series", series}}.dump()};
}

std::optional<EventSeries::Write> EventSeries::add(const Job& job, const EmitEvent& event, SystemTime now,
                                                   SteadyTime steady) {
  const size_t identity = identity_of(job, event);
  if (const auto it = entries_.find(identity); it != entries_.end()) {
    Entry& entry = it->second;
    ++entry.count;
    entry.last_observed = now;
    entry.last_steady = steady;
    if (entry.count > 2) return std::nullopt;
    entry.repeated =
        std::make_unique<Repeated>(Repeated{.key = {job.metadata.namespace_name, event_name(job, entry.first_observed)},
                                            .body = event_body(job, event, source_, entry.first_observed)});
    return series_write(entry, steady);
  }
  if (!take_token(job.metadata.uid, steady)) {
    ++rate_limited_;
    return std::nullopt;
  }
  if (entries_.size() < kMaxKnown) {
    entries_.emplace(identity,
                     Entry{.first_observed = now, .last_observed = now, .last_steady = steady, .repeated = nullptr});
  }
  return Write{.key = {job.metadata.namespace_name, event_name(job, now)},
               .create = event_body(job, event, source_, now),
               .patch = ""};
}

std::vector<EventSeries::Write> EventSeries::tick(SteadyTime steady) {
  std::vector<Write> out;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const Entry& entry = it->second;
    const bool finished = steady - entry.last_steady >= kFinish;
    const bool due = entry.repeated != nullptr && entry.count > entry.repeated->written &&
                     (finished || steady - entry.repeated->last_write >= kRefresh);
    if (due) out.push_back(series_write(entry, steady));
    it = finished ? entries_.erase(it) : std::next(it);
  }
  drop_full_buckets(steady);
  return out;
}

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
    if (!drop_from_busiest_namespace(job.metadata.namespace_name)) return;
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
bool EventRecorder::drop_from_busiest_namespace(const std::string& namespace_name) {
  std::map<std::string_view, size_t> counts;
  for (const Pending& one : queue_) ++counts[one.write.key.namespace_name];
  const auto busiest = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  if (busiest == counts.end() || counts[namespace_name] >= busiest->second) return false;
  const auto last = std::find_if(queue_.rbegin(), queue_.rend(),
                                 [&](const Pending& one) { return one.write.key.namespace_name == busiest->first; });
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
    response = client_.create(kube::events(), write.key.namespace_name, write.create, {});
  // The name is unique, so an existing Event was created by an earlier try whose response was lost.
  if (response || response.error().kind == Kind::kAlreadyExists) return WriteResult::kWritten;
  log_.warn("failed to write an event", {{"namespace", write.key.namespace_name},
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
