// The operator as a process against a real kube-apiserver with the real controllers. There are no nodes: the test plays
// the kubelets and writes the pods' status.
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <set>

#include "common/contract.h"
#include "common/http/server.h"
#include "tests/support/api_server.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

Json container_status(const Json& state) {
  return {{"name", "trainer"}, {"image", "x"},  {"imageID", "x"}, {"ready", state.contains("running")},
          {"restartCount", 0}, {"state", state}};
}

Json running(const std::string& ip = "") {
  Json status = {
      {"phase", "Running"},
      {"conditions", {{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "True"}}}},
      {"containerStatuses", {container_status({{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}})}}};
  if (!ip.empty()) {
    status["podIP"] = ip;
    status["podIPs"] = {{{"ip", ip}}};
  }
  return status;
}

Json ended(int exit_code, const std::string& message = "") {
  return {
      {"phase", exit_code == 0 ? "Succeeded" : "Failed"},
      {"conditions", {{{"type", "PodScheduled"}, {"status", "True"}}, {{"type", "Ready"}, {"status", "False"}}}},
      {"containerStatuses",
       {container_status(
           {{"terminated",
             {{"exitCode", exit_code}, {"reason", exit_code == 0 ? "Completed" : "Error"}, {"message", message}}}})}}};
}

std::map<std::string, std::string> environment(const Json& pod) {
  std::map<std::string, std::string> out;
  for (const Json& variable : pod["spec"]["containers"][0]["env"]) out[variable["name"]] = variable.value("value", "");
  return out;
}

class Scenario : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override { ns_ = server_->make_namespace(); }
  void TearDown() override {
    if (HasFailure() && operator_) std::cerr << "---- the operator's log\n" << operator_->log();
    operator_.reset();
  }

  void start_operator() {
    operator_.reset();
    operator_ = std::make_unique<OperatorProcess>(std::vector<std::string>{"--kubeconfig", server_->kubeconfig(),
                                                                           "--namespace", ns_, "--progress-interval",
                                                                           "0.2", "--log-level", "debug"});
  }
  void kill_operator() {
    operator_->program().signal(SIGKILL);
    EXPECT_EQ(operator_->program().wait(), 128 + SIGKILL);
  }

  std::string jobs() const { return "/apis/oarlock.dev/v1alpha1/namespaces/" + ns_ + "/trainingjobs"; }
  std::string pods() const { return "/api/v1/namespaces/" + ns_ + "/pods"; }

  Json create_job(const std::string& name, Json spec = {}) {
    if (spec.is_null()) spec = Json::object();
    if (!spec.contains("nodes")) spec["nodes"] = 2;
    if (!spec.contains("template")) {
      spec["template"] = {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/trainer"}}}}}}};
    }
    const Reply reply = server_->call(
        "POST", jobs(), {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", name}}}, {"spec", spec}});
    EXPECT_EQ(reply.status, 201) << reply.message();
    return reply.body;
  }
  Json job(const std::string& name) { return server_->call("GET", jobs() + "/" + name).body; }
  Json status(const std::string& name) { return job(name).value("status", Json::object()); }
  std::string phase(const std::string& name) { return status(name).value("phase", ""); }
  Json pod(const std::string& name) { return server_->call("GET", pods() + "/" + name).body; }
  bool exists(const std::string& target) { return server_->call("GET", target).status != 404; }

  Json items(const std::string& target) { return server_->call("GET", target).body["items"]; }
  std::set<std::string> pod_names() {
    std::set<std::string> names;
    for (const Json& item : items(pods())) names.insert(item["metadata"]["name"]);
    return names;
  }
  // Live pods: those that have not ended and are not going away.
  std::set<std::string> live_pods() {
    std::set<std::string> names;
    for (const Json& item : items(pods())) {
      const std::string now = item["status"].value("phase", "");
      if (now != "Failed" && now != "Succeeded" && !item["metadata"].contains("deletionTimestamp"))
        names.insert(item["metadata"]["name"]);
    }
    return names;
  }
  bool has_condition(const std::string& name, const std::string& type, const std::string& value,
                     const std::string& reason = "") {
    const Json all = status(name).value("conditions", Json::array());
    for (const Json& condition : all) {
      if (condition["type"] == type)
        return condition["status"] == value && (reason.empty() || condition["reason"] == reason);
    }
    return false;
  }
  std::vector<std::string> event_reasons(const std::string& name) {
    std::vector<std::string> reasons;
    for (const Json& item : items("/apis/events.k8s.io/v1/namespaces/" + ns_ + "/events")) {
      if (item["regarding"].value("kind", "") == kKind && item["regarding"].value("name", "") == name)
        reasons.push_back(item["reason"]);
    }
    return reasons;
  }

  void set_pod(const std::string& name, const Json& pod_status) {
    ASSERT_TRUE(eventually([&] { return exists(pods() + "/" + name); })) << "no pod " << name;
    const Reply reply = server_->call("PATCH", pods() + "/" + name + "/status", {{"status", pod_status}});
    ASSERT_TRUE(reply.ok()) << reply.message();
  }
  void set_group(const std::string& name, int attempt, const Json& pod_status) {
    for (int rank = 0; rank < 2; ++rank)
      set_pod(name + "-" + std::to_string(attempt) + "-" + std::to_string(rank), pod_status);
  }
  void expect_phase(const std::string& name, const std::string& wanted) {
    EXPECT_TRUE(eventually([&] { return phase(name) == wanted; }))
        << "phase " << phase(name) << " instead of " << wanted << ": " << status(name).dump(1);
  }
  void expect_attempt(const std::string& name, int attempt) {
    EXPECT_TRUE(eventually([&] { return status(name).value("attempt", -1) == attempt; })) << status(name).dump(1);
  }
  static Json restarts(int total, const char* reason = "PodFailed") {
    Json out = {{"total", total}, {"charged", total}, {"reasons", Json::array()}};
    if (total > 0) out["reasons"] = {{{"reason", reason}, {"count", total}}};
    return out;
  }

  static inline std::unique_ptr<ApiServer> server_;
  std::unique_ptr<OperatorProcess> operator_;
  std::string ns_;
};

TEST_F(Scenario, AJobGetsItsServiceAndPodsWithTheContract) {
  start_operator();
  const Json made = create_job(
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
  ASSERT_TRUE(eventually([&] { return pod_names().size() == 2; }));
  EXPECT_THAT(pod_names(), ElementsAre("j-0-0", "j-0-1"));
  const Json service = server_->call("GET", "/api/v1/namespaces/" + ns_ + "/services/j").body;
  EXPECT_EQ(service["spec"]["clusterIP"], "None");
  EXPECT_EQ(service["spec"]["publishNotReadyAddresses"], true);
  EXPECT_EQ(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
  EXPECT_EQ(service["spec"]["ipFamilies"], Json({"IPv4", "IPv6"}));
  for (int rank = 0; rank < 2; ++rank) {
    const Json one = pod("j-0-" + std::to_string(rank));
    std::map<std::string, std::string> env = environment(one);
    EXPECT_EQ(env["RANK"], std::to_string(rank));
    EXPECT_EQ(env["WORLD_SIZE"], "2");
    EXPECT_EQ(env["MASTER_ADDR"], "j-0-0.j." + ns_ + ".svc");
    EXPECT_EQ(env["MASTER_PORT"], "30000");
    EXPECT_EQ(env["PET_NNODES"], "2");
    EXPECT_EQ(env["OARLOCK_ATTEMPT"], "0");
    EXPECT_EQ(env["OARLOCK_UID"], made["metadata"]["uid"]);
    EXPECT_EQ(env["MINE"], "1");
    EXPECT_EQ(one["spec"]["hostname"], "j-0-" + std::to_string(rank));
    EXPECT_EQ(one["spec"]["subdomain"], "j");
    EXPECT_EQ(one["spec"]["restartPolicy"], "Never");
    EXPECT_EQ(one["spec"]["automountServiceAccountToken"], false);
    EXPECT_EQ(one["metadata"]["labels"]["team"], "red");
    EXPECT_EQ(one["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    EXPECT_EQ(one["metadata"]["ownerReferences"][0]["controller"], true);
  }
  EXPECT_TRUE(eventually([&] { return event_reasons("j").size() >= 2; }));
  EXPECT_THAT(event_reasons("j"), Contains("Started"));
  EXPECT_THAT(event_reasons("j"), Contains("EnvironmentOverridden"));
  expect_phase("j", "Pending");
}

TEST_F(Scenario, RunsAndCompletes) {
  start_operator();
  create_job("j");
  set_pod("j-0-0", running());
  set_pod("j-0-1", running());
  expect_phase("j", "Running");
  EXPECT_TRUE(has_condition("j", "Running", "True"));
  EXPECT_TRUE(has_condition("j", "Pending", "False"));
  EXPECT_EQ(status("j")["observedGeneration"], 1);
  EXPECT_EQ(status("j")["worldSize"], 2);
  EXPECT_EQ(status("j")["nodes"]["summary"], "2/2");
  set_pod("j-0-0", ended(0));
  set_pod("j-0-1", ended(0));
  expect_phase("j", "Complete");
  EXPECT_TRUE(has_condition("j", "Complete", "True"));
  EXPECT_TRUE(has_condition("j", "Running", "False"));
  EXPECT_TRUE(status("j").contains("completionTime"));
  EXPECT_EQ(status("j")["restarts"]["total"], 0);
  EXPECT_THAT(pod_names(), ElementsAre("j-0-0", "j-0-1"));  // kept for their logs
  EXPECT_TRUE(
      eventually([&] { return operator_->metric("trainingjob_jobs_finished_total", {"result=\"Complete\""}) == 1; }));
}

TEST_F(Scenario, OneDeadRankRestartsTheGroupOnce) {
  start_operator();
  create_job("j");
  set_group("j", 0, running());
  expect_phase("j", "Running");
  set_pod("j-0-1", ended(137));
  expect_attempt("j", 1);
  EXPECT_TRUE(eventually([&] { return live_pods() == std::set<std::string>{"j-1-0", "j-1-1"}; }));
  EXPECT_EQ(status("j")["restarts"], restarts(1));
  EXPECT_TRUE(has_condition("j", "Restarting", "True"));
  const Json record = status("j")["attempts"][0];
  EXPECT_EQ(record["pod"], "j-0-1");
  EXPECT_EQ(record["exitCode"], 137);
  std::map<std::string, std::string> env = environment(pod("j-1-1"));
  EXPECT_EQ(env["OARLOCK_ATTEMPT"], "1");
  EXPECT_EQ(env["MASTER_ADDR"], "j-1-0.j." + ns_ + ".svc");
  set_group("j", 1, running());
  expect_phase("j", "Running");
  set_group("j", 1, ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(status("j")["restarts"], restarts(1));
  EXPECT_THAT(event_reasons("j"), Contains("Restarting").Times(1));
}

TEST_F(Scenario, MoreFailuresThanAllowedFailTheJob) {
  start_operator();
  create_job("j", {{"failurePolicy", {{"maxRestarts", 1}}}});
  set_pod("j-0-0", ended(1));
  expect_attempt("j", 1);
  set_pod("j-1-1", running());
  set_pod("j-1-0", ended(1));
  expect_phase("j", "Failed");
  EXPECT_EQ(status("j")["restarts"], restarts(1));
  EXPECT_EQ(status("j")["attempt"], 1);
  EXPECT_TRUE(has_condition("j", "Failed", "True"));
  EXPECT_TRUE(eventually([&] { return live_pods().empty(); }));  // nobody burns accelerators for a dead job
}

TEST_F(Scenario, APermanentErrorFailsAtOnce) {
  start_operator();
  create_job("j");
  set_group("j", 0, running());
  set_pod("j-0-0",
          ended(78, R"({"rank":0,"step":0,"checkpointStep":-1,"reason":"ConfigInvalid","message":"no such task"})"));
  expect_phase("j", "Failed");
  EXPECT_EQ(status("j")["restarts"]["total"], 0);
  EXPECT_EQ(status("j")["attempt"], 0);
  EXPECT_THAT(status("j").dump(), HasSubstr("no such task"));
  EXPECT_TRUE(eventually([&] { return live_pods().empty(); }));
}

TEST_F(Scenario, AnOperatorThatIsKilledLosesAndDoublesNothing) {
  start_operator();
  create_job("j", {{"failurePolicy", {{"maxRestarts", 2}, {"backoffSeconds", 0}}}});
  set_group("j", 0, running());
  expect_phase("j", "Running");
  kill_operator();
  set_pod("j-0-1", ended(137));  // while nobody looks
  start_operator();
  expect_attempt("j", 1);
  kill_operator();  // in the middle of what follows
  start_operator();
  EXPECT_TRUE(eventually([&] { return live_pods() == std::set<std::string>{"j-1-0", "j-1-1"}; }));
  set_group("j", 1, running());
  expect_phase("j", "Running");
  kill_operator();
  set_pod("j-1-0", ended(137));
  set_pod("j-1-1", ended(76));  // collateral: it lost its peer
  start_operator();
  expect_attempt("j", 2);
  set_group("j", 2, running());
  kill_operator();
  set_group("j", 2, ended(0));
  start_operator();
  expect_phase("j", "Complete");
  EXPECT_EQ(status("j")["restarts"], restarts(2));
  EXPECT_EQ(status("j")["attempt"], 2);
  EXPECT_EQ(status("j")["attempts"].size(), 2u);
  EXPECT_EQ(status("j")["attempts"][1]["pod"], "j-1-0");
  EXPECT_THAT(live_pods(), IsEmpty());
}

TEST_F(Scenario, AFinishedRankStaysFinishedWhenItsPodIsRemoved) {
  start_operator();
  create_job("j", {{"failurePolicy", {{"maxRestarts", 0}}}});
  set_group("j", 0, running());
  expect_phase("j", "Running");
  set_pod("j-0-1", ended(0));
  EXPECT_TRUE(eventually([&] { return status("j")["finishedRanks"] == Json({{"attempt", 0}, {"nodeRanks", "1"}}); }))
      << status("j").dump(1);
  EXPECT_EQ(status("j")["nodes"]["summary"], "1/2") << "READY counts no pod that has ended";
  const double looks = operator_->metric("controller_runtime_reconcile_total");
  ASSERT_TRUE(server_->call("DELETE", pods() + "/j-0-1").ok());
  EXPECT_TRUE(eventually([&] { return operator_->metric("controller_runtime_reconcile_total") > looks; }));
  EXPECT_EQ(status("j")["restarts"], restarts(0));
  // The record outlives the operator.
  kill_operator();
  start_operator();
  set_pod("j-0-0", ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(status("j")["restarts"], restarts(0));
  EXPECT_EQ(status("j")["nodes"]["succeeded"], 2);
  EXPECT_THAT(pod_names(), ElementsAre("j-0-0"));
}

// The operator is stopped in between, so that it sees the success and the removal together.
TEST_F(Scenario, APodThatIsRemovedRightAfterItsSuccessIsFinished) {
  start_operator();
  create_job("j", {{"failurePolicy", {{"maxRestarts", 0}}}});
  set_group("j", 0, running());
  expect_phase("j", "Running");
  operator_->program().signal(SIGSTOP);
  set_pod("j-0-1", ended(0));
  ASSERT_TRUE(server_->call("DELETE", pods() + "/j-0-1").ok());
  operator_->program().signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return status("j").contains("finishedRanks"); })) << status("j").dump(1);
  set_pod("j-0-0", ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(status("j")["restarts"], restarts(0));
}

// The finalizer holds the pod while it is being deleted, as its kubelet would.
TEST_F(Scenario, ExitCode0OnSuspensionOrDrainIsNoSuccess) {
  start_operator();
  for (const char* name : {"suspended", "drained"}) {
    create_job(name, {{"nodes", 1}, {"failurePolicy", {{"maxRestarts", 0}}}});
    const std::string first = std::string(name) + "-0-0";
    set_pod(first, running());
    const Json held = {{"metadata", {{"finalizers", {"test.oarlock.dev/kubelet"}}}}};
    ASSERT_TRUE(server_->call("PATCH", pods() + "/" + first, held).ok());
    expect_phase(name, "Running");
  }
  const auto let_go = [&](const std::string& name) {
    return server_->call("PATCH", pods() + "/" + name, {{"metadata", {{"finalizers", nullptr}}}}).ok();
  };

  ASSERT_TRUE(server_->call("PATCH", jobs() + "/suspended", {{"spec", {{"suspend", true}}}}).ok());
  ASSERT_TRUE(eventually([&] { return pod("suspended-0-0")["metadata"].contains("deletionTimestamp"); }));
  set_pod("suspended-0-0", ended(0));
  EXPECT_TRUE(eventually([&] { return status("suspended")["nodes"].value("failed", 0) == 1; }))
      << status("suspended").dump(1);
  EXPECT_EQ(phase("suspended"), "Suspended");
  ASSERT_TRUE(let_go("suspended-0-0"));
  ASSERT_TRUE(server_->call("PATCH", jobs() + "/suspended", {{"spec", {{"suspend", false}}}}).ok());
  set_pod("suspended-1-0", running());
  expect_phase("suspended", "Running");

  Json evicted = running();
  evicted["conditions"].push_back(
      {{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "EvictionByEvictionAPI"}});
  Json gone = ended(0);
  gone["conditions"] = evicted["conditions"];
  set_pod("drained-0-0", gone);
  ASSERT_TRUE(let_go("drained-0-0"));
  expect_attempt("drained", 1);
  EXPECT_EQ(status("drained")["restarts"],
            Json::parse(R"({"total": 1, "charged": 0, "reasons": [{"reason": "Disrupted", "count": 1}]})"));
}

TEST_F(Scenario, AJobWhosePodsHaveAllSucceededCompletesEvenIfSuspended) {
  start_operator();
  create_job("j");
  set_group("j", 0, running());
  expect_phase("j", "Running");
  kill_operator();
  set_group("j", 0, ended(0));
  ASSERT_TRUE(server_->call("PATCH", jobs() + "/j", {{"spec", {{"suspend", true}}}}).ok());
  start_operator();
  expect_phase("j", "Complete");
}

TEST_F(Scenario, ADeletedJobLeavesNothingAndNothingIsMadeAgain) {
  start_operator();
  create_job("gone");
  ASSERT_TRUE(eventually([&] { return pod_names().size() == 2; }));
  ASSERT_TRUE(server_->call("DELETE", jobs() + "/gone", {{"propagationPolicy", "Background"}}).ok());
  EXPECT_TRUE(eventually([&] { return pod_names().empty(); }));
  EXPECT_TRUE(eventually([&] { return !exists("/api/v1/namespaces/" + ns_ + "/services/gone"); }));
  // Another job's way from here on gives the operator time to do something wrong.
  create_job("other");
  set_group("other", 0, running());
  expect_phase("other", "Running");
  EXPECT_THAT(pod_names(), ElementsAre("other-0-0", "other-0-1"));
}

TEST_F(Scenario, ANewJobOfTheSameNameHasItsOwnPods) {
  start_operator();
  create_job("j");
  ASSERT_TRUE(eventually([&] { return pod_names().size() == 2; }));
  set_pod("j-0-1", ended(1));
  expect_attempt("j", 1);
  ASSERT_TRUE(server_->call("DELETE", jobs() + "/j", {{"propagationPolicy", "Background"}}).ok());
  const std::string uid = create_job("j")["metadata"]["uid"];
  const auto owned = [&](const std::string& name) {
    const Json one = pod(name);
    return one.contains("metadata") && one["metadata"].contains("ownerReferences") &&
           one["metadata"]["ownerReferences"][0]["uid"] == uid;
  };
  EXPECT_TRUE(eventually([&] { return owned("j-0-0") && owned("j-0-1"); }));
  EXPECT_TRUE(eventually([&] { return pod_names() == std::set<std::string>{"j-0-0", "j-0-1"}; }));
  set_group("j", 0, running());
  expect_phase("j", "Running");
  EXPECT_EQ(status("j")["restarts"]["total"], 0);  // the status is written after the pods
  EXPECT_THAT(event_reasons("j"), Not(Contains("NameTaken")));
}

TEST_F(Scenario, ConditionsOfOtherControllersAreKept) {
  start_operator();
  create_job("j");
  set_group("j", 0, running());
  expect_phase("j", "Running");
  const Json reviewed = {{"type", "Reviewed"},
                         {"status", "Unknown"},
                         {"reason", "Waiting"},
                         {"message", "m"},
                         {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
  // The operator may write at the same time; then the resourceVersion does not match, and both are right.
  ASSERT_TRUE(eventually([&] {
    Json seen = job("j");
    Json conditions = seen["status"]["conditions"];
    conditions.insert(conditions.begin(), reviewed);
    return server_
        ->call("PATCH", jobs() + "/j/status",
               {{"metadata", {{"resourceVersion", seen["metadata"]["resourceVersion"]}}},
                {"status", {{"conditions", conditions}}}})
        .ok();
  }));
  set_group("j", 0, ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(status("j")["conditions"][0], reviewed);
  EXPECT_TRUE(has_condition("j", "Complete", "True"));
}

TEST_F(Scenario, ThePodOfSomebodyElseIsNotTouchedAndTheJobSaysWhoIsInItsWay) {
  const Reply made =
      server_->call("POST", pods(),
                    {{"metadata", {{"name", "j-0-1"}}}, {"spec", {{"containers", {{{"name", "c"}, {"image", "i"}}}}}}});
  ASSERT_TRUE(made.ok()) << made.message();
  start_operator();
  create_job("j");
  EXPECT_TRUE(eventually([&] { return has_condition("j", "Pending", "True", "NameTaken"); })) << status("j").dump(1);
  EXPECT_THAT(status("j").dump(), HasSubstr("j-0-1"));
  EXPECT_EQ(pod("j-0-1")["metadata"]["resourceVersion"].get<std::string>().empty(), false);
  EXPECT_EQ(pod("j-0-1")["metadata"]["uid"], made.body["metadata"]["uid"]);
  EXPECT_FALSE(pod("j-0-1")["metadata"].contains("ownerReferences"));
  // It goes away; a change of the job makes the operator look at once.
  ASSERT_TRUE(server_->call("DELETE", pods() + "/j-0-1", {{"gracePeriodSeconds", 0}}).ok());
  ASSERT_TRUE(server_->call("PATCH", jobs() + "/j", {{"metadata", {{"annotations", {{"look", "again"}}}}}}).ok());
  set_group("j", 0, running());
  expect_phase("j", "Running");
}

TEST_F(Scenario, AtRestNothingIsWritten) {
  start_operator();
  create_job("j");
  set_group("j", 0, running());
  expect_phase("j", "Running");
  const auto writes = [&] {
    double sum = 0;
    for (const char* method : {"POST", "PATCH", "DELETE", "PUT"}) {
      sum += operator_->metric("rest_client_requests_total", {"method=\"" + std::string(method) + "\""});
    }
    return sum;
  };
  const auto reconciles = [&] { return operator_->metric("controller_runtime_reconcile_total"); };
  ASSERT_TRUE(
      eventually([&] { return event_reasons("j").size() == 2 && status("j")["nodes"].value("ready", 0) == 2; }));
  // Each change of a pod that means nothing makes the operator look. What was still to be written may be at first.
  int quiet = 0;
  for (int i = 0; i < 20 && quiet < 5; ++i) {
    const double before = writes();
    const double seen = reconciles();
    ASSERT_TRUE(
        server_->call("PATCH", pods() + "/j-0-0", {{"metadata", {{"annotations", {{"n", std::to_string(i)}}}}}}).ok());
    ASSERT_TRUE(eventually([&] { return reconciles() > seen; }));
    quiet = writes() == before ? quiet + 1 : 0;
  }
  EXPECT_EQ(quiet, 5) << "it writes at rest";
}

// Addresses of 127/8 are the machine's own, so a pod may have one that no other test uses.
std::string own_address() {
  return "127.77." + std::to_string(::getpid() / 250 % 250) + "." + std::to_string(1 + ::getpid() % 250);
}

Result<std::unique_ptr<HttpServer>> play_rank_0(const std::string& ip, const std::atomic<int64_t>& step) {
  return HttpServer::start(ip, kDefaultMetricsPort, {{kStatusPath, [&step](const std::string&) {
                                                        RankStatus said;
                                                        said.world_size = 2;
                                                        said.phase = "train";
                                                        said.step = step;
                                                        said.target_steps = 200;
                                                        said.checkpoint_step = 30;
                                                        said.loss = 0.5;
                                                        said.samples_per_second = 100;
                                                        return HttpResponse{200, "application/json", to_json(said)};
                                                      }}});
}

TEST_F(Scenario, ProgressComesFromRankZero) {
  const std::string ip = own_address();
  std::atomic<int64_t> step = 40;
  const auto rank = play_rank_0(ip, step);
  ASSERT_TRUE(rank) << rank.error().message;
  start_operator();
  create_job("j");
  set_pod("j-0-1", running());
  set_pod("j-0-0", running(ip));
  EXPECT_TRUE(eventually([&] { return status("j").contains("progress") && status("j")["progress"]["step"] == 40; }))
      << status("j").dump(1);
  EXPECT_EQ(status("j")["progress"]["targetSteps"], 200);
  EXPECT_EQ(status("j")["progress"]["checkpointStep"], 30);
  EXPECT_EQ(status("j")["progress"]["completed"], "20%");
  step = 100;
  EXPECT_TRUE(eventually([&] { return status("j")["progress"]["step"] == 100; }));
  EXPECT_TRUE(eventually([&] { return operator_->metric("trainingjob_progress_ratio") == 0.5; }));
}

TEST_F(Scenario, AJobWhoseStepStandsStillIsStalledWhoeverLooksUntilItMoves) {
  const std::string ip = own_address();
  std::atomic<int64_t> step = 40;
  auto rank = play_rank_0(ip, step);
  ASSERT_TRUE(rank) << rank.error().message;
  start_operator();
  create_job("j", {{"stallPolicy", {{"timeoutSeconds", 2}}}});
  create_job("silent", {{"stallPolicy", {{"timeoutSeconds", 1}}}});  // its image has no /statusz
  set_group("silent", 0, running());
  set_pod("j-0-1", running());
  set_pod("j-0-0", running(ip));
  expect_phase("j", "Stalled");
  const auto stalled_since = [&] {
    const Json all = status("j")["conditions"];
    for (const Json& condition : all) {
      if (condition["type"] == "Stalled") return condition["lastTransitionTime"].get<std::string>();
    }
    return std::string();
  };
  EXPECT_TRUE(has_condition("j", "Stalled", "True", "NoStep"));
  EXPECT_TRUE(has_condition("j", "Running", "False"));
  EXPECT_EQ(status("j")["progress"]["step"], 40);
  const auto events = [&](const char* reason) {
    const std::vector<std::string> all = event_reasons("j");
    return std::count(all.begin(), all.end(), reason);
  };
  EXPECT_TRUE(eventually([&] { return events("Stalled") == 1; }));
  EXPECT_TRUE(eventually([&] { return operator_->metric("trainingjob_status_phase", {R"(phase="Stalled")"}) == 1; }));
  const std::string since = stalled_since();

  // Another operator, which knows the status alone, stays with it; and sees the job move on.
  kill_operator();
  start_operator();
  EXPECT_TRUE(eventually([&] { return operator_->logged("nothing to do in phase Stalled"); }));
  EXPECT_EQ(stalled_since(), since);
  EXPECT_EQ(events("Stalled"), 1);
  step = 41;
  EXPECT_TRUE(eventually([&] { return has_condition("j", "Running", "True", "Progressing"); })) << status("j").dump(1);
  EXPECT_TRUE(has_condition("j", "Stalled", "False"));
  EXPECT_TRUE(eventually([&] { return events("Progressing") == 1; }));
  EXPECT_EQ(operator_->metric("trainingjob_recovery_seconds_count"), 0) << "a stall is no recovery";

  // It stalls anew while nobody looks: the next operator asks rank 0, which does not answer any more.
  kill_operator();
  rank->reset();
  start_operator();
  expect_phase("j", "Stalled");
  EXPECT_EQ(status("j")["progress"]["step"], 41);
  EXPECT_EQ(status("j")["restarts"]["total"], 0);

  // It may be patient while the job runs; and a job that tells no progress runs on.
  ASSERT_TRUE(server_->call("PATCH", jobs() + "/j", {{"spec", {{"stallPolicy", {{"timeoutSeconds", 3600}}}}}}).ok());
  expect_phase("j", "Running");
  EXPECT_EQ(phase("silent"), "Running");
  EXPECT_FALSE(has_condition("silent", "Stalled", "True"));
}

TEST_F(Scenario, OtherNamespacesAreLeftAlone) {
  start_operator();
  const std::string mine = ns_;
  const std::string theirs = server_->make_namespace();
  ns_ = theirs;
  create_job("j");
  ns_ = mine;
  create_job("j");
  set_group("j", 0, running());
  expect_phase("j", "Running");
  ns_ = theirs;
  EXPECT_THAT(pod_names(), IsEmpty());
  EXPECT_EQ(phase("j"), "");
}

TEST_F(Scenario, RunsWithTheRightsOfTheManifestAndEndsInOrder) {
  server_->apply(OARLOCK_SOURCE "/manifests/install.yaml");
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
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "kubeconfig") << text;
  std::ofstream(folder.path() / "token") << token;
  operator_ = std::make_unique<OperatorProcess>(
      std::vector<std::string>{"--kubeconfig", (folder.path() / "kubeconfig").string(), "--leader-elect",
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
  // /metrics is for those who may read it: nobody, somebody without the right, and with it.
  EXPECT_EQ(operator_->get("/metrics").status, 401);
  ASSERT_TRUE(eventually([&] { return exists("/api/v1/namespaces/oarlock-system/serviceaccounts/default"); }));
  operator_->use_token(token_of("default"));
  EXPECT_EQ(operator_->get("/metrics").status, 403);
  operator_->use_token(token);
  ASSERT_TRUE(eventually([&] { return operator_->get("/metrics").status == 200; }));
  EXPECT_EQ(operator_->get("/healthz").status, 200);
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  create_job("j", {{"failurePolicy", {{"maxRestarts", 1}}}});
  set_group("j", 0, running());
  expect_phase("j", "Running");
  set_pod("j-0-1", ended(137));
  expect_attempt("j", 1);
  set_group("j", 1, ended(0));
  expect_phase("j", "Complete");
  EXPECT_TRUE(eventually([&] { return event_reasons("j").size() >= 4; }));
  EXPECT_EQ(operator_->metric("rest_client_requests_total", {"code=\"403\""}), 0);
  EXPECT_EQ(operator_->metric("controller_runtime_reconcile_errors_total"), 0) << operator_->log();
  operator_->program().signal(SIGTERM);
  EXPECT_EQ(operator_->program().wait(), 0);
  EXPECT_TRUE(operator_->logged("\"msg\":\"stopped\""));
}

}  // namespace
}  // namespace oarlock::test
