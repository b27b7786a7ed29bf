#include "operator/core/pod_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/contract.h"
#include "common/text.h"
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::FailureAction;

// After the start of its container, a launcher checks its node and looks up node rank 0 before it responds.
constexpr std::chrono::seconds kResponseTime{60};

constexpr std::string_view kPodFailed = "PodFailed";
constexpr std::string_view kOomKilled = "OOMKilled";
constexpr std::string_view kEvicted = "Evicted";
constexpr std::string_view kDisrupted = "Disrupted";
constexpr std::string_view kPodDeleted = "PodDeleted";
constexpr std::string_view kPodRejected = "PodRejected";
constexpr std::string_view kRestartReasons[] = {kPodFailed,
                                                kReasonDeviceFailed,
                                                kReasonPreflightFailed,
                                                kOomKilled,
                                                kEvicted,
                                                kDisrupted,
                                                kPodRejected,
                                                kPodDeleted,
                                                kPodLost,
                                                kReasonPeerLost,
                                                kReasonInterrupted,
                                                kNotStarted,
                                                kNotPlaced,
                                                kShrunk,
                                                kGrown,
                                                kScaled,
                                                kStalled,
                                                kQueueEvicted};

// ---- Cause of one failure ------------------------------------------------------------------------------------------

bool is_permanent(int exit_code) {
  return exit_code >= to_int(ExitCode::kUsage) && exit_code <= to_int(ExitCode::kConfig) &&
         exit_code != to_int(ExitCode::kTempFail) && exit_code != to_int(ExitCode::kPeerLost);
}

// Returns whether the rank reports an error that a request to stop it cannot have caused. oarlock-trainer writes these
// reasons; the launcher's own message about a rank that has left none has another one.
bool has_invalid_input(const Termination& end) {
  constexpr std::string_view kReasons[] = {kReasonUsageInvalid,         kReasonDataInvalid,      kReasonInputMissing,
                                           kReasonCheckpointUnreadable, kReasonPermissionDenied, kReasonConfigInvalid};
  const std::optional<TerminationMessage> message = termination_message_from_json(end.message);
  return message && std::ranges::find(kReasons, message->reason) != std::end(kReasons);
}

// Returns nullopt if the pod has not failed.
std::optional<FailureCause> cause_of(const Pod& pod) {
  if (has_succeeded(pod)) return std::nullopt;
  // The operator has deleted a pod that waits for other nodes (bad_nodes.h), which a finalizer keeps visible.
  if (pod.avoided && pod.deleting && pod.node_name.empty()) return std::nullopt;
  if (!pod.trainer) {
    if (pod.deleting || pod.phase == PodPhase::kFailed) return FailureCause::kRemoved;
    return std::nullopt;
  }
  const int exit_code = pod.trainer->exit_code;
  if (!pod.trainer->init_container.empty())
    return ended_before_stop(pod) ? FailureCause::kExit : FailureCause::kRemoved;
  // A program that is stopped may end with any exit code because of SIGTERM, or because its peers or its storage were
  // stopped.
  if (!ended_before_stop(pod))
    return is_permanent(exit_code) && has_invalid_input(*pod.trainer) ? FailureCause::kExit : FailureCause::kRemoved;
  if (is_disconnected(pod)) return FailureCause::kDisconnected;
  if (exit_code == to_int(ExitCode::kPeerLost)) return FailureCause::kCollateral;
  return exit_code == to_int(ExitCode::kTempFail) ? FailureCause::kInterrupted : FailureCause::kExit;
}

// ---- Record of one failure -----------------------------------------------------------------------------------------

// The reason and text of a termination message ("ConfigInvalid: no such file"), or the last line of the log as the
// text.
struct TerminationSummary {
  std::string reason;
  std::string text;
  std::optional<int> rank{};  // of the termination message
};

TerminationSummary summarize(const Termination& end) {
  if (const std::optional<TerminationMessage> message = termination_message_from_json(end.message)) {
    return {to_reason(message->reason),
            sanitize_line(message->message.empty() ? message->reason
                                                   : fmt::format("{}: {}", message->reason, message->message)),
            message->rank};
  }
  return {"", sanitize_line(last_line(end.message))};
}

std::string location_of(const Pod& pod) {
  return pod.node_name.empty() ? pod.name : fmt::format("{} on {}", pod.name, pod.node_name);
}

std::string exit_text(const Termination& end) {
  std::string out = fmt::format("ended with exit code {}", end.exit_code);
  const bool has_specific_reason = !end.reason.empty() && end.reason != "Error" && end.reason != "Completed";
  if (has_specific_reason) return fmt::format("{} ({})", out, sanitize_line(end.reason, 60));
  if (end.exit_code > 128 && end.exit_code < 128 + 65) return fmt::format("{} (signal {})", out, end.exit_code - 128);
  return out;
}

// The reason of a failure whose termination message contains none.
std::string_view default_reason(FailureCause cause) {
  if (cause == FailureCause::kInterrupted) return kReasonInterrupted;
  return cause == FailureCause::kCollateral ? kReasonPeerLost : kPodFailed;
}

void record_exit(const Job& job, const PodFailure& failure, api::AttemptRecord& record) {
  const Termination& end = *failure.pod->trainer;
  const TerminationSummary summary = summarize(end);
  record.container = end.init_container;
  const bool is_rank = summary.rank && *summary.rank >= 0 && *summary.rank < job.world_size();  // a pod is not trusted
  if (is_rank && !has_other_cause(failure)) record.rank = summary.rank;
  record.message =
      fmt::format("{}pod {} {}{}", end.init_container.empty() ? "" : "init container " + end.init_container + " of ",
                  location_of(*failure.pod), exit_text(end), summary.text.empty() ? "" : ": " + summary.text);
  record.reason = end.reason == kOomKilled ? std::string(kOomKilled) : summary.reason;
  const bool is_reserved = is_resize_reason(record.reason) || record.reason == kNotPlaced;  // for the operator
  if (record.reason.empty() || is_reserved) record.reason = default_reason(failure.cause);
}

void record_removal(const Pod& pod, api::AttemptRecord& record) {
  const std::string why = !pod.disruption.empty() ? pod.disruption : pod.reason;
  record.reason = to_reason(why);
  if (record.reason.empty()) record.reason = pod.deleting ? kPodDeleted : kPodFailed;
  record.message = fmt::format("pod {} {}", location_of(pod),
                               pod.deleting       ? "was deleted"
                               : is_rejected(pod) ? kRejectedByNode
                                                  : "failed");
  if (!why.empty()) record.message += fmt::format(" ({})", sanitize_line(why, 60));
  if (!pod.message.empty()) record.message += ": " + sanitize_line(pod.message);
}

api::AttemptRecord make_record(const Job& job, const PodFailure& failure) {
  api::AttemptRecord record;
  record.attempt = job.status.attempt;
  record.node_rank = failure.node_rank;
  record.pod = pod_name(job, job.status.attempt, failure.node_rank);
  if (failure.pod == nullptr) {
    record.reason = kPodLost;
    record.message = fmt::format("pod {} no longer exists", record.pod);
    return record;
  }
  record.node = failure.pod->node_name;
  if (failure.pod->trainer) record.exit_code = failure.pod->trainer->exit_code;
  if (failure.cause == FailureCause::kRemoved) {
    record_removal(*failure.pod, record);
  } else {
    record_exit(job, failure, record);
  }
  if (failure.cause == FailureCause::kCollateral) {  // another pod is the root cause
    record.pod.clear();
    record.node.clear();
    record.node_rank.reset();
    record.exit_code.reset();
    record.message = "a rank was lost and no pod reports which one: " + record.message;
  }
  return record;
}

// Returns whether the launchers of all pods had the time to respond to each other, and none was stopped or replaced.
bool could_all_respond(const Membership& members, SystemTime when) {
  const bool is_complete = std::ranges::all_of(members.current, [when](const Pod* pod) {
    return pod != nullptr && pod->started_at && *pod->started_at + kResponseTime <= when && !is_stop_requested(*pod);
  });
  return is_complete && std::ranges::all_of(members.replacements, [](const auto* one) { return one == nullptr; });
}

// Sets the node that the launcher of node rank 0 names by one of its ranks because it does not respond. It is to blame
// only if nothing else explains its silence: a pod that started late, an end with another cause than the silence.
void set_named_node(const Job& job, const Membership& members, PodFailure& failure) {
  if (failure.node_rank != 0 || !names_failed_node(failure) || !failure.record.rank) return;
  const int named = *failure.record.rank / std::max(job.spec.processes_per_node, 1);
  if (named == failure.node_rank) return;
  const auto index = static_cast<size_t>(named);
  const Pod* pod = index < members.current.size() ? members.current[index] : nullptr;
  const bool is_silent =
      pod != nullptr && (!has_ended(*pod) || (pod->trainer && pod->trainer->exit_code == to_int(ExitCode::kPeerLost)));
  failure.named_node = is_silent && could_all_respond(members, failure.when) ? pod->node_name : "";
  failure.record.node_rank = named;
  failure.record.pod = pod_name(job, job.status.attempt, named);
  failure.record.node = *failure.named_node;
}

// ---- Action for one failure: failurePolicy.rules, or the default ----------------------------------------------------

struct RuleMatch {
  size_t rule = 0;  // index into failurePolicy.rules
  FailureAction action = FailureAction::kRestart;
};

// The properties of a failure that rules can match.
struct RuleInput {
  std::optional<int> exit_code;      // of the trainer container
  std::vector<std::string> reasons;  // of the pod, of its container, and of the record in status.attempts
  bool is_disrupted = false;         // condition DisruptionTarget is true
  bool is_incomplete = false;        // the pod was removed before its trainer had ended, or an init container failed
};

RuleInput rule_input(const PodFailure& failure) {
  RuleInput input;
  input.reasons = {failure.record.reason};
  input.is_incomplete = failure.cause == FailureCause::kRemoved || !failure.record.container.empty();
  if (failure.pod == nullptr) return input;
  // Rules about exit codes describe failures: NotIn never matches exit code 0.
  if (failure.pod->trainer && failure.pod->trainer->exit_code != 0) input.exit_code = failure.pod->trainer->exit_code;
  // A stop after the end of the trainer is not the reason for it.
  const bool was_stopped = !ended_before_stop(*failure.pod);
  input.is_disrupted = was_stopped && !failure.pod->disruption.empty();
  // The reason "Error" of the container of a collateral failure is the error of another rank.
  if (has_other_cause(failure)) return input;
  if (was_stopped) input.reasons.push_back(failure.pod->reason);
  if (failure.pod->trainer) input.reasons.push_back(failure.pod->trainer->reason);
  return input;
}

template <typename List, typename Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Exit code 76 reports only that another rank was lost, so NotIn does not match it.
bool matches(const api::ExitCodeMatch& wanted, int exit_code) {
  const bool is_listed = contains(wanted.values, static_cast<int64_t>(exit_code));
  if (wanted.operation == api::ExitCodeOperator::kIn) return is_listed;
  return !is_listed && exit_code != to_int(ExitCode::kPeerLost);
}

bool matches(const api::FailureRule& rule, const RuleInput& pod) {
  if (rule.on_exit_codes) return pod.exit_code && matches(*rule.on_exit_codes, *pod.exit_code);
  const bool has_reason = std::any_of(pod.reasons.begin(), pod.reasons.end(),
                                      [&](const std::string& reason) { return contains(rule.on_pod_reasons, reason); });
  // A condition is always DisruptionTarget=True.
  return has_reason || (!rule.on_pod_conditions.empty() && pod.is_disrupted);
}

// Returns the first rule that matches. Ignore does not match a pod that was removed before its trainer had ended, or
// whose trainer did not start: it has not completed its work, whatever the exit code of its program after SIGTERM.
std::optional<RuleMatch> match_rule(const api::FailurePolicy& policy, const RuleInput& pod) {
  for (size_t i = 0; i < policy.rules.size(); ++i) {
    if (policy.rules[i].action == FailureAction::kIgnore && pod.is_incomplete) continue;
    if (matches(policy.rules[i], pod)) return RuleMatch{i, policy.rules[i].action};
  }
  return std::nullopt;
}

FailureAction default_action(const PodFailure& failure) {
  if (failure.pod == nullptr) return FailureAction::kRestart;
  // The codes of an init container have no defined meaning.
  if (failure.cause == FailureCause::kExit && failure.record.container.empty() &&
      is_permanent(failure.pod->trainer->exit_code))
    return FailureAction::kFail;
  const bool is_free =
      failure.cause == FailureCause::kRemoved && (!failure.pod->disruption.empty() || is_rejected(*failure.pod));
  return is_free ? FailureAction::kRestartFree : FailureAction::kRestart;
}

// Sets the record, the action and the rule, which follow from the other members.
void set_record_and_action(const Job& job, PodFailure& failure) {
  failure.record = make_record(job, failure);
  failure.action = default_action(failure);
  if (const std::optional<RuleMatch> match = match_rule(job.spec.failure_policy, rule_input(failure))) {
    failure.action = match->action;
    failure.rule = match->rule;
  }
}

}  // namespace

bool names_failed_node(const PodFailure& failure) {
  return failure.cause == FailureCause::kExit && failure.record.reason == kReasonPreflightFailed &&
         failure.record.container.empty() && failure.pod->trainer->exit_code == to_int(ExitCode::kDeviceFailed);
}

bool is_rejected(const Pod& pod) {
  constexpr std::string_view kReasons[] = {
      "UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError", "NodeShutdown", "Shutdown", "Preempting"};
  if (pod.phase != PodPhase::kFailed || pod.deleting) return false;
  if (!pod.started && !pod.trainer) return true;
  return pod.reason.starts_with("OutOf") || std::ranges::find(kReasons, pod.reason) != std::end(kReasons);
}

bool has_other_cause(const PodFailure& failure) {
  return failure.cause == FailureCause::kCollateral || failure.cause == FailureCause::kDisconnected;
}

std::vector<PodFailure> find_pod_failures(const Job& job, const Membership& members) {
  std::vector<PodFailure> out;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (is_recorded_finished(members, rank) || is_replacement_due(members, rank)) continue;
    const Pod* pod = members.current[rank];
    PodFailure failure;
    failure.node_rank = static_cast<int>(rank);
    failure.pod = pod;
    if (pod == nullptr) {
      // Until all pods of the attempt have started, a missing pod is one that has not been created yet.
      if (!is_running(job.status.phase)) continue;
      failure.cause = FailureCause::kLost;
    } else {
      const std::optional<FailureCause> cause = cause_of(*pod);
      if (!cause) continue;
      failure.cause = *cause;
      if (pod->trainer && pod->trainer->finished_at) failure.when = *pod->trainer->finished_at;
    }
    set_record_and_action(job, failure);
    set_named_node(job, members, failure);
    if (failure.action != FailureAction::kIgnore) out.push_back(std::move(failure));
  }
  return out;
}

bool is_done(const Job& job, const Pod& pod) {
  if (has_succeeded(pod)) return true;
  const std::optional<FailureCause> cause = cause_of(pod);
  const std::optional<PodIdentity> id = parse_pod_name(job, pod.name);
  if (!cause || !id || !pod.trainer) return false;
  PodFailure failure;
  failure.cause = *cause;
  failure.node_rank = id->node_rank;
  failure.pod = &pod;
  set_record_and_action(job, failure);
  return failure.action == FailureAction::kIgnore;
}

bool is_rank_done(const Job& job, const Membership& members, size_t node_rank) {
  if (is_recorded_finished(members, node_rank)) return true;
  const Pod* pod = node_rank < members.current.size() ? members.current[node_rank] : nullptr;
  return pod != nullptr && is_done(job, *pod);
}

std::string_view restart_reason(const PodFailure& failure) {
  switch (failure.cause) {
    case FailureCause::kRemoved:
      if (!failure.pod->disruption.empty()) return kDisrupted;
      if (is_rejected(*failure.pod)) return kPodRejected;
      if (failure.pod->reason == kEvicted) return kEvicted;
      return failure.pod->deleting ? kPodDeleted : kPodFailed;
    case FailureCause::kExit:
      if (failure.pod->trainer->reason == kOomKilled) return kOomKilled;
      if (failure.record.reason == kReasonPreflightFailed) return kReasonPreflightFailed;
      return failure.record.reason == kReasonDeviceFailed ? kReasonDeviceFailed : kPodFailed;
    case FailureCause::kInterrupted:
      return failure.record.reason == kReasonPreflightFailed ? kReasonPreflightFailed : kReasonInterrupted;
    case FailureCause::kLost:
      return kPodLost;
    case FailureCause::kDisconnected:
    case FailureCause::kCollateral:
      return kReasonPeerLost;
  }
  return kPodFailed;
}

std::span<const std::string_view> restart_reasons() { return kRestartReasons; }

}  // namespace oarlock::control
