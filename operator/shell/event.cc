#include "operator/shell/event.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/contract.h"
#include "operator/core/text.h"
#include "operator/kube/micro_time.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxName = 253;
constexpr size_t kMaxNote = 1024;
constexpr size_t kMaxReason = 128;  // of reason and action
constexpr size_t kMaxInstance = 128;

}  // namespace

std::string event_name(const Job& job, SystemTime time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  const std::string suffix = fmt::format(".{:x}", nanoseconds);
  return job.metadata.name.substr(0, kMaxName - suffix.size()) + suffix;
}

std::string event_body(const Job& job, const EmitEvent& event, const EventSource& source, SystemTime time) {
  nlohmann::json body = {{"apiVersion", "events.k8s.io/v1"},
                         {"kind", "Event"},
                         {"metadata", {{"name", event_name(job, time)}, {"namespace", job.metadata.name_space}}},
                         {"eventTime", kube::to_micro_time(time)},
                         {"reportingController", source.controller},
                         {"reportingInstance", source.instance.substr(0, kMaxInstance)},
                         {"type", event.type == EmitEvent::Type::kWarning ? "Warning" : "Normal"},
                         {"reason", one_line(event.reason, kMaxReason)},
                         {"action", one_line(event.action, kMaxReason)},
                         {"note", one_line(event.message, kMaxNote)},
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

}  // namespace oarlock::control
