#include "operator/core/failure_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/core/desired.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::FailureAction;

constexpr std::string_view kPodFailed = "PodFailed";
constexpr std::string_view kDeviceFailedReason = "DeviceFailed";  // in the termination message
constexpr std::string_view kOomKilled = "OOMKilled";
constexpr std::string_view kEvicted = "Evicted";
constexpr std::string_view kDisrupted = "Disrupted";
constexpr std::string_view kPodDeleted = "PodDeleted";
constexpr std::string_view kPodLost = "PodLost";
constexpr std::string_view kPeerLost = "PeerLost";
constexpr std::string_view kInterrupted = "Interrupted";
constexpr std::string_view kRestartReasons[] = {
    kPodFailed, kDeviceFailedReason, kOomKilled, kEvicted, kDisrupted, kPodDeleted, kPodLost, kPeerLost, kInterrupted};

bool is_permanent(int exit_code) {
  return exit_code >= to_int(ExitCode::kUsage) && exit_code <= to_int(ExitCode::kConfig) &&
         exit_code != to_int(ExitCode::kTempFail) && exit_code != to_int(ExitCode::kPeerLost);
}

std::optional<Cause> cause_of(const Pod& pod) {
  if (has_succeeded(pod)) return std::nullopt;
  if (!pod.trainer) {
    if (pod.deleting || pod.phase == PodPhase::kFailed) return Cause::kTakenAway;
    return std::nullopt;
  }
  const int exit_code = pod.trainer->exit_code;
  if (is_permanent(exit_code)) return Cause::kExit;
  // With exit code 0 it would have succeeded, had it not been stopped.
  if (pod.deleting || !pod.disruption.empty() || pod.reason == kEvicted || exit_code == 0) return Cause::kTakenAway;
  if (exit_code == to_int(ExitCode::kPeerLost)) return Cause::kCollateral;
  return exit_code == to_int(ExitCode::kTempFail) ? Cause::kInterrupted : Cause::kExit;
}

// What the trainer said last: "ConfigInvalid: no such file" of its termination message, or the last line of its log.
struct LastWords {
  std::string reason;
  std::string text;
};
LastWords last_words(const Termination& end) {
  if (const std::optional<TerminationMessage> said = termination_message_from_json(end.message)) {
    return {reason_word(said->reason),
            one_line(said->message.empty() ? said->reason : fmt::format("{}: {}", said->reason, said->message))};
  }
  return {"", one_line(last_line(end.message))};
}

std::string place_of(const Pod& pod) {
  return pod.node_name.empty() ? pod.name : fmt::format("{} on {}", pod.name, pod.node_name);
}

std::string exit_text(const Termination& end) {
  std::string out = fmt::format("ended with exit code {}", end.exit_code);
  const bool says_more = !end.reason.empty() && end.reason != "Error" && end.reason != "Completed";
  if (says_more) return fmt::format("{} ({})", out, one_line(end.reason, 60));
  if (end.exit_code > 128 && end.exit_code < 128 + 65) return fmt::format("{} (signal {})", out, end.exit_code - 128);
  return out;
}

api::AttemptRecord describe(const Job& job, const FailureCase& culprit) {
  api::AttemptRecord record;
  record.attempt = job.status.attempt;
  record.node_rank = culprit.node_rank;
  record.pod = pod_name(job, job.status.attempt, culprit.node_rank);
  if (culprit.pod == nullptr) {
    record.reason = "PodLost";
    record.message = fmt::format("pod {} is gone", record.pod);
    return record;
  }
  const Pod& pod = *culprit.pod;
  record.node = pod.node_name;
  LastWords words;
  if (pod.trainer) {
    record.exit_code = pod.trainer->exit_code;
    words = last_words(*pod.trainer);
  }
  const std::string tail = words.text.empty() ? "" : ": " + words.text;
  switch (culprit.cause) {
    case Cause::kExit:
    case Cause::kInterrupted:
    case Cause::kCollateral:
      record.message = fmt::format("pod {} {}{}", place_of(pod), exit_text(*pod.trainer), tail);
      record.reason = pod.trainer->reason == "OOMKilled" ? "OOMKilled" : words.reason;
      if (record.reason.empty()) {
        record.reason = culprit.cause == Cause::kInterrupted  ? "Interrupted"
                        : culprit.cause == Cause::kCollateral ? "PeerLost"
                                                              : "PodFailed";
      }
      break;
    case Cause::kTakenAway: {
      const std::string why = !pod.disruption.empty() ? pod.disruption : pod.reason;
      record.reason = reason_word(why);
      if (record.reason.empty()) record.reason = pod.deleting ? "PodDeleted" : "PodFailed";
      record.message = fmt::format("pod {} {}", place_of(pod), pod.deleting ? "was deleted" : "failed");
      if (!why.empty()) record.message += fmt::format(" ({})", one_line(why, 60));
      if (!pod.message.empty()) record.message += ": " + one_line(pod.message);
      break;
    }
    case Cause::kLost:
      break;
  }
  if (culprit.cause == Cause::kCollateral) {  // never blamed
    record.pod.clear();
    record.node.clear();
    record.node_rank.reset();
    record.exit_code.reset();
    record.message = "a rank was lost and no pod tells which: " + record.message;
  }
  return record;
}

FailedPod facts_of(const FailureCase& failed) {
  FailedPod facts;
  facts.reasons = {failed.record.reason};
  if (failed.pod == nullptr) return facts;
  // Rules about exit codes are about failures: NotIn never means 0.
  if (failed.pod->trainer && failed.pod->trainer->exit_code != 0) facts.exit_code = failed.pod->trainer->exit_code;
  facts.is_disrupted = !failed.pod->disruption.empty();
  if (failed.cause == Cause::kCollateral) return facts;  // "Error" of its container is another rank's error
  facts.reasons.push_back(failed.pod->reason);
  if (failed.pod->trainer) facts.reasons.push_back(failed.pod->trainer->reason);
  return facts;
}

FailureAction default_action(const FailureCase& failed) {
  if (failed.pod == nullptr) return FailureAction::kRestart;
  if (failed.cause == Cause::kExit && is_permanent(failed.pod->trainer->exit_code)) return FailureAction::kFail;
  const bool is_disruption = failed.cause == Cause::kTakenAway && !failed.pod->disruption.empty();
  return is_disruption ? FailureAction::kRestartFree : FailureAction::kRestart;
}

// Fills in what follows from the cause.
void judge_alone(const Job& job, FailureCase& failed) {
  failed.record = describe(job, failed);
  failed.action = default_action(failed);
  if (const std::optional<RuleMatch> match = match_rule(job.spec.failure_policy, facts_of(failed))) {
    failed.action = match->action;
    failed.rule = match->rule;
  }
}

}  // namespace

std::vector<FailureCase> failure_cases(const Job& job, const Membership& members) {
  std::vector<FailureCase> out;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    if (is_finished(members, rank)) continue;
    const Pod* pod = members.current[rank];
    FailureCase found;
    found.node_rank = static_cast<int>(rank);
    found.pod = pod;
    if (pod == nullptr) {
      // Before the whole attempt has run, a missing pod is one that is still to be created.
      if (!is_running(job.status.phase)) continue;
      found.cause = Cause::kLost;
    } else {
      const std::optional<Cause> cause = cause_of(*pod);
      if (!cause) continue;
      found.cause = *cause;
      if (pod->trainer && pod->trainer->finished_at) found.when = *pod->trainer->finished_at;
    }
    judge_alone(job, found);
    if (found.action != FailureAction::kIgnore) out.push_back(std::move(found));
  }
  return out;
}

bool is_done(const Job& job, const Pod& pod) {
  if (has_succeeded(pod)) return true;
  const std::optional<Cause> cause = cause_of(pod);
  const std::optional<PodIdentity> id = identify(job, pod.name);
  if (!cause || !id || !pod.trainer) return false;
  FailureCase failed;
  failed.cause = *cause;
  failed.node_rank = id->node_rank;
  failed.pod = &pod;
  judge_alone(job, failed);
  return failed.action == FailureAction::kIgnore;
}

bool is_rank_done(const Job& job, const Membership& members, size_t node_rank) {
  if (is_finished(members, node_rank)) return true;
  const Pod* pod = node_rank < members.current.size() ? members.current[node_rank] : nullptr;
  return pod != nullptr && is_done(job, *pod);
}

std::string_view restart_reason(const FailureCase& culprit) {
  switch (culprit.cause) {
    case Cause::kTakenAway:
      if (!culprit.pod->disruption.empty()) return kDisrupted;
      if (culprit.pod->reason == kEvicted) return kEvicted;
      return culprit.pod->deleting ? kPodDeleted : kPodFailed;
    case Cause::kExit:
      if (culprit.pod->trainer->reason == kOomKilled) return kOomKilled;
      return culprit.record.reason == kDeviceFailedReason ? kDeviceFailedReason : kPodFailed;
    case Cause::kInterrupted:
      return kInterrupted;
    case Cause::kLost:
      return kPodLost;
    case Cause::kCollateral:
      return kPeerLost;
  }
  return kPodFailed;
}

std::span<const std::string_view> restart_reasons() { return kRestartReasons; }

}  // namespace oarlock::control
