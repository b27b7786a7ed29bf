#include "operator/core/failure_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "operator/core/desired.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

// In the order of blame.
enum class Cause { kPermanent, kTakenAway, kExit, kInterrupted, kLost, kCollateral };

struct Case {
  Cause cause = Cause::kExit;
  SystemTime when = SystemTime::max();  // of the exit, where there was one
  int node_rank = 0;
  const Pod* pod = nullptr;  // null: gone
};

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
  if (is_permanent(exit_code)) return Cause::kPermanent;
  if (pod.deleting || !pod.disruption.empty() || pod.reason == "Evicted") return Cause::kTakenAway;
  if (exit_code == to_int(ExitCode::kPeerLost)) return Cause::kCollateral;
  return exit_code == to_int(ExitCode::kTempFail) ? Cause::kInterrupted : Cause::kExit;
}

std::vector<Case> cases(const Job& job, const Membership& members) {
  std::vector<Case> out;
  for (size_t rank = 0; rank < members.current.size(); ++rank) {
    const Pod* pod = members.current[rank];
    Case found{.node_rank = static_cast<int>(rank), .pod = pod};
    if (pod == nullptr) {
      // Before the whole attempt has run, a missing pod is one that is still to be created.
      if (job.status.phase != api::Phase::kRunning) continue;
      found.cause = Cause::kLost;
    } else {
      const std::optional<Cause> cause = cause_of(*pod);
      if (!cause) continue;
      found.cause = *cause;
      if (pod->trainer && pod->trainer->finished_at) found.when = *pod->trainer->finished_at;
    }
    out.push_back(found);
  }
  return out;
}

// What the trainer said last: "ConfigInvalid: no such file" of its termination message, or the last line of its log.
struct LastWords {
  std::string reason;
  std::string text;
};
LastWords last_words(const Termination& end) {
  if (const std::optional<TerminationMessage> said = termination_message_from_json(end.message)) {
    return {said->reason,
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

api::AttemptRecord describe(const Job& job, const Case& culprit) {
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
    case Cause::kPermanent:
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
      record.reason = why.empty() ? (pod.deleting ? "PodDeleted" : "PodFailed") : why;
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

// The time that is left for the culprit's status to arrive; zero: none, or nobody is left to be the culprit.
std::chrono::seconds blame_wait(const Membership& members, const Case& first, SystemTime now) {
  const bool all_ended = std::all_of(members.current.begin(), members.current.end(),
                                     [](const Pod* pod) { return pod == nullptr || has_ended(*pod) || pod->deleting; });
  // The exit's time is the node's clock: one that is ahead of ours must not make us wait for it.
  if (all_ended || first.when > now) return std::chrono::seconds(0);
  const auto left = first.when + kBlameGrace - now;
  return std::max(std::chrono::ceil<std::chrono::seconds>(left), std::chrono::seconds(0));
}

}  // namespace

Failure judge(const Job& job, const Membership& members, SystemTime now) {
  const std::vector<Case> all = cases(job, members);
  if (all.empty()) return {};
  const Case& culprit = *std::min_element(all.begin(), all.end(), [](const Case& a, const Case& b) {
    return std::tie(a.cause, a.when, a.node_rank) < std::tie(b.cause, b.when, b.node_rank);
  });
  Failure out;
  if (culprit.cause == Cause::kCollateral) {
    out.wait = blame_wait(members, culprit, now);
    if (out.wait.count() > 0) {
      out.decision = Failure::Decision::kWait;
      out.message = fmt::format("{} lost a peer; waiting for the peer's own status",
                                pod_name(job, job.status.attempt, culprit.node_rank));
      return out;
    }
  }
  out.record = describe(job, culprit);
  const bool replaced = std::any_of(members.in_the_way.begin(), members.in_the_way.end(),
                                    [&](const Pod* pod) { return pod->name == out.record.pod; });
  if (culprit.cause == Cause::kLost && !replaced) out.confirm_absent = out.record.pod;
  const int used = job.status.restarts.charged;
  const int allowed = job.spec.failure_policy.max_restarts;
  if (culprit.cause == Cause::kPermanent) {
    out.decision = Failure::Decision::kFail;
    out.reason = "PermanentFailure";
    out.message = out.record.message + "; a restart would fail again";
  } else if (used >= allowed) {
    out.decision = Failure::Decision::kFail;
    out.reason = "MaxRestartsExceeded";
    out.message = fmt::format("{}; {} of {} restarts are used up", out.record.message, used, allowed);
  } else {
    out.decision = Failure::Decision::kRestart;
    out.reason = out.record.reason;
    out.message = out.record.message;
  }
  return out;
}

}  // namespace oarlock::control
