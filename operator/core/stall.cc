#include "operator/core/stall.h"

#include <fmt/format.h>

#include "operator/core/plan.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::Phase;

// An operator that was away, or that has so many jobs that it asks each seldom, must not take its own silence for the
// job's: rank 0 has had its chance to tell of a step until then. One that cannot be asked any more has not.
bool had_its_say(const Observed& observed, const Membership& members, SystemTime until) {
  return progress_pod(members) == nullptr || (observed.asked && observed.asked->at >= until);
}

std::string state_of_rank_0(const Observed& observed, const Membership& members, const api::Status& status) {
  const int64_t step = status.progress->step;
  const Pod* first = members.current.empty() ? nullptr : members.current.front();
  if (is_finished(members, 0) || (first != nullptr && has_ended(*first)))
    return fmt::format("rank 0 has ended, at step {}", step);
  const bool answers = observed.asked && observed.asked->answered;
  if (!answers || !observed.progress || observed.progress->attempt != status.attempt)
    return fmt::format("rank 0, last at step {}, does not answer", step);
  return fmt::format("rank 0 is in phase {} at step {}", one_line(observed.progress->phase, 60), step);
}

}  // namespace

std::optional<SystemTime> stall_time(const api::StallPolicy& policy, const api::Status& status) {
  if (!is_running(status.phase) || !status.progress || !status.progress->last_step_time) return std::nullopt;
  return *status.progress->last_step_time + std::chrono::seconds(policy.timeout_seconds);
}

void judge_steps(const Observed& observed, const Membership& members, api::Status& status) {
  const std::optional<SystemTime> late = stall_time(observed.job.spec.stall_policy, status);
  if (!late) return;
  const std::string last = to_rfc3339(*status.progress->last_step_time);
  if (status.phase == Phase::kStalled && observed.now < *late) {
    enter(status, Phase::kRunning, "Progressing",
          fmt::format("rank 0 is at step {} since {}", status.progress->step, last), observed.now);
  } else if (status.phase == Phase::kRunning && observed.now >= *late && had_its_say(observed, members, *late)) {
    // Said once: the message stays as it is, and nothing is written, for as long as the stall lasts.
    enter(status, Phase::kStalled, "NoStep",
          fmt::format("no optimizer step since {}; {}", last, state_of_rank_0(observed, members, status)),
          observed.now);
  }
}

std::optional<std::chrono::seconds> next_judgement(const Observed& observed, const api::Status& status) {
  if (status.phase != Phase::kRunning) return std::nullopt;
  const std::optional<SystemTime> late = stall_time(observed.job.spec.stall_policy, status);
  if (!late) return std::nullopt;
  return observed.now < *late ? time_left(late, observed.now) : kLookAgain;  // then rank 0 is still to be asked
}

}  // namespace oarlock::control
