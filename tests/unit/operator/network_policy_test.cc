// The NetworkPolicy of a job: which connections it admits, and when it is created, replaced and deleted.
#include "operator/core/desired.h"

#include "tests/support/golden.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr char kPeers[] = R"([{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"oarlock-system"}}}])";

Observed with_peers(Observed observed, bool has_policy = true) {
  observed.metrics_peers = kPeers;
  if (has_policy) observed.network_policies = {network_policy_of(observed.job, kPeers)};
  return observed;
}

TEST(DesiredNetworkPolicy, Golden) {
  const Job job = JobBuilder().processes_per_node(4);
  expect_golden("operator/network_policy.json", desired_network_policy(job, kPeers).dump(2) + "\n");
}

// An ingress rule without peers would admit all clients.
TEST(DesiredNetworkPolicy, AdmitsOnlyTheJobsPodsWithoutPeers) {
  const Json ingress = desired_network_policy(JobBuilder(), "[]")["spec"]["ingress"];
  EXPECT_EQ(ingress, Json::parse(R"([{"from":[{"podSelector":{"matchLabels":{"oarlock.dev/job-name":"bert"}}}]}])"));
}

TEST(DesiredNetworkPolicy, DigestDoesNotDependOnTheOrderOfKeys) {
  EXPECT_EQ(spec_digest(Json::parse(R"({"a":1,"b":[{"c":2,"d":3}]})")),
            spec_digest(Json::parse(R"({"b":[{"d":3,"c":2}],"a":1})")));
  EXPECT_NE(spec_digest(Json::parse(R"({"a":1})")), spec_digest(Json::parse(R"({"a":2})")));
}

TEST(MetricsPeers, HaveTheFormThatTheApiServerStores) {
  EXPECT_EQ(parse_metrics_peers(R"([{"podSelector": {"matchExpressions": [], "matchLabels": null}}])").value(),
            R"([{"podSelector":{}}])");
  EXPECT_EQ(parse_metrics_peers(" []").value(), "[]");
  EXPECT_EQ(parse_metrics_peers(kPeers).value(), kPeers);
}

TEST(MetricsPeers, RejectInvalidPeers) {
  for (const char* text : {"", "{}", "[1]", "[{}]", R"([{"podSelectors":{}}])", R"([{"podSelector":"x"}])", "[",
                           R"([{"podSelector":null}])"}) {
    const auto peers = parse_metrics_peers(text);
    ASSERT_FALSE(peers) << text;
    EXPECT_EQ(peers.error().code, ExitCode::kUsage);
    EXPECT_THAT(peers.error().message, HasSubstr("NetworkPolicy peers"));
  }
}

TEST(NetworkPolicyPlan, CreatesPolicyBeforeServiceAndPods) {
  Observed observed = with_peers(seen(JobBuilder()), false);
  observed.services.clear();
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("ConfirmJobUnchanged", "CreateNetworkPolicy trainingjob-bert", "CreateService bert",
                          "CreatePod bert-0-0", "CreatePod bert-0-1"));
}

TEST(NetworkPolicyPlan, LeavesPolicyAloneWithoutPeers) {
  Observed observed = seen(JobBuilder(), {pod(0, 0).running(), pod(0, 1).running()});
  observed.network_policies = {network_policy_of(observed.job, kPeers)};
  observed.network_policies.at(0).digest = "another";
  EXPECT_THAT(names(reconcile(observed)), Not(Contains(HasSubstr("NetworkPolicy"))));
}

// An operator without NetworkPolicies started the job, or the policy was deleted.
TEST(NetworkPolicyPlan, AddsPolicyToRunningJob) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = after(observed, reconcile(observed));
  EXPECT_THAT(names(reconcile(with_peers(observed, false))),
              ElementsAre("PatchStatus Running 0", "CreateNetworkPolicy trainingjob-bert"));
  EXPECT_THAT(reconcile(with_peers(observed)).actions, IsEmpty());
}

TEST(NetworkPolicyPlan, ReplacesPolicyThatDiffers) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = with_peers(after(observed, reconcile(observed)));
  observed.metrics_peers = "[]";  // an upgrade of the operator changed its settings
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Running 0", "ReplaceNetworkPolicy trainingjob-bert"));
  const Json body = Json::parse(only<ReplaceNetworkPolicy>(plan).at(0).body);
  EXPECT_EQ(body["metadata"]["uid"], "uid-of-policy") << "the precondition";
  observed.network_policies.at(0).digest = spec_digest(body["spec"]);
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  observed.metrics_peers = kPeers;
  observed.network_policies.at(0).deleting = true;
  EXPECT_THAT(reconcile(observed).actions, IsEmpty());
}

TEST(NetworkPolicyPlan, UpdatesPolicyOfResumedJob) {
  Observed observed = with_peers(seen(JobBuilder().phase(Phase::kSuspended).processes_per_node(2)));
  observed.network_policies = {network_policy_of(JobBuilder(), kPeers)};  // for one process per node
  EXPECT_THAT(names(reconcile(observed)),
              ElementsAre("PatchStatus Pending 1", "EmitEvent Resumed", "ReplaceNetworkPolicy trainingjob-bert",
                          "CreatePod bert-1-0", "CreatePod bert-1-1"));
}

TEST(NetworkPolicyPlan, KeepsPolicyUntilLastPodEnds) {
  for (const api::CleanPodPolicy clean : {api::CleanPodPolicy::kRunning, api::CleanPodPolicy::kAll}) {
    Observed observed = with_peers(seen(JobBuilder().clean_pod_policy(clean).phase(Phase::kFailed)));
    observed.pods = {pod(0, 0).running()};
    EXPECT_THAT(names(reconcile(observed)), ElementsAre("DeletePod bert-0-0"));
    observed.pods = {pod(0, 0).running().deleting()};
    EXPECT_THAT(reconcile(observed).actions, IsEmpty()) << "a pod that is being deleted still accepts connections";
    observed.pods.clear();
    EXPECT_THAT(names(reconcile(observed)), ElementsAre("DeleteNetworkPolicy trainingjob-bert"));
    EXPECT_EQ(only<DeleteNetworkPolicy>(reconcile(observed)).at(0).uid, "uid-of-policy");
    observed.network_policies.at(0).deleting = true;
    EXPECT_THAT(reconcile(observed).actions, IsEmpty());
  }
  const Job kept = JobBuilder().clean_pod_policy(api::CleanPodPolicy::kNone).phase(Phase::kFailed);
  EXPECT_THAT(reconcile(with_peers(seen(kept))).actions, IsEmpty());
}

TEST(NetworkPolicyPlan, CreatesNoPolicyForFinishedJob) {
  EXPECT_THAT(reconcile(with_peers(seen(JobBuilder().phase(Phase::kComplete)), false)).actions, IsEmpty());
}

TEST(NetworkPolicyPlan, ForeignPolicyBlocksStart) {
  Observed observed = with_peers(seen(JobBuilder()));
  observed.network_policies.at(0).owner_uid = "other";
  observed.network_policies.at(0).owner_is_job = false;
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kBlocked);
  EXPECT_THAT(condition_of(status_after(observed, plan), Phase::kPending).message,
              StartsWith("NetworkPolicy trainingjob-bert exists and does not belong to this job"));
  EXPECT_THAT(only<CreatePod>(plan), IsEmpty());
  // The policy of a deleted job with this name, which the garbage collector removes.
  observed.network_policies.at(0).owner_is_job = true;
  EXPECT_EQ(condition_of(status_after(observed, reconcile(observed)), Phase::kPending).reason, "WaitingForNames");
}

TEST(NetworkPolicyPlan, ForeignPolicyDoesNotAffectRunningJob) {
  Observed observed = seen(JobBuilder().phase(Phase::kPending), {pod(0, 0).running(), pod(0, 1).running()});
  observed = with_peers(after(observed, reconcile(observed)));
  observed.network_policies.at(0).owner_uid = "other";
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kWait);
  EXPECT_THAT(plan.actions, IsEmpty());
  EXPECT_TRUE(plan.requeue_after) << "no watch event reports the removal of the other policy";
}

}  // namespace
}  // namespace oarlock::test
