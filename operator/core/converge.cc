// Brings a job that neither failed nor ended to what its spec asks for.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "operator/api/validate.h"
#include "operator/core/cleanup.h"
#include "operator/core/creation.h"
#include "operator/core/desired.h"
#include "operator/core/plan.h"
#include "operator/core/policy.h"
#include "operator/core/stall.h"
#include "operator/core/status.h"

namespace oarlock::control {

using api::Phase;

namespace {

// No event reports that another owner's NetworkPolicy was removed.
constexpr std::chrono::seconds kForeignPolicyRetry{30};

// What a job that runs, or runs no more as it should, has to say of it; once for each change.
std::vector<Action> announce(Phase before, const api::Status& next) {
  if (next.phase == before || !is_running(next.phase)) return {};
  const bool is_stalled = next.phase == Phase::kStalled;
  const char* reason = is_stalled ? "Stalled" : before == Phase::kStalled ? "Progressing" : "Running";
  return {event(is_stalled ? EmitEvent::Type::kWarning : EmitEvent::Type::kNormal, reason, "None",
                find_condition(next, next.phase)->message)};
}

std::vector<Action> announce_start(const Job& job) {
  std::vector<Action> out = {
      event(EmitEvent::Type::kNormal, "Started", "CreatePods", fmt::format("starting {} pods", job.spec.nodes))};
  const std::vector<std::string> overridden = PodFactory(job, job.status.attempt).overridden_variables();
  if (!overridden.empty()) {
    out.emplace_back(event(EmitEvent::Type::kWarning, "EnvironmentOverridden", "CreatePods",
                           fmt::format("the template sets {}, which the operator sets itself: the operator's values "
                                       "stand",
                                       fmt::join(overridden, ", "))));
  }
  return out;
}

// A new job's objects come first and its status, which tells of them, after: in a burst of jobs all pods are there
// before anything is written about them. What the API server refuses is told at once. Here the fence is not the status:
// either nobody can have written one yet, or the server is asked whether there is none.
//
// Measured in nine rounds of 200 jobs: with the status first, all pods exist 25 % later (median; 15 to 103 %), because
// a status costs the API server five times what a pod costs. The CPU of the operator is the same.
bool may_start_at_once(const Observed& observed, const Membership& members) {
  return observed.job.status.phase == Phase::kNone && observed.last_error.empty() &&
         lacks_objects(observed.job, members);
}

Plan start(const Observed& observed, const Membership& members) {
  Plan plan = plan_of(Verdict::kProgress, fmt::format("creating the Service and {} pods", observed.job.spec.nodes));
  if (!observed.untouched) plan.actions.emplace_back(ConfirmJobUnchanged{});
  append(plan.actions, creations(observed, members).actions);
  return plan;
}

}  // namespace

// Pods of a later attempt than the status knows: the cache of the job is behind, as a live look at the job shows. If it
// is not, the status has lost an attempt (a restored backup, a status that somebody overwrote). Then the newest attempt
// is adopted: the trainers of an earlier one could not write to the checkpoint folder any more.
std::optional<Plan> wait_for_fresh_cache(const Observed& observed, const Membership& members) {
  if (members.ahead.empty()) return std::nullopt;
  const Job& job = observed.job;
  Observed after = observed;
  for (const Pod* pod : members.ahead)
    after.job.status.attempt = std::max(after.job.status.attempt, identify(job, pod->name)->attempt);
  api::Status& next = after.job.status;
  const std::string problem = fmt::format("pod {} is of a later attempt than the job's status ({})",
                                          members.ahead.front()->name, job.status.attempt);
  next.attempt_start_time.reset();
  // Missing pods of the adopted attempt are created in this phase.
  if (is_running(next.phase)) enter(next, Phase::kPending, "PodsStarting", "", observed.now);
  next = refresh(after, split(after));
  Plan plan = plan_of(Verdict::kProgress, problem + ": checking whether the cache is behind", kLookAgain);
  plan.actions.emplace_back(ConfirmJobUnchanged{});
  plan.actions.emplace_back(PatchStatus{next});
  plan.actions.emplace_back(event(EmitEvent::Type::kWarning, "StatusOutdated", "AdoptAttempt",
                                  fmt::format("{}: adopting attempt {}", problem, next.attempt),
                                  members.ahead.front()->name));
  return plan;
}

// Another owner's object has a name that is needed.
std::optional<Plan> handle_name_conflict(const Observed& observed, const Membership& members) {
  if (names_in_the_way(members).empty()) return std::nullopt;
  // The pods of a running job exist already. It is managed on, without its NetworkPolicy.
  const bool is_only_policy = members.in_the_way.empty() && members.service_in_the_way == nullptr;
  if (is_only_policy && !may_create_pods(observed.job.status.phase)) return std::nullopt;
  // Most often these are the objects of a deleted job of the same name (kubectl replace --force), which the garbage
  // collector removes.
  const auto goes_away = [](const auto* object) { return object->deleting || object->owner_is_job; };
  const bool all_go = std::ranges::all_of(members.in_the_way, goes_away) &&
                      (members.service_in_the_way == nullptr || goes_away(members.service_in_the_way)) &&
                      (members.network_policy_in_the_way == nullptr || goes_away(members.network_policy_in_the_way));
  if (!all_go) {
    return blocked(observed, members, "NameTaken",
                   fmt::format("{} exists and does not belong to this job; delete it, or give the job another name",
                               names_in_the_way(members)));
  }
  Plan plan =
      plan_of(Verdict::kWait,
              fmt::format("{} of another owner has the name and is going away", names_in_the_way(members)), kLookAgain);
  api::Status next = refresh(observed, members);
  // The text stays the same while one object after the other goes.
  if (may_create_pods(next.phase)) {
    enter(next, next.phase, "WaitingForNames",
          "the Service, NetworkPolicy or pods of a deleted job of this name are still being removed; a pod that stays "
          "Terminating, as "
          "on a dead node, needs kubectl delete --force",
          observed.now);
  }
  if (next == observed.job.status) return plan;
  plan.verdict = Verdict::kProgress;
  plan.actions.emplace_back(PatchStatus{std::move(next)});
  return plan;
}

std::optional<Plan> refuse_nonsense(const Observed& observed, const Membership& members) {
  if (!may_create_pods(observed.job.status.phase)) return std::nullopt;
  // What is there was valid, and cannot be changed meanwhile.
  if (!lacks_objects(observed.job, members)) return std::nullopt;
  const std::vector<api::FieldProblem> problems = api::check(observed.job);
  if (problems.empty()) return std::nullopt;
  return blocked(observed, members, kInvalidSpec,
                 fmt::format("{}: {}", problems.front().path, problems.front().message));
}

std::optional<Plan> converge(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  if (may_start_at_once(observed, members)) return start(observed, members);
  api::Status next = refresh(observed, members);
  judge_steps(observed, members, next);
  Deletions old = clear_old(observed, members);
  Creations made = creations(observed, members);
  std::vector<Action>& missing = made.actions;
  Plan plan = plan_of(Verdict::kWait, "nothing to do in phase " + to_string(next.phase),
                      sooner(sooner(old.look_again, made.look_again), next_judgement(observed, next)));
  if (members.wants_network_policy && members.network_policy_in_the_way != nullptr)
    plan.requeue_after = sooner(plan.requeue_after, kForeignPolicyRetry);
  if (next != job.status || !missing.empty()) {
    plan.verdict = Verdict::kProgress;
    plan.reason = missing.empty() ? "the status changed" : fmt::format("{} objects are missing", missing.size());
    plan.actions.emplace_back(PatchStatus{next});
  }
  if (!old.actions.empty()) {
    plan.verdict = Verdict::kProgress;
    plan.reason = fmt::format("{} pods of earlier attempts are left", old.actions.size());
  }
  append(plan.actions, std::move(old.actions));
  append(plan.actions, std::move(missing));
  if (job.status.phase == Phase::kNone) append(plan.actions, announce_start(job));
  append(plan.actions, announce(job.status.phase, next));
  return plan;
}

}  // namespace oarlock::control
