#include "operator/shell/event_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "operator/core/text.h"
#include "operator/kube/micro_time.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr auto kTick = std::chrono::minutes(1);

std::chrono::seconds pause_after(int failures) { return std::chrono::seconds(int64_t{1} << std::min(failures, 10)); }

// Two events with the same identity are one that happened twice. The words count too, unlike in client-go: "attempt 2"
// is not lost because "attempt 1" was said.
std::string identity_of(const Job& job, const EmitEvent& event) {
  std::string text;
  for (const std::string& part : {std::string(event.type == EmitEvent::Type::kWarning ? "W" : "N"), event.reason,
                                  event.action, event.pod, event.message}) {
    text += '\0';
    text += part;
  }
  return fmt::format("{} {:x}", job.metadata.uid, std::hash<std::string>()(text));
}

}  // namespace

// A bucket that has filled up again is the same as none.
void EventSeries::drop_full_buckets(SteadyTime steady) {
  std::erase_if(buckets_, [&](const auto& item) {
    const std::chrono::duration<double> passed = steady - item.second.at;
    return item.second.tokens + passed / kRefill >= kBurst;
  });
}

bool EventSeries::may_create(const std::string& job_uid, SteadyTime steady) {
  if (buckets_.size() >= kMostKnown && !buckets_.contains(job_uid)) {
    drop_full_buckets(steady);
    if (buckets_.size() >= kMostKnown) buckets_.erase(buckets_.begin());
  }
  Bucket& bucket = buckets_.try_emplace(job_uid, Bucket{.tokens = kBurst, .at = steady}).first->second;
  const std::chrono::duration<double> passed = steady - bucket.at;
  bucket.tokens = std::min<double>(kBurst, bucket.tokens + passed / kRefill);
  bucket.at = steady;
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

EventSeries::Write EventSeries::series_write(const Entry& entry, SteadyTime steady) {
  Repeated& repeated = *entry.repeated;
  const Json series = {{"count", entry.count}, {"lastObservedTime", kube::to_micro_time(entry.last_observed)}};
  Json whole = Json::parse(repeated.body);
  whole["series"] = series;
  repeated.written = entry.count;
  repeated.last_write = steady;
  return {.key = repeated.key, .create = whole.dump(), .patch = Json{{"series", series}}.dump()};
}

std::optional<EventSeries::Write> EventSeries::add(const Job& job, const EmitEvent& event, SystemTime now,
                                                   SteadyTime steady) {
  const std::string identity = identity_of(job, event);
  if (const auto it = entries_.find(identity); it != entries_.end()) {
    Entry& entry = it->second;
    ++entry.count;
    entry.last_observed = now;
    entry.last_steady = steady;
    if (entry.count > 2) return std::nullopt;
    entry.repeated =
        std::make_unique<Repeated>(Repeated{.key = {job.metadata.name_space, event_name(job, entry.first_observed)},
                                            .body = event_body(job, event, source_, entry.first_observed)});
    return series_write(entry, steady);
  }
  if (!may_create(job.metadata.uid, steady)) {
    ++rate_limited_;
    return std::nullopt;
  }
  if (entries_.size() < kMostKnown) {
    entries_.emplace(identity,
                     Entry{.first_observed = now, .last_observed = now, .last_steady = steady, .repeated = nullptr});
  }
  return Write{.key = {job.metadata.name_space, event_name(job, now)},
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
  if (queue_.size() >= kQueue) {
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

// Discards the last event of the namespace that has most in the queue, so that no namespace silences the others. False:
// that is the namespace of the new event.
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

EventRecorder::Outcome EventRecorder::write(const EventSeries::Write& write, std::chrono::seconds& pause) const {
  using Kind = kube::ApiError::Kind;
  kube::ApiResult<std::string> answer;
  if (!write.patch.empty()) answer = client_.patch(kube::events(), write.key, write.patch, {});
  // An Event lives for an hour, a series maybe longer.
  const bool gone = !answer && answer.error().kind == Kind::kNotFound;
  if (write.patch.empty() || gone) answer = client_.create(kube::events(), write.key.name_space, write.create, {});
  // The name is unique, so one that exists was created by a try whose answer was lost.
  if (answer || answer.error().kind == Kind::kAlreadyExists) return Outcome::kWritten;
  log_.warn(
      "an event could not be written",
      {{"namespace", write.key.name_space}, {"event", write.key.name}, {"error", one_line(answer.error().message)}});
  if (answer.error().retry_after) pause = std::max(pause, *answer.error().retry_after);
  switch (answer.error().kind) {
    case Kind::kTransport:
      return Outcome::kUnreachable;
    case Kind::kTooManyRequests:
    case Kind::kServer:
    case Kind::kConflict:
    case Kind::kUnauthorized:
      return Outcome::kRetry;
    default:
      return Outcome::kRefused;
  }
}

std::deque<EventRecorder::Pending> EventRecorder::take_due(bool is_last) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_->steady();
  // Not for each of a thousand events, for it looks at all of them.
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
  bool good = true;
  for (auto one = due.begin(); one != due.end(); ++one) {
    std::chrono::seconds pause = pause_after(one->tries);
    const Outcome outcome = write(one->write, pause);
    const std::lock_guard lock(mutex_);
    if (outcome != Outcome::kUnreachable) unreachable_ = 0;
    if (outcome == Outcome::kWritten) continue;
    good = false;
    if (outcome == Outcome::kUnreachable) {
      // The others would wait for their timeouts as well, so they wait; the next round begins with another event.
      pause = pause_after(unreachable_++);
      for (auto other = std::next(one); other != due.end(); ++other) retry_after(*other, other->tries, pause);
    }
    if (outcome == Outcome::kRefused) {
      on_drop_("refused");
    } else {
      retry_after(*one, one->tries + 1, pause);
    }
    if (outcome == Outcome::kUnreachable) break;
  }
  const std::lock_guard lock(mutex_);
  for (; is_last && !queue_.empty(); queue_.pop_front()) on_drop_("stopped");
  return good;
}

void EventRecorder::retry_after(const Pending& one, int tries, std::chrono::seconds pause) {
  if (tries >= kMaxTries) return on_drop_("unwritable");
  queue_.push_back({one.write, tries, clock_->steady() + std::min<std::chrono::seconds>(pause, kLongestPause)});
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
