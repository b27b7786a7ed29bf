#include "cli/cluster/incident.h"

#include <algorithm>
#include <utility>

#include "operator/core/failure.h"
#include "operator/core/membership.h"

namespace oarlock::cli {
namespace {

const PodView* find_pod_named(const DiagnosisInput& input, std::string_view name) {
  const auto found =
      std::find_if(input.pods.begin(), input.pods.end(), [&](const PodView& pod) { return pod.name == name; });
  return found == input.pods.end() ? nullptr : &*found;
}

control::PodPhase to_pod_phase(const std::string& phase) {
  if (phase == "Running") return control::PodPhase::kRunning;
  if (phase == "Succeeded") return control::PodPhase::kSucceeded;
  if (phase == "Failed") return control::PodPhase::kFailed;
  return phase == "Unknown" ? control::PodPhase::kUnknown : control::PodPhase::kPending;
}

control::Pod to_core_pod(const PodView& view, const std::string& owner_uid) {
  control::Pod pod;
  pod.name = view.name;
  pod.uid = view.uid;
  pod.owner_uid = owner_uid;
  pod.phase = to_pod_phase(view.phase);
  pod.reason = view.reason;
  pod.message = view.message;
  pod.deleting = view.deleting;
  pod.scheduled = view.scheduled;
  pod.ready = view.ready;
  pod.disruption = view.disruption;
  pod.node_name = view.node;
  if (const ContainerView* trainer = view.trainer(); trainer != nullptr && trainer->end) {
    control::Termination end;
    end.exit_code = trainer->end->exit_code;
    end.reason = trainer->end->reason;
    end.message = trainer->end->message ? to_json(*trainer->end->message) : trainer->end->text;
    end.finished_at = trainer->end->finished_at;
    pod.trainer = std::move(end);
  }
  return pod;
}

}  // namespace

Incident make_incident(const DiagnosisInput& input, const api::AttemptRecord& record) {
  Incident out;
  out.record = record;
  if (!record.pod.empty()) out.pod = find_pod_named(input, record.pod);
  if (!record.node.empty()) out.node = find_node_named(input, record.node);
  out.text = record.message;
  if (out.pod != nullptr) {
    out.text += "\n" + out.pod->message + "\n" + out.pod->disruption_message;
    if (const ContainerView* trainer = out.pod->trainer(); trainer != nullptr && trainer->end)
      out.text += "\n" + trainer->end->text;
  }
  return out;
}

std::optional<Incident> unrecorded_incident(const DiagnosisInput& input) {
  if (input.job.spec.nodes < 1 || input.job.spec.nodes > 4096) return std::nullopt;
  control::Observed observed;
  observed.job = input.job;
  observed.now = input.now;
  for (const PodView& pod : input.pods) observed.pods.push_back(to_core_pod(pod, input.job.metadata.uid));
  const control::Membership members = control::classify_objects(observed);
  const control::GroupFailure failure = control::evaluate_failure_policy(observed, members);
  using Decision = control::GroupFailure::Decision;
  if (failure.decision != Decision::kRestart && failure.decision != Decision::kFail) return std::nullopt;
  // A missing pod may be one that this user may not see.
  if (!failure.confirm_absent.empty()) return std::nullopt;
  api::AttemptRecord record = failure.record;
  record.start_time = input.job.status.attempt_start_time;
  record.end_time = input.now;
  Incident incident = make_incident(input, record);
  if (incident.pod != nullptr) {
    if (const ContainerView* trainer = incident.pod->trainer();
        trainer != nullptr && trainer->end && trainer->end->finished_at)
      incident.record.end_time = *trainer->end->finished_at;
  }
  return incident;
}

const ContainerView* failed_init_container(const PodView& pod) {
  const auto found = std::find_if(pod.containers.begin(), pod.containers.end(), [](const ContainerView& one) {
    return one.is_init && one.end && one.end->exit_code != 0;
  });
  return found == pod.containers.end() ? nullptr : &*found;
}

const NodeView* find_node_named(const DiagnosisInput& input, std::string_view name) {
  const auto found =
      std::find_if(input.nodes.begin(), input.nodes.end(), [&](const NodeView& node) { return node.name == name; });
  return found == input.nodes.end() ? nullptr : &*found;
}

bool has_event(const DiagnosisInput& input, const std::string& object,
               std::initializer_list<std::string_view> reasons) {
  return std::any_of(input.events.begin(), input.events.end(), [&](const EventView& event) {
    return event.name == object && std::find(reasons.begin(), reasons.end(), event.reason) != reasons.end();
  });
}

const EventView* find_event(const DiagnosisInput& input, const std::string& object,
                            std::initializer_list<std::string_view> reasons) {
  const EventView* newest = nullptr;
  for (const EventView& event : input.events) {
    if (event.name != object || std::find(reasons.begin(), reasons.end(), event.reason) == reasons.end()) continue;
    if (newest == nullptr || newest->last_time < event.last_time) newest = &event;
  }
  return newest;
}

}  // namespace oarlock::cli
