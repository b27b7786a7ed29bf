#include "cli/cluster/cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "api/profile.h"
#include "common/contract.h"
#include "common/error.h"
#include "operator/core/bad_nodes.h"
#include "operator/core/elastic.h"
#include "operator/core/failure.h"
#include "operator/core/membership.h"
#include "operator/core/queue.h"
#include "operator/core/status.h"

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
  pod.unscheduled_message = view.unscheduled_message;
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
  } else if (const ContainerView* init = failed_init_container(view); init != nullptr && view.phase == "Failed") {
    pod.trainer = control::Termination{.exit_code = init->end->exit_code,
                                       .reason = init->end->reason,
                                       .message = init->end->text,
                                       .finished_at = init->end->finished_at,
                                       .init_container = init->name};
  }
  for (const ContainerView& container : view.containers) {
    pod.started = pod.started || container.running || container.end;
    if (pod.waiting_reason.empty()) {
      pod.waiting_reason = container.waiting_reason;
      pod.waiting_message = container.waiting_message;
    }
  }
  return pod;
}

using Cause = DiagnosedCause;

// ---- Words in messages ---------------------------------------------------------------------------------------------

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// REQUIRES: the words are in lower case.
bool mentions(std::string_view text, std::initializer_list<std::string_view> words) {
  const std::string lower = lower_case(text);
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

bool mentions_full_disk(std::string_view text) {
  return mentions(text, {"no space left", "disk full", "disk is full", "disk quota exceeded", "ephemeral",
                         "diskpressure", "nodefs", "imagefs", "emptydir volume", "enospc"});
}
bool mentions_device_memory(std::string_view text) {
  return mentions(text, {"cuda out of memory", "cuda error: out of memory", "hip out of memory", "outofmemoryerror",
                         "cublas_status_alloc_failed", "device memory"});
}
bool mentions_device(std::string_view text) {
  return control::mentions_hardware(text) || mentions(text, {"unspecified launch failure"});
}
bool mentions_unreachable_master(std::string_view text) {
  return mentions(text, {"rendezvous", "master_addr", "tcpstore", "client socket has timed out", "distnetworkerror",
                         "connection to the store"});
}
bool mentions_hang(std::string_view text) {
  return mentions(text, {"collective timed out", "watchdog caught collective", "another rank hangs"});
}
bool mentions_non_finite(std::string_view text) {
  return mentions(text, {"not finite", "non-finite", "nonfinite", "loss is nan", "nan loss", "loss: nan"});
}

// ---- Cause of a failed pod -----------------------------------------------------------------------------------------

bool is_node_gone(const Incident& incident) {
  return incident.node != nullptr && (!incident.node->exists || !incident.node->ready);
}

// The cause of a removal from outside: eviction, preemption, deletion.
std::optional<Cause> removal_cause(const DiagnosisInput& input, const Incident& incident) {
  const std::string& reason = incident.record.reason;
  const std::string disruption = incident.pod == nullptr ? "" : incident.pod->disruption;
  const auto is = [&](std::string_view name) { return reason == name || disruption == name; };
  if (is("PreemptionByScheduler") || mentions(reason, {"preempt"}) ||
      (!incident.record.pod.empty() && has_event(input, incident.record.pod, {"Preempted"})))
    return Cause::kPreempted;
  if (is("DeletionByPodGC") || is("NodeLost") || is("NodeShutdown")) return Cause::kNodeLost;
  if (mentions(incident.record.message, {control::kRejectedByNode})) return Cause::kRejected;
  if (is("DeletionByTaintManager"))
    return incident.node == nullptr || is_node_gone(incident) ? Cause::kNodeLost : Cause::kEvicted;
  const bool is_eviction =
      is("Evicted") || is("EvictionByEvictionAPI") || is("TerminationByKubelet") || is("Terminated");
  if (is_eviction) {
    if (mentions(incident.text, {"node shutdown", "imminent node"})) return Cause::kNodeLost;
    return mentions_full_disk(incident.text) ? Cause::kDiskFull : Cause::kEvicted;
  }
  if (reason == "PodDeleted" || reason == "PodLost") {
    if (is_node_gone(incident) || has_event(input, incident.record.pod, {"NodeNotReady", "TaintManagerEviction"}))
      return Cause::kNodeLost;
    return Cause::kPodDeleted;
  }
  return std::nullopt;
}

// Exit codes whose meaning is more specific than words in the message, which may quote anything.
bool is_specific(std::optional<int> exit_code) {
  constexpr ExitCode kSpecific[] = {ExitCode::kUsage, ExitCode::kConfig, ExitCode::kCheckpoint,
                                    ExitCode::kNoPermission};
  return std::any_of(std::begin(kSpecific), std::end(kSpecific),
                     [&](ExitCode code) { return exit_code == to_int(code); });
}

std::optional<Cause> cause_by_text(const Incident& incident) {
  const std::string& text = incident.text;
  const std::string& reason = incident.record.reason;
  if (mentions_device_memory(text)) return Cause::kDeviceOutOfMemory;
  if (mentions_hang(text)) return Cause::kHang;
  if (reason == kReasonDeviceFailed || mentions_device(text)) return Cause::kDeviceFailed;
  if (mentions_non_finite(text)) return Cause::kNonFinite;
  if (mentions(text, {"no space left", "disk full", "disk is full", "disk quota exceeded", "enospc"}))
    return Cause::kDiskFull;
  if (reason == kReasonHostUnknown || mentions_unreachable_master(text)) return Cause::kMasterUnreachable;
  return std::nullopt;
}

// By docs/exit-codes.md.
Cause cause_by_exit_code(int code, const Incident& incident) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kUsage:
    case ExitCode::kConfig:
      return Cause::kConfigInvalid;
    case ExitCode::kDataErr:
    case ExitCode::kNoInput:
    case ExitCode::kNoPermission:
      return Cause::kInputMissing;
    case ExitCode::kNoHost:
      return Cause::kMasterUnreachable;
    case ExitCode::kSoftware:
      return Cause::kSoftware;
    case ExitCode::kOsErr:
      return mentions(incident.text, {"memory"}) ? Cause::kOutOfMemory : Cause::kExit;
    case ExitCode::kCheckpoint:
      return Cause::kCheckpointUnreadable;
    case ExitCode::kCantCreate:
    case ExitCode::kIoErr:
      return Cause::kIoError;
    case ExitCode::kTempFail:
      return Cause::kTerminated;
    case ExitCode::kPeerLost:
      return Cause::kPeerLost;
    case ExitCode::kDeviceFailed:
      return Cause::kDeviceFailed;
    default:
      break;
  }
  if (code == 126 || code == 127) return Cause::kContainerStart;
  if (code == 128 + SIGTERM || code == 128 + SIGINT) return Cause::kTerminated;
  return code > 128 && code < 128 + 65 ? Cause::kSignal : Cause::kExit;
}

// ---- Cause of a job that does not start ----------------------------------------------------------------------------

std::optional<Cause> cause_of_waiting(const std::string& reason) {
  constexpr std::string_view kPullReasons[] = {"ImagePullBackOff",         "ErrImagePull",        "InvalidImageName",
                                               "ErrImageNeverPull",        "RegistryUnavailable", "ImageInspectError",
                                               "SignatureValidationFailed"};
  if (std::find(std::begin(kPullReasons), std::end(kPullReasons), reason) != std::end(kPullReasons))
    return Cause::kImagePull;
  const bool is_ordinary = reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing";
  if (is_ordinary) return std::nullopt;
  return Cause::kContainerStart;
}

StartProblem problem_of_pod(const DiagnosisInput& input, const PodView& pod) {
  for (const ContainerView& container : pod.containers) {
    if (const auto cause = cause_of_waiting(container.waiting_reason)) {
      const EventView* event =
          find_event(input, pod.name, {"Failed", "FailedToRetrieveImagePullSecret", "InspectFailed"});
      const bool event_has_more = event != nullptr && event->message.size() > container.waiting_message.size();
      return {
          *cause, &pod,
          event_has_more ? event->message : fmt::format("{}: {}", container.waiting_reason, container.waiting_message)};
    }
  }
  if (const ContainerView* init = failed_init_container(pod); init != nullptr)
    return {Cause::kInitContainer, &pod,
            fmt::format("init container {} ended with exit code {}{}{}", init->name, init->end->exit_code,
                        init->end->text.empty() ? "" : ": ", init->end->text)};
  if (const EventView* event = find_event(input, pod.name, {"FailedMount", "FailedAttachVolume", "FailedMapVolume"}))
    return {Cause::kVolume, &pod, event->message};
  if (const EventView* event = find_event(input, pod.name, {"FailedCreatePodSandBox"}))
    return {Cause::kContainerStart, &pod, event->message};
  if (!pod.scheduled && !pod.unscheduled_message.empty()) return {Cause::kUnschedulable, &pod, pod.unscheduled_message};
  return {};
}

Cause cause_of_refusal(std::string_view message) {
  return mentions(message, {"exceeded quota", "quota"}) ? Cause::kQuota : Cause::kPodRefused;
}

// The cause of a job that restarts, but whose queue keeps it from starting; its condition has the reason of the
// restart.
std::optional<Cause> cause_of_queue(const api::Status& status, const api::Condition& condition) {
  if (mentions(condition.message, {"the workloads of kueue cannot be read"})) return Cause::kQueueUnavailable;
  const bool is_waiting = status.queue && status.queue->cluster_queue.empty();
  return is_waiting ? std::optional(Cause::kQueued) : std::nullopt;
}

std::optional<Cause> cause_of_condition(const api::Status& status, const api::Condition& condition) {
  if (condition.reason == "CreateRefused") return cause_of_refusal(condition.message);
  if (condition.reason == "NameTaken" || condition.reason == "WaitingForNames") return Cause::kNameTaken;
  if (condition.reason == "InvalidSpec") return Cause::kSpecInvalid;
  if (condition.reason == "InvalidTemplate") return Cause::kTemplateInvalid;
  if (condition.reason == api::kProfileNotFound) return Cause::kProfileMissing;
  if (condition.reason == api::kInvalidProfile) return Cause::kProfileInvalid;
  if (condition.reason == "Unschedulable") return Cause::kUnschedulable;
  if (condition.reason == control::kQueued) return Cause::kQueued;
  if (condition.reason == control::kQueueUnavailable) return Cause::kQueueUnavailable;
  if (condition.reason == control::kPodsStarting) return std::nullopt;
  // The reason of a restart is that of the last failure; the end of the message describes the present state.
  if (condition.type == to_string(api::Phase::kRestarting)) {
    const size_t refused = condition.message.find(control::kApiServerRefused);
    if (refused == std::string::npos) return cause_of_queue(status, condition);
    return cause_of_refusal(std::string_view(condition.message).substr(refused));
  }
  return cause_of_waiting(condition.reason);
}

// The cause of an attempt that ended before all pods had started (control::kNotStarted). Its record names the pod that
// had not, and has no exit code.
std::optional<Cause> cause_of_incomplete_start(const DiagnosisInput& input, const api::AttemptRecord& record) {
  if (record.exit_code || !mentions(record.message, {control::kPodsHaveStarted})) return std::nullopt;
  if (record.reason == "Unschedulable") return Cause::kUnschedulable;
  if (record.reason == "CreateRefused") return cause_of_refusal(record.message);
  if (record.reason == control::kPodsStarting) {
    if (has_event(input, record.pod, {"FailedMount", "FailedAttachVolume", "FailedMapVolume"})) return Cause::kVolume;
    return has_event(input, record.pod, {"Pulling"}) ? Cause::kImagePull : Cause::kContainerStart;
  }
  return cause_of_waiting(record.reason);
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

Cause cause_of_incident(const DiagnosisInput& input, const Incident& incident) {
  if (control::ended_by_queue(incident.record)) return Cause::kQueueEvicted;
  if (control::ended_by_resize(incident.record)) return Cause::kUnschedulable;  // an elastic group that shrank
  const ContainerView* trainer = incident.pod == nullptr ? nullptr : incident.pod->trainer();
  const std::string container_reason = trainer != nullptr && trainer->end ? trainer->end->reason : "";
  const bool was_oom_killed = incident.record.reason == "OOMKilled" || container_reason == "OOMKilled" ||
                              mentions(incident.record.message, {"(oomkilled)"}) ||
                              (incident.record.exit_code == 128 + SIGKILL &&
                               (has_event(input, incident.record.node, {"SystemOOM", "OOMKilling"}) ||
                                has_event(input, incident.record.pod, {"OOMKilling", "OOMKilled"})));
  if (was_oom_killed) return Cause::kOutOfMemory;
  if (const auto waiting = cause_of_incomplete_start(input, incident.record)) return *waiting;
  if (const auto removal = removal_cause(input, incident)) return *removal;
  if (!incident.record.container.empty() || (incident.pod != nullptr && (trainer == nullptr || !trainer->end) &&
                                             failed_init_container(*incident.pod) != nullptr))
    return Cause::kInitContainer;
  if (container_reason == "ContainerCannotRun" || container_reason == "StartError" ||
      mentions(incident.record.message, {"(containercannotrun)", "(starterror)"}))
    return Cause::kContainerStart;
  if (!is_specific(incident.record.exit_code)) {
    if (const auto cause = cause_by_text(incident)) return *cause;
  }
  if (incident.record.exit_code) return cause_by_exit_code(*incident.record.exit_code, incident);
  if (incident.record.reason == kReasonPeerLost) return Cause::kPeerLost;
  if (incident.record.reason == kReasonInterrupted) return Cause::kTerminated;
  return incident.node != nullptr && is_node_gone(incident) ? Cause::kNodeLost : Cause::kExit;
}

StartProblem find_start_problem(const DiagnosisInput& input, const api::Condition* condition) {
  std::vector<const PodView*> pods;
  for (const PodView& pod : input.pods) {
    if (pod.attempt == input.job.status.attempt && pod.phase == "Pending") pods.push_back(&pod);
  }
  std::sort(pods.begin(), pods.end(), [](const PodView* a, const PodView* b) { return a->node_rank < b->node_rank; });
  StartProblem unscheduled;
  for (const PodView* pod : pods) {
    StartProblem problem = problem_of_pod(input, *pod);
    if (problem.cause == Cause::kNone) continue;
    if (problem.cause != Cause::kUnschedulable) return problem;
    // Another pod may have a more specific problem.
    if (unscheduled.cause == Cause::kNone) unscheduled = problem;
  }
  if (condition != nullptr) {
    // A refused pod does not exist, so that only the condition names the problem.
    if (const auto cause = cause_of_condition(input.job.status, *condition); cause && *cause != Cause::kUnschedulable)
      return {*cause, nullptr, condition->message};
  }
  if (unscheduled.cause != Cause::kNone) return unscheduled;
  if (condition != nullptr) {
    if (const auto cause = cause_of_condition(input.job.status, *condition))
      return {*cause, nullptr, condition->message};
  }
  return {};
}

}  // namespace oarlock::cli
