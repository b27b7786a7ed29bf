// The life of a job: the operator as a process against a real kube-apiserver with the real controllers.
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/contract.h"
#include "tests/support/job_scenario.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

TEST_F(Scenario, CreatesServiceAndPodsWithEnvironment) {
  start_operator();
  const Json made = world_.create_job(
      "j", {{"nodes", 2},
            {"rendezvous", {{"port", 30000}}},
            {"trainer", {{"task", "mlp"}}},
            {"template",
             {{"metadata", {{"labels", {{"team", "red"}}}}},
              {"spec",
               {{"containers",
                 {{{"name", "trainer"},
                   {"image", "i"},
                   {"env", {{{"name", "MINE"}, {"value", "1"}}, {{"name", "RANK"}, {"value", "7"}}}}}}}}}}}});
  ASSERT_TRUE(eventually([&] { return world_.pod_names().size() == 2; }));
  EXPECT_THAT(world_.pod_names(), ElementsAre("j-0-0", "j-0-1"));
  const Json service = server_->call("GET", "/api/v1/namespaces/" + world_.namespace_name() + "/services/j").body;
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
  EXPECT_EQ(service["spec"]["ipFamilies"], Json({"IPv4", "IPv6"}));
  for (int rank = 0; rank < 2; ++rank) {
    const Json one = world_.pod("j-0-" + std::to_string(rank));
    std::map<std::string, std::string> env = environment(one);
    EXPECT_EQ(env["RANK"], std::to_string(rank));
    EXPECT_EQ(env["WORLD_SIZE"], "2");
    EXPECT_EQ(env["MASTER_ADDR"], "j-0-0.j." + world_.namespace_name() + ".svc");
    EXPECT_EQ(env["MASTER_PORT"], "30000");
    EXPECT_EQ(env["PET_NNODES"], "2");
    EXPECT_EQ(env["OARLOCK_ATTEMPT"], "0");
    EXPECT_EQ(Json(env["OARLOCK_UID"]), made["metadata"]["uid"]);
    EXPECT_EQ(env["MINE"], "1");
    EXPECT_EQ(one["spec"]["hostname"], "j-0-" + std::to_string(rank));
    EXPECT_EQ(one["spec"]["subdomain"], "j");
    EXPECT_EQ(one["spec"]["restartPolicy"], "Never");
    EXPECT_EQ(one["spec"]["automountServiceAccountToken"], false);
    EXPECT_EQ(one["metadata"]["labels"]["team"], "red");
    EXPECT_EQ(one["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    EXPECT_EQ(one["metadata"]["ownerReferences"][0]["controller"], true);
  }
  expect_events("j", {"Started", "EnvironmentOverridden"});
  expect_phase("j", "Pending");
}

TEST_F(Scenario, RunsAndCompletes) {
  start_operator();
  world_.create_job("j");
  set_pod("j-0-0", pod_running());
  set_pod("j-0-1", pod_running());
  expect_phase("j", "Running");
  EXPECT_TRUE(world_.has_condition("j", "Running", "True"));
  EXPECT_TRUE(world_.has_condition("j", "Pending", "False"));
  EXPECT_EQ(world_.status("j")["observedGeneration"], 1);
  EXPECT_EQ(world_.status("j")["worldSize"], 2);
  EXPECT_EQ(world_.status("j")["nodes"]["summary"], "2/2");
  set_pod("j-0-0", pod_ended(0));
  set_pod("j-0-1", pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_TRUE(world_.has_condition("j", "Complete", "True"));
  EXPECT_TRUE(world_.has_condition("j", "Running", "False"));
  EXPECT_TRUE(world_.status("j").contains("completionTime"));
  EXPECT_EQ(world_.status("j")["restarts"]["total"], 0);
  EXPECT_THAT(world_.pod_names(), ElementsAre("j-0-0", "j-0-1"));  // kept for their logs
  EXPECT_TRUE(
      eventually([&] { return operator_->metric("trainingjob_jobs_finished_total", {"result=\"Complete\""}) == 1; }));
}

TEST_F(Scenario, OneDeadRankRestartsGroupOnce) {
  start_operator();
  world_.create_job("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  set_pod("j-0-1", pod_ended(137));
  expect_attempt("j", 1);
  EXPECT_TRUE(eventually([&] { return world_.live_pods() == std::set<std::string>{"j-1-0", "j-1-1"}; }));
  EXPECT_EQ(restarts_of("j"), restarts(1));
  EXPECT_TRUE(world_.has_condition("j", "Restarting", "True"));
  const Json record = world_.status("j")["attempts"][0];
  EXPECT_EQ(record["pod"], "j-0-1");
  EXPECT_EQ(record["exitCode"], 137);
  std::map<std::string, std::string> env = environment(world_.pod("j-1-1"));
  EXPECT_EQ(env["OARLOCK_ATTEMPT"], "1");
  EXPECT_EQ(env["MASTER_ADDR"], "j-1-0.j." + world_.namespace_name() + ".svc");
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
  set_group("j", 1, pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(restarts_of("j"), restarts(1));
  expect_events("j", {"Restarting"});
  EXPECT_THAT(world_.event_reasons("j"), Contains("Restarting").Times(1));
}

TEST_F(Scenario, FailsAfterMaxRestarts) {
  start_operator();
  world_.create_job("j", {{"failurePolicy", {{"maxRestarts", 1}}}});
  set_pod("j-0-1", pod_running());
  set_pod("j-0-0", pod_ended(1));
  expect_attempt("j", 1);
  set_pod("j-1-1", pod_running());
  set_pod("j-1-0", pod_ended(1));
  expect_phase("j", "Failed");
  EXPECT_EQ(restarts_of("j"), restarts(1));
  EXPECT_EQ(world_.status("j")["attempt"], 1);
  EXPECT_TRUE(world_.has_condition("j", "Failed", "True"));
  EXPECT_TRUE(eventually([&] { return world_.live_pods().empty(); }));  // a failed job must not occupy accelerators
}

TEST_F(Scenario, PermanentErrorFailsImmediately) {
  start_operator();
  world_.create_job("j");
  set_group("j", 0, pod_running());
  set_pod(
      "j-0-0",
      pod_ended(78, R"({"rank":0,"step":0,"checkpointStep":-1,"reason":"ConfigInvalid","message":"no such task"})"));
  expect_phase("j", "Failed");
  EXPECT_EQ(world_.status("j")["restarts"]["total"], 0);
  EXPECT_EQ(world_.status("j")["attempt"], 0);
  EXPECT_THAT(world_.status("j").dump(), HasSubstr("no such task"));
  EXPECT_TRUE(eventually([&] { return world_.live_pods().empty(); }));
}

TEST_F(Scenario, KilledOperatorNeitherLosesNorRepeatsWork) {
  start_operator();
  world_.create_job("j", {{"failurePolicy", {{"maxRestarts", 2}, {"backoffSeconds", 0}}}});
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  kill_operator();
  set_pod("j-0-1", pod_ended(137));  // while no operator runs
  start_operator();
  expect_attempt("j", 1);
  kill_operator();  // during the restart of the group
  start_operator();
  EXPECT_TRUE(eventually([&] { return world_.live_pods() == std::set<std::string>{"j-1-0", "j-1-1"}; }));
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
  kill_operator();
  set_pod("j-1-0", pod_ended(137));
  set_pod("j-1-1", pod_ended(76));  // collateral: it lost its peer
  start_operator();
  expect_attempt("j", 2);
  set_group("j", 2, pod_running());
  kill_operator();
  set_group("j", 2, pod_ended(0));
  start_operator();
  expect_phase("j", "Complete");
  EXPECT_EQ(restarts_of("j"), restarts(2));
  EXPECT_EQ(world_.status("j")["attempt"], 2);
  EXPECT_EQ(world_.status("j")["attempts"].size(), 2u);
  EXPECT_EQ(world_.status("j")["attempts"][1]["pod"], "j-1-0");
  EXPECT_THAT(world_.live_pods(), IsEmpty());
}

TEST_F(Scenario, SucceededJobCompletesEvenIfSuspended) {
  start_operator();
  world_.create_job("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  kill_operator();
  set_group("j", 0, pod_ended(0));
  ASSERT_TRUE(server_->call("PATCH", world_.jobs() + "/j", {{"spec", {{"suspend", true}}}}).ok());
  start_operator();
  expect_phase("j", "Complete");
}

TEST_F(Scenario, DeletedJobLeavesNoObjects) {
  start_operator();
  world_.create_job("gone");
  ASSERT_TRUE(eventually([&] { return world_.pod_names().size() == 2; }));
  ASSERT_TRUE(server_->call("DELETE", world_.jobs() + "/gone", {{"propagationPolicy", "Background"}}).ok());
  EXPECT_TRUE(eventually([&] { return world_.pod_names().empty(); }));
  EXPECT_TRUE(
      eventually([&] { return !world_.exists("/api/v1/namespaces/" + world_.namespace_name() + "/services/gone"); }));
  // Running another job gives the operator time to recreate objects by mistake.
  world_.create_job("other");
  set_group("other", 0, pod_running());
  expect_phase("other", "Running");
  EXPECT_THAT(world_.pod_names(), ElementsAre("other-0-0", "other-0-1"));
}

TEST_F(Scenario, NewJobOfSameNameGetsOwnPods) {
  start_operator();
  world_.create_job("j");
  ASSERT_TRUE(eventually([&] { return world_.pod_names().size() == 2; }));
  set_pod("j-0-1", pod_ended(1));
  expect_attempt("j", 1);
  ASSERT_TRUE(server_->call("DELETE", world_.jobs() + "/j", {{"propagationPolicy", "Background"}}).ok());
  const std::string uid = world_.create_job("j")["metadata"]["uid"];
  const auto owned = [&](const std::string& name) {
    const Json one = world_.pod(name);
    return one.contains("metadata") && one["metadata"].contains("ownerReferences") &&
           one["metadata"]["ownerReferences"][0]["uid"] == uid;
  };
  EXPECT_TRUE(eventually([&] { return owned("j-0-0") && owned("j-0-1"); }));
  EXPECT_TRUE(eventually([&] { return world_.pod_names() == std::set<std::string>{"j-0-0", "j-0-1"}; }));
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  EXPECT_EQ(world_.status("j")["restarts"]["total"], 0);  // the status is written after the pods
  EXPECT_THAT(world_.event_reasons("j"), Not(Contains("NameTaken")));
}

TEST_F(Scenario, ConditionsOfOtherControllersAreKept) {
  start_operator();
  world_.create_job("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  const Json reviewed = {{"type", "Reviewed"},
                         {"status", "Unknown"},
                         {"reason", "Waiting"},
                         {"message", "m"},
                         {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
  // The operator may write at the same time; then the resourceVersion does not match, and both are right.
  ASSERT_TRUE(eventually([&] {
    Json seen = world_.job("j");
    Json conditions = seen["status"]["conditions"];
    conditions.insert(conditions.begin(), reviewed);
    return server_
        ->call("PATCH", world_.jobs() + "/j/status",
               {{"metadata", {{"resourceVersion", seen["metadata"]["resourceVersion"]}}},
                {"status", {{"conditions", conditions}}}})
        .ok();
  }));
  set_group("j", 0, pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(world_.status("j")["conditions"][0], reviewed);
  EXPECT_TRUE(world_.has_condition("j", "Complete", "True"));
}

TEST_F(Scenario, PodOfAnotherOwnerIsReportedAsNameTaken) {
  const Reply made =
      server_->call("POST", world_.pods(),
                    {{"metadata", {{"name", "j-0-1"}}}, {"spec", {{"containers", {{{"name", "c"}, {"image", "i"}}}}}}});
  ASSERT_TRUE(made.ok()) << made.message();
  start_operator();
  world_.create_job("j");
  EXPECT_TRUE(eventually([&] { return world_.has_condition("j", "Pending", "True", "NameTaken"); }))
      << world_.status("j").dump(1);
  EXPECT_THAT(world_.status("j").dump(), HasSubstr("j-0-1"));
  EXPECT_EQ(world_.pod("j-0-1")["metadata"]["resourceVersion"].get<std::string>().empty(), false);
  EXPECT_EQ(world_.pod("j-0-1")["metadata"]["uid"], made.body["metadata"]["uid"]);
  EXPECT_FALSE(world_.pod("j-0-1")["metadata"].contains("ownerReferences"));
  // The pod is deleted; a change of the job causes an immediate reconcile.
  ASSERT_TRUE(server_->call("DELETE", world_.pods() + "/j-0-1", {{"gracePeriodSeconds", 0}}).ok());
  ASSERT_TRUE(
      server_->call("PATCH", world_.jobs() + "/j", {{"metadata", {{"annotations", {{"look", "again"}}}}}}).ok());
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
}

TEST_F(Scenario, WritesNothingAtRest) {
  start_operator();
  world_.create_job("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  const auto writes = [&] {
    double sum = 0;
    for (const char* method : {"POST", "PATCH", "DELETE", "PUT"}) {
      sum += operator_->metric("rest_client_requests_total", {"method=\"" + std::string(method) + "\""});
    }
    return sum;
  };
  const auto reconciles = [&] { return operator_->metric("controller_runtime_reconcile_total"); };
  ASSERT_TRUE(eventually(
      [&] { return world_.event_reasons("j").size() == 2 && world_.status("j")["nodes"].value("ready", 0) == 2; }));
  // Each irrelevant change of a pod causes a reconcile. Writes that were still pending may happen first.
  int quiet = 0;
  for (int i = 0; i < 20 && quiet < 5; ++i) {
    const double before = writes();
    const double seen = reconciles();
    ASSERT_TRUE(
        server_->call("PATCH", world_.pods() + "/j-0-0", {{"metadata", {{"annotations", {{"n", std::to_string(i)}}}}}})
            .ok());
    ASSERT_TRUE(eventually([&] { return reconciles() > seen; }));
    quiet = writes() == before ? quiet + 1 : 0;
  }
  EXPECT_EQ(quiet, 5) << "the operator writes at rest";
}

TEST_F(Scenario, IgnoresOtherNamespaces) {
  start_operator();
  JobWorld other(*server_, server_->make_namespace());
  other.create_job("j");
  world_.create_job("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  EXPECT_THAT(other.pod_names(), IsEmpty());
  EXPECT_EQ(other.phase("j"), "");
}

TEST_F(Scenario, RunsWithManifestPermissionsAndStopsGracefully) {
  server_->apply(test::source_path("manifests/install.yaml"));
  const auto token_of = [&](const std::string& account) {
    const Reply token = server_->call("POST", "/api/v1/namespaces/oarlock-system/serviceaccounts/" + account + "/token",
                                      {{"apiVersion", "authentication.k8s.io/v1"},
                                       {"kind", "TokenRequest"},
                                       {"spec", {{"expirationSeconds", 3600}}}});
    EXPECT_TRUE(token.ok()) << token.message();
    return token.body["status"]["token"].get<std::string>();
  };
  const std::string token = token_of("oarlock-operator");
  // The administrator's kubeconfig with the certificate replaced by the token.
  std::string text = content(server_->kubeconfig());
  text = text.substr(0, text.find("    client-certificate-data:")) + "    tokenFile: token\n";
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "kubeconfig") << text;
  std::ofstream(directory.path() / "token") << token;
  operator_ = std::make_unique<OperatorProcess>(
      std::vector<std::string>{"--kubeconfig", (directory.path() / "kubeconfig").string(), "--leader-elect",
                               "--leader-elect-resource-namespace", "oarlock-system", "--protect-metrics"});
  ASSERT_TRUE(eventually([&] { return operator_->logged("this operator is the leader"); })) << operator_->log();
  ASSERT_TRUE(
      server_
          ->call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
                 {{"metadata", {{"name", "scraper"}}},
                  {"roleRef",
                   {{"apiGroup", "rbac.authorization.k8s.io"},
                    {"kind", "ClusterRole"},
                    {"name", "oarlock-metrics-reader"}}},
                  {"subjects",
                   {{{"kind", "ServiceAccount"}, {"name", "oarlock-operator"}, {"namespace", "oarlock-system"}}}}})
          .ok());
  // /metrics requires authorization: without a token, without the permission, and with it.
  EXPECT_EQ(operator_->get("/metrics").status, 401);
  ASSERT_TRUE(eventually([&] { return world_.exists("/api/v1/namespaces/oarlock-system/serviceaccounts/default"); }));
  operator_->use_token(token_of("default"));
  EXPECT_EQ(operator_->get("/metrics").status, 403);
  operator_->use_token(token);
  ASSERT_TRUE(eventually([&] { return operator_->get("/metrics").status == 200; }));
  EXPECT_EQ(operator_->get("/healthz").status, 200);
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  world_.create_job("j", {{"failurePolicy", {{"maxRestarts", 1}}}});
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  set_pod("j-0-1", pod_ended(137));
  expect_attempt("j", 1);
  set_group("j", 1, pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_TRUE(eventually([&] { return world_.event_reasons("j").size() >= 4; }));
  EXPECT_EQ(operator_->metric("rest_client_requests_total", {"code=\"403\""}), 0);
  EXPECT_EQ(operator_->metric("controller_runtime_reconcile_errors_total"), 0) << operator_->log();
  operator_->program().signal(SIGTERM);
  EXPECT_EQ(operator_->program().wait(), 0);
  EXPECT_TRUE(operator_->logged("\"msg\":\"stopped\""));
}

}  // namespace
}  // namespace oarlock::test
