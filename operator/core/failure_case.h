// One pod of the current attempt that failed, goes away or is gone, and what is to be said of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/failure_rules.h"
#include "operator/core/membership.h"

namespace oarlock::control {

// In the order of blame.
enum class Cause {
  kTakenAway,    // deleted, evicted or disrupted
  kExit,         // the trainer ended with an exit code of its own
  kInterrupted,  // exit code 75
  kLost,         // gone without a word
  kCollateral,   // exit code 76: another rank was lost
};

struct FailureCase {
  Cause cause = Cause::kExit;
  SystemTime when = SystemTime::max();  // of the exit, where there was one
  int node_rank = 0;
  const Pod* pod = nullptr;   // null: gone
  api::AttemptRecord record;  // without times; blames nobody for kCollateral
  api::FailureAction action = api::FailureAction::kRestart;
  std::optional<size_t> rule;  // of failurePolicy.rules, which decided the action; absent: the default did
};

// By node rank. Without a rule exit codes 64..78 but 75 and 76 are kFail, disruptions kRestartFree, all else kRestart.
std::vector<FailureCase> failure_cases(const Job& job, const Membership& members);

// The pod has succeeded, or it ended in a way that a rule ignores.
bool is_done(const Job& job, const Pod& pod);

// The pod of this node rank is done, or the status has recorded that it was.
bool is_rank_done(const Job& job, const Membership& members, size_t node_rank);

// One of few words for the cause of a restart, for status.restarts.reasons and the metric's label.
std::string_view restart_reason(const FailureCase& culprit);
std::span<const std::string_view> restart_reasons();

}  // namespace oarlock::control
