// The members of a job's group, with the operator as a process against a real kube-apiserver with the real controllers:
// ranks that finish, pods that are lost or replaced, and groups that change their size.
#include <gmock/gmock.h>

#include <csignal>
#include <map>
#include <set>
#include <string>

#include "tests/support/job_scenario.h"

namespace oarlock::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class Membership : public Scenario {};

// One of two pods is lost twice: first its object is removed, then it is killed. The other pod is the same throughout.
TEST_F(Membership, ReplacesALostPodAlone) {
  start_operator();
  world_.create_job("j", {{"nodes", 2}, {"failurePolicy", {{"restartScope", "Rank"}, {"maxRestarts", 2}}}});
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  const Json survivor = world_.pod("j-0-0");
  std::map<std::string, std::string> first = environment(world_.pod("j-0-1"));
  EXPECT_EQ(first["OARLOCK_RESTART_POLICY"], "rank");
  EXPECT_EQ(first["OARLOCK_REGROUP_TOKEN"].size(), 64u);
  EXPECT_EQ(first["OARLOCK_REGROUP_TOKEN"], environment(survivor)["OARLOCK_REGROUP_TOKEN"]);
  EXPECT_FALSE(first.contains("OARLOCK_REPLACEMENT"));

  const auto uid_of_second = [&] {
    const Json pod = world_.pod("j-0-1");
    return pod.contains("metadata") ? pod["metadata"].value("uid", "") : "";
  };
  for (int lost = 1; lost <= 2; ++lost) {
    const std::string uid = uid_of_second();
    if (lost == 1) {
      ASSERT_TRUE(server_->call("DELETE", world_.pods() + "/j-0-1").ok());
    } else {
      world_.set_pod("j-0-1", pod_ended(137));
    }
    const auto is_replaced = [&] {
      const std::string present = uid_of_second();
      return !present.empty() && present != uid;
    };
    ASSERT_TRUE(eventually(is_replaced)) << world_.status("j").dump(1);
    std::map<std::string, std::string> second = environment(world_.pod("j-0-1"));
    EXPECT_EQ(second["OARLOCK_REPLACEMENT"], "1");
    EXPECT_EQ(second["OARLOCK_REGROUP_TOKEN"], first["OARLOCK_REGROUP_TOKEN"]);
    EXPECT_EQ(world_.status("j")["replacements"].size(), 1u);
    world_.set_pod("j-0-1", pod_running());
    ASSERT_TRUE(eventually([&] { return world_.status("j")["replacements"].empty(); })) << world_.status("j").dump(1);
    EXPECT_EQ(world_.status("j")["recoveries"]["pods"], lost);
    EXPECT_EQ(world_.status("j")["recoveries"]["charged"], lost);
  }
  expect_phase("j", "Running");
  EXPECT_EQ(world_.pod("j-0-0")["metadata"]["uid"], survivor["metadata"]["uid"]);
  EXPECT_EQ(world_.status("j")["attempt"], 0);
  EXPECT_EQ(restarts_of("j"), restarts(0));
  expect_events("j", {"ReplacingPod"});

  ASSERT_TRUE(server_->call("DELETE", world_.pods() + "/j-0-1").ok());
  expect_phase("j", "Failed");
  EXPECT_TRUE(world_.has_condition("j", "Failed", "True", "MaxRestartsExceeded"));
}

TEST_F(Membership, FinishedRankStaysFinishedWithoutPod) {
  start_operator();
  world_.create_job("j", {{"failurePolicy", {{"maxRestarts", 0}}}});
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  set_pod("j-0-1", pod_ended(0));
  EXPECT_TRUE(eventually([&] {
    return world_.status("j")["finishedRanks"] == Json({{"attempt", 0}, {"nodeRanks", "1"}});
  })) << world_.status("j").dump(1);
  EXPECT_EQ(world_.status("j")["nodes"]["summary"], "1/2") << "READY counts no pod that has ended";
  const double looks = operator_->metric("controller_runtime_reconcile_total");
  ASSERT_TRUE(server_->call("DELETE", world_.pods() + "/j-0-1").ok());
  EXPECT_TRUE(eventually([&] { return operator_->metric("controller_runtime_reconcile_total") > looks; }));
  EXPECT_EQ(restarts_of("j"), restarts(0));
  // The record outlives the operator.
  kill_operator();
  start_operator();
  set_pod("j-0-0", pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(restarts_of("j"), restarts(0));
  EXPECT_EQ(world_.status("j")["nodes"]["succeeded"], 2);
  EXPECT_THAT(world_.pod_names(), ElementsAre("j-0-0"));
}

// The operator is stopped in between, so that it receives the success and the removal together.
TEST_F(Membership, PodRemovedRightAfterSuccessIsFinished) {
  start_operator();
  world_.create_job("j", {{"failurePolicy", {{"maxRestarts", 0}}}});
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  operator_->program().signal(SIGSTOP);
  set_pod("j-0-1", pod_ended(0));
  ASSERT_TRUE(server_->call("DELETE", world_.pods() + "/j-0-1").ok());
  operator_->program().signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return world_.status("j").contains("finishedRanks"); })) << world_.status("j").dump(1);
  set_pod("j-0-0", pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(restarts_of("j"), restarts(0));
}

// The finalizer holds the pod while it is being deleted, as its kubelet would.
TEST_F(Membership, ExitCodeZeroDuringSuspensionOrDrainIsNotSuccess) {
  start_operator();
  for (const char* name : {"suspended", "drained"}) {
    world_.create_job(name, {{"nodes", 1}, {"failurePolicy", {{"maxRestarts", 0}}}});
    const std::string first = std::string(name) + "-0-0";
    set_pod(first, pod_running());
    const Json held = {{"metadata", {{"finalizers", {"test.oarlock.dev/kubelet"}}}}};
    ASSERT_TRUE(server_->call("PATCH", world_.pods() + "/" + first, held).ok());
    expect_phase(name, "Running");
  }
  const auto let_go = [&](const std::string& name) {
    return server_->call("PATCH", world_.pods() + "/" + name, {{"metadata", {{"finalizers", nullptr}}}}).ok();
  };

  ASSERT_TRUE(server_->call("PATCH", world_.jobs() + "/suspended", {{"spec", {{"suspend", true}}}}).ok());
  ASSERT_TRUE(eventually([&] { return world_.pod("suspended-0-0")["metadata"].contains("deletionTimestamp"); }));
  set_pod("suspended-0-0", pod_ended(0));
  EXPECT_TRUE(eventually([&] { return world_.status("suspended")["nodes"].value("failed", 0) == 1; }))
      << world_.status("suspended").dump(1);
  EXPECT_EQ(world_.phase("suspended"), "Suspended");
  ASSERT_TRUE(let_go("suspended-0-0"));
  ASSERT_TRUE(server_->call("PATCH", world_.jobs() + "/suspended", {{"spec", {{"suspend", false}}}}).ok());
  set_pod("suspended-1-0", pod_running());
  expect_phase("suspended", "Running");

  Json evicted = pod_running();
  evicted["conditions"].push_back(
      {{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "EvictionByEvictionAPI"}});
  Json gone = pod_ended(0);
  gone["conditions"] = evicted["conditions"];
  set_pod("drained-0-0", gone);
  ASSERT_TRUE(let_go("drained-0-0"));
  expect_attempt("drained", 1);
  EXPECT_EQ(restarts_of("drained"),
            Json::parse(R"({"total": 1, "charged": 0, "reasons": [{"reason": "Disrupted", "count": 1}]})"));
}

// The pods have a node, so that a deletion has a grace period. The test is the kubelet that ends them.
TEST_F(Membership, NextAttemptWaitsForStoppedPods) {
  start_operator();
  for (const char* name : {"drained", "suspended"}) {
    world_.create_job(name, {{"nodes", 1}});
    const std::string first = std::string(name) + "-0-0";
    set_pod(first, Json::object());
    world_.call("POST", world_.pods() + "/" + first + "/binding",
                {{"apiVersion", "v1"},
                 {"kind", "Binding"},
                 {"metadata", {{"name", first}}},
                 {"target", {{"kind", "Node"}, {"name", "node-1"}}}});
    set_pod(first, pod_running());
    expect_phase(name, "Running");
  }
  world_.call("DELETE", world_.pods() + "/drained-0-0");
  EXPECT_TRUE(eventually([&] { return world_.has_condition("drained", "Restarting", "True", "PodDeleted"); }));
  world_.patch_job("suspended", {{"spec", {{"suspend", true}}}});
  EXPECT_TRUE(eventually([&] { return world_.has_condition("suspended", "Suspended", "False", "StoppingPods"); }));
  world_.patch_job("suspended", {{"spec", {{"suspend", false}}}});
  EXPECT_TRUE(eventually([&] {
    const Json job = world_.job("suspended");
    return job["status"]["observedGeneration"] == job["metadata"]["generation"];
  }));
  EXPECT_EQ(world_.pod_names(), (std::set<std::string>{"drained-0-0", "suspended-0-0"}));
  EXPECT_THAT(world_.status("drained").dump(), HasSubstr("waiting for 1 pod of earlier attempts to save"));
  for (const char* name : {"drained", "suspended"}) {
    set_pod(std::string(name) + "-0-0", pod_ended(75));
    set_pod(std::string(name) + "-1-0", pod_running());
    expect_phase(name, "Running");
  }
  EXPECT_EQ(world_.status("suspended")["restarts"].value("total", 0), 0);
}

// One pod gets no node: the group shrinks, grows back, is scaled, and completes with the size that it has then.
TEST_F(Membership, ElasticGroupShrinksGrowsAndScales) {
  const auto world_size = [&](const char* pod) { return environment(world_.pod(pod))["WORLD_SIZE"]; };
  const auto set_elastic = [&](int shrink_after, int grow_after) {
    world_.patch_job(
        "j", {{"spec", {{"elastic", {{"shrinkAfterSeconds", shrink_after}, {"growAfterSeconds", grow_after}}}}}});
  };
  start_operator();
  world_.create_job("j",
                    {{"nodes", 2}, {"elastic", {{"minNodes", 1}, {"shrinkAfterSeconds", 1}, {"growAfterSeconds", 0}}}});
  set_pod("j-0-0", pod_running());
  expect_attempt("j", 1);
  set_elastic(600, 0);
  EXPECT_TRUE(eventually([&] { return world_.live_pods() == std::set<std::string>{"j-1-0"}; }));
  EXPECT_EQ(world_size("j-1-0"), "1");
  set_pod("j-1-0", pod_running());
  expect_phase("j", "Running");
  const Json shrunk = world_.status("j");
  EXPECT_EQ(shrunk["worldSize"], 1);
  EXPECT_EQ(shrunk["nodes"]["summary"], "1/1");
  EXPECT_EQ(restarts_of("j"),
            Json::parse(R"({"total": 1, "charged": 0, "reasons": [{"reason": "Shrunk", "count": 1}]})"));
  EXPECT_EQ(shrunk["attempts"][0]["reason"], "Shrunk");
  EXPECT_TRUE(eventually([&] { return operator_->metric("trainingjob_restarts_total", {"reason=\"Shrunk\""}) == 1; }));

  // The size survives the operator.
  kill_operator();
  start_operator();
  set_elastic(600, 1);
  expect_attempt("j", 2);
  EXPECT_TRUE(eventually([&] { return world_.live_pods() == std::set<std::string>{"j-2-0", "j-2-1"}; }));
  EXPECT_EQ(world_size("j-2-1"), "2");
  set_group("j", 2, pod_running());
  expect_phase("j", "Running");

  ASSERT_TRUE(server_->call("PATCH", world_.jobs() + "/j/scale", {{"spec", {{"replicas", 1}}}}).ok());
  expect_attempt("j", 3);
  EXPECT_TRUE(eventually([&] { return world_.live_pods() == std::set<std::string>{"j-3-0"}; }));
  EXPECT_EQ(server_->call("GET", world_.jobs() + "/j/scale").body["status"]["replicas"], 1);
  set_pod("j-3-0", pod_running());
  expect_phase("j", "Running");
  set_pod("j-3-0", pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(world_.status("j")["restarts"]["charged"], 0);
  EXPECT_EQ(world_.status("j")["restarts"]["total"], 3);
  expect_events("j", {"Shrunk", "Grown", "Scaled"});
}

}  // namespace
}  // namespace oarlock::test
