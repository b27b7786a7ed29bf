#include "operator/core/reconcile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "operator/api/validate.h"
#include "operator/core/desired.h"
#include "operator/core/failure_policy.h"
#include "operator/core/membership.h"
#include "operator/core/status.h"
#include "operator/core/success_policy.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using api::Phase;
using std::chrono::seconds;

// The kubelet reports the end of a container a moment before the pod's own; a pod deleted in between loses its log.
// One that has not ended after this long has another container that goes on, and is deleted.
constexpr seconds kEndGrace{10};
constexpr seconds kLookAgain{1};        // the cache is known to be behind
constexpr seconds kAskForConflict{30};  // nobody tells us when somebody else's object goes away
constexpr size_t kEventMessageLimit = 1024;

void append(std::vector<Action>& to, std::vector<Action> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

EmitEvent event(EmitEvent::Type type, const char* reason, const char* action, const std::string& message,
                const std::string& pod = "") {
  return {type, reason, action, one_line(message, kEventMessageLimit), pod};
}

Plan plan_of(Verdict verdict, std::string reason, std::optional<seconds> requeue_after = std::nullopt) {
  Plan plan;
  plan.verdict = verdict;
  plan.reason = std::move(reason);
  plan.requeue_after = requeue_after;
  return plan;
}

// ---- deletions -------------------------------------------------------------------------------------------------

struct Deletions {
  std::vector<Action> actions;
  std::optional<seconds> look_again;

  void add(const Pod& pod, const char* reason, bool exact) {
    if (!pod.deleting) actions.emplace_back(DeletePod{pod.name, pod.uid, exact ? pod.resource_version : "", reason});
  }
};

bool is_live(const Pod& pod) { return pod.phase != PodPhase::kSucceeded && pod.phase != PodPhase::kFailed; }

// Stops a pod that has no more work, which was decided at `since`. With `exact` the pod must not have changed since it
// was seen, so that one that just ended keeps its log.
void stop(const Pod& pod, const char* reason, bool exact, SystemTime since, SystemTime now, Deletions& out) {
  if (!is_live(pod) || pod.deleting) return;
  const auto left = since + kEndGrace - now;
  if (pod.trainer && left > seconds(0)) {
    out.look_again = std::chrono::ceil<seconds>(left);
    return;
  }
  out.add(pod, reason, exact);
}

// Pods of attempts that are over. Those that ended in the attempt just before are kept for their logs.
Deletions clear_old(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  const SystemTime since = status.attempt_start_time.value_or(observed.now);
  Deletions out;
  for (const Pod* pod : members.old) {
    if (is_live(*pod)) {
      stop(*pod, "it belongs to an earlier attempt", false, since, observed.now, out);
    } else if (identify(observed.job, pod->name)->attempt < status.attempt - 1) {
      out.add(*pod, "it ended two attempts ago", false);
    }
  }
  return out;
}

// Every pod that still lives, of any attempt.
Deletions stop_all(const Observed& observed, const Membership& members, const char* reason, bool exact,
                   SystemTime since) {
  Deletions out;
  for (const Pod* pod : members.current) {
    if (pod != nullptr) stop(*pod, reason, exact, since, observed.now, out);
  }
  for (const Pod* pod : members.old) stop(*pod, reason, exact, since, observed.now, out);
  return out;
}

// ---- creation --------------------------------------------------------------------------------------------------

std::string text_of(const nlohmann::json& object) {
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool may_create_pods(Phase phase) { return phase == Phase::kPending || phase == Phase::kRestarting; }

// The names that are needed and that somebody else's object has; empty: none.
std::string names_in_the_way(const Membership& members) {
  std::vector<std::string> names;
  if (members.service_in_the_way != nullptr) names.push_back("Service " + members.service_in_the_way->name);
  for (const Pod* pod : members.in_the_way) names.push_back("pod " + pod->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// What is missing of the Service and of the pods of status.attempt. REQUIRES: the spec is valid, no name is in the way.
std::vector<Action> creations(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  std::vector<Action> out;
  if (members.service == nullptr) out.emplace_back(CreateService{service_name(job), text_of(desired_service(job))});
  if (!may_create_pods(job.status.phase)) return out;
  std::optional<PodFactory> factory;
  for (size_t i = 0; i < members.current.size(); ++i) {
    if (members.current[i] != nullptr) continue;
    if (!factory) factory.emplace(job, job.status.attempt);
    const int node_rank = static_cast<int>(i);
    out.emplace_back(
        CreatePod{pod_name(job, job.status.attempt, node_rank), node_rank, text_of(factory->pod(node_rank))});
  }
  return out;
}

// ---- plans -----------------------------------------------------------------------------------------------------

// The status with `next`, then what brings the world to it. The patch comes first: it carries the resourceVersion, so
// that a plan from an old view of the job ends there.
Plan begin_attempt(const Observed& observed, api::Status next, std::vector<Action> guards, std::vector<Action> events,
                   std::string reason) {
  Observed after = observed;
  after.job.status = std::move(next);
  const Membership members = split(after);
  after.job.status = refresh(after, members);

  Plan plan = plan_of(Verdict::kProgress, std::move(reason));
  plan.actions = std::move(guards);
  plan.actions.emplace_back(PatchStatus{after.job.status});
  append(plan.actions, std::move(events));
  Deletions old = clear_old(after, members);
  append(plan.actions, std::move(old.actions));
  plan.requeue_after = old.look_again;
  if (names_in_the_way(members).empty() && api::check(after.job).empty())
    append(plan.actions, creations(after, members));
  return plan;
}

Plan finish(const Observed& observed, const Membership& members, api::Status next, std::vector<Action> guards,
            EmitEvent said) {
  Plan plan = plan_of(Verdict::kComplete, said.message);
  plan.actions = std::move(guards);
  plan.actions.emplace_back(PatchStatus{std::move(next)});
  plan.actions.emplace_back(std::move(said));
  Deletions left = stop_all(observed, members, "the job has ended", true, observed.now);
  append(plan.actions, std::move(left.actions));
  plan.requeue_after = left.look_again;
  return plan;
}

Plan blocked(const Observed& observed, const Membership& members, const char* reason, const std::string& message) {
  api::Status next = refresh(observed, members);
  if (may_create_pods(next.phase)) enter(next, next.phase, reason, one_line(message), observed.now);
  Plan plan = plan_of(Verdict::kBlocked, message, kAskForConflict);
  if (next == observed.job.status) return plan;
  const api::Condition* before = find_condition(observed.job.status, next.phase);
  plan.actions.emplace_back(PatchStatus{next});
  if (before == nullptr || before->reason != reason) {
    plan.actions.emplace_back(event(EmitEvent::Type::kWarning, reason, "Wait", message));
  }
  return plan;
}

// ---- the policies, in their order: the first that has a plan decides -----------------------------------------------

using Policy = std::optional<Plan> (*)(const Observed&, const Membership&);

std::optional<Plan> leave_the_deleted(const Observed& observed, const Membership&) {
  if (!observed.job.metadata.deletion_timestamp) return std::nullopt;
  return plan_of(Verdict::kComplete, "the job is being deleted; the garbage collector takes what it owns");
}

// Terminal is permanent: only leftovers are stopped.
std::optional<Plan> tidy_the_ended(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  if (!is_terminal(status.phase)) return std::nullopt;
  Plan plan = plan_of(Verdict::kComplete, "the job has ended");
  if (status.observed_generation != observed.job.metadata.generation) {
    api::Status next = status;
    next.observed_generation = observed.job.metadata.generation;
    plan.actions.emplace_back(PatchStatus{std::move(next)});
  }
  Deletions left =
      stop_all(observed, members, "the job has ended", true, status.completion_time.value_or(observed.now));
  append(plan.actions, std::move(left.actions));
  plan.requeue_after = left.look_again;
  return plan;
}

std::optional<Plan> distrust_an_old_view(const Observed& observed, const Membership& members) {
  if (members.ahead.empty()) return std::nullopt;
  return plan_of(Verdict::kWait,
                 fmt::format("pod {} is of a later attempt than the job's status ({}): the cache is behind",
                             members.ahead.front()->name, observed.job.status.attempt),
                 kLookAgain);
}

std::optional<Plan> complete(const Observed& observed, const Membership& members) {
  if (!is_success(members)) return std::nullopt;
  api::Status next = refresh(observed, members);
  const std::string message = fmt::format("all {} pods ended with exit code 0", members.current.size());
  enter(next, Phase::kComplete, "Succeeded", message, observed.now);
  read_last_words(members, next);
  return finish(observed, members, next, {}, event(EmitEvent::Type::kNormal, "Completed", "Complete", message));
}

std::optional<Plan> suspend(const Observed& observed, const Membership& members) {
  const api::Status& status = observed.job.status;
  if (!observed.job.spec.suspend) return std::nullopt;
  const bool is_new = status.phase != Phase::kSuspended;
  api::Status next = refresh(observed, members);
  if (is_new) {
    enter(next, Phase::kSuspended, "Suspended", "spec.suspend is true", observed.now);
    if (!status.start_time) next.start_time.reset();  // it never started
    if (!status.attempt_start_time) next.attempt_start_time.reset();
    next.nodes = {.desired = observed.job.spec.nodes, .summary = fmt::format("0/{}", observed.job.spec.nodes)};
  }
  const api::Condition* condition = find_condition(next, Phase::kSuspended);
  const SystemTime since = condition == nullptr ? observed.now : condition->last_transition_time;
  Deletions left = stop_all(observed, members, "the job is suspended", false, since);
  Plan plan = plan_of(Verdict::kWait, "the job is suspended", left.look_again);
  // Also as a fence: a job that was born suspended has the same attempt after it was resumed.
  if (next != status || !left.actions.empty()) plan.actions.emplace_back(PatchStatus{next});
  if (is_new) {
    plan.actions.emplace_back(
        event(EmitEvent::Type::kNormal, "Suspended", "DeletePods", "spec.suspend is true: the pods are stopped"));
  }
  append(plan.actions, std::move(left.actions));
  if (!plan.actions.empty()) plan.verdict = Verdict::kProgress;
  return plan;
}

std::optional<Plan> resume(const Observed& observed, const Membership&) {
  const Job& job = observed.job;
  if (job.status.phase != Phase::kSuspended) return std::nullopt;
  api::Status next = job.status;
  if (next.start_time) ++next.attempt;  // the pods of the last one may still be there, under its names
  next.attempt_start_time.reset();
  enter(next, Phase::kPending, "PodsStarting", "", observed.now);
  const std::string message =
      fmt::format("spec.suspend is false: starting {} pods as attempt {}", job.spec.nodes, next.attempt);
  return begin_attempt(observed, next, {}, {event(EmitEvent::Type::kNormal, "Resumed", "CreatePods", message)},
                       message);
}

std::optional<Plan> recover(const Observed& observed, const Membership& members) {
  const Failure failure = judge(observed.job, members, observed.now);
  if (failure.decision == Failure::Decision::kNone) return std::nullopt;
  if (failure.decision == Failure::Decision::kWait) {
    return plan_of(Verdict::kWait, failure.message, failure.wait);
  }
  std::vector<Action> guards;
  if (!failure.confirm_absent.empty()) guards.emplace_back(ConfirmPodAbsent{failure.confirm_absent});
  api::Status next = refresh(observed, members);
  read_last_words(members, next);
  remember(next, failure.record, observed.now);
  if (failure.decision == Failure::Decision::kFail) {
    enter(next, Phase::kFailed, failure.reason, failure.message, observed.now);
    return finish(observed, members, next, std::move(guards),
                  event(EmitEvent::Type::kWarning, "Failed", "Fail",
                        fmt::format("{}: {}", failure.reason, failure.message), failure.record.pod));
  }
  ++next.attempt;
  ++next.restarts.total;
  ++next.restarts.charged;
  next.attempt_start_time.reset();
  enter(next, Phase::kRestarting, failure.reason, failure.message, observed.now);
  const std::string message = fmt::format("restart {} of {} as attempt {}: {}", next.restarts.charged,
                                          observed.job.spec.failure_policy.max_restarts, next.attempt, failure.message);
  return begin_attempt(observed, next, std::move(guards),
                       {event(EmitEvent::Type::kWarning, "Restarting", "RestartGroup", message, failure.record.pod)},
                       message);
}

// Somebody else's object has a name that is needed. Most often it is the garbage of a deleted job of the same name.
std::optional<Plan> yield_names(const Observed& observed, const Membership& members) {
  if (names_in_the_way(members).empty()) return std::nullopt;
  const bool all_go =
      std::all_of(members.in_the_way.begin(), members.in_the_way.end(), [](const Pod* pod) { return pod->deleting; }) &&
      (members.service_in_the_way == nullptr || members.service_in_the_way->deleting);
  if (all_go) {
    return plan_of(Verdict::kWait,
                   fmt::format("{} of another owner has the name and is going away", names_in_the_way(members)),
                   kLookAgain);
  }
  return blocked(observed, members, "NameTaken",
                 fmt::format("{} exists and does not belong to this job; delete it, or give the job another name",
                             names_in_the_way(members)));
}

std::optional<Plan> refuse_nonsense(const Observed& observed, const Membership& members) {
  if (observed.job.status.phase != Phase::kNone && !may_create_pods(observed.job.status.phase)) return std::nullopt;
  const std::vector<api::FieldProblem> problems = api::check(observed.job);
  if (problems.empty()) return std::nullopt;
  return blocked(observed, members, "InvalidSpec",
                 fmt::format("{}: {}", problems.front().path, problems.front().message));
}

std::optional<Plan> converge(const Observed& observed, const Membership& members) {
  const Job& job = observed.job;
  if (job.status.phase == Phase::kNone) {
    std::vector<Action> events = {
        event(EmitEvent::Type::kNormal, "Started", "CreatePods", fmt::format("creating {} pods", job.spec.nodes))};
    const std::vector<std::string> overridden = PodFactory(job, job.status.attempt).overridden_variables();
    if (!overridden.empty()) {
      events.emplace_back(
          event(EmitEvent::Type::kWarning, "EnvironmentOverridden", "CreatePods",
                fmt::format("the template sets {}, which the operator sets itself: the operator's values stand",
                            fmt::join(overridden, ", "))));
    }
    return begin_attempt(observed, job.status, {}, std::move(events),
                         fmt::format("creating the Service and {} pods", job.spec.nodes));
  }
  const api::Status next = refresh(observed, members);
  Deletions old = clear_old(observed, members);
  std::vector<Action> missing = creations(observed, members);
  Plan plan = plan_of(Verdict::kWait, "nothing to do in phase " + to_string(next.phase), old.look_again);
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
  if (next.phase == Phase::kRunning && job.status.phase != Phase::kRunning) {
    plan.actions.emplace_back(
        event(EmitEvent::Type::kNormal, "Running", "None", find_condition(next, Phase::kRunning)->message));
  }
  return plan;
}

constexpr Policy kPolicies[] = {leave_the_deleted, tidy_the_ended, distrust_an_old_view, complete, suspend, resume,
                                recover,           yield_names,    refuse_nonsense,      converge};

}  // namespace

Plan reconcile(const Observed& observed) {
  const Membership members = split(observed);
  for (const Policy policy : kPolicies) {
    if (std::optional<Plan> plan = policy(observed, members)) return std::move(*plan);
  }
  return {};
}

}  // namespace oarlock::control
