#include "operator/shell/event_series.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/contract.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxName = 253;
constexpr size_t kMaxNote = 1024;
constexpr size_t kMaxReason = 128;  // of reason and action
constexpr size_t kMaxInstance = 128;

// Events with the same identity are occurrences of the same event. Unlike in client-go the message is part of the
// identity; otherwise an event about attempt 2 would only increase the count of the one about attempt 1.
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

std::string event_name(const Job& job, SystemTime time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  const std::string suffix = fmt::format(".{:x}", nanoseconds);
  return job.metadata.name.substr(0, kMaxName - suffix.size()) + suffix;
}

std::string event_body(const Job& job, const EmitEvent& event, const EventSource& source, SystemTime time) {
  Json body = {{"apiVersion", "events.k8s.io/v1"},
               {"kind", "Event"},
               {"metadata", {{"name", event_name(job, time)}, {"namespace", job.metadata.name_space}}},
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
                 {"namespace", job.metadata.name_space},
                 {"name", job.metadata.name},
                 {"uid", job.metadata.uid},
                 {"resourceVersion", job.metadata.resource_version}}}};
  if (!event.pod.empty()) {
    body["related"] = {
        {"apiVersion", "v1"}, {"kind", "Pod"}, {"namespace", job.metadata.name_space}, {"name", event.pod}};
  }
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A full bucket is equivalent to no bucket.
void EventSeries::drop_full_buckets(SteadyTime steady) {
  std::erase_if(buckets_, [&](const auto& item) {
    const std::chrono::duration<double> elapsed = steady - item.second.at;
    return item.second.tokens + elapsed / kRefill >= kBurst;
  });
}

bool EventSeries::take_token(const std::string& job_uid, SteadyTime steady) {
  if (buckets_.size() >= kMaxKnown && !buckets_.contains(job_uid)) {
    drop_full_buckets(steady);
    if (buckets_.size() >= kMaxKnown) buckets_.erase(buckets_.begin());
  }
  Bucket& bucket = buckets_.try_emplace(job_uid, Bucket{.tokens = kBurst, .at = steady}).first->second;
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
  if (!take_token(job.metadata.uid, steady)) {
    ++rate_limited_;
    return std::nullopt;
  }
  if (entries_.size() < kMaxKnown) {
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

}  // namespace oarlock::control
