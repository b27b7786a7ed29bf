#include "cli/cluster/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/cluster/job_view.h"
#include "common/error.h"
#include "common/text.h"
#include "operator/core/failure.h"
#include "operator/core/membership.h"
#include "operator/core/text.h"

namespace oarlock::cli {
namespace {

using api::Phase;
using Cause = DiagnosedCause;
using std::chrono::seconds;

constexpr std::pair<Cause, std::string_view> kCauseNames[] = {
    {Cause::kNone, "None"},
    {Cause::kOutOfMemory, "OutOfMemory"},
    {Cause::kDeviceOutOfMemory, "DeviceOutOfMemory"},
    {Cause::kDiskFull, "DiskFull"},
    {Cause::kIoError, "IoError"},
    {Cause::kEvicted, "Evicted"},
    {Cause::kPreempted, "Preempted"},
    {Cause::kNodeLost, "NodeLost"},
    {Cause::kPodDeleted, "PodDeleted"},
    {Cause::kTerminated, "Terminated"},
    {Cause::kImagePull, "ImagePull"},
    {Cause::kContainerStart, "ContainerStart"},
    {Cause::kInitContainer, "InitContainer"},
    {Cause::kVolume, "Volume"},
    {Cause::kUnschedulable, "Unschedulable"},
    {Cause::kQuota, "Quota"},
    {Cause::kPodRefused, "PodRefused"},
    {Cause::kTemplateInvalid, "TemplateInvalid"},
    {Cause::kSpecInvalid, "SpecInvalid"},
    {Cause::kNameTaken, "NameTaken"},
    {Cause::kConfigInvalid, "ConfigInvalid"},
    {Cause::kInputMissing, "InputMissing"},
    {Cause::kMasterUnreachable, "MasterUnreachable"},
    {Cause::kHang, "Hang"},
    {Cause::kNonFinite, "NonFinite"},
    {Cause::kCheckpointUnreadable, "CheckpointUnreadable"},
    {Cause::kDeviceFailed, "DeviceFailed"},
    {Cause::kDeadline, "Deadline"},
    {Cause::kPeerLost, "PeerLost"},
    {Cause::kSignal, "Signal"},
    {Cause::kSoftware, "Software"},
    {Cause::kExit, "Exit"},
    {Cause::kSuspended, "Suspended"},
    {Cause::kNotManaged, "NotManaged"},
};

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
  return mentions(text, {"nvrm: xid", "xid (", "nvlink error", "uncorrectable ecc", "fallen off the bus",
                         "unspecified launch failure", "device-side hardware", "gpu is lost"});
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

// ---- The failure that is explained ---------------------------------------------------------------------------------

// One failure of one attempt, and the objects that describe it.
struct Incident {
  api::AttemptRecord record;
  const PodView* pod = nullptr;    // null if the pod does not exist any more
  const NodeView* node = nullptr;  // null if the node was not read
  std::string text;                // the messages of the record and of the pod
};

const PodView* find_pod_named(const DiagnosisInput& input, std::string_view name) {
  const auto found =
      std::find_if(input.pods.begin(), input.pods.end(), [&](const PodView& pod) { return pod.name == name; });
  return found == input.pods.end() ? nullptr : &*found;
}

const NodeView* find_node_named(const DiagnosisInput& input, std::string_view name) {
  const auto found =
      std::find_if(input.nodes.begin(), input.nodes.end(), [&](const NodeView& node) { return node.name == name; });
  return found == input.nodes.end() ? nullptr : &*found;
}

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

// The root cause of a failure of the current attempt that the operator has not recorded yet, by the operator's rules.
std::optional<Incident> unrecorded_incident(const DiagnosisInput& input) {
  if (input.job.spec.nodes < 1 || input.job.spec.nodes > 4096) return std::nullopt;
  control::Observed observed;
  observed.job = input.job;
  observed.now = input.now;
  for (const PodView& pod : input.pods) observed.pods.push_back(to_core_pod(pod, input.job.metadata.uid));
  const control::Membership members = control::classify_objects(observed);
  const control::GroupFailure failure = control::evaluate_failure_policy(observed.job, members, input.now);
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

bool has_event(const DiagnosisInput& input, const std::string& object,
               std::initializer_list<std::string_view> reasons) {
  return std::any_of(input.events.begin(), input.events.end(), [&](const EventView& event) {
    return event.name == object && std::find(reasons.begin(), reasons.end(), event.reason) != reasons.end();
  });
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
  if (is("DeletionByPodGC") || is("NodeLost") || is("NodeShutdown") || is("NodeAffinity")) return Cause::kNodeLost;
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
  if (reason == "DeviceFailed" || mentions_device(text)) return Cause::kDeviceFailed;
  if (mentions_non_finite(text)) return Cause::kNonFinite;
  if (mentions(text, {"no space left", "disk full", "disk is full", "disk quota exceeded", "enospc"}))
    return Cause::kDiskFull;
  if (reason == "HostUnknown" || mentions_unreachable_master(text)) return Cause::kMasterUnreachable;
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

const ContainerView* failed_init_container(const PodView& pod) {
  const auto found = std::find_if(pod.containers.begin(), pod.containers.end(), [](const ContainerView& one) {
    return one.is_init && one.end && one.end->exit_code != 0;
  });
  return found == pod.containers.end() ? nullptr : &*found;
}

Cause cause_of_incident(const DiagnosisInput& input, const Incident& incident) {
  const ContainerView* trainer = incident.pod == nullptr ? nullptr : incident.pod->trainer();
  const std::string container_reason = trainer != nullptr && trainer->end ? trainer->end->reason : "";
  const bool was_oom_killed = incident.record.reason == "OOMKilled" || container_reason == "OOMKilled" ||
                              mentions(incident.record.message, {"(oomkilled)"}) ||
                              (incident.record.exit_code == 128 + SIGKILL &&
                               (has_event(input, incident.record.node, {"SystemOOM", "OOMKilling"}) ||
                                has_event(input, incident.record.pod, {"OOMKilling", "OOMKilled"})));
  if (was_oom_killed) return Cause::kOutOfMemory;
  if (const auto removal = removal_cause(input, incident)) return *removal;
  if (incident.pod != nullptr && (trainer == nullptr || !trainer->end) &&
      failed_init_container(*incident.pod) != nullptr)
    return Cause::kInitContainer;
  if (container_reason == "ContainerCannotRun" || container_reason == "StartError" ||
      mentions(incident.record.message, {"(containercannotrun)", "(starterror)"}))
    return Cause::kContainerStart;
  if (!is_specific(incident.record.exit_code)) {
    if (const auto cause = cause_by_text(incident)) return *cause;
  }
  if (incident.record.exit_code) return cause_by_exit_code(*incident.record.exit_code, incident);
  if (incident.record.reason == "PeerLost") return Cause::kPeerLost;
  if (incident.record.reason == "Interrupted") return Cause::kTerminated;
  return incident.node != nullptr && is_node_gone(incident) ? Cause::kNodeLost : Cause::kExit;
}

// ---- Cause of a job that does not start ----------------------------------------------------------------------------

struct StartProblem {
  Cause cause = Cause::kNone;
  const PodView* pod = nullptr;
  std::string message;
};

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

// The newest Warning about the pod with one of these reasons.
const EventView* find_warning(const DiagnosisInput& input, const std::string& object,
                              std::initializer_list<std::string_view> reasons) {
  const EventView* newest = nullptr;
  for (const EventView& event : input.events) {
    if (event.name != object || std::find(reasons.begin(), reasons.end(), event.reason) == reasons.end()) continue;
    if (newest == nullptr || newest->last_time < event.last_time) newest = &event;
  }
  return newest;
}

StartProblem problem_of_pod(const DiagnosisInput& input, const PodView& pod) {
  for (const ContainerView& container : pod.containers) {
    if (const auto cause = cause_of_waiting(container.waiting_reason)) {
      const EventView* event =
          find_warning(input, pod.name, {"Failed", "FailedToRetrieveImagePullSecret", "InspectFailed"});
      const bool event_says_more = event != nullptr && event->message.size() > container.waiting_message.size();
      return {*cause, &pod,
              event_says_more ? event->message
                              : fmt::format("{}: {}", container.waiting_reason, container.waiting_message)};
    }
  }
  if (const ContainerView* init = failed_init_container(pod); init != nullptr)
    return {Cause::kInitContainer, &pod,
            fmt::format("init container {} ended with exit code {}{}{}", init->name, init->end->exit_code,
                        init->end->text.empty() ? "" : ": ", init->end->text)};
  if (const EventView* event = find_warning(input, pod.name, {"FailedMount", "FailedAttachVolume", "FailedMapVolume"}))
    return {Cause::kVolume, &pod, event->message};
  if (const EventView* event = find_warning(input, pod.name, {"FailedCreatePodSandBox"}))
    return {Cause::kContainerStart, &pod, event->message};
  if (!pod.scheduled && !pod.unscheduled_message.empty()) return {Cause::kUnschedulable, &pod, pod.unscheduled_message};
  return {};
}

std::optional<Cause> cause_of_condition(const api::Condition& condition) {
  if (condition.reason == "CreateRefused")
    return mentions(condition.message, {"exceeded quota", "quota"}) ? Cause::kQuota : Cause::kPodRefused;
  if (condition.reason == "NameTaken" || condition.reason == "WaitingForNames") return Cause::kNameTaken;
  if (condition.reason == "InvalidSpec") return Cause::kSpecInvalid;
  if (condition.reason == "InvalidTemplate") return Cause::kTemplateInvalid;
  if (condition.reason == "Unschedulable") return Cause::kUnschedulable;
  if (condition.reason == "PodsStarting") return std::nullopt;
  return cause_of_waiting(condition.reason);
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
    if (const auto cause = cause_of_condition(*condition); cause && *cause != Cause::kUnschedulable)
      return {*cause, nullptr, condition->message};
  }
  if (unscheduled.cause != Cause::kNone) return unscheduled;
  if (condition != nullptr) {
    if (const auto cause = cause_of_condition(*condition)) return {*cause, nullptr, condition->message};
  }
  return {};
}

// ---- Texts ---------------------------------------------------------------------------------------------------------

std::string_view cause_sentence(Cause cause) {
  switch (cause) {
    case Cause::kNone:
      return "no failure is known";
    case Cause::kOutOfMemory:
      return "{} ran out of memory";
    case Cause::kDeviceOutOfMemory:
      return "{} ran out of device memory";
    case Cause::kDiskFull:
      return "the disk of {} is full";
    case Cause::kIoError:
      return "{} could not read or write a file";
    case Cause::kEvicted:
      return "{} was evicted from its node";
    case Cause::kPreempted:
      return "{} was preempted by a pod of higher priority";
    case Cause::kNodeLost:
      return "the node of {} was lost";
    case Cause::kPodDeleted:
      return "the pod of {} was deleted";
    case Cause::kTerminated:
      return "{} was stopped by a signal from outside";
    case Cause::kImagePull:
      return "the image of {} cannot be pulled";
    case Cause::kContainerStart:
      return "the container of {} cannot be started";
    case Cause::kInitContainer:
      return "an init container of {} failed";
    case Cause::kVolume:
      return "a volume of {} cannot be mounted";
    case Cause::kUnschedulable:
      return "no node can run {}";
    case Cause::kQuota:
      return "the quota of the namespace does not allow the pods";
    case Cause::kPodRefused:
      return "the API server refuses the pods";
    case Cause::kTemplateInvalid:
      return "spec.template is invalid";
    case Cause::kSpecInvalid:
      return "the job cannot be run as it is";
    case Cause::kNameTaken:
      return "objects of another owner have the names that the job needs";
    case Cause::kConfigInvalid:
      return "{} was started with an invalid configuration or command line";
    case Cause::kInputMissing:
      return "{} could not use one of its input files";
    case Cause::kMasterUnreachable:
      return "{} could not reach the rendezvous at MASTER_ADDR, or not all ranks arrived there";
    case Cause::kHang:
      return "{} made no progress: a rank hangs or waits for another one";
    case Cause::kNonFinite:
      return "the loss or the gradients of {} are not finite";
    case Cause::kCheckpointUnreadable:
      return "{} found a checkpoint that it can neither read nor may replace";
    case Cause::kDeviceFailed:
      return "a GPU of {}, its driver or its link failed";
    case Cause::kDeadline:
      return "the job was active for longer than activeDeadlineSeconds";
    case Cause::kPeerLost:
      return "ranks lost the connection to a peer, and no pod reports why that peer ended";
    case Cause::kSignal:
      return "{} was ended by a signal";
    case Cause::kSoftware:
      return "{} reported a bug in the program or in a kernel";
    case Cause::kExit:
      return "{} failed with an exit code that Oarlock does not define";
    case Cause::kSuspended:
      return "the job is suspended (spec.suspend)";
    case Cause::kNotManaged:
      return "no operator has seen the job";
  }
  return "";
}

std::vector<std::string> remedies_for(Cause cause, const DiagnosisInput& input, const Diagnosis& found) {
  const std::string node = found.node.empty() ? "NODE" : found.node;
  const std::string name_space = input.job.metadata.name_space;
  switch (cause) {
    case Cause::kNone:
      return {};
    case Cause::kOutOfMemory:
      return {"raise limits.memory of spec.resourcesPerNode (or of the container 'trainer')",
              "use less host memory per rank: a smaller batch.size, fewer loader.threads, fewer processesPerNode"};
    case Cause::kDeviceOutOfMemory:
      return {"lower batch.size, and keep the effective batch with accumulation",
              "use bf16 (precision) or activation checkpointing, or GPUs with more memory"};
    case Cause::kDiskFull:
      return {"free space on the volume that the message names, or enlarge it",
              "for checkpoints: raise spec.checkpoints.size, or keep fewer with checkpoint.keep",
              "for the node's own disk: write caches to a volume, or raise limits.ephemeral-storage"};
    case Cause::kIoError:
      return {"check the volume and the permissions of the path in the message"};
    case Cause::kEvicted:
      return {"set requests equal to limits in spec.resourcesPerNode, so that the kubelet evicts other pods first",
              "after a drain or a taint nothing needs to be done: the group resumes from its newest checkpoint"};
    case Cause::kPreempted:
      return {"give the job a higher spec.template.spec.priorityClassName, or wait until there is capacity",
              "such restarts are free, so that the job resumes from its newest checkpoint by itself"};
    case Cause::kNodeLost:
      return {fmt::format("kubectl describe node {}", node),
              "shorter tolerations for node.kubernetes.io/unreachable in the template replace the pod earlier"};
    case Cause::kPodDeleted:
      return {"find out who deleted it: the audit log of the API server names the user",
              "to stop a job, use: oarlock suspend " + input.job.metadata.name};
    case Cause::kTerminated:
      return {
          "find out what stopped it: a drain, a deletion, an autoscaler, or a time limit in the container's command",
          "the state was saved if the exit code is 75; the next attempt resumes there"};
    case Cause::kImagePull:
      return {"check the name and the tag of the image, and that the nodes reach the registry",
              "for a private registry: set imagePullSecrets in spec.template.spec"};
    case Cause::kContainerStart:
      return {
          "check the command and its architecture in the image, and the ConfigMaps and Secrets that the container "
          "refers to",
          fmt::format("kubectl describe pod -n {} {}", name_space, found.pod.empty() ? "POD" : found.pod)};
    case Cause::kInitContainer:
      return {
          fmt::format("kubectl logs -n {} {} -c INIT_CONTAINER", name_space, found.pod.empty() ? "POD" : found.pod)};
    case Cause::kVolume:
      return {
          "check that the PersistentVolumeClaim, Secret or ConfigMap exists and that its storage class supports the "
          "nodes",
          fmt::format("kubectl describe pod -n {} {}", name_space, found.pod.empty() ? "POD" : found.pod)};
    case Cause::kUnschedulable:
      return {"compare spec.resourcesPerNode with the capacity of the nodes: kubectl describe nodes",
              "check the node selector, affinity and tolerations of the template, or add nodes"};
    case Cause::kQuota:
      return {fmt::format("kubectl describe resourcequota -n {}", name_space),
              "request less, wait for other jobs of the namespace to finish, or let the quota be raised"};
    case Cause::kPodRefused:
      return {"change the template so that it satisfies the admission policy that the message names"};
    case Cause::kTemplateInvalid:
      return {"correct the field that the message names; oarlock validate -f FILE finds such errors before"};
    case Cause::kSpecInvalid:
      return {"correct the field that the message names; oarlock validate -f FILE finds such errors before"};
    case Cause::kNameTaken:
      return {"delete the objects that the message names, or give the job another name"};
    case Cause::kConfigInvalid:
      return {
          "correct the field or option that the message names; oarlock validate -f FILE finds most such errors before"};
    case Cause::kInputMissing:
      return {
          "check that the path in the message exists in the container and is readable: volumes, claims, permissions"};
    case Cause::kMasterUnreachable:
      return {
          "check that the pod of rank 0 started, and that no NetworkPolicy or service mesh blocks the ports of the "
          "ranks",
          "raise distributed.rendezvous_seconds if pods start far apart, for example while images are pulled"};
    case Cause::kHang:
      return {"look at the last lines of all ranks: the one that is behind names what it does",
              "check the network (NCCL_DEBUG=INFO) and the data of the rank that is behind",
              "raise distributed.timeout_seconds only if a step or an evaluation really takes that long"};
    case Cause::kNonFinite:
      return {"lower the learning rate or warm up longer, and clip gradients",
              "nonfinite: skip leaves out single steps; look for broken samples in the batches that the log names"};
    case Cause::kCheckpointUnreadable:
      return {"read docs/checkpoint-format.md#when-a-checkpoint-cannot-be-read before anything is deleted"};
    case Cause::kDeviceFailed:
      return {fmt::format("kubectl cordon {}, then look for Xid lines in its kernel log", node),
              "the rule {action: RestartFree, onExitCodes: {operator: In, values: [79]}} keeps such failures out of "
              "maxRestarts"};
    case Cause::kDeadline:
      return {
          "raise spec.activeDeadlineSeconds; a new job resumes from the checkpoints if it uses the same claim and "
          "name"};
    case Cause::kPeerLost:
      return {"read the logs of all ranks of that attempt; the peer's pod was removed before it could report"};
    case Cause::kSignal:
      return {"SIGKILL without OOMKilled: check the memory of the node and of child processes",
              "SIGSEGV, SIGBUS or SIGABRT: a native library crashed; the log has its last lines. SIGBUS: /dev/shm may "
              "be too small"};
    case Cause::kSoftware:
      return {"report it with the log; a device-side assert needs CUDA_LAUNCH_BLOCKING=1 to name its kernel"};
    case Cause::kExit:
      return {"the exit code is that of the container's command: its log has the reason"};
    case Cause::kSuspended:
      return {"oarlock resume " + input.job.metadata.name};
    case Cause::kNotManaged:
      return {
          "check that the operator runs and watches this namespace: kubectl get pods -A -l "
          "app.kubernetes.io/name=oarlock"};
  }
  return {};
}

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal {} (SIG{})", number, name);
}

std::string subject_of(const Diagnosis& found) {
  if (found.rank) return fmt::format("rank {}", *found.rank);
  if (found.node_rank) return fmt::format("node rank {}", *found.node_rank);
  return "a rank";
}

std::string cause_text(const Diagnosis& found) {
  std::string text(cause_sentence(found.cause));
  if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, subject_of(found));
  return text;
}

// ---- Where, when and cost ------------------------------------------------------------------------------------------

void set_place(const PodView& pod, const api::Spec& spec, Diagnosis& out) {
  out.pod = pod.name;
  out.node = pod.node;
  out.node_rank = pod.node_rank;
  out.attempt = pod.attempt;
  if (spec.processes_per_node == 1) out.rank = pod.node_rank;
}

void set_place(const Incident& incident, const api::Spec& spec, Diagnosis& out) {
  const api::AttemptRecord& record = incident.record;
  out.attempt = record.attempt;
  out.pod = printable(record.pod);
  out.node = printable(record.node);
  out.node_rank = record.node_rank;
  out.exit_code = record.exit_code;
  out.time = record.end_time;
  out.message = control::sanitize_line(record.message);
  if (record.node_rank && spec.processes_per_node == 1) out.rank = record.node_rank;
  const ContainerView* trainer = incident.pod == nullptr ? nullptr : incident.pod->trainer();
  if (trainer == nullptr || !trainer->end) return;
  if (trainer->end->message && out.node_rank) out.rank = trainer->end->message->rank;
  if (!trainer->end->text.empty()) out.message = trainer->end->text;
  if (trainer->end->finished_at) out.time = trainer->end->finished_at;
}

void add_steps_lost(const DiagnosisInput& input, const Incident& incident, Diagnosis& out) {
  int64_t step = -1;
  int64_t checkpoint = -1;
  const ContainerView* trainer = incident.pod == nullptr ? nullptr : incident.pod->trainer();
  if (trainer != nullptr && trainer->end && trainer->end->message) {
    step = trainer->end->message->step;
    checkpoint = trainer->end->message->checkpoint_step;
  }
  const api::Status& status = input.job.status;
  // The progress is that of the failure only if no attempt has followed.
  if (step <= 0 && status.progress && status.phase == Phase::kFailed) {
    step = status.progress->step;
    checkpoint = status.progress->checkpoint_step.value_or(-1);
  }
  if (step <= 0) return;
  const int64_t lost = step - std::clamp<int64_t>(checkpoint, 0, step);
  out.cost.push_back(checkpoint >= 0 ? fmt::format("{} steps: it was at step {}, and the newest checkpoint has step {}",
                                                   lost, step, checkpoint)
                                     : fmt::format("{} steps: it was at step {}, without a checkpoint", lost, step));
}

void add_cost(const DiagnosisInput& input, const Incident& incident, Diagnosis& out) {
  const api::TrainingJob& job = input.job;
  const api::AttemptRecord& record = incident.record;
  add_steps_lost(input, incident, out);
  if (record.start_time && record.end_time > *record.start_time) {
    const auto ran = std::chrono::duration_cast<seconds>(record.end_time - *record.start_time);
    out.cost.push_back(fmt::format("the attempt ran for {} with {} ranks", duration_text(ran), job.spec.world_size()));
  }
  if (job.status.attempt == record.attempt + 1 && job.status.attempt_start_time &&
      *job.status.attempt_start_time >= record.end_time) {
    const auto down = std::chrono::duration_cast<seconds>(*job.status.attempt_start_time - record.end_time);
    out.cost.push_back(fmt::format("{} until the pods of the next attempt were created", duration_text(down)));
  }
  if (job.status.restarts.total > 0) {
    out.cost.push_back(fmt::format("{} restarts so far; {} of {} that failurePolicy.maxRestarts allows are used",
                                   job.status.restarts.total, job.status.restarts.charged,
                                   job.spec.failure_policy.max_restarts));
  }
}

void add_history(const api::Status& status, std::optional<int> explained, Diagnosis& out) {
  for (auto record = status.attempts.rbegin(); record != status.attempts.rend(); ++record) {
    if (explained && record->attempt == *explained) continue;
    out.history.push_back(fmt::format("attempt {}: {}: {}", record->attempt, control::sanitize_line(record->reason, 60),
                                      control::sanitize_line(record->message, 200)));
  }
}

// ---- Evidence ------------------------------------------------------------------------------------------------------

void add_evidence(const DiagnosisInput& input, Diagnosis& out) {
  constexpr size_t kMaxEvents = 5;
  std::vector<const EventView*> events;
  for (const EventView& event : input.events) {
    const bool is_related =
        event.name == out.pod || event.kind == kKind || (event.kind == "Node" && event.name == out.node);
    if (event.type == "Warning" && is_related) events.push_back(&event);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const EventView* a, const EventView* b) { return a->last_time > b->last_time; });
  if (events.size() > kMaxEvents) events.resize(kMaxEvents);
  for (const EventView* event : events) {
    out.evidence.push_back(fmt::format("event {} of {} {}{}: {}", event->reason, event->kind, event->name,
                                       event->count > 1 ? fmt::format(" ({} times)", event->count) : "",
                                       event->message));
  }
  const NodeView* node = out.node.empty() ? nullptr : find_node_named(input, out.node);
  if (node == nullptr) return;
  if (!node->exists) {
    out.evidence.push_back(fmt::format("node {} does not exist any more", node->name));
  } else if (!node->ready) {
    out.evidence.push_back(fmt::format("node {} is not ready{}{}", node->name,
                                       node->not_ready_message.empty() ? "" : ": ", node->not_ready_message));
  }
  if (!node->pressures.empty())
    out.evidence.push_back(fmt::format("node {} has {}", node->name, fmt::join(node->pressures, ", ")));
  if (node->cordoned) out.evidence.push_back(fmt::format("node {} is cordoned", node->name));
}

// ---- Diagnosis by phase --------------------------------------------------------------------------------------------

Diagnosis explain(const DiagnosisInput& input, const Incident& incident, std::string_view prefix) {
  Diagnosis out;
  out.cause = cause_of_incident(input, incident);
  set_place(incident, input.job.spec, out);
  if (out.exit_code) out.explanation = exit_code_text(*out.exit_code);
  if (out.cause == Cause::kOutOfMemory && out.exit_code == 128 + SIGKILL) out.explanation += ", out of memory";
  if (out.cause == Cause::kInitContainer && incident.pod != nullptr) {
    const ContainerView* init = failed_init_container(*incident.pod);
    out.exit_code = init->end->exit_code;
    out.explanation = fmt::format("init container {}: {}", init->name, exit_code_text(init->end->exit_code));
    if (!init->end->text.empty()) out.message = init->end->text;
  }
  out.headline = fmt::format("{} {}: {}", input.job.metadata.name, prefix, cause_text(out));
  add_cost(input, incident, out);
  add_history(input.job.status, incident.record.attempt, out);
  return out;
}

Diagnosis simple(const DiagnosisInput& input, Cause cause, std::string_view prefix, const std::string& message) {
  Diagnosis out;
  out.cause = cause;
  out.message = control::sanitize_line(message);
  out.attempt = input.job.status.attempt;
  out.headline = fmt::format("{} {}: {}", input.job.metadata.name, prefix, cause_text(out));
  return out;
}

Diagnosis explain_start(const DiagnosisInput& input, const StartProblem& problem, std::string_view prefix) {
  Diagnosis out;
  out.cause = problem.cause;
  if (problem.pod != nullptr) set_place(*problem.pod, input.job.spec, out);
  out.message = control::sanitize_line(problem.message);
  out.headline = fmt::format("{} {}: {}", input.job.metadata.name, prefix, cause_text(out));
  if (input.job.metadata.creation_timestamp && input.job.status.attempt == 0)
    out.cost.push_back(fmt::format("it has waited for {}", age_text(input.job.metadata.creation_timestamp, input.now)));
  add_history(input.job.status, std::nullopt, out);
  return out;
}

Diagnosis diagnose_failed(const DiagnosisInput& input) {
  const api::Status& status = input.job.status;
  const api::Condition* condition = current_condition(status);
  const std::string reason = condition == nullptr ? "" : condition->reason;
  const std::string message = condition == nullptr ? "" : condition->message;
  if (reason == "DeadlineExceeded" || reason == "InvalidTemplate") {
    Diagnosis out =
        simple(input, reason == "DeadlineExceeded" ? Cause::kDeadline : Cause::kTemplateInvalid, "failed", message);
    out.time = status.completion_time;
    if (status.progress) {
      const std::string goal =
          status.progress->target_steps ? fmt::format(" of {}", *status.progress->target_steps) : "";
      out.cost.push_back(fmt::format("it was at step {}{}", status.progress->step, goal));
    }
    add_history(status, std::nullopt, out);
    return out;
  }
  if (!status.attempts.empty()) {
    Diagnosis out = explain(input, make_incident(input, status.attempts.back()), "failed");
    if (reason == "MaxRestartsExceeded") out.cost.push_back("no restart is left, so that the job ended");
    return out;
  }
  if (const auto incident = unrecorded_incident(input)) return explain(input, *incident, "failed");
  api::AttemptRecord record;
  record.attempt = status.attempt;
  record.reason = reason;
  record.message = message;
  record.end_time = status.completion_time.value_or(input.now);
  return explain(input, make_incident(input, record), "failed");
}

Diagnosis diagnose_waiting(const DiagnosisInput& input) {
  const api::Status& status = input.job.status;
  const bool is_restart = status.phase == Phase::kRestarting;
  const StartProblem problem = find_start_problem(input, current_condition(status));
  if (is_restart && !status.attempts.empty()) {
    Diagnosis out = explain(input, make_incident(input, status.attempts.back()), "is restarting");
    if (problem.cause != Cause::kNone) {
      out.evidence.push_back(fmt::format("attempt {} waits: {}: {}", status.attempt, to_string(problem.cause),
                                         control::sanitize_line(problem.message)));
    }
    return out;
  }
  if (problem.cause != Cause::kNone) return explain_start(input, problem, "cannot start");
  if (const auto incident = unrecorded_incident(input)) return explain(input, *incident, "has failed pods");
  Diagnosis out;
  const api::Condition* condition = current_condition(status);
  out.headline = fmt::format("{} is starting; no failure is known", input.job.metadata.name);
  if (condition != nullptr) out.message = control::sanitize_line(condition->message);
  add_history(status, std::nullopt, out);
  return out;
}

// The rank whose last message or phase names what it waits for is not known here; the condition has that of rank 0.
Diagnosis diagnose_stalled(const DiagnosisInput& input) {
  const api::Condition* condition = current_condition(input.job.status);
  Diagnosis out = simple(input, Cause::kHang, "is stalled", condition == nullptr ? "" : condition->message);
  if (const auto& progress = input.job.status.progress; progress && progress->last_step_time) {
    out.time = progress->last_step_time;
    out.cost.push_back(fmt::format("{} without a step, with {} ranks", age_text(progress->last_step_time, input.now),
                                   input.job.spec.world_size()));
  }
  out.remedies.push_back(fmt::format("oarlock top {} -n {} shows which rank is behind", input.job.metadata.name,
                                     input.job.metadata.name_space));
  add_history(input.job.status, std::nullopt, out);
  return out;
}

Diagnosis diagnose_healthy(const DiagnosisInput& input) {
  const api::Status& status = input.job.status;
  const std::string name = input.job.metadata.name;
  const bool is_complete = status.phase == Phase::kComplete;
  if (!is_complete && status.phase != Phase::kSuspended) {
    if (const auto incident = unrecorded_incident(input)) return explain(input, *incident, "has failed pods");
  }
  if (status.phase == Phase::kSuspended && status.attempts.empty()) {
    Diagnosis out = simple(input, Cause::kSuspended, "does not run", "");
    return out;
  }
  if (status.attempts.empty()) {
    Diagnosis out;
    out.headline = is_complete ? fmt::format("{} is complete; it never failed", name)
                               : fmt::format("{} runs; it has not failed", name);
    return out;
  }
  const std::string_view prefix = is_complete                         ? "is complete; its last failure"
                                  : status.phase == Phase::kSuspended ? "is suspended; its last failure"
                                                                      : "runs again; its last failure";
  Diagnosis out = explain(input, make_incident(input, status.attempts.back()), prefix);
  out.is_resolved = true;
  return out;
}

Diagnosis diagnose_phase(const DiagnosisInput& input) {
  const api::TrainingJob& job = input.job;
  if (!job.report.problem.empty()) return simple(input, Cause::kSpecInvalid, "cannot be managed", job.report.problem);
  switch (job.status.phase) {
    case Phase::kFailed:
      return diagnose_failed(input);
    case Phase::kPending:
    case Phase::kRestarting:
      return diagnose_waiting(input);
    case Phase::kStalled:
      return diagnose_stalled(input);
    case Phase::kRunning:
    case Phase::kComplete:
    case Phase::kSuspended:
      return diagnose_healthy(input);
    case Phase::kNone:
      break;
  }
  if (job.spec.is_managed_elsewhere()) {
    Diagnosis out;
    out.headline =
        fmt::format("{} is managed by {}, which reports its state", job.metadata.name, shortened(job.spec.managed_by));
    return out;
  }
  if (!input.pods.empty()) return diagnose_waiting(input);
  return simple(input, Cause::kNotManaged, "has no status", "");
}

}  // namespace

std::string_view to_string(DiagnosedCause cause) {
  for (const auto& [known, name] : kCauseNames) {
    if (known == cause) return name;
  }
  return "";
}

std::string exit_code_text(int code) {
  constexpr std::pair<int, std::string_view> kMeanings[] = {
      {0, "success"},
      {1, "a failure that no other code describes"},
      {64, "the command line is wrong"},
      {65, "an input file is damaged or has the wrong content, or the loss is not finite"},
      {66, "an input file or a command does not exist or cannot be read"},
      {68, "a host name does not exist"},
      {69, "a required service, device or program is not available"},
      {70, "a bug in the program or in a kernel"},
      {71, "a system call failed: no process, no memory, or /dev/shm is too small"},
      {72, "a checkpoint exists that the run can neither read nor may replace"},
      {73, "an output file or folder cannot be created"},
      {74, "reading or writing failed"},
      {75, "interrupted after saving a checkpoint, or a condition that a retry may resolve"},
      {76, "another rank was lost"},
      {77, "permission denied"},
      {78, "the configuration or the environment is wrong"},
      {79, "the GPU, its link or its driver failed"},
      {126, "the command of the container may not be executed"},
      {127, "the command of the container does not exist"},
  };
  for (const auto& [known, meaning] : kMeanings) {
    if (known == code) return fmt::format("{}: {}", code, meaning);
  }
  if (code > 128 && code < 128 + 65) return fmt::format("{}: ended by {}", code, signal_text(code - 128));
  return fmt::format("{}: defined by the command of the container", code);
}

namespace {

// Pods that failed or do not start, and the root cause of the last recorded failure.
bool is_of_interest(const api::TrainingJob& job, const PodView& pod) {
  const bool is_root_cause = !job.status.attempts.empty() && job.status.attempts.back().pod == pod.name;
  return is_root_cause || pod.phase == "Pending" || pod.phase == "Failed" || pod.deleting || !pod.disruption.empty();
}

}  // namespace

std::vector<std::string> nodes_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods) {
  constexpr size_t kMaxNodes = 4;
  std::vector<std::string> out;
  const auto add = [&](const std::string& node) {
    if (!node.empty() && out.size() < kMaxNodes && std::find(out.begin(), out.end(), node) == out.end())
      out.push_back(node);
  };
  if (!job.status.attempts.empty()) add(job.status.attempts.back().node);
  for (const PodView& pod : pods) {
    if (is_of_interest(job, pod)) add(pod.node);
  }
  return out;
}

std::vector<std::string> pods_of_interest(const api::TrainingJob& job, const std::vector<PodView>& pods) {
  constexpr size_t kMaxPods = 6;
  std::vector<std::string> out;
  if (!job.status.attempts.empty() && !job.status.attempts.back().pod.empty())
    out.push_back(job.status.attempts.back().pod);
  for (const PodView& pod : pods) {
    if (out.size() >= kMaxPods) break;
    if (is_of_interest(job, pod) && std::find(out.begin(), out.end(), pod.name) == out.end()) out.push_back(pod.name);
  }
  return out;
}

Diagnosis diagnose(const DiagnosisInput& input) {
  Diagnosis out = diagnose_phase(input);
  add_evidence(input, out);
  const std::vector<std::string> remedies = remedies_for(out.cause, input, out);
  out.remedies.insert(out.remedies.end(), remedies.begin(), remedies.end());
  const bool has_log = out.cause != Cause::kNone && !out.pod.empty() && (out.exit_code || out.cause == Cause::kHang);
  if (has_log && out.attempt) {
    out.remedies.push_back(fmt::format("oarlock logs {} -n {} --attempt {}{}", input.job.metadata.name,
                                       input.job.metadata.name_space, *out.attempt,
                                       out.rank ? fmt::format(" --rank {}", *out.rank) : ""));
  }
  return out;
}

std::string diagnosis_text(const Diagnosis& found, const Style& style, SystemTime now) {
  std::string out = style.paint(Color::kBold, printable(found.headline)) + "\n";
  const auto add = [&](std::string_view label, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {:<9} {}\n", label, printable(text));
  };
  const auto add_all = [&](std::string_view label, const std::vector<std::string>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) add(i == 0 ? label : "", lines[i]);
  };
  if (found.cause != Cause::kNone) add("cause", std::string(to_string(found.cause)));
  std::vector<std::string> place;
  if (found.rank) place.push_back(fmt::format("rank {}", *found.rank));
  if (!found.pod.empty()) place.push_back("pod " + found.pod);
  if (!found.node.empty()) place.push_back("node " + found.node);
  if (found.node_rank && !found.rank) place.push_back(fmt::format("node rank {}", *found.node_rank));
  if (found.attempt && found.cause != Cause::kNone) place.push_back(fmt::format("attempt {}", *found.attempt));
  add("where", fmt::format("{}", fmt::join(place, ", ")));
  if (found.time) add("when", fmt::format("{} ({} ago)", to_rfc3339(*found.time), age_text(found.time, now)));
  if (!found.explanation.empty()) add("exit code", found.explanation);
  add("message", found.message);
  add_all("evidence", found.evidence);
  add_all("cost", found.cost);
  add_all("before", found.history);
  add_all("try", found.remedies);
  return out;
}

nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& found) {
  nlohmann::json out = {{"job", job},
                        {"cause", std::string(to_string(found.cause))},
                        {"headline", found.headline},
                        {"resolved", found.is_resolved},
                        {"evidence", found.evidence},
                        {"cost", found.cost},
                        {"history", found.history},
                        {"remedies", found.remedies}};
  const auto set_text = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  set_text("pod", found.pod);
  set_text("node", found.node);
  set_text("explanation", found.explanation);
  set_text("message", found.message);
  if (found.node_rank) out["nodeRank"] = *found.node_rank;
  if (found.rank) out["rank"] = *found.rank;
  if (found.attempt) out["attempt"] = *found.attempt;
  if (found.exit_code) out["exitCode"] = *found.exit_code;
  if (found.time) out["time"] = to_rfc3339(*found.time);
  return out;
}

}  // namespace oarlock::cli
