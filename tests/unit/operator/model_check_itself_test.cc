// Verifies that the search of model_check_test detects operators with one bug.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/core/elastic.h"
#include "operator/core/lifetime.h"
#include "operator/core/queue.h"
#include "operator/core/reconcile.h"
#include "tests/unit/operator/model_options.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;

ModelResult check_without(Policy missing, const ModelOptions& options) {
  std::vector<Policy> broken(policies().begin(), policies().end());
  std::erase(broken, missing);
  return check_model(options, broken);
}

// Returns the plan, if any, with a change of each action of one kind.
template <typename Kind, typename Change>
std::optional<Plan> changed(std::optional<Plan> plan, Change change) {
  if (!plan) return plan;
  for (Action& action : plan->actions) {
    if (auto* one = std::get_if<Kind>(&action)) change(*one);
  }
  return plan;
}

// Returns the plan, if any, without the actions of one kind.
template <typename Kind>
std::optional<Plan> without(std::optional<Plan> plan) {
  if (plan) std::erase_if(plan->actions, [](const Action& action) { return std::holds_alternative<Kind>(action); });
  return plan;
}

// Creates the pods of the attempt without the preceding status patch, which is the fence against a stale cache.
std::optional<Plan> converge_without_fence(const Observed& observed, const Membership& members) {
  bool creates = false;
  std::optional<Plan> plan = changed<CreatePod>(converge(observed, members), [&](CreatePod&) { creates = true; });
  return creates && observed.job.status.phase != api::Phase::kNone ? without<PatchStatus>(std::move(plan)) : plan;
}

// Treats every job without a status as one on which no operator has acted.
std::optional<Plan> converge_without_question(const Observed& observed, const Membership& members) {
  return without<ConfirmJobUnchanged>(converge(observed, members));
}

// Counts each restart twice.
std::optional<Plan> recover_counting_twice(const Observed& observed, const Membership& members) {
  return changed<PatchStatus>(recover(observed, members), [](PatchStatus& patch) {
    if (patch.status.phase == api::Phase::kRestarting) ++patch.status.restarts.total;
  });
}

ModelResult check_with(Policy broken, Policy instead_of, const ModelOptions& options) {
  std::vector<Policy> list(policies().begin(), policies().end());
  std::replace(list.begin(), list.end(), instead_of, broken);
  return check_model(options, list);
}

const ModelOptions kSmall = with(JobBuilder().nodes(1).max_restarts(1).backoff_seconds(0), 2);

TEST(ModelCheckItself, DetectsTerminalPhaseThatChanges) {
  EXPECT_THAT(check_without(clean_up_finished, kSmall).violation, HasSubstr("a terminal status changes"));
}

TEST(ModelCheckItself, DetectsMissingRecovery) {
  EXPECT_THAT(check_without(recover, kSmall).violation,
              AllOf(HasSubstr("the job can never finish"), HasSubstr("bert-0-0 is evicted")));
}

TEST(ModelCheckItself, DetectsWrongRestartCountAndPrintsShortestTrace) {
  const std::string violation = check_with(recover_counting_twice, recover, kSmall).violation;
  EXPECT_THAT(violation, HasSubstr("a restart is not counted once"));
  EXPECT_LT(std::count(violation.begin(), violation.end(), '\n'), 9) << violation;
}

// Does not wait for the pods of an attempt that was stopped.
TEST(ModelCheckItself, DetectsPodsCreatedBeforeTheStoppedOnesEnd) {
  const Policy hasty = [](const Observed& observed, const Membership&) {
    Observed crashed = observed;
    for (api::AttemptRecord& record : crashed.job.status.attempts) record.stopped = false;
    return converge(crashed, classify_objects(crashed));
  };
  EXPECT_THAT(check_with(hasty, converge, kSmall).violation, HasSubstr("a pod that was requested to stop"));
}

// ---- Replacement of single pods

ModelOptions by_rank(int faults) {
  return with_exits(with(JobBuilder()
                             .nodes(2)
                             .max_restarts(1)
                             .backoff_seconds(0)
                             .restart_scope(api::RestartScope::kRank)
                             .stall_seconds(20),
                         faults, false),
                    {137});
}

TEST(ModelCheckItself, DetectsReplacementThatIsCountedTwice) {
  const Policy twice = [](const Observed& observed, const Membership& members) {
    return changed<PatchStatus>(recover(observed, members), [](PatchStatus& patch) {
      if (!patch.status.replacements.empty()) ++patch.status.recoveries->pods;
    });
  };
  EXPECT_THAT(check_with(twice, recover, by_rank(1)).violation, HasSubstr("a replacement is not counted once"));
}

// Replacements do not count towards maxRestarts.
TEST(ModelCheckItself, DetectsReplacementWithoutLimit) {
  const Policy forgetful = [](const Observed& observed, const Membership&) {
    Observed uncounted = observed;
    if (uncounted.job.status.recoveries) uncounted.job.status.recoveries->charged = 0;
    return changed<PatchStatus>(recover(uncounted, classify_objects(uncounted)), [&](PatchStatus& patch) {
      const auto& before = observed.job.status.recoveries;
      if (before) patch.status.recoveries->charged += before->charged;
    });
  };
  EXPECT_THAT(check_with(forgetful, recover, by_rank(2)).violation,
              ::testing::AnyOf(HasSubstr("more replacements than allowed"), HasSubstr("more restarts than allowed")));
}

TEST(ModelCheckItself, DetectsReplacementThatIsNotCreated) {
  const Policy idle = [](const Observed& observed, const Membership& members) {
    std::optional<Plan> plan = converge(observed, members);
    if (!plan || observed.job.status.replacements.empty()) return plan;
    std::erase_if(plan->actions, [](const Action& action) {
      const auto* create = std::get_if<CreatePod>(&action);
      return create != nullptr && create->is_replacement;
    });
    plan->requeue_after.reset();
    return plan;
  };
  EXPECT_THAT(check_with(idle, converge, by_rank(1)).violation, HasSubstr("the operator writes at a fixpoint"));
}

// Deletes the surviving pod as well.
TEST(ModelCheckItself, DetectsDeletionOfTheSurvivor) {
  const Policy eager = [](const Observed& observed, const Membership& members) {
    std::optional<Plan> plan = converge(observed, members);
    if (!plan || observed.job.status.replacements.empty()) return plan;
    for (const Pod* pod : members.current) {
      if (pod != nullptr && pod->phase == PodPhase::kRunning && !pod->deleting)
        plan->actions.emplace_back(DeletePod{pod->name, pod->uid, "", "eager"});
    }
    return plan;
  };
  EXPECT_THAT(check_with(eager, converge, by_rank(1)).violation, HasSubstr("a pod of the running attempt is deleted"));
}

// ---- Elastic jobs

ModelOptions elastic_small(int faults) {
  return with(elastic_of(JobBuilder().nodes(2).max_restarts(1).backoff_seconds(0), 10), faults, false);
}

// Creates the pods of a group with spec.nodes.
TEST(ModelCheckItself, DetectsTwoSizesInOneAttempt) {
  const Policy forgetful = [](const Observed& observed, const Membership& members) {
    return changed<CreatePod>(converge(observed, members),
                              [&](CreatePod& create) { create.nodes = observed.job.spec.nodes; });
  };
  EXPECT_THAT(check_with(forgetful, converge, elastic_small(0)).violation,
              HasSubstr("a pod is created with another size than its attempt"));
}

TEST(ModelCheckItself, DetectsGrowthWithoutInterval) {
  const Policy hasty = [](const Observed& observed, const Membership& members) {
    Observed later = observed;
    if (later.job.status.elastic) later.job.status.elastic->failed_growths = 0;
    if (later.job.status.elastic && later.job.status.elastic->last_time)
      *later.job.status.elastic->last_time -= std::chrono::hours(1);
    return resize(later, members);
  };
  EXPECT_THAT(check_with(hasty, resize, elastic_small(0)).violation, HasSubstr("the group grows too early"));
}

// Each growth waits as long as the first one, so that a group that never gets its nodes restarts for ever.
TEST(ModelCheckItself, DetectsGrowthWithoutBackoff) {
  const Policy steady = [](const Observed& observed, const Membership& members) {
    Observed first = observed;
    if (first.job.status.elastic) first.job.status.elastic->failed_growths = 0;
    return resize(first, members);
  };
  EXPECT_THAT(check_with(steady, resize, elastic_small(0)).violation, HasSubstr("the group grows too early"));
}

TEST(ModelCheckItself, DetectsShrinkWithoutWaiting) {
  const Policy hasty = [](const Observed& observed, const Membership& members) {
    Observed later = observed;
    later.now += std::chrono::hours(1);
    return resize(later, members);
  };
  EXPECT_THAT(check_with(hasty, resize, elastic_small(0)).violation, HasSubstr("the group shrinks too early"));
}

// The next pod may get its node a second later.
TEST(ModelCheckItself, DetectsShrinkAfterTheFirstPlacement) {
  const Policy hasty = [](const Observed& observed, const Membership&) {
    Observed untimed = observed;
    for (Pod& pod : untimed.pods) pod.scheduled_at.reset();
    return resize(untimed, classify_objects(untimed));
  };
  EXPECT_THAT(check_with(hasty, resize, elastic_small(0)).violation,
              HasSubstr("the group shrinks before the placement of its pods has settled"));
}

TEST(ModelCheckItself, DetectsGroupBelowMinNodes) {
  const Policy eager = [](const Observed& observed, const Membership& members) {
    Observed unbounded = observed;
    if (unbounded.job.spec.elastic) unbounded.job.spec.elastic->min_nodes = 0;
    return resize(unbounded, members);
  };
  const JobBuilder job = JobBuilder().nodes(3).max_restarts(1).backoff_seconds(0).elastic(2, 10, 10);
  EXPECT_THAT(check_with(eager, resize, with(job, 0, false)).violation, HasSubstr("the size is outside its bounds"));
}

TEST(ModelCheckItself, DetectsIgnoredScale) {
  const JobBuilder job = elastic_of(JobBuilder().nodes(1).max_restarts(0).backoff_seconds(0), 10);
  EXPECT_THAT(check_without(resize, with(job, 1, false)).violation, HasSubstr("a request to scale is ignored"));
}

// Starts with all nodes after each failure.
TEST(ModelCheckItself, DetectsSizeThatAFailureChanges) {
  const Policy forgetful = [](const Observed& observed, const Membership& members) {
    return changed<PatchStatus>(recover(observed, members), [&](PatchStatus& patch) {
      if (patch.status.elastic) patch.status.elastic->nodes = observed.job.spec.nodes;
    });
  };
  EXPECT_THAT(check_with(forgetful, recover, elastic_small(1)).violation,
              ::testing::AnyOf(HasSubstr("the size changes without a reason"), HasSubstr("changes within an attempt")));
}

ModelOptions in_place() {
  const JobBuilder job = elastic_of(JobBuilder().nodes(2).max_restarts(1).backoff_seconds(0), 10)
                             .restart_scope(api::RestartScope::kRank)
                             .stall_seconds(20);
  return bounded(from_running(with_steps(with_exits(with(job, 1, false), {137}))), 400000);
}

// Restarts a group whose launchers continue with fewer nodes in place.
TEST(ModelCheckItself, DetectsRestartOfAGroupThatContinues) {
  const Policy deaf = [](const Observed& observed, const Membership&) {
    Observed silent = observed;
    silent.progress.reset();
    if (silent.job.status.elastic) silent.job.status.elastic->active_nodes.reset();
    return recover(silent, classify_objects(silent));
  };
  EXPECT_THAT(check_with(deaf, recover, in_place()).violation,
              AllOf(HasSubstr("a group that continues with fewer nodes restarts"),
                    HasSubstr("the group of the pods that run completes a step")));
}

ModelOptions in_place_disconnected() {
  ModelOptions options = with_disconnects(in_place());
  options.moves.exit_codes = {};
  return options;
}

// Treats the exit of a launcher that has lost its connection as that of the group.
TEST(ModelCheckItself, DetectsRestartAfterALauncherHasLeft) {
  const Policy blind = [](const Observed& observed, const Membership&) {
    Observed unexplained = observed;
    for (Pod& pod : unexplained.pods) {
      if (pod.trainer) pod.trainer->message.clear();
    }
    return recover(unexplained, classify_objects(unexplained));
  };
  EXPECT_THAT(check_with(blind, recover, in_place_disconnected()).violation,
              AllOf(HasSubstr("a group that continues with fewer nodes restarts"),
                    HasSubstr("loses the connection to node rank 0 and exits with 76")));
}

// Replaces the pod of such a launcher also if the group has ended.
TEST(ModelCheckItself, DetectsReplacementWithoutAGroup) {
  const Policy trusting = [](const Observed& observed, const Membership& members) {
    Observed alive = observed;
    for (Pod& pod : alive.pods) {
      const std::optional<PodIdentity> id = parse_pod_name(observed.job, pod.name);
      if (!id || id->node_rank != 0 || !has_ended(pod) || has_succeeded(pod)) continue;
      pod.phase = PodPhase::kRunning;
      pod.trainer.reset();
      pod.pod_ip = "10.0.0.1";
      alive.progress.emplace().attempt = observed.job.status.attempt;
      alive.last_poll = StatusPoll{observed.now, true};
      return recover(alive, classify_objects(alive));
    }
    return recover(observed, members);
  };
  ModelOptions options = in_place_disconnected();
  options.faults = 2;
  options.moves.exit_codes = {1};
  EXPECT_THAT(check_with(trusting, recover, options).violation,
              HasSubstr("the pod of a disconnected launcher is replaced, although rank 0 has ended"));
}

// Waits for a launcher that does not come back.
TEST(ModelCheckItself, DetectsGroupThatWaitsForADisconnectedLauncher) {
  const Policy patient = [](const Observed& observed, const Membership& members) -> std::optional<Plan> {
    const bool is_left =
        std::ranges::any_of(members.current, [](const Pod* pod) { return pod != nullptr && is_disconnected(*pod); });
    return is_left ? make_plan(PlanState::kWait, "a launcher has left", std::chrono::seconds(1))
                   : recover(observed, members);
  };
  EXPECT_THAT(check_with(patient, recover, in_place_disconnected()).violation,
              HasSubstr("the group waits for a launcher that has left it"));
}

// Waits for the launchers of a group that do not continue.
TEST(ModelCheckItself, DetectsGroupThatWaitsWithoutAReport) {
  const Policy patient = [](const Observed& observed, const Membership& members) {
    std::optional<Plan> plan = recover(observed, members);
    return observed.job.status.replacements.empty() ? plan : std::nullopt;
  };
  EXPECT_THAT(check_with(patient, recover, in_place()).violation,
              HasSubstr("the group waits for a pod although its launchers do not continue"));
}

// Creates replacements whose launchers need all nodes.
TEST(ModelCheckItself, DetectsPodWithoutTheBoundsOfItsAttempt) {
  const Policy forgetful = [](const Observed& observed, const Membership& members) {
    return changed<CreatePod>(converge(observed, members), [](CreatePod& create) { create.launchers.reset(); });
  };
  EXPECT_THAT(check_with(forgetful, converge, in_place()).violation,
              HasSubstr("a pod is created with other bounds than its attempt"));
}

// Treats a finished rank whose pod was removed as lost.
std::optional<Plan> recover_without_record(const Observed& observed, const Membership&) {
  Observed forgetful = observed;
  forgetful.job.status.finished_ranks.reset();
  return recover(forgetful, classify_objects(forgetful));
}

TEST(ModelCheckItself, DetectsRestartOfFinishedRank) {
  const ModelOptions options = with(JobBuilder().nodes(2).max_restarts(1).backoff_seconds(0), 1, false);
  EXPECT_THAT(check_with(recover_without_record, recover, options).violation,
              AllOf(HasSubstr("a restart without a failure"), HasSubstr("which has terminated, is removed")));
}

const ModelOptions kIgnoredExitCode = from_running(with_sidecars(with_exits(
    with(JobBuilder().nodes(2).max_restarts(1).backoff_seconds(0).rule(ignores_exit_code(3)), 1, false), {3})));

// Treats each pod that is stopped as removed, also if its trainer had ended before.
TEST(ModelCheckItself, DetectsRestartOfARankThatEndedBeforeTheStop) {
  const Policy forgetful = [](const Observed& observed, const Membership&) {
    Observed untimed = observed;
    for (Pod& pod : untimed.pods) pod.stop_requested_at.reset();
    return recover(untimed, classify_objects(untimed));
  };
  EXPECT_THAT(check_with(forgetful, recover, kIgnoredExitCode).violation,
              AllOf(HasSubstr("a restart without a failure"), HasSubstr("and a sidecar continues")));
}

// Treats the exit code of a pod that is stopped as the program's own.
TEST(ModelCheckItself, DetectsPermanentFailureOfAStoppedPod) {
  const Policy severe = [](const Observed& observed, const Membership&) {
    Observed unstopped = observed;
    for (Pod& pod : unstopped.pods) {
      if (!pod.trainer) continue;
      pod.deleting = false;
      pod.disruption.clear();
    }
    return recover(unstopped, classify_objects(unstopped));
  };
  const ModelOptions options = with_exits(kSmall, {78});
  EXPECT_THAT(check_with(severe, recover, options).violation,
              AllOf(HasSubstr("failed too early"), HasSubstr("exits with 78")));
}

// Treats the steps of the previous attempt as those of the attempt that starts.
std::optional<Plan> converge_with_old_steps(const Observed& observed, const Membership& members) {
  return changed<PatchStatus>(converge(observed, members), [&](PatchStatus& patch) {
    const auto& before = observed.job.status.progress;
    const bool starts = patch.status.phase == api::Phase::kRunning && !is_running(observed.job.status.phase);
    if (before && starts) patch.status.progress->last_step_time = before->last_step_time;
  });
}

std::optional<Plan> converge_without_waking(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  if (plan) plan->requeue_after.reset();
  return plan;
}

ModelOptions small_with_steps(int faults) {
  return with_steps(with(JobBuilder().nodes(1).max_restarts(0).stall_seconds(20), faults, false));
}

TEST(ModelCheckItself, DetectsStallCountedFromEarlierAttempt) {
  EXPECT_THAT(check_with(converge_with_old_steps, converge, small_with_steps(1)).violation,
              HasSubstr("stalled too early"));
}

TEST(ModelCheckItself, DetectsMissingStallRequeue) {
  EXPECT_THAT(check_with(converge_without_waking, converge, small_with_steps(0)).violation,
              HasSubstr("requeue_after is missing"));
}

TEST(ModelCheckItself, DetectsPodsCreatedFromStaleCache) {
  EXPECT_THAT(check_with(converge_without_fence, converge, kSmall).violation,
              AllOf(HasSubstr("a pod is created"), HasSubstr("[stale:")));
}

TEST(ModelCheckItself, DetectsStaleCacheOfNewJob) {
  EXPECT_THAT(check_with(converge_without_question, converge, kSmall).violation,
              AllOf(HasSubstr("a pod is created"), HasSubstr("[stale: job")));
}

// Creates the NetworkPolicy after the other objects.
std::optional<Plan> converge_with_late_policy(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  if (!plan) return plan;
  std::ranges::stable_partition(
      plan->actions, [](const Action& action) { return !std::holds_alternative<CreateNetworkPolicy>(action); });
  return plan;
}

// Treats every NetworkPolicy as the desired one.
std::optional<Plan> converge_without_comparing(const Observed& observed, const Membership&) {
  Observed trusting = observed;
  for (NetworkPolicy& policy : trusting.network_policies)
    policy.digest = network_policy_of(observed.job, *observed.metrics_peers).digest;
  return converge(trusting, classify_objects(trusting));
}

TEST(ModelCheckItself, DetectsPodWithoutNetworkPolicy) {
  EXPECT_THAT(check_with(converge_with_late_policy, converge, with_policies(kSmall)).violation,
              HasSubstr("a pod is created before the job's NetworkPolicy"));
}

TEST(ModelCheckItself, DetectsEditedNetworkPolicy) {
  const ModelOptions options = with_policies(with(JobBuilder().nodes(1).max_restarts(0), 1, false));
  EXPECT_THAT(check_with(converge_without_comparing, converge, options).violation, HasSubstr("not the desired one"));
}

const ModelOptions kQueued = with(JobBuilder().nodes(1).max_restarts(0).queue("team"), 1);

TEST(ModelCheckItself, DetectsAnEvictionThatIsIgnored) {
  EXPECT_THAT(check_without(obey_queue, kQueued).violation, HasSubstr("an evicted job holds quota"));
}

// Trusts the cache that the Workload is admitted.
std::optional<Plan> converge_without_confirming(const Observed& observed, const Membership& members) {
  return without<ConfirmWorkloadUnchanged>(converge(observed, members));
}

TEST(ModelCheckItself, DetectsPodsOfAStaleAdmission) {
  const ModelOptions options = with(JobBuilder().nodes(1).max_restarts(0).queue("team"), 2);
  EXPECT_THAT(check_with(converge_without_confirming, converge, options).violation,
              AllOf(HasSubstr("a pod is created without quota"), HasSubstr("[stale: services")));
}

// Releases quota while pods of the last attempt still end.
std::optional<Plan> obey_queue_early(const Observed& observed, const Membership& members) {
  Observed hasty = observed;
  const bool is_stopping = std::erase_if(hasty.pods, [](const Pod& pod) { return pod.deleting; }) > 0;
  return obey_queue(hasty, is_stopping ? classify_objects(hasty) : members);
}

TEST(ModelCheckItself, DetectsQuotaThatIsReleasedTooEarly) {
  EXPECT_THAT(check_with(obey_queue_early, obey_queue, kQueued).violation,
              HasSubstr("quota is released while a pod may use it"));
}

}  // namespace
}  // namespace oarlock::test
