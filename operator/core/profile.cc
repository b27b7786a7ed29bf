#include "operator/core/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "api/profile.h"
#include "api/validate.h"
#include "operator/core/desired.h"
#include "operator/core/queue.h"
#include "operator/core/status.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::Phase;

// The status of the job without the decisions that follow from its spec, which are made when it starts, or is resumed.
api::Status undecided_status(const Job& job) {
  api::Status next = job.status;
  if (next.phase == Phase::kSuspended) return next;
  next.launcher.reset();
  next.queue.reset();
  return next;
}

// The job waits in `phase`, which is that of jobs that have not started, or have not been resumed.
Plan block_job(const Observed& observed, Phase phase, const char* reason, const std::string& message) {
  const Job& job = observed.job;
  // Not observed.job.status: decide_about_queue() and decide_about_launcher() may have changed it.
  const api::Status present = undecided_status(job);
  api::Status next = present;
  next.observed_generation = job.metadata.generation;
  enter_phase(next, phase, reason, sanitize_line(message), observed.now);
  Plan plan = make_plan(PlanState::kBlocked, message);
  if (next == present) return plan;
  const api::Condition* before = find_condition(job.status, phase);
  plan.actions.emplace_back(PatchStatus{std::move(next)});
  if (before == nullptr || before->reason != reason)
    plan.actions.emplace_back(make_event(EmitEvent::Type::kWarning, reason, "Wait", message));
  return plan;
}

Plan block_job(const Observed& observed, const char* reason, const std::string& message) {
  const bool is_suspended = observed.job.status.phase == Phase::kSuspended;
  return block_job(observed, is_suspended ? Phase::kSuspended : Phase::kPending, reason, message);
}

bool is_same(const BoxedOptional<api::AppliedProfile>& recorded, const BoxedOptional<api::AppliedProfile>& found) {
  if (!recorded || !found) return !recorded && !found;
  return recorded->uid == found->uid && recorded->generation == found->generation;
}

constexpr std::chrono::seconds kUnknownRequeue{30};
constexpr std::chrono::seconds kMaxDroppedRequeue{300};

// Returns the delay until the next attempt to record a profile that the API server has dropped. It grows with the time
// for which the job has been in its phase.
std::chrono::seconds dropped_requeue(const api::Status& status, SystemTime now) {
  const api::Condition* waiting = find_condition(status, status.phase);
  const SystemTime since = waiting == nullptr ? now : waiting->last_transition_time;
  return std::clamp(std::chrono::floor<std::chrono::seconds>(now - since), kUnknownRequeue, kMaxDroppedRequeue);
}

// Whether the status is one that record_profile() has written, without the profile.
bool was_profile_dropped(const Observed& observed) {
  const api::Status& status = observed.job.status;
  return observed.profile && !status.profile && status.phase == Phase::kNone && status.observed_generation > 0 &&
         status.observed_generation == observed.job.metadata.generation;
}

// A job that was blocked is as one that has just been created, so that every decision about its start is made. It
// remains blocked until the profile that was recorded has turned out to be valid.
Plan record_profile(const Observed& observed) {
  const Job& job = observed.job;
  const bool is_checked = is_same(job.status.profile, observed.profile);
  api::Status next = undecided_status(job);
  next.observed_generation = job.metadata.generation;
  next.profile = observed.profile;
  Plan plan = make_plan(PlanState::kProgress, "the profile of the job is recorded");
  const bool is_dropped = was_profile_dropped(observed);
  if (is_dropped) {
    enter_phase(next, Phase::kPending, api::kInvalidProfile,
                "the CRD of TrainingJobs is older than the operator and drops status.profile: update the CRDs",
                observed.now);
  }
  // No watch reports a CRD that preserves status.profile.
  if (next.phase != Phase::kNone && !job.status.profile && next.profile)
    plan.requeue_after = dropped_requeue(next, observed.now);
  const Phase before = job.status.phase;
  if (before == Phase::kNone || (before == Phase::kPending && (is_checked || !next.profile))) {
    if (!is_dropped) next.phase = Phase::kNone;
    // Another operator may have created pods before there was a status.
    if (!observed.untouched) plan.actions.emplace_back(ConfirmPodAbsent{pod_name(job, job.status.attempt, 0)});
  }
  plan.actions.emplace_back(PatchStatus{std::move(next)});
  return plan;
}

std::string missing_message(const Observed& observed) {
  const std::string name = api::profile_name(observed.job.spec);
  if (observed.is_profile_unknown)
    return fmt::format(
        "TrainingProfiles cannot be read: {}; the job starts when it is known whether it has the profile {}",
        observed.profiles_error, name);
  if (!observed.profiles_error.empty())
    return fmt::format(
        "spec.profile: TrainingProfiles cannot be read: {}; install the CRD and the roles of this version",
        observed.profiles_error);
  return fmt::format(
      "spec.profile: there is no TrainingProfile {} in namespace {} or in that of the operator; the job starts when "
      "there is one",
      name, observed.job.metadata.namespace_name);
}

// A cache that is complete again enqueues no job.
Plan wait_for_profile(const Observed& observed) {
  Plan plan = block_job(observed, api::kProfileNotFound, missing_message(observed));
  if (observed.is_profile_unknown) plan.requeue_after = kUnknownRequeue;
  return plan;
}

std::string name_of(const api::AppliedProfile& profile) {
  return fmt::format("TrainingProfile {}/{}", profile.namespace_name, profile.name);
}

// Returns why the job, which is read with the profile that is recorded, cannot run; empty if it can, as far as it is
// known.
std::string find_merge_problem(const Observed& observed) {
  const Job& job = observed.job;
  std::string problem = job.report.profile_problem.empty() ? observed.template_error : job.report.profile_problem;
  if (problem.empty()) {
    const std::vector<api::FieldProblem> problems = api::validate(job);
    if (problems.empty()) return "";
    problem = fmt::format("{}: {}", problems.front().path, problems.front().message);
  }
  const std::string& name = job.metadata.name;
  return fmt::format(
      "{}; this is the job merged with {}: correct the profile, or change the job between oarlock suspend {} and "
      "oarlock resume {}",
      problem, name_of(*job.status.profile), name, name);
}

}  // namespace

bool may_apply_profile(const Job& job) {
  if (job.spec.suspend || job.metadata.deletion_timestamp || job.spec.is_managed_elsewhere()) return false;
  return awaits_start(job.status);
}

namespace {

std::optional<Plan> decide_profile(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  const BoxedOptional<api::AppliedProfile>& found = observed.profile;
  if (!may_apply_profile(job)) return std::nullopt;
  // A suspended job may have pods that have ended.
  if (job.status.phase != Phase::kSuspended && has_pods(members)) {
    if (job.report.profile_problem.empty()) return std::nullopt;
    return block_job(observed, api::kInvalidProfile, job.report.profile_problem);  // an earlier version has started it
  }
  const bool needs_profile = job.spec.profile && !job.spec.profile->empty();
  if (!found && (needs_profile || observed.is_profile_unknown)) return wait_for_profile(observed);
  if (found) {
    if (const std::string problem = api::find_profile_problem(found->spec); !problem.empty())
      return block_job(observed, api::kInvalidProfile, fmt::format("{}: {}", name_of(*found), problem));
  }
  if (!is_same(job.status.profile, found)) return record_profile(observed);
  if (found) {
    if (const std::string problem = find_merge_problem(observed); !problem.empty())
      return block_job(observed, api::kInvalidProfile, problem);
  }
  if (job.status.phase == Phase::kPending) return record_profile(observed);
  return std::nullopt;
}

// A job that waits for its profile holds no quota.
void release_quota(const Observed& observed, const Membership& members, Plan& plan) {
  if (plan.state != PlanState::kBlocked || has_pods(members)) return;
  std::vector<Action> workload = delete_workload(observed, members);
  // Otherwise the patch of the status is the fence.
  if (!workload.empty() && plan.actions.empty()) plan.actions.emplace_back(ConfirmJobUnchanged{});
  append(plan.actions, std::move(workload));
}

}  // namespace

std::optional<Plan> apply_profile(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = decide_profile(observed, members);
  if (plan) release_quota(observed, members, *plan);
  return plan;
}

Plan reject_profile(const Observed& observed, const Membership& members) {
  Observed unstarted = observed;
  api::Status& status = unstarted.job.status;
  const std::string problem = find_merge_problem(observed);
  const bool was_resumed = find_condition(status, Phase::kSuspended) != nullptr;
  if (!was_resumed) {  // it is as one that has not started
    status.start_time.reset();
    status.attempt_start_time.reset();
    status.elastic.reset();
  }
  Plan plan = block_job(unstarted, was_resumed ? Phase::kSuspended : Phase::kPending, api::kInvalidProfile, problem);
  release_quota(observed, members, plan);
  return plan;
}

}  // namespace oarlock::control
