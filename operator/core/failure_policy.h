// What to do about the pods of the current attempt that failed, go away or are gone.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "operator/core/membership.h"

namespace oarlock::control {

// A rank that says only "a peer was lost" (exit code 76) gives the culprit's status this long to arrive.
inline constexpr std::chrono::seconds kBlameGrace{10};

struct Failure {
  enum class Decision {
    kNone,     // nothing failed
    kWait,     // only collateral failures so far; ask again after `wait`
    kRestart,  // all pods again, as the next attempt
    kFail,     // the job
  };
  Decision decision = Decision::kNone;
  std::chrono::seconds wait{0};
  std::string reason;         // of the condition
  std::string message;        // of the condition
  api::AttemptRecord record;  // of the attempt that ended: reason, message and whom to blame; times are the caller's
  // The judgement rests on a pod that is missing: make sure before acting (ConfirmPodAbsent). Empty: it does not.
  std::string confirm_absent;
  bool is_charged = true;           // the restart counts against failurePolicy.maxRestarts
  std::string_view restart_reason;  // one of restart_reasons()
};

// The culprit is, in this order: a pod whose failure fails the job; one that was deleted, evicted or disrupted; the
// first other exit; an interrupted rank (75); a pod that is gone; collateral (76). Its action is the group's, but a
// restart that counts needs one that is left of failurePolicy.maxRestarts.
Failure judge(const Job& job, const Membership& members, SystemTime now);

}  // namespace oarlock::control
