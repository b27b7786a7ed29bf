#include "operator/core/failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "common/text.h"
#include "operator/core/desired.h"
#include "operator/core/elastic.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::FailureAction;
using std::chrono::seconds;

constexpr std::string_view kPodFailed = "PodFailed";
constexpr std::string_view kOomKilled = "OOMKilled";
constexpr std::string_view kEvicted = "Evicted";
constexpr std::string_view kDisrupted = "Disrupted";
constexpr std::string_view kPodDeleted = "PodDeleted";
constexpr std::string_view kPodLost = "PodLost";
constexpr int kKilledExitCode = 128 + 9;  // SIGKILL, also of the kernel when memory runs out
constexpr std::string_view kRestartReasons[] = {
    kPodFailed, kReasonDeviceFailed, kOomKilled,         kEvicted, kDisrupted, kPodDeleted,
    kPodLost,   kReasonPeerLost,     kReasonInterrupted, kShrunk,  kGrown,     kScaled};

// ---- Cause of one failure ------------------------------------------------------------------------------------------

bool is_permanent(int exit_code) {
  return exit_code >= to_int(ExitCode::kUsage) && exit_code <= to_int(ExitCode::kConfig) &&
         exit_code != to_int(ExitCode::kTempFail) && exit_code != to_int(ExitCode::kPeerLost);
}

// Returns nullopt if the pod has not failed.
std::optional<FailureCause> cause_of(const Pod& pod) {
  if (has_succeeded(pod)) return std::nullopt;
  if (!pod.trainer) {
    if (pod.deleting || pod.phase == PodPhase::kFailed) return FailureCause::kRemoved;
    return std::nullopt;
  }
  const int exit_code = pod.trainer->exit_code;
  if (is_permanent(exit_code)) return FailureCause::kExit;
  // A pod with exit code 0 that was not stopped would have succeeded.
  if (pod.deleting || !pod.disruption.empty() || pod.reason == kEvicted || exit_code == 0)
    return FailureCause::kRemoved;
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
};

TerminationSummary summarize(const Termination& end) {
  if (const std::optional<TerminationMessage> message = termination_message_from_json(end.message)) {
    return {to_reason(message->reason),
            sanitize_line(message->message.empty() ? message->reason
                                                   : fmt::format("{}: {}", message->reason, message->message))};
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

void record_exit(const PodFailure& failure, api::AttemptRecord& record) {
  const Termination& end = *failure.pod->trainer;
  const TerminationSummary summary = summarize(end);
  record.message = fmt::format("pod {} {}{}", location_of(*failure.pod), exit_text(end),
                               summary.text.empty() ? "" : ": " + summary.text);
  record.reason = end.reason == kOomKilled ? std::string(kOomKilled) : summary.reason;
  if (record.reason.empty() || is_resize_reason(record.reason)) record.reason = default_reason(failure.cause);
}

void record_removal(const Pod& pod, api::AttemptRecord& record) {
  const std::string why = !pod.disruption.empty() ? pod.disruption : pod.reason;
  record.reason = to_reason(why);
  if (record.reason.empty()) record.reason = pod.deleting ? kPodDeleted : kPodFailed;
  record.message = fmt::format("pod {} {}", location_of(pod), pod.deleting ? "was deleted" : "failed");
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
    record_exit(failure, record);
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

// ---- Action for one failure: failurePolicy.rules, or the default ----------------------------------------------------

// Whether the trainer ended because of another pod.
bool has_other_cause(const PodFailure& failure) {
  return failure.cause == FailureCause::kCollateral || failure.cause == FailureCause::kDisconnected;
}

struct RuleMatch {
  size_t rule = 0;  // index into failurePolicy.rules
  FailureAction action = FailureAction::kRestart;
};

// The properties of a failure that rules can match.
struct RuleInput {
  std::optional<int> exit_code;      // of the trainer container
  std::vector<std::string> reasons;  // of the pod, of its container, and of the record in status.attempts
  bool is_disrupted = false;         // condition DisruptionTarget is true
};

RuleInput rule_input(const PodFailure& failure) {
  RuleInput input;
  input.reasons = {failure.record.reason};
  if (failure.pod == nullptr) return input;
  // Rules about exit codes describe failures: NotIn never matches exit code 0.
  if (failure.pod->trainer && failure.pod->trainer->exit_code != 0) input.exit_code = failure.pod->trainer->exit_code;
  input.is_disrupted = !failure.pod->disruption.empty();
  // The reason "Error" of the container of a collateral failure is the error of another rank.
  if (has_other_cause(failure)) return input;
  input.reasons.push_back(failure.pod->reason);
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
  // The API supports no condition other than DisruptionTarget=True.
  return has_reason || (!rule.on_pod_conditions.empty() && pod.is_disrupted);
}

// Returns the first rule that matches.
std::optional<RuleMatch> match_rule(const api::FailurePolicy& policy, const RuleInput& pod) {
  for (size_t i = 0; i < policy.rules.size(); ++i) {
    if (matches(policy.rules[i], pod)) return RuleMatch{i, policy.rules[i].action};
  }
  return std::nullopt;
}

FailureAction default_action(const PodFailure& failure) {
  if (failure.pod == nullptr) return FailureAction::kRestart;
  if (failure.cause == FailureCause::kExit && is_permanent(failure.pod->trainer->exit_code))
    return FailureAction::kFail;
  const bool is_disruption = failure.cause == FailureCause::kRemoved && !failure.pod->disruption.empty();
  return is_disruption ? FailureAction::kRestartFree : FailureAction::kRestart;
}

// Sets the record, the action and the rule, which follow from the other members.
void complete(const Job& job, PodFailure& failure) {
  failure.record = make_record(job, failure);
  failure.action = default_action(failure);
  if (const std::optional<RuleMatch> match = match_rule(job.spec.failure_policy, rule_input(failure))) {
    failure.action = match->action;
    failure.rule = match->rule;
  }
}

// ---- Root cause of several failures --------------------------------------------------------------------------------

bool has_higher_priority(const PodFailure& a, const PodFailure& b) {
  const auto order = [](const PodFailure& one) {
    return std::tuple(one.action != FailureAction::kFail, one.cause, one.when, one.node_rank);
  };
  return order(a) < order(b);
}

// Returns how much longer a collateral failure waits for the status of its root cause; zero if that time is over, or if
// no pod is left that could be the root cause.
seconds collateral_wait(const Membership& members, const PodFailure& first, SystemTime now) {
  const bool all_ended = std::all_of(members.current.begin(), members.current.end(),
                                     [](const Pod* pod) { return pod == nullptr || has_ended(*pod) || pod->deleting; });
  // The time of the exit is that of the node's clock. A clock that is ahead must not extend the wait.
  if (all_ended || first.when > now) return seconds(0);
  const auto left = first.when + kCollateralGracePeriod - now;
  return std::max(std::chrono::ceil<seconds>(left), seconds(0));
}

std::string_view restart_reason(const PodFailure& failure) {
  switch (failure.cause) {
    case FailureCause::kRemoved:
      if (!failure.pod->disruption.empty()) return kDisrupted;
      if (failure.pod->reason == kEvicted) return kEvicted;
      return failure.pod->deleting ? kPodDeleted : kPodFailed;
    case FailureCause::kExit:
      if (failure.pod->trainer->reason == kOomKilled) return kOomKilled;
      return failure.record.reason == kReasonDeviceFailed ? kReasonDeviceFailed : kPodFailed;
    case FailureCause::kInterrupted:
      return kReasonInterrupted;
    case FailureCause::kLost:
      return kPodLost;
    case FailureCause::kDisconnected:
    case FailureCause::kCollateral:
      return kReasonPeerLost;
  }
  return kPodFailed;
}

void set_permanent_failure(const PodFailure& root_cause, GroupFailure& out) {
  out.decision = GroupFailure::Decision::kFail;
  if (root_cause.rule) {
    out.reason = "FailurePolicy";
    out.message = fmt::format("{}; failurePolicy.rules[{}] fails the job", out.record.message, *root_cause.rule);
  } else {
    out.reason = "PermanentFailure";
    out.message = out.record.message + "; a restart would fail again";
  }
}

// ---- Replacement of single pods -------------------------------------------------------------------------------------

// Returns whether the other pods continue without this one. A launcher that ends by itself has ended the group, and
// leaves the message of a rank; one that was killed with its container leaves none.
bool is_replaceable(const Job& job, const PodFailure& failure) {
  if (failure.action == FailureAction::kFail) return false;
  if (failure.cause == FailureCause::kRemoved || failure.cause == FailureCause::kLost) return true;
  if (failure.cause == FailureCause::kDisconnected) return launcher_bounds(job).has_value();
  if (failure.cause != FailureCause::kExit) return false;
  return failure.pod->trainer->exit_code == kKilledExitCode &&
         !termination_message_from_json(failure.pod->trainer->message);
}

bool is_survivor(const Membership& members, size_t node_rank) {
  const Pod* pod = members.current[node_rank];
  return pod != nullptr && pod->phase == PodPhase::kRunning && !pod->deleting && !has_ended(*pod) &&
         members.replacements[node_rank] == nullptr;
}

// Whether the pods that exist were created with this key.
bool have_key(const Membership& members, std::string_view key) {
  return std::ranges::all_of(members.current,
                             [&](const Pod* pod) { return pod == nullptr || pod->regroup_key == key; });
}

// Whether a pod that is created now can join the pods that exist. One with another key, or none, cannot.
bool can_new_pod_join(const Membership& members) {
  return members.service != nullptr && !members.service->regroup_key.empty() &&
         have_key(members, members.service->regroup_key);
}

// Whether the replacement of a pod can join the others. A Service that was deleted and created again has another key.
bool can_join(const Membership& members, size_t node_rank) {
  if (!is_replacement_due(members, node_rank)) return have_key(members, members.current[node_rank]->regroup_key);
  return can_new_pod_join(members);
}

bool can_replace(const Job& job, const Membership& members, const std::vector<PodFailure>& failures) {
  if (!can_new_pod_join(members)) return false;
  if (!regroups(job) || !is_running(job.status.phase)) return false;
  if (!std::ranges::all_of(failures, [&](const PodFailure& one) { return is_replaceable(job, one); })) return false;
  if (!members.conflicting_pods.empty()) return false;  // the names of the new pods may be taken
  bool has_survivor = false;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (is_rank_done(job, members, rank)) return false;  // a finished rank does not join the next group
    has_survivor = has_survivor || is_survivor(members, rank);
  }
  const auto charged = std::ranges::count_if(
      failures, [](const PodFailure& failure) { return failure.action != FailureAction::kRestartFree; });
  return has_survivor && used_restarts(job.status) + charged <= job.spec.failure_policy.max_restarts;
}

// Whether the group still exists that disconnected launchers have left.
struct GroupEvidence {
  enum class State { kExists, kUnknown, kMissing };
  State state = State::kExists;
  seconds wait{0};  // for kUnknown: when to evaluate it again
};

GroupEvidence find_group(const Observed& observed, const Membership& members, const std::vector<PodFailure>& failures) {
  using State = GroupEvidence::State;
  SystemTime left = SystemTime::min();
  for (const PodFailure& failure : failures) {
    if (failure.cause == FailureCause::kDisconnected) left = std::max(left, failure.when);
  }
  if (left == SystemTime::min()) return {};
  // A node's clock that is ahead would make every response look older than the exit.
  const bool is_time_wrong = left > observed.now + kDisconnectedGracePeriod;
  if (is_time_wrong || progress_pod(members) == nullptr || is_replacement_pending(members, 0)) return {State::kMissing};
  const SystemTime since = left + kCollateralGracePeriod;
  if (since > observed.now) return {State::kUnknown, *time_until(since, observed.now)};
  if (!was_polled_since(observed, members, since)) return {State::kUnknown, kStaleCacheRequeue};
  const bool responds = observed.last_poll && observed.last_poll->answered && observed.progress &&
                        observed.progress->attempt == observed.job.status.attempt;
  if (responds) return {State::kExists};
  // A single response may be late.
  const std::optional<seconds> rest = time_until(left + kDisconnectedGracePeriod, observed.now);
  return rest ? GroupEvidence{State::kUnknown, std::min(*rest, kStaleCacheRequeue)} : GroupEvidence{State::kMissing};
}

// Returns the replacement of this node rank if its pod has not started; null otherwise.
const api::Replacement* pending_replacement(const Job& job, const Membership& members, size_t node_rank) {
  // The record of one that has started is about to be removed.
  if (!is_running(job.status.phase) || !is_replacement_pending(members, node_rank)) return nullptr;
  return members.replacements[node_rank];
}

// Returns when the last of the pods was lost that have not been replaced.
SystemTime last_loss(const Job& job, const Membership& members) {
  SystemTime last = SystemTime::min();
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    const api::Replacement* pending = pending_replacement(job, members, rank);
    if (pending != nullptr) last = std::max(last, pending->time);
  }
  return last;
}

// Returns whether the group can continue without the pods that have no node.
bool can_shrink(const Job& job, const Membership& members, const Pod* replacement) {
  const int placed = count_placed(members);
  const bool is_unplaced = replacement == nullptr || !replacement->scheduled || replacement->deleting;
  return job.spec.elastic && !has_done_rank(job, members) && is_unplaced && placed >= job.spec.elastic->min_nodes &&
         placed < job.group_nodes();
}

// Returns when the group restarts because the pod of this node rank has not been replaced; absent if it has been, or if
// the group continues without it.
std::optional<SystemTime> deadline_of(const Observed& observed, const Membership& members, size_t node_rank) {
  const Job& job = observed.job;
  const api::Replacement* pending = pending_replacement(job, members, node_rank);
  if (pending == nullptr || continues_with_fewer_nodes(observed, members)) return std::nullopt;
  const bool in_place = launcher_bounds(job).has_value();
  const SystemTime since = in_place ? last_loss(job, members) : pending->time;
  const SystemTime late = end_of_delay(since, seconds(job.spec.stall_policy.timeout_seconds), observed.now);
  const std::optional<SystemTime> shrink = shrink_time(job, members, since, observed.now);
  if (!shrink || !can_shrink(job, members, members.current[node_rank])) return late;
  return std::min(in_place ? *shrink + kShrinkInPlaceTime : *shrink, late);
}

// Whether rank 0 may have reported after the deadline that the group continues, and the operator does not know it yet.
bool awaits_report(const Observed& observed, const Membership& members, SystemTime deadline) {
  return launcher_bounds(observed.job) && !was_polled_since(observed, members, deadline);
}

bool is_name_taken(const Membership& members, const std::string& pod) {
  return std::ranges::any_of(members.conflicting_pods, [&](const Pod* other) { return other->name == pod; });
}

// A restart because of a lost pod whose replacement is pending.
GroupFailure restart_for(const Job& job, const Membership& members, size_t node_rank, const std::string& why) {
  const api::Replacement& lost = *members.replacements[node_rank];
  GroupFailure out;
  out.decision = GroupFailure::Decision::kRestart;
  out.record.attempt = job.status.attempt;
  out.record.node_rank = lost.node_rank;
  out.record.pod = pod_name(job, job.status.attempt, lost.node_rank);
  out.record.reason = lost.reason;
  out.record.message = fmt::format("{}; {}", lost.message, why);
  out.reason = out.record.reason;
  out.message = out.record.message;
  out.is_charged = false;  // the replacement was, unless the loss was free
  out.restart_reason = kPodLost;
  if (is_replacement_due(members, node_rank) && !is_name_taken(members, out.record.pod)) {
    out.confirm_absent = out.record.pod;
    out.except_uid = lost.pod_uid;
  }
  return out;
}

// Pods with different keys never form a group, and would only end after the launchers' time-outs. The Service was
// deleted and created again while the pods of the attempt were created.
GroupFailure evaluate_keys(const Job& job, const Membership& members) {
  if (!regroups(job)) return {};
  const Pod* first = nullptr;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    // A pod without the annotation may be of an earlier version of the operator, and have the same token.
    if (pod == nullptr || pod->regroup_key.empty() || is_rank_done(job, members, rank)) continue;
    if (first == nullptr) first = pod;
    if (pod->regroup_key == first->regroup_key) continue;
    GroupFailure out;
    out.decision = GroupFailure::Decision::kRestart;
    out.record.attempt = job.status.attempt;
    out.record.reason = "ServiceReplaced";
    out.record.message = fmt::format(
        "pods {} and {} cannot connect to each other: the job's Service was replaced between their creations",
        first->name, pod->name);
    out.reason = out.record.reason;
    out.message = out.record.message;
    out.is_charged = false;
    out.restart_reason = kReasonPeerLost;
    return out;
  }
  return {};
}

// A replacement that is late, or that could not join the others, restarts the group.
GroupFailure evaluate_replacements(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    if (pending_replacement(job, members, rank) == nullptr) continue;
    if (!can_join(members, rank))
      return restart_for(job, members, rank, "a new pod could not join the others: the job's Service was replaced");
    const std::optional<SystemTime> deadline = deadline_of(observed, members, rank);
    if (!deadline || *deadline > observed.now || awaits_report(observed, members, *deadline)) continue;
    const auto waited = std::chrono::floor<seconds>(*deadline - members.replacements[rank]->time);
    GroupFailure out =
        restart_for(job, members, rank, fmt::format("its replacement did not start within {} s", waited.count()));
    if (can_shrink(job, members, members.current[rank])) {
      out.nodes = count_placed(members);
      out.restart_reason = kShrunk;
      out.reason = out.record.reason = kShrunk;
      out.message = out.record.message =
          fmt::format("{} instead of {}: {}", counted(*out.nodes, "node"), job.group_nodes(), out.record.message);
      out.record.pod.clear();
      out.record.node_rank.reset();
    }
    return out;
  }
  return evaluate_keys(job, members);
}

// The pods of a group end with these causes also when they give up waiting for the replacement of a lost pod. The loss
// is then the root cause. The pod that ended is the one whose identity is confirmed: the restart rests on its end.
std::optional<GroupFailure> evaluate_end_before_replacement(const Observed& observed, const Membership& members,
                                                            const PodFailure& root_cause) {
  const Job& job = observed.job;
  const bool may_give_up = has_other_cause(root_cause) || root_cause.cause == FailureCause::kInterrupted;
  if (!may_give_up || root_cause.action == FailureAction::kFail) return std::nullopt;
  if (continues_with_fewer_nodes(observed, members)) return std::nullopt;  // it did not wait any more
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    if (pending_replacement(job, members, rank) == nullptr) continue;
    GroupFailure out = restart_for(job, members, rank, "the other pods ended before its replacement started");
    out.confirm_absent = root_cause.pod->name;
    out.except_uid = root_cause.pod->uid;
    return out;
  }
  return std::nullopt;
}

bool was_short(const api::AttemptRecord& record) {
  return !record.start_time || record.end_time - *record.start_time < kBackoffResetAfter;
}

}  // namespace

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
    complete(job, failure);
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
  complete(job, failure);
  return failure.action == FailureAction::kIgnore;
}

bool is_rank_done(const Job& job, const Membership& members, size_t node_rank) {
  if (is_recorded_finished(members, node_rank)) return true;
  const Pod* pod = node_rank < members.current.size() ? members.current[node_rank] : nullptr;
  return pod != nullptr && is_done(job, *pod);
}

GroupFailure evaluate_failure_policy(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const std::vector<PodFailure> all = find_pod_failures(job, members);
  if (all.empty()) return evaluate_replacements(observed, members);
  const PodFailure& root_cause = *std::min_element(all.begin(), all.end(), has_higher_priority);
  GroupFailure out;
  if (can_replace(job, members, all)) {
    const GroupEvidence group = find_group(observed, members, all);
    if (group.state == GroupEvidence::State::kExists) {
      out.decision = GroupFailure::Decision::kReplace;
      out.replaced = all;
      return out;
    }
    if (group.state == GroupEvidence::State::kUnknown) {
      out.decision = GroupFailure::Decision::kWait;
      out.wait = group.wait;
      out.message = fmt::format("{}; waiting for a response of rank 0, which shows whether the others continue",
                                root_cause.record.message);
      return out;
    }
  }
  if (has_other_cause(root_cause)) {
    out.wait = collateral_wait(members, root_cause, observed.now);
    if (out.wait.count() > 0) {
      out.decision = GroupFailure::Decision::kWait;
      out.message = fmt::format("{} lost a peer; waiting for the peer's own status",
                                pod_name(job, job.status.attempt, root_cause.node_rank));
      return out;
    }
  }
  if (std::optional<GroupFailure> restart = evaluate_end_before_replacement(observed, members, root_cause))
    return std::move(*restart);
  out.record = root_cause.record;
  const bool replaced = is_name_taken(members, out.record.pod);
  if (root_cause.cause == FailureCause::kLost && !replaced) out.confirm_absent = out.record.pod;
  if (root_cause.pod != nullptr && regroups(job)) {
    out.confirm_absent = root_cause.pod->name;
    out.except_uid = root_cause.pod->uid;
  }
  if (root_cause.action == FailureAction::kFail) {
    set_permanent_failure(root_cause, out);
    return out;
  }
  out.is_charged = root_cause.action != FailureAction::kRestartFree;
  const int used = used_restarts(job.status);
  const int allowed = job.spec.failure_policy.max_restarts;
  if (out.is_charged && used >= allowed) {
    out.decision = GroupFailure::Decision::kFail;
    out.reason = "MaxRestartsExceeded";
    out.message = fmt::format("{}; {} of {} restarts are used up", out.record.message, used, allowed);
    return out;
  }
  out.decision = GroupFailure::Decision::kRestart;
  out.reason = out.record.reason;
  out.message = out.record.message;
  out.restart_reason = restart_reason(root_cause);
  return out;
}

std::optional<seconds> next_replacement_check(const Observed& observed, const Membership& members) {
  std::optional<seconds> first;
  for (size_t rank = 0; rank < members.replacements.size(); ++rank) {
    const std::optional<SystemTime> deadline = deadline_of(observed, members, rank);
    if (!deadline) continue;
    first = earliest(first, awaits_report(observed, members, *deadline) && *deadline <= observed.now
                                ? kStaleCacheRequeue
                                : time_until(deadline, observed.now));
  }
  return first;
}

int used_restarts(const api::Status& status) {
  const int64_t replaced = status.recoveries ? status.recoveries->charged : 0;
  return static_cast<int>(std::min<int64_t>(replaced + status.restarts.charged, std::numeric_limits<int>::max()));
}

std::span<const std::string_view> restart_reasons() { return kRestartReasons; }

seconds restart_delay(const api::FailurePolicy& policy, const api::Status& status) {
  const auto& attempts = status.attempts;
  const auto steady = std::find_if(attempts.rbegin(), attempts.rend(),
                                   [](const auto& record) { return !was_short(record) && !ended_by_resize(record); });
  const auto quick = std::count_if(attempts.rbegin(), steady, std::not_fn(ended_by_resize));
  if (quick < 2) return seconds(0);
  const seconds first(policy.backoff_seconds);
  // Twelve doublings exceed the maximum. A status with more records was not written by the operator.
  const int64_t factor = int64_t{1} << std::min<std::ptrdiff_t>(quick - 2, 12);
  return std::min(first * factor, std::max<seconds>(first, kMaxBackoff));
}

std::optional<SystemTime> restart_time(const api::FailurePolicy& policy, const api::Status& status, SystemTime now) {
  if (status.phase != api::Phase::kRestarting || status.attempts.empty()) return std::nullopt;
  if (ended_by_resize(status.attempts.back())) return std::nullopt;
  const seconds delay = restart_delay(policy, status);
  if (delay.count() <= 0) return std::nullopt;
  return end_of_delay(status.attempts.back().end_time, delay, now);
}

}  // namespace oarlock::control
