// Pods that avoid the nodes on which their job has failed.
#include "operator/core/bad_nodes.h"
#include "operator/core/elastic.h"
#include "operator/core/placement.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::NodeAvoidance;
using api::Phase;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

api::BadNode bad_node(const std::string& name, NodeAvoidance avoidance, int failures = 2) {
  return {.name = name, .failures = failures, .last_time = at_second(0), .reason = "PodFailed", .avoidance = avoidance};
}

JobBuilder job() { return JobBuilder().avoid_nodes(2).backoff_seconds(0); }

Observed failed_on(const std::string& node, const Job& of, int exit_code = 1) {
  Pod failed = pod(of.status.attempt, 1).ended(exit_code);
  failed.node_name = node;
  return seen(of, {pod(of.status.attempt, 0).running(), failed});
}

AvoidedNodes avoided_by(const Plan& plan) {
  const std::vector<CreatePod> created = only<CreatePod>(plan);
  EXPECT_FALSE(created.empty());
  for (const CreatePod& one : created) EXPECT_EQ(one.avoided, created.front().avoided);
  return created.empty() ? AvoidedNodes{} : created.front().avoided.value_or(AvoidedNodes{});
}

TEST(ReconcileBadNodes, PodsOfTheNextAttemptPreferOtherNodesAndThenRequireThem) {
  Observed observed = failed_on("bad", job().phase(Phase::kRunning));
  Plan plan = reconcile(observed);
  EXPECT_EQ(avoided_by(plan), (AvoidedNodes{.preferred = {"bad"}}));
  EXPECT_THAT(names(plan), Contains("EmitEvent AvoidingNode"));
  observed = failed_on("bad", job().status(status_after(observed, plan)));
  observed.job.status.phase = Phase::kRunning;
  plan = reconcile(observed);
  EXPECT_EQ(avoided_by(plan), (AvoidedNodes{.required = {"bad"}}));
  const api::BadNode node = status_after(observed, plan).bad_nodes.at(0);
  EXPECT_EQ(node.failures, 2);
  EXPECT_EQ(node.last_time, at_second(60));
  EXPECT_EQ(node.reason, "PodFailed");
}

TEST(ReconcileBadNodes, TheNodeOfTheRootCauseAloneIsBlamed) {
  Pod root = pod(0, 1).ended(1);
  root.node_name = "bad";
  Pod collateral = pod(0, 0).ended(76);
  collateral.node_name = "good";
  const Observed observed = seen(job().phase(Phase::kRunning), {collateral, root});
  EXPECT_EQ(avoided_by(reconcile(observed)), (AvoidedNodes{.preferred = {"bad"}}));
}

TEST(ReconcileBadNodes, PreemptionsAndJobsWithoutTheLimitAvoidNothing) {
  const Observed preempted =
      seen(job().phase(Phase::kRunning),
           {pod(0, 0).running(), pod(0, 1).running().disrupted("PreemptionByScheduler").deleting()});
  EXPECT_THAT(status_after(preempted, reconcile(preempted)).bad_nodes, IsEmpty());
  EXPECT_EQ(avoided_by(reconcile(failed_on("bad", job().avoid_nodes(0).phase(Phase::kRunning)))), AvoidedNodes{});
}

// A rank that ends while others wait for their images may have waited for them.
TEST(ReconcileBadNodes, AnIncompleteStartBlamesNoNodeExceptForItsHardware) {
  const auto bad_nodes = [](int exit_code) {
    Pod failed = pod(0, 1).ended(exit_code);
    failed.node_name = "bad";
    failed.scheduled_at = at_second(0);
    const Observed observed = seen(job().phase(Phase::kPending), {pod(0, 0).waiting("ImagePullBackOff"), failed});
    return status_after(observed, reconcile(observed)).bad_nodes;
  };
  EXPECT_THAT(bad_nodes(1), IsEmpty());
  EXPECT_EQ(bad_nodes(79).size(), 1U);
}

TEST(ReconcileBadNodes, ReplacedPodsAvoidTheNode) {
  Job of = job().restart_scope(api::RestartScope::kRank).phase(Phase::kRunning);
  Observed observed = failed_on("bad", of, 137);
  const Plan plan = reconcile(observed);
  observed = after(observed, plan);
  EXPECT_EQ(observed.job.status.bad_nodes.at(0).name, "bad");
  EXPECT_EQ(observed.job.status.attempt, 0);
  observed.pods.pop_back();
  EXPECT_EQ(avoided_by(reconcile(observed)), (AvoidedNodes{.preferred = {"bad"}}));
}

TEST(ReconcileBadNodes, RestartsInPodsCountForTheNodeOfTheirRank) {
  Observed observed =
      seen(job().processes_per_node(4).phase(Phase::kRunning), {pod(0, 0).running(), pod(0, 1).running()});
  observed.pods[1].node_name = "bad";
  for (Pod& pod : observed.pods) pod.started_at = observed.now - seconds(120);
  observed.launcher.emplace();
  observed.launcher->in_pod_restarts.total = 1;
  observed.launcher->in_pod_restarts.rank = 5;
  observed.launcher->in_pod_restarts.reason = "uncorrectable ECC error";
  const Plan plan = reconcile(observed);
  const api::BadNode node = status_after(observed, plan).bad_nodes.at(0);
  EXPECT_EQ(node.name, "bad");
  EXPECT_EQ(node.avoidance, NodeAvoidance::kRequired);
  EXPECT_THAT(only<DeletePod>(plan), IsEmpty()) << "the pods run";
  expect_settled(observed, plan);
  observed.pods[0].started_at = observed.now - seconds(119);  // a replacement, after whose loss the others ended, too
  EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
  observed.pods[0].started_at = observed.pods[1].started_at;
  observed.launcher->in_pod_restarts.rank = 8000;  // a pod can report any rank
  EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
}

// ---- Pods that cannot be placed ------------------------------------------------------------------------------------

// A job of two pods, of which the second avoids the node `bad` and has no node since second 0.
Observed waiting(const AvoidedNodes& nodes, SystemTime now, JobBuilder of = job()) {
  Job built = of.phase(Phase::kPending, 1);
  for (const std::string& node : nodes.required)
    built.status.bad_nodes.push_back(bad_node(node, NodeAvoidance::kRequired));
  for (const std::string& node : nodes.preferred)
    built.status.bad_nodes.push_back(bad_node(node, NodeAvoidance::kPreferred, 1));
  Observed observed =
      seen(built, {pod(1, 0).scheduled("good"), pod(1, 1).unschedulable("0/2 nodes").avoiding(nodes, at_second(0))});
  observed.pods[0].created = at_second(0);
  observed.now = now;
  return observed;
}

// It has preempted other pods, and waits for the end of their grace period.
TEST(ReconcileBadNodes, PodWithANominatedNodeKeepsItsAvoidance) {
  Observed observed = waiting({.required = {"bad"}}, at_second(600));
  observed.pods[1].nominated = true;
  const Plan plan = reconcile(observed);
  EXPECT_THAT(only<DeletePod>(plan), IsEmpty());
  EXPECT_EQ(status_after(observed, plan).bad_nodes.at(0).avoidance, NodeAvoidance::kRequired);
  observed.job.status.bad_nodes.clear();  // expired
  EXPECT_THAT(only<DeletePod>(reconcile(observed)), IsEmpty());
}

TEST(ReconcileBadNodes, PodsThatAreNotPlacedAvoidTheNodeLess) {
  const AvoidedNodes required{.required = {"bad"}};
  const Plan early = reconcile(waiting(required, at_second(59)));
  EXPECT_THAT(only<DeletePod>(early), IsEmpty());
  EXPECT_LE(early.requeue_after, seconds(1));
  Observed observed = waiting(required, at_second(60));
  Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan),
              ElementsAre("PatchStatus Pending 1", "DeletePod bert-1-1", "EmitEvent NodeAvoidanceRelaxed"));
  EXPECT_EQ(only<DeletePod>(plan).at(0).resource_version, "200") << "it may have got a node";
  observed = after(observed, plan);
  EXPECT_EQ(observed.job.status.bad_nodes.at(0).avoidance, NodeAvoidance::kPreferred);
  EXPECT_EQ(observed.job.status.bad_nodes.at(0).failures, 2);
  observed.pods.pop_back();
  EXPECT_EQ(avoided_by(reconcile(observed)), (AvoidedNodes{.preferred = {"bad"}}));

  // Karpenter creates no node for a pod with such a preference.
  observed = waiting({.preferred = {"bad"}}, at_second(60));
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.bad_nodes.at(0).avoidance, NodeAvoidance::kNone);
  observed.pods.pop_back();
  EXPECT_EQ(avoided_by(reconcile(observed)), AvoidedNodes{});
}

TEST(ReconcileBadNodes, PodsOfACrashedOperatorAreCreatedAgain) {
  Observed observed = waiting({.required = {"bad"}}, at_second(60));
  observed.job.status.bad_nodes[0].avoidance = NodeAvoidance::kPreferred;
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("PatchStatus Pending 1", "DeletePod bert-1-1"))
      << "the patch is a fence";
  observed.job.status.bad_nodes[0].avoidance = NodeAvoidance::kRequired;
  observed.now = at_second(86'400);
  EXPECT_THAT(names(reconcile(observed)), Contains("DeletePod bert-1-1")) << "the entry has expired";
  observed.pods[1].scheduled = true;
  observed.pods[1].node_name = "good";
  EXPECT_THAT(names(reconcile(observed)), Not(Contains("DeletePod bert-1-1")));
}

// Otherwise, each restart on the only node would wait for another one.
TEST(ReconcileBadNodes, AnAvoidanceThatHasBecomeWeakerRemainsSo) {
  Job of = job().phase(Phase::kRunning, 1);
  of.status.bad_nodes = {bad_node("bad", NodeAvoidance::kPreferred)};
  EXPECT_EQ(avoided_by(reconcile(failed_on("bad", of))), (AvoidedNodes{.preferred = {"bad"}}));
  of.status.bad_nodes = {bad_node("bad", NodeAvoidance::kNone)};
  EXPECT_EQ(avoided_by(reconcile(failed_on("bad", of))), AvoidedNodes{});
}

// Kueue selects the nodes, or the node has failed again since the pod was created.
TEST(ReconcileBadNodes, PodsWithAWeakerListThanTheStatusAreCreatedAgain) {
  Observed observed = waiting({.preferred = {"bad"}}, at_second(60));
  observed.job.status.bad_nodes = {bad_node("bad", NodeAvoidance::kRequired)};
  observed = after(observed, reconcile(observed));
  EXPECT_EQ(observed.job.status.bad_nodes.at(0).avoidance, NodeAvoidance::kNone);
}

// It may refuse them for their affinity.
TEST(ReconcileBadNodes, PodsThatTheApiServerRefusesAvoidNothingAfterAMinute) {
  Observed observed = waiting({.required = {"bad"}}, at_second(59));
  observed.pods.pop_back();
  observed.job.status.attempt_start_time = at_second(0);
  observed.last_error = "admission webhook denied the request";
  EXPECT_EQ(avoided_by(reconcile(observed)), (AvoidedNodes{.required = {"bad"}}));
  observed.now = at_second(60);
  observed.job.status = status_after(observed, reconcile(observed));
  EXPECT_EQ(avoided_by(reconcile(observed)), AvoidedNodes{});
}

TEST(ReconcileBadNodes, PodsBetweenTwoAvoidancesDoNotExceedThePendingTimeout) {
  Observed observed = waiting({.required = {"bad"}}, at_second(60), job().pending_timeout(60));
  observed = after(observed, reconcile(observed));
  observed.pods.pop_back();
  observed.now = at_second(61);
  EXPECT_EQ(placement_deadline(observed, classify_objects(observed)), std::nullopt);
  EXPECT_EQ(avoided_by(reconcile(observed)), (AvoidedNodes{.preferred = {"bad"}}));
}

// A finalizer keeps it.
TEST(ReconcileBadNodes, ADeletedPodThatWaitedWasNotLost) {
  Observed observed = waiting({.required = {"bad"}}, at_second(61));
  observed.job.status.bad_nodes = {bad_node("bad", NodeAvoidance::kPreferred)};
  observed.pods[1].deleting = true;
  EXPECT_EQ(status_after(observed, reconcile(observed)).attempt, 1);
}

TEST(ReconcileBadNodes, TheAvoidanceBecomesWeakerBeforeAnotherLimitApplies) {
  const AvoidedNodes required{.required = {"bad"}};
  const Observed late = waiting(required, at_second(20), job().pending_timeout(20));
  EXPECT_THAT(names(reconcile(late)), Contains("EmitEvent NodeAvoidanceRelaxed"));
  EXPECT_EQ(late.job.status.attempt, status_after(late, reconcile(late)).attempt) << "not NotPlaced";

  Observed elastic = waiting(required, at_second(59), job().elastic(1, 30));
  api::GroupSize& size = elastic.job.status.elastic.emplace();
  size.attempt = 1;
  size.nodes = size.wanted = 2;
  size.waiting_since = at_second(0);
  EXPECT_FALSE(find_resize(elastic, classify_objects(elastic)));
  elastic.now = at_second(60);
  const api::Status next = status_after(elastic, reconcile(elastic));
  EXPECT_EQ(next.attempt, 1) << "the group has not shrunk";
  EXPECT_EQ(next.elastic->waiting_since, at_second(60)) << "the wait for nodes begins again";
}

TEST(ReconcileBadNodes, EntriesExpire) {
  Job of = job().avoid_nodes(2, 100).phase(Phase::kRunning);
  of.status.bad_nodes = {bad_node("bad", NodeAvoidance::kRequired)};
  Observed observed = seen(of, {pod(0, 0).running(), pod(0, 1).running()});
  EXPECT_LE(reconcile(observed).requeue_after, seconds(40));
  observed.now = at_second(100);
  EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
}

}  // namespace
}  // namespace oarlock::test
