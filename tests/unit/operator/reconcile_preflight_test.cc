// What follows when the launchers report that their preflight has failed.
#include "common/contract.h"
#include "operator/core/desired.h"
#include "operator/core/restart_budget.h"
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::NodeAvoidance;
using api::Phase;
using std::chrono::seconds;
using ::testing::IsEmpty;

Job preflight_job() {
  Job out = JobBuilder().nodes(3).processes_per_node(2).avoid_nodes(2).backoff_seconds(0).phase(Phase::kRunning);
  out.spec.preflight.emplace();
  return out;
}

const SystemTime kStart = at_second(-1);  // of the containers; launchers end at at_second(59), after one minute

// The pod of a launcher that ended by the outcome of the preflight, on node-0, node-1 ...
Pod launcher_ended(int node_rank, int exit_code, int named_node_rank,
                   const std::string& reason = kReasonPreflightFailed) {
  const TerminationMessage message{.rank = 2 * named_node_rank, .reason = reason, .message = "storage: read-only"};
  Pod out = pod(0, node_rank).ended(exit_code, to_json(message));
  out.node_name = "node-" + std::to_string(node_rank);
  out.started_at = kStart;
  return out;
}

Pod launcher_runs(int node_rank, SystemTime since = kStart) {
  Pod out = pod(0, node_rank).started_at(since);
  out.node_name = "node-" + std::to_string(node_rank);
  return out;
}

Pod peer_ended(int node_rank) { return launcher_ended(node_rank, 76, 0, kReasonPeerLost); }

std::vector<std::string> avoided_nodes_of(const api::Status& status,
                                          NodeAvoidance avoidance = NodeAvoidance::kRequired) {
  std::vector<std::string> out;
  for (const api::BadNode& node : status.bad_nodes) {
    EXPECT_EQ(node.avoidance, avoidance);
    EXPECT_EQ(node.reason, kReasonPreflightFailed);
    out.push_back(node.name);
  }
  return out;
}

TEST(ReconcilePreflight, TheNamedNodeAloneIsAvoidedImmediately) {
  const Observed observed = seen(preflight_job(), {peer_ended(0), launcher_ended(1, 79, 1), peer_ended(2)});
  const Plan plan = reconcile(observed);
  const api::Status status = status_after(observed, plan);
  EXPECT_EQ(avoided_nodes_of(status), std::vector<std::string>{"node-1"});
  EXPECT_EQ(status.restarts.total, 1);
  EXPECT_EQ(status.restarts.charged, 1);
  EXPECT_EQ(status.restarts.reasons.at(0).reason, kReasonPreflightFailed);
  EXPECT_EQ(status.attempts.at(0).node, "node-1");
  EXPECT_NE(status.attempts.at(0).message.find("storage: read-only"), std::string::npos);
  for (const CreatePod& created : only<CreatePod>(plan))
    EXPECT_EQ(created.avoided.value_or(AvoidedNodes{}), (AvoidedNodes{.required = {"node-1"}}));
}

TEST(ReconcilePreflight, AllNodesThatFailedAreAvoided) {
  const Observed observed = seen(preflight_job(), {peer_ended(0), launcher_ended(1, 79, 1), launcher_ended(2, 79, 2)});
  EXPECT_THAT(avoided_nodes_of(status_after(observed, reconcile(observed))),
              ::testing::UnorderedElementsAre("node-1", "node-2"));
}

// The launcher of node rank 0 names a node that does not respond.
TEST(ReconcilePreflight, SilentNodeIsAvoidedInsteadOfItsReporter) {
  Observed observed = seen(preflight_job(), {launcher_ended(0, 79, 2), peer_ended(1), peer_ended(2)});
  api::Status status = status_after(observed, reconcile(observed));
  EXPECT_EQ(avoided_nodes_of(status, NodeAvoidance::kPreferred), std::vector<std::string>{"node-2"});
  EXPECT_EQ(status.attempts.at(0).node, "node-2");
  EXPECT_EQ(status.attempts.at(0).pod, "bert-0-2");

  observed.pods[2] = launcher_runs(2);
  EXPECT_EQ(avoided_nodes_of(status_after(observed, reconcile(observed)), NodeAvoidance::kPreferred),
            std::vector<std::string>{"node-2"});
}

TEST(ReconcilePreflight, PodThatCouldNotRespondBlamesNoNode) {
  Observed observed =
      seen(preflight_job(), {launcher_ended(0, 79, 2), peer_ended(1), pod(0, 2).waiting("ImagePullBackOff")});
  observed.job.status.phase = Phase::kPending;
  observed.pods[2].node_name = "node-2";
  const api::Status status = status_after(observed, reconcile(observed));
  EXPECT_THAT(status.bad_nodes, IsEmpty());
  EXPECT_EQ(status.restarts.charged, 0) << "the pods have not all started";
  observed.pods[2] = pod(0, 2).started_at(kStart).disrupted("Preempted").deleting();
  EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
  const Observed invalid = seen(preflight_job(), {launcher_ended(0, 79, 1'000'000), peer_ended(1), peer_ended(2)});
  EXPECT_LE(status_after(invalid, reconcile(invalid)).bad_nodes.size(), 1U);
}

TEST(ReconcilePreflight, PodThatStartedLateBlamesNoNode) {
  Observed observed =
      seen(preflight_job(), {launcher_ended(0, 79, 2), peer_ended(1), launcher_runs(2, kStart + seconds(1))});
  EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
  observed.pods[2] = launcher_runs(2, kStart);
  EXPECT_EQ(avoided_nodes_of(status_after(observed, reconcile(observed)), NodeAvoidance::kPreferred),
            std::vector<std::string>{"node-2"});
}

// A launcher that had connected gives up because another one has not: that one may have pulled its image slowly.
TEST(ReconcilePreflight, LauncherThatWaitedForALateOneBlamesNoNode) {
  for (const Pod& late : {launcher_runs(1, at_second(50)), pod(0, 1).waiting("ErrImagePull").build()}) {
    const Observed observed = seen(preflight_job(), {launcher_ended(0, 79, 2), late, peer_ended(2)});
    EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
  }
}

// The number of ranks that another launcher starts may differ from spec.processesPerNode.
TEST(ReconcilePreflight, OnlyNodeRank0NamesAnotherNode) {
  const Observed observed = seen(preflight_job(), {peer_ended(0), launcher_ended(1, 79, 2), peer_ended(2)});
  const api::Status status = status_after(observed, reconcile(observed));
  EXPECT_EQ(avoided_nodes_of(status), std::vector<std::string>{"node-1"});
  EXPECT_EQ(status.attempts.at(0).node, "node-1");
}

// The launcher of node rank 0 reports the lost connection in the second in which the other one ended.
TEST(ReconcilePreflight, OwnExitPrecedesTheLauncherThatNamesIt) {
  const Pod killed = [] {
    Pod out = pod(0, 2).ended(137, "", "OOMKilled").finished_at(at_second(60));
    out.node_name = "node-2";
    out.started_at = kStart;
    return out;
  }();
  const Observed observed = seen(preflight_job(), {launcher_ended(0, 79, 2), peer_ended(1), killed});
  const api::Status status = status_after(observed, reconcile(observed));
  EXPECT_EQ(status.attempts.at(0).reason, "OOMKilled");
  EXPECT_EQ(status.attempts.at(0).pod, "bert-0-2");
  ASSERT_EQ(status.bad_nodes.size(), 1U);
  EXPECT_EQ(status.bad_nodes[0].name, "node-2");
  EXPECT_EQ(status.bad_nodes[0].avoidance, NodeAvoidance::kPreferred) << "one failure of the program";
}

// ---- restartScope Rank ----

Job preflight_job_by_rank() {
  Job out = preflight_job();
  out.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  return out;
}

// The others wait for the lost one, and its replacement would not join their preflight.
TEST(ReconcilePreflight, PodLostInThePreflightRestartsTheGroup) {
  Observed observed = seen(preflight_job_by_rank(),
                           {launcher_runs(0), launcher_runs(1), pod(0, 2).running().disrupted("Preempted").deleting()});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRestarting);
  Observed replaced = observed;
  replaced.last_poll = StatusPoll{.sent_at = observed.now, .answered = false, .reachable = true};
  EXPECT_EQ(status_after(replaced, reconcile(replaced)).replacements.size(), 1U);
  replaced = observed;
  replaced.job.status.startup = api::Startup{.attempt = 0, .scheduled = 1, .started = 2, .first_report = 3};
  EXPECT_EQ(status_after(replaced, reconcile(replaced)).replacements.size(), 1U) << "the present operator did not poll";
  replaced.job.status.startup->attempt = 7;
  EXPECT_EQ(status_after(replaced, reconcile(replaced)).phase, Phase::kRestarting);
}

TEST(ReconcilePreflight, ReplacedPodBlamesNoNode) {
  Observed observed = seen(preflight_job_by_rank(), {launcher_ended(0, 79, 2), peer_ended(1), launcher_runs(2)});
  observed.pods[2].uid = "replacement";
  api::Replacement& lost = observed.job.status.replacements.emplace_back();
  lost.node_rank = 2;
  lost.pod_uid = "uid-of-bert-0-2";
  lost.time = kStart;
  EXPECT_THAT(status_after(observed, reconcile(observed)).bad_nodes, IsEmpty());
}

// ---- The key of the Service ----

TEST(ReconcilePreflight, PodsWithDifferentKeysRestart) {
  Observed observed = seen(preflight_job(), {launcher_runs(0), launcher_runs(1), launcher_runs(2)});
  EXPECT_EQ(status_after(observed, reconcile(observed)).phase, Phase::kRunning);
  observed.pods[2].regroup_key = "another";
  const api::Status status = status_after(observed, reconcile(observed));
  EXPECT_EQ(status.phase, Phase::kRestarting);
  EXPECT_EQ(status.attempts.at(0).reason, "ServiceReplaced");
  EXPECT_EQ(status.restarts.charged, 0);
}

TEST(ReconcilePreflight, FailureWithoutANodeIsChargedAndAvoidsNone) {
  const Observed observed =
      seen(preflight_job(), {launcher_ended(0, 75, 0), launcher_ended(1, 75, 0), launcher_ended(2, 75, 0)});
  const api::Status status = status_after(observed, reconcile(observed));
  EXPECT_THAT(status.bad_nodes, IsEmpty());
  EXPECT_EQ(status.restarts.charged, 1);
  EXPECT_EQ(status.restarts.reasons.at(0).reason, kReasonPreflightFailed);
}

TEST(ReconcilePreflight, BudgetEndsAJobThatNeverPasses) {
  Job last = preflight_job();
  last.spec.failure_policy.max_restarts = 0;
  const Observed observed = seen(last, {launcher_ended(0, 75, 0), launcher_ended(1, 75, 0), launcher_ended(2, 75, 0)});
  const api::Status status = status_after(observed, reconcile(observed));
  EXPECT_EQ(status.phase, Phase::kFailed);
  EXPECT_EQ(condition_of(status, Phase::kFailed).reason, kMaxRestartsExceeded);
}

// ---- The environment of the pods ----

std::string pod_variable(const nlohmann::json& pod, const char* name) {
  for (const auto& variable : pod["spec"]["containers"][0]["env"]) {
    if (variable["name"] == name) return variable["value"];
  }
  return "";
}

TEST(ReconcilePreflight, LaunchersReceiveTheSettingsAndAToken) {
  Job of = preflight_job();
  of.spec.preflight->min_bandwidth_mbps = 1000;
  of.spec.preflight->max_latency_microseconds = 1500;
  of.spec.pod_template =
      R"({"spec":{"containers":[{"name":"trainer","image":"x","resources":{"limits":{"nvidia.com/gpu":"8"}}}]}})";
  const RegroupSecret secret{.token = "secret", .key_id = "key"};
  const nlohmann::json pod = PodFactory(of, 0, {}, secret).pod(0);
  EXPECT_EQ(pod_variable(pod, kEnvPreflight), "timeout=300,devices=8,bandwidth=1000,latency=1.5");
  EXPECT_EQ(pod_variable(pod, kEnvRegroupToken), "secret");
  EXPECT_EQ(pod["metadata"]["annotations"][kAnnotationRegroupKeyId], "key");
  EXPECT_EQ(pod_variable(pod, kEnvMaxRestarts), "") << "restartScope Group";
  EXPECT_EQ(pod_variable(PodFactory(of, 0, {}, secret).pod(0, /*is_replacement=*/true), kEnvReplacement), "1");
  EXPECT_EQ(pod_variable(PodFactory(of, 0).pod(0), kEnvPreflight), "") << "a Service without a key";
  of.spec.preflight = {};
  EXPECT_EQ(pod_variable(PodFactory(of, 0, {}, secret).pod(0), kEnvRegroupToken), "");
  EXPECT_TRUE(needs_token(preflight_job(), 2));
  EXPECT_FALSE(needs_token(preflight_job(), 1));
}

}  // namespace
}  // namespace oarlock::test
