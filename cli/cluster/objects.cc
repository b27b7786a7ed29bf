#include "cli/cluster/objects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/json_access.h"
#include "common/number.h"
#include "operator/core/gang.h"
#include "operator/core/text.h"

namespace oarlock::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxWord = 100;
constexpr size_t kMaxName = 253;
constexpr size_t kMaxContainers = 64;

std::string word_at(const Json& json, const char* key) { return control::sanitize_line(text_at(json, key), kMaxWord); }
std::string line_at(const Json& json, const char* key) { return control::sanitize_line(text_at(json, key)); }
std::string name_at(const Json& json, const char* key) { return control::sanitize_line(text_at(json, key), kMaxName); }

std::optional<SystemTime> time_at(const Json& json, const char* key) {
  SystemTime time;
  if (!from_rfc3339(text_at(json, key), time)) return std::nullopt;
  return time;
}

std::optional<int> number_of(const std::string& text) {
  const std::optional<int> number = parse_integer<int>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

ContainerEnd container_end(const Json& terminated) {
  ContainerEnd end;
  end.exit_code = integer_at(terminated, "exitCode", 0);
  end.reason = word_at(terminated, "reason");
  end.started_at = time_at(terminated, "startedAt");
  end.finished_at = time_at(terminated, "finishedAt");
  const std::string text = text_at(terminated, "message").substr(0, kTerminationMessageLimit);
  end.message = termination_message_from_json(text);
  if (end.message) {
    end.message->reason = control::to_reason(end.message->reason);
    end.message->message = control::sanitize_line(end.message->message);
  }
  end.text = end.message ? end.message->message : control::sanitize_line(control::last_line(text));
  return end;
}

ContainerView container_view(const Json& status, bool is_init) {
  ContainerView out;
  out.name = name_at(status, "name");
  out.is_init = is_init;
  const Json& state = member(status, "state");
  out.running = member(state, "running").is_object();
  const Json& waiting = member(state, "waiting");
  out.waiting_reason = word_at(waiting, "reason");
  out.waiting_message = line_at(waiting, "message");
  if (const Json& terminated = member(state, "terminated"); terminated.is_object()) out.end = container_end(terminated);
  return out;
}

void read_pod_conditions(const Json& status, PodView& pod) {
  for (const Json& condition : elements(status, "conditions")) {
    const std::string type = text_at(condition, "type");
    const bool is_true = text_at(condition, "status") == "True";
    if (type == "Ready") pod.ready = is_true;
    if (type == "PodScheduled") {
      pod.scheduled = is_true;
      if (!is_true) pod.unscheduled_message = line_at(condition, "message");
    }
    if (type == "DisruptionTarget" && is_true) {
      pod.disruption = word_at(condition, "reason");
      pod.disruption_message = line_at(condition, "message");
    }
  }
}

}  // namespace

const ContainerView* PodView::container(std::string_view wanted) const {
  const auto found = std::find_if(containers.begin(), containers.end(),
                                  [&](const ContainerView& one) { return !one.is_init && one.name == wanted; });
  return found == containers.end() ? nullptr : &*found;
}

std::string holding_finalizers(const Json& object) {
  constexpr size_t kMaxNamed = 8;
  const Json& metadata = member(object, "metadata");
  if (!member(metadata, "deletionTimestamp").is_string()) return "";
  std::vector<std::string> names;
  for (const Json& finalizer : elements(metadata, "finalizers")) {
    if (finalizer.is_string() && names.size() < kMaxNamed)
      names.push_back(control::sanitize_line(finalizer.get<std::string>(), kMaxWord));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<PodView> pod_view(const Json& json) {
  const Json& metadata = member(json, "metadata");
  const Json& labels = member(metadata, "labels");
  const std::optional<int> attempt = number_of(text_at(labels, kLabelAttempt));
  const std::optional<int> node_rank = number_of(text_at(labels, kLabelNodeRank));
  if (!attempt || !node_rank) return std::nullopt;
  PodView pod;
  pod.name = name_at(metadata, "name");
  pod.uid = name_at(metadata, "uid");
  pod.attempt = *attempt;
  pod.node_rank = *node_rank;
  pod.created = time_at(metadata, "creationTimestamp");
  pod.deleting = member(metadata, "deletionTimestamp").is_string();
  pod.finalizers = holding_finalizers(json);
  pod.node = name_at(member(json, "spec"), "nodeName");
  if (const auto gang = control::read_gang(json)) {
    pod.gang = fmt::format("PodGroup {} of {}", control::sanitize_line(gang->pod_group, kMaxName),
                           control::names_of(gang->api).group);
  }
  const Json& status = member(json, "status");
  pod.phase = word_at(status, "phase");
  pod.reason = word_at(status, "reason");
  pod.message = line_at(status, "message");
  read_pod_conditions(status, pod);
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : elements(status, list)) {
      if (pod.containers.size() == kMaxContainers) break;
      pod.containers.push_back(container_view(container, std::string_view(list) == "initContainerStatuses"));
    }
  }
  return pod;
}

EventView event_view(const Json& json) {
  EventView out;
  const Json& object = member(json, "involvedObject");
  out.kind = word_at(object, "kind");
  out.name = name_at(object, "name");
  out.type = word_at(json, "type");
  out.reason = word_at(json, "reason");
  out.message = line_at(json, "message");
  const Json& series = member(json, "series");
  out.count = std::max<int64_t>({integer_at<int64_t>(json, "count", 1), integer_at<int64_t>(series, "count", 1), 1});
  out.last_time = time_at(series, "lastObservedTime");
  if (!out.last_time) out.last_time = time_at(json, "lastTimestamp");
  if (!out.last_time) out.last_time = time_at(json, "eventTime");
  if (!out.last_time) out.last_time = time_at(member(json, "metadata"), "creationTimestamp");
  return out;
}

NodeView node_view(const Json& json) {
  NodeView out;
  out.name = name_at(member(json, "metadata"), "name");
  out.cordoned = true_at(member(json, "spec"), "unschedulable");
  for (const Json& condition : elements(member(json, "status"), "conditions")) {
    const std::string type = word_at(condition, "type");
    const bool is_true = text_at(condition, "status") == "True";
    if (type == "Ready") {
      out.ready = is_true;
      if (!is_true) out.not_ready_message = line_at(condition, "message");
    } else if (is_true && type.ends_with("Pressure") && out.pressures.size() < 8) {
      out.pressures.push_back(type);
    }
  }
  return out;
}

std::string pod_state(const PodView& pod) {
  if (!pod.reason.empty()) return pod.reason;
  for (const ContainerView& container : pod.containers) {
    if (container.is_init && container.end && container.end->exit_code != 0) return "Init:" + container.end->reason;
    if (!container.waiting_reason.empty() && container.waiting_reason != "PodInitializing")
      return (container.is_init ? "Init:" : "") + container.waiting_reason;
  }
  const ContainerView* trainer = pod.trainer();
  if (trainer != nullptr && trainer->end) return trainer->end->reason.empty() ? "Ended" : trainer->end->reason;
  if (pod.deleting) return "Terminating";
  if (pod.phase == "Pending" && !pod.scheduled && !pod.unscheduled_message.empty()) return "Unschedulable";
  return pod.phase.empty() ? "Pending" : pod.phase;
}

nlohmann::json without_server_fields(nlohmann::json object) {
  if (!object.is_object()) return object;
  object.erase("status");
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return object;
  for (const char* key : {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation",
                          "managedFields", "resourceVersion", "selfLink", "uid"}) {
    metadata->erase(key);
  }
  return object;
}

}  // namespace oarlock::cli
