#include "operator/shell/event_recorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/kube/micro_time.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr auto kTick = std::chrono::minutes(1);

// Two events with the same are one that happened twice. The words count too, unlike in client-go: "attempt 2" is not
// lost because "attempt 1" was said.
std::string identity_of(const Job& job, const EmitEvent& event) {
  std::string out = job.metadata.uid;
  for (const std::string& part : {std::string(event.type == EmitEvent::Type::kWarning ? "W" : "N"), event.reason,
                                  event.action, event.pod, event.message}) {
    out += '\0';
    out += part;
  }
  return out;
}

}  // namespace

bool EventSeries::may_create(const std::string& job_uid, SteadyTime steady) {
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
  if (!may_create(job.metadata.uid, steady)) return std::nullopt;
  entries_.emplace(identity,
                   Entry{.first_observed = now, .last_observed = now, .last_steady = steady, .repeated = nullptr});
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
  std::erase_if(buckets_, [&](const auto& item) { return steady - item.second.at >= kBurst * kRefill; });
  return out;
}

EventRecorder::EventRecorder(kube::Client client, EventSource source, std::shared_ptr<const Clock> clock,
                             const Logger& log)
    : client_(std::move(client)), clock_(std::move(clock)), log_(log), series_(std::move(source)) {}

EventRecorder::~EventRecorder() { stop(); }

void EventRecorder::record(const Job& job, const EmitEvent& event) {
  const std::lock_guard lock(mutex_);
  if (queue_.size() >= kQueue) return;
  if (auto write = series_.add(job, event, clock_->now(), clock_->steady())) {
    queue_.push_back(std::move(*write));
    changed_.notify_all();
  }
}

bool EventRecorder::write(const EventSeries::Write& write) const {
  kube::ApiResult<std::string> answer;
  if (!write.patch.empty()) answer = client_.patch(kube::events(), write.key, write.patch, {});
  // An Event lives for an hour, a series maybe longer.
  const bool gone = !answer && answer.error().kind == kube::ApiError::Kind::kNotFound;
  if (write.patch.empty() || gone) answer = client_.create(kube::events(), write.key.name_space, write.create, {});
  if (answer) return true;
  log_.warn("an event could not be written",
            {{"namespace", write.key.name_space}, {"event", write.key.name}, {"error", answer.error().message}});
  return false;
}

bool EventRecorder::flush() {
  std::deque<EventSeries::Write> writes;
  {
    const std::lock_guard lock(mutex_);
    writes.swap(queue_);
    // Not for each of a thousand events, for it looks at all of them.
    if (const SteadyTime now = clock_->steady(); now - last_tick_ >= kTick) {
      last_tick_ = now;
      for (EventSeries::Write& due : series_.tick(now)) writes.push_back(std::move(due));
    }
  }
  bool good = true;
  for (const EventSeries::Write& one : writes) good = write(one) && good;
  return good;
}

void EventRecorder::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      flush();
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, kTick, [this] { return !queue_.empty(); });
    }
    flush();
  });
}

void EventRecorder::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

}  // namespace oarlock::control
