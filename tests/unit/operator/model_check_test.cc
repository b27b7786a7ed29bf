// Everything that can happen to small jobs, in every order; and a search that would notice a broken operator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/builders.h"
#include "tests/support/model/checker.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Setup {
  const char* name;
  ModelOptions options;
  bool is_bounded = false;  // there is more than can be searched; the nearest states are
};

std::ostream& operator<<(std::ostream& out, const Setup& setup) { return out << setup.name; }

ModelOptions with(const Job& job, int faults, bool old_views = true) {
  ModelOptions options;
  options.job = job;
  options.faults = faults;
  options.old_views = old_views;
  return options;
}

ModelOptions with_steps(ModelOptions options) {
  options.steps = true;
  return options;
}

ModelOptions bounded(ModelOptions options, size_t states) {
  options.max_states = states;
  return options;
}

ModelOptions with_exits(ModelOptions options, std::vector<int> exit_codes) {
  options.exit_codes = std::move(exit_codes);
  return options;
}

ModelOptions with_foreign(ModelOptions options, const std::string& pod) {
  options.foreign_pods = {pod};
  return options;
}

ModelOptions with_policies(ModelOptions options) {
  options.metrics_peers = R"([{"namespaceSelector":{}}])";
  return options;
}

std::vector<Setup> setups() {
  const JobBuilder plain = JobBuilder().backoff_seconds(0);
  const auto job = [&](int nodes, int restarts) { return JobBuilder(plain).nodes(nodes).max_restarts(restarts); };
  return {
      {"OnePod", with_exits(with(job(1, 2), 2), {1, 78})},
      {"OnePodFailsAgainAndAgain", bounded(with(job(1, 2), 4), 300000), true},
      {"TwoPods", bounded(with_exits(with(job(2, 2), 3), {1, 76}), 500000), true},
      {"TwoPodsOneFault", with(job(2, 1), 1)},
      {"ThreePods", bounded(with(job(3, 2), 3), 500000), true},
      {"ANameThatIsTaken", with_foreign(with(job(1, 1), 2), "bert-1-0")},
      {"Deadline", with(job(1, 1).deadline_seconds(20), 1)},
      {"TimeToLive", with(job(1, 1).ttl_seconds(10), 2)},
      {"Backoff", with(JobBuilder().nodes(1).max_restarts(2), 2, false)},
      {"CleanAll", with(job(2, 0).clean_pod_policy(api::CleanPodPolicy::kAll), 1)},
      {"Stall", with_steps(with(job(1, 1).stall_seconds(20), 1))},
      {"NetworkPolicies", with_policies(with(job(1, 1), 2))},
      {"NetworkPoliciesCleanAll", with_policies(with(job(2, 0).clean_pod_policy(api::CleanPodPolicy::kAll), 1))},
      {"Rank0", with(job(2, 1).success_policy(api::SuccessPolicy::kRank0), 1)},
  };
}

class ModelCheck : public ::testing::TestWithParam<Setup> {};

TEST_P(ModelCheck, HoldsInEveryReachableState) {
  const auto begin = std::chrono::steady_clock::now();
  const ModelResult result = check_model(GetParam().options, policies());
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.is_complete, !GetParam().is_bounded) << result.states << " states";
  EXPECT_TRUE(result.saw_complete || GetParam().is_bounded);
  EXPECT_TRUE(result.saw_deleted);
  EXPECT_TRUE(result.saw_suspended);
  EXPECT_EQ(result.saw_stalled, GetParam().options.steps);
  std::cout << "states " << result.states << ", worlds " << result.worlds << ", transitions " << result.transitions
            << ", restarts " << result.most_restarts << ", "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() << " s\n";
}

INSTANTIATE_TEST_SUITE_P(All, ModelCheck, ::testing::ValuesIn(setups()),
                         [](const auto& setup) { return std::string(setup.param.name); });

// ---- does it notice? -------------------------------------------------------------------------------------------

ModelResult check_without(Policy missing, const ModelOptions& options) {
  std::vector<Policy> broken(policies().begin(), policies().end());
  std::erase(broken, missing);
  return check_model(options, broken);
}

// Creates the pods of the attempt without the status first, which proves that the view is not an old one.
std::optional<Plan> converge_without_fence(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  const bool creates = plan && std::any_of(plan->actions.begin(), plan->actions.end(), [](const Action& action) {
                         return std::holds_alternative<CreatePod>(action);
                       });
  if (creates && observed.job.status.phase != api::Phase::kNone) {
    std::erase_if(plan->actions, [](const Action& action) { return std::holds_alternative<PatchStatus>(action); });
  }
  return plan;
}

// Takes every job without a status for one that no operator has acted on.
std::optional<Plan> converge_without_question(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  if (plan) {
    std::erase_if(plan->actions,
                  [](const Action& action) { return std::holds_alternative<ConfirmJobUnchanged>(action); });
  }
  return plan;
}

// Counts each restart twice.
std::optional<Plan> recover_counting_twice(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = recover(observed, members);
  if (!plan) return plan;
  for (Action& action : plan->actions) {
    auto* patch = std::get_if<PatchStatus>(&action);
    if (patch != nullptr && patch->status.phase == api::Phase::kRestarting) ++patch->status.restarts.total;
  }
  return plan;
}

ModelResult check_with(Policy broken, Policy instead_of, const ModelOptions& options) {
  std::vector<Policy> list(policies().begin(), policies().end());
  std::replace(list.begin(), list.end(), instead_of, broken);
  return check_model(options, list);
}

const ModelOptions kSmall = with(JobBuilder().nodes(1).max_restarts(1).backoff_seconds(0), 2);

TEST(ModelCheckItself, NoticesAJobThatDoesNotStayEnded) {
  EXPECT_THAT(check_without(tidy_the_ended, kSmall).violation, HasSubstr("the end of a job is not final"));
}

TEST(ModelCheckItself, NoticesAnOperatorThatForgetsToRecover) {
  EXPECT_THAT(check_without(recover, kSmall).violation,
              AllOf(HasSubstr("the job can never end"), HasSubstr("bert-0-0 is evicted")));
}

TEST(ModelCheckItself, NoticesACountThatIsNotExactAndPrintsTheShortestWayThere) {
  const std::string violation = check_with(recover_counting_twice, recover, kSmall).violation;
  EXPECT_THAT(violation, HasSubstr("a restart is not counted once"));
  EXPECT_LT(std::count(violation.begin(), violation.end(), '\n'), 9) << violation;
}

// Takes a finished rank whose pod was removed for one that was lost.
std::optional<Plan> recover_without_record(const Observed& observed, const Membership&) {
  Observed forgetful = observed;
  forgetful.job.status.finished_ranks.reset();
  return recover(forgetful, split(forgetful));
}

TEST(ModelCheckItself, NoticesAFinishedRankThatIsRestarted) {
  const ModelOptions options = with(JobBuilder().nodes(2).max_restarts(1).backoff_seconds(0), 1, false);
  EXPECT_THAT(check_with(recover_without_record, recover, options).violation,
              AllOf(HasSubstr("a restart without a failure"), HasSubstr("which has ended, is removed")));
}

// Takes the steps of the attempt before for those of the one that begins to run.
std::optional<Plan> converge_with_old_steps(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  const std::optional<api::Progress>& before = observed.job.status.progress;
  if (!plan || !before || is_running(observed.job.status.phase)) return plan;
  for (Action& action : plan->actions) {
    auto* patch = std::get_if<PatchStatus>(&action);
    if (patch != nullptr && patch->status.phase == api::Phase::kRunning)
      patch->status.progress->last_step_time = before->last_step_time;
  }
  return plan;
}

std::optional<Plan> converge_without_waking(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  if (plan) plan->requeue_after.reset();
  return plan;
}

ModelOptions small_with_steps(int faults) {
  return with_steps(with(JobBuilder().nodes(1).max_restarts(0).stall_seconds(20), faults, false));
}

TEST(ModelCheckItself, NoticesAStallThatIsCountedFromAnotherAttempt) {
  EXPECT_THAT(check_with(converge_with_old_steps, converge, small_with_steps(1)).violation,
              HasSubstr("stalled before its time"));
}

TEST(ModelCheckItself, NoticesAStallThatNobodyLooksFor) {
  EXPECT_THAT(check_with(converge_without_waking, converge, small_with_steps(0)).violation,
              HasSubstr("nobody wakes the operator"));
}

TEST(ModelCheckItself, NoticesPodsMadeFromAnOldView) {
  EXPECT_THAT(check_with(converge_without_fence, converge, kSmall).violation,
              AllOf(HasSubstr("a pod is created"), HasSubstr("[old:")));
}

TEST(ModelCheckItself, NoticesAnOldViewOfANewJob) {
  EXPECT_THAT(check_with(converge_without_question, converge, kSmall).violation,
              AllOf(HasSubstr("a pod is created"), HasSubstr("[old: job")));
}

// Creates the objects in the order in which they were listed before there were policies.
std::optional<Plan> converge_with_late_policy(const Observed& observed, const Membership& members) {
  std::optional<Plan> plan = converge(observed, members);
  if (!plan) return plan;
  std::ranges::stable_partition(
      plan->actions, [](const Action& action) { return !std::holds_alternative<CreateNetworkPolicy>(action); });
  return plan;
}

// Takes every NetworkPolicy for the desired one.
std::optional<Plan> converge_without_comparing(const Observed& observed, const Membership&) {
  Observed trusting = observed;
  for (NetworkPolicy& policy : trusting.network_policies)
    policy.digest = network_policy_of(observed.job, *observed.metrics_peers).digest;
  return converge(trusting, split(trusting));
}

TEST(ModelCheckItself, NoticesAPodWithoutNetworkPolicy) {
  EXPECT_THAT(check_with(converge_with_late_policy, converge, with_policies(kSmall)).violation,
              HasSubstr("a pod is created before the job's NetworkPolicy"));
}

TEST(ModelCheckItself, NoticesAnEditedNetworkPolicy) {
  const ModelOptions options = with_policies(with(JobBuilder().nodes(1).max_restarts(0), 1, false));
  EXPECT_THAT(check_with(converge_without_comparing, converge, options).violation,
              HasSubstr("not the desired one"));
}

}  // namespace
}  // namespace oarlock::test
