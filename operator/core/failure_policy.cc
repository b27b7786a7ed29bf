#include "operator/core/failure_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "operator/core/desired.h"
#include "operator/core/failure_case.h"
#include "operator/core/plan.h"

namespace oarlock::control {
namespace {

using api::FailureAction;

bool is_blamed_first(const FailureCase& a, const FailureCase& b) {
  const auto order = [](const FailureCase& one) {
    return std::tuple(one.action != FailureAction::kFail, one.cause, one.when, one.node_rank);
  };
  return order(a) < order(b);
}

// The time that is left for the culprit's status to arrive; zero: none, or nobody is left to be the culprit.
std::chrono::seconds blame_wait(const Membership& members, const FailureCase& first, SystemTime now) {
  const bool all_ended = std::all_of(members.current.begin(), members.current.end(),
                                     [](const Pod* pod) { return pod == nullptr || has_ended(*pod) || pod->deleting; });
  // The exit's time is the node's clock: one that is ahead of ours must not make us wait for it.
  if (all_ended || first.when > now) return std::chrono::seconds(0);
  const auto left = first.when + kBlameGrace - now;
  return std::max(std::chrono::ceil<std::chrono::seconds>(left), std::chrono::seconds(0));
}

std::string by_rule(const FailureCase& culprit) {
  return culprit.rule ? fmt::format("failurePolicy.rules[{}]", *culprit.rule) : "";
}

void fail(const FailureCase& culprit, Failure& out) {
  out.decision = Failure::Decision::kFail;
  if (culprit.rule) {
    out.reason = "FailurePolicy";
    out.message = fmt::format("{}; {} fails the job", out.record.message, by_rule(culprit));
  } else {
    out.reason = "PermanentFailure";
    out.message = out.record.message + "; a restart would fail again";
  }
}

}  // namespace

Failure judge(const Job& job, const Membership& members, SystemTime now) {
  const std::vector<FailureCase> all = failure_cases(job, members);
  if (all.empty()) return {};
  const FailureCase& culprit = *std::min_element(all.begin(), all.end(), is_blamed_first);
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
  out.record = culprit.record;
  const bool replaced = std::any_of(members.in_the_way.begin(), members.in_the_way.end(),
                                    [&](const Pod* pod) { return pod->name == out.record.pod; });
  if (culprit.cause == Cause::kLost && !replaced) out.confirm_absent = out.record.pod;
  if (culprit.action == FailureAction::kFail) {
    fail(culprit, out);
    return out;
  }
  out.is_charged = culprit.action != FailureAction::kRestartFree;
  const int used = job.status.restarts.charged;
  const int allowed = job.spec.failure_policy.max_restarts;
  if (out.is_charged && used >= allowed) {
    out.decision = Failure::Decision::kFail;
    out.reason = "MaxRestartsExceeded";
    out.message = fmt::format("{}; {} of {} restarts are used up", out.record.message, used, allowed);
    return out;
  }
  out.decision = Failure::Decision::kRestart;
  out.reason = out.record.reason;
  out.message = out.record.message;
  out.restart_reason = restart_reason(culprit);
  return out;
}

}  // namespace oarlock::control
