// Requests for checkpoints of jobs whose nodes are about to be drained or removed.
#include "operator/core/disruption.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

constexpr int64_t kNow = 60;  // of seen()

Pod pod_on(int node_rank, const std::string& node, int attempt = 0) {
  Pod out = pod(attempt, node_rank).running();
  out.node_name = node;
  return out;
}

// Two nodes, "a" and "b", in phase Running.
Observed running(std::map<std::string, std::string> warnings) {
  Observed out = seen(JobBuilder().phase(Phase::kRunning), {pod_on(0, "a"), pod_on(1, "b")});
  out.node_warnings = std::move(warnings);
  return out;
}

TEST(Disruption, IsAnnouncedByTaintsAndConditionsOfTheProviders) {
  for (const char* taint : {"karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler",
                            "cloud.google.com/impending-node-termination", "aws-node-termination-handler/spot-itn"})
    EXPECT_TRUE(announces_disruption(taint)) << taint;
  for (const char* taint : {"", "nvidia.com/gpu", "DeletionCandidateOfClusterAutoscaler",
                            "kubernetes.azure.com/scalesetpriority", "node.kubernetes.io/out-of-service"})
    EXPECT_FALSE(announces_disruption(taint)) << taint;
  EXPECT_TRUE(is_disruption_condition("VMEventScheduled"));
  EXPECT_FALSE(is_disruption_condition("Ready"));
}

TEST(Disruption, RequestsACheckpointOnceForEachNode) {
  Observed observed = running({{"b", "taint karpenter.sh/disrupted"}, {"elsewhere", "cordoned"}});
  Plan plan = reconcile(observed);
  api::Status status = status_after(observed, plan);
  ASSERT_TRUE(status.disruption);
  EXPECT_THAT(status.disruption->nodes, ElementsAre("b"));
  EXPECT_EQ(status.disruption->reason, "b (taint karpenter.sh/disrupted)");
  EXPECT_EQ(checkpoint_request(status),
            std::chrono::duration_cast<std::chrono::seconds>(at_second(kNow).time_since_epoch()).count());
  EXPECT_THAT(names(plan), Contains("EmitEvent CheckpointRequested"));
  EXPECT_EQ(status.phase, Phase::kRunning);
  expect_settled(observed, plan);

  observed = after(observed, plan);
  observed.now = at_second(kNow + 600);
  plan = reconcile(observed);
  EXPECT_THAT(names(plan), Not(Contains("EmitEvent CheckpointRequested"))) << "it has not changed";
  EXPECT_EQ(status_after(observed, plan).disruption, status.disruption);

  observed.node_warnings["a"] = "cordoned";
  plan = reconcile(observed);
  status = status_after(observed, plan);
  EXPECT_THAT(status.disruption->nodes, ElementsAre("b", "a"));
  EXPECT_EQ(status.disruption->reason, "a (cordoned)");
  EXPECT_EQ(status.disruption->request_time, at_second(kNow + 600));
  EXPECT_THAT(names(plan), Contains("EmitEvent CheckpointRequested"));
}

TEST(Disruption, EndsWithTheWarning) {
  Observed observed = running({{"a", "cordoned"}});
  observed = after(observed, reconcile(observed));
  ASSERT_TRUE(observed.job.status.disruption);
  observed.node_warnings.clear();
  EXPECT_TRUE(status_after(observed, reconcile(observed)).disruption) << "a node that flaps";
  observed.now = at_second(kNow + 600);
  observed.are_node_warnings_unknown = true;
  EXPECT_TRUE(status_after(observed, reconcile(observed)).disruption) << "the operator has started again";
  observed.are_node_warnings_unknown = false;
  const Plan plan = reconcile(observed);
  EXPECT_FALSE(status_after(observed, plan).disruption);
  EXPECT_EQ(checkpoint_request(status_after(observed, plan)), std::nullopt);
}

TEST(Disruption, EndsWithTheRun) {
  Observed observed = running({{"a", "cordoned"}});
  observed = after(observed, reconcile(observed));
  observed.pods = {pod(0, 0).ended(1), pod(0, 1).running()};
  const api::Status restarting = status_after(observed, reconcile(observed));
  EXPECT_EQ(restarting.phase, Phase::kRestarting);
  EXPECT_FALSE(restarting.disruption);
}

TEST(Disruption, CountsTheConditionDisruptionTargetBeforeTheDeletionOnly) {
  Observed observed = running({});
  observed.pods[1].disruption = "PreemptionByScheduler";
  EXPECT_EQ(status_after(observed, reconcile(observed)).disruption.value_or(api::Disruption{}).reason,
            "b (condition DisruptionTarget of a pod: PreemptionByScheduler)");
  observed.pods[1].deleting = true;
  EXPECT_FALSE(status_after(observed, reconcile(observed)).disruption) << "SIGTERM is on its way";
}

TEST(Disruption, DoesNotConcernPodsThatDoNotRun) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod_on(0, "a"), pod(0, 1).scheduled("b")});
  observed.node_warnings = {{"a", "cordoned"}, {"b", "cordoned"}};
  EXPECT_FALSE(status_after(observed, reconcile(observed)).disruption) << "nothing has been trained";
}

// Otherwise those beyond the limit would be new again and again.
TEST(Disruption, NamesABoundedNumberOfNodesAndThenRequestsNoMore) {
  constexpr int kNodes = api::kMaxDisruptedNodes + 4;
  Observed observed = seen(JobBuilder().nodes(kNodes).phase(Phase::kRunning));
  for (int i = 0; i < kNodes; ++i) {
    const std::string node = "n" + std::to_string(i);
    observed.pods.push_back(pod_on(i, node));
    observed.node_warnings[node] = "cordoned";
  }
  const Plan plan = reconcile(observed);
  EXPECT_EQ(status_after(observed, plan).disruption->nodes.size(), api::kMaxDisruptedNodes);
  observed = after(observed, plan);
  observed.now = at_second(kNow + 60);
  EXPECT_EQ(status_after(observed, reconcile(observed)).disruption->request_time, at_second(kNow));
}

}  // namespace
}  // namespace oarlock::test
