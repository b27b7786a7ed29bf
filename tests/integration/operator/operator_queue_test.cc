// Jobs with a queue against a real kube-apiserver with Kueue's custom resource definitions. The test plays Kueue, which
// writes the status of Workloads, and the kubelets.
#include <gmock/gmock.h>

#include "tests/support/queue_scenario.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

TEST_F(QueueScenario, NoPodExistsBeforeTheAdmission) {
  start_operator();
  // As users write it in YAML; the schema of a Workload is stricter than that of a pod.
  create("j", {{"template", Json::parse(R"({"spec": {"tolerations": null, "nodeSelector": {"disk": "ssd"},
    "containers": [{"name": "trainer", "image": "example.invalid/t", "env": [{"name": "A", "value": "1"}],
                    "resources": {"requests": {"cpu": 0.5, "memory": "1Gi"}, "limits": null}}]}})")}});
  expect_waiting("j", "Queued", "queue team: ");
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); })) << world_.status("j").dump(1);
  const Json made = workload("j");
  EXPECT_EQ(made["spec"]["queueName"], "team");
  EXPECT_EQ(made["metadata"]["ownerReferences"][0]["uid"], world_.job("j")["metadata"]["uid"]);
  const Json pod_set = made["spec"]["podSets"][0];
  EXPECT_EQ(pod_set["count"], 2);
  EXPECT_EQ(pod_set["template"]["spec"]["nodeSelector"]["disk"], "ssd");
  EXPECT_EQ(pod_set["template"]["spec"]["containers"][0]["resources"]["requests"],
            Json::parse(R"({"cpu": "0.5", "memory": "1Gi"})"));
  set_status("j", {kueue_condition("QuotaReserved", false, "Pending", "insufficient unused quota for nvidia.com/gpu")});
  expect_waiting("j", "Queued", "queue team: Pending: insufficient unused quota for nvidia.com/gpu");
  set_status("j",
             {kueue_condition("QuotaReserved", true, "QuotaReserved"),
              kueue_condition("Admitted", false, "UnsatisfiedChecks", "waiting for nodes")},
             {{"clusterQueue", "gpus"}, {"podSetAssignments", {{{"name", "nodes"}, {"count", 2}}}}});
  expect_waiting("j", "Queued", "UnsatisfiedChecks: waiting for nodes");
  let_time_pass();
  EXPECT_THAT(world_.pod_names(), ElementsAre("other-0-0"));
  EXPECT_FALSE(world_.status("j").contains("startTime"));
  EXPECT_EQ(world_.status("j")["queue"]["name"], "team");
  EXPECT_EQ(uid_of("j"), made["metadata"]["uid"]) << "one Workload";
}

TEST_F(QueueScenario, TheSchemaOfKueueAcceptsEachFieldOfThePods) {
  start_operator();
  const Json spec = Json::parse(R"({
    "nodeSelector": {"disk": "ssd"}, "schedulerName": "s", "priorityClassName": "system-node-critical",
    "tolerations": [{"key": "gpu", "operator": "Exists"}], "overhead": {"cpu": 0.25},
    "resources": {"requests": {"cpu": "3"}},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
      {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
      "labelSelector": {"matchLabels": {"a": "b"}}}],
    "resourceClaims": [{"name": "claim", "resourceClaimTemplateName": "gpus"}],
    "initContainers": [{"name": "sidecar", "image": "i", "restartPolicy": "Always",
      "resources": {"limits": {"memory": 1000000}}}],
    "containers": [{"name": "trainer", "image": "i",
      "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": 1.5}, "claims": [{"name": "claim"}]}}]})");
  create("j", {{"template", {{"spec", spec}}}});
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); })) << world_.status("j").dump(1);
  Json expected = spec;
  expected["restartPolicy"] = "Never";
  expected["overhead"]["cpu"] = "0.25";
  expected["containers"][0]["resources"]["limits"]["cpu"] = "1.5";
  EXPECT_EQ(workload("j")["spec"]["podSets"][0]["template"]["spec"], expected);
  EXPECT_EQ(workload("j")["spec"]["priority"], 2000001000);
  EXPECT_EQ(workload("j")["spec"]["priorityClassRef"]["kind"], "PriorityClass");
}

TEST_F(QueueScenario, RunsWithTheFlavorAndReportsItsEnd) {
  const std::string flavor = "flavor-" + world_.namespace_name();
  create_flavor(flavor, Json::parse(R"({"nodeLabels": {"pool": "h200"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]})"));
  start_operator();
  create("j");
  admit("j", 2, {{"cpu", flavor}, {"memory", flavor}});
  for (const char* name : {"j-0-0", "j-0-1"}) {
    set_pod(name, Json::object());
    const Json spec = world_.pod(name)["spec"];
    EXPECT_EQ(spec["nodeSelector"], Json::parse(R"({"pool": "h200"})"));
    EXPECT_THAT(spec["tolerations"],
                Contains(Json::parse(R"({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"})")).Times(1));
  }
  EXPECT_EQ(condition("j", "PodsReady"), "");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  expect_condition("j", "PodsReady", "True/Started");
  const Json queue = world_.status("j")["queue"];
  EXPECT_EQ(queue["clusterQueue"], "gpus");
  EXPECT_EQ(queue["flavors"], Json::array({flavor}));
  EXPECT_EQ(queue["nodes"], 2);

  // A failure restarts the group with the same admission.
  set_pod("j-0-1", pod_ended(1));
  expect_attempt("j", 1);
  expect_condition("j", "PodsReady", "False/WaitForRecovery");
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
  expect_condition("j", "PodsReady", "True/Recovered");
  EXPECT_EQ(condition("j", "Admitted"), "True/Admitted");
  set_group("j", 1, pod_ended(0));
  expect_phase("j", "Complete");
  expect_condition("j", "Finished", "True/Succeeded");
  expect_events("j", {"Running", "Completed"});
}

TEST_F(QueueScenario, AFailedJobReleasesItsQuota) {
  start_operator();
  create("j", {{"failurePolicy", {{"maxRestarts", 0}}}});
  admit("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  set_pod("j-0-1", pod_ended(1));
  expect_phase("j", "Failed");
  expect_condition("j", "Finished", "True/Failed");
}

TEST_F(QueueScenario, AnEvictedJobStopsAndWaitsForANewAdmission) {
  start_operator();
  create("j", {{"failurePolicy", {{"maxRestarts", 0}, {"backoffSeconds", 3600}}}});
  admit("j");
  run_on_node("j-0-0");
  run_on_node("j-0-1");
  expect_phase("j", "Running");
  expect_condition("j", "PodsReady", "True/Started");
  evict("j");
  expect_attempt("j", 1);
  EXPECT_TRUE(world_.has_condition("j", "Restarting", "True", "QueueEvicted")) << world_.status("j").dump(1);
  EXPECT_THAT(message_of("j", "Restarting"), HasSubstr("a job of higher priority needs the quota"));
  ASSERT_TRUE(eventually([&] { return is_stopping("j-0-0") && is_stopping("j-0-1"); }));
  world_.set_pod("j-0-0", pod_ended(143));
  world_.call("DELETE", world_.pods() + "/j-0-0", {{"gracePeriodSeconds", 0}});
  let_time_pass();
  EXPECT_EQ(condition("j", "QuotaReserved"), "True/QuotaReserved") << "a pod still uses it";
  EXPECT_TRUE(workload("j")["status"].contains("admission"));
  world_.call("DELETE", world_.pods() + "/j-0-1", {{"gracePeriodSeconds", 0}});
  expect_condition("j", "QuotaReserved", "False/Pending");
  EXPECT_EQ(condition("j", "Requeued"), "True/Preempted");
  EXPECT_EQ(condition("j", "Admitted"), "False/NoReservation");
  EXPECT_EQ(condition("j", "PodsReady"), "False/WaitForStart");
  EXPECT_EQ(condition("j", "Evicted"), "True/Preempted");
  EXPECT_FALSE(workload("j")["status"].contains("admission"));
  EXPECT_FALSE(world_.status("j")["queue"].contains("clusterQueue"));
  EXPECT_THAT(world_.live_pods(), ElementsAre("other-0-0"));

  admit("j");
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
  expect_condition("j", "PodsReady", "True/Started");
  EXPECT_EQ(restarts_of("j"),
            Json::parse(R"({"total": 1, "charged": 0, "reasons": [{"reason": "QueueEvicted", "count": 1}]})"));
  expect_events("j", {"QueueEvicted"});
  evict("j", "PodsReadyTimeout");
  expect_condition("j", "Requeued", "False/PodsReadyTimeout");
}

TEST_F(QueueScenario, SuspendDeletesTheWorkloadAndResumeCreatesIt) {
  start_operator();
  create("j");
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); }));
  world_.patch_job("j", {{"spec", {{"suspend", true}}}});
  ASSERT_TRUE(eventually([&] { return workload("j").is_null(); })) << "while it waits";
  expect_phase("j", "Suspended");
  world_.patch_job("j", {{"spec", {{"suspend", false}}}});
  admit("j");
  run_on_node("j-0-0");
  set_pod("j-0-1", pod_running());
  expect_phase("j", "Running");
  const std::string first = uid_of("j");
  world_.patch_job("j", {{"spec", {{"suspend", true}}}});
  ASSERT_TRUE(eventually([&] { return is_stopping("j-0-0"); }));
  let_time_pass();
  EXPECT_EQ(uid_of("j"), first) << "a pod still uses its quota";
  world_.call("DELETE", world_.pods() + "/j-0-0", {{"gracePeriodSeconds", 0}});
  ASSERT_TRUE(eventually([&] { return workload("j").is_null(); })) << world_.status("j").dump(1);
  world_.patch_job("j", {{"spec", {{"suspend", false}}}, {"metadata", {{"labels", {{kLabelQueue, "later"}}}}}});
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); })) << world_.status("j").dump(1);
  EXPECT_EQ(workload("j")["spec"]["queueName"], "later");
  expect_waiting("j", "Queued", "queue later: ");
  admit("j");
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
  EXPECT_EQ(world_.status("j")["restarts"].value("total", 0), 0);
}

TEST_F(QueueScenario, AnElasticJobRunsWithTheAdmittedNodes) {
  start_operator();
  create("j", {{"nodes", 3}, {"elastic", {{"minNodes", 1}}}, {"checkpoints", {{"claimName", "c"}}}});
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); })) << world_.status("j").dump(1);
  EXPECT_EQ(workload("j")["spec"]["podSets"][0]["count"], 3);
  EXPECT_EQ(workload("j")["spec"]["podSets"][0]["minCount"], 1);
  world_.patch_job("j", {{"spec", {{"nodes", 4}}}});
  ASSERT_TRUE(eventually([&] {
    const Json now = workload("j");
    return now.is_object() && now["spec"]["podSets"][0]["count"] == 4;
  })) << world_.status("j").dump(1);
  expect_attempt("j", 1);
  admit("j", 2);
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
  EXPECT_THAT(world_.pod_names(), ElementsAre("j-1-0", "j-1-1"));
  EXPECT_EQ(world_.status("j")["worldSize"], 2);
  expect_condition("j", "PodsReady", "True/Started");
  evict("j");
  expect_condition("j", "QuotaReserved", "False/Pending");
  admit("j", 1);
  set_pod("j-2-0", pod_running());
  expect_phase("j", "Running");
  EXPECT_THAT(world_.live_pods(), ElementsAre("j-2-0"));
  set_pod("j-2-0", pod_ended(0));
  expect_phase("j", "Complete");
  expect_condition("j", "Finished", "True/Succeeded");
}

TEST_F(QueueScenario, AWaitingJobMovesWithItsLabel) {
  start_operator();
  create("j");
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); }));
  world_.patch_job("j", {{"metadata", {{"labels", {{kLabelQueue, "other"}}}}}});
  ASSERT_TRUE(eventually([&] {
    const Json now = workload("j");
    return now.is_object() && now["spec"]["queueName"] == "other";
  })) << world_.status("j").dump(1);
  expect_waiting("j", "Queued", "queue other: ");
  admit("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  EXPECT_EQ(world_.status("j")["queue"]["name"], "other");
  const std::string uid = uid_of("j");
  world_.patch_job("j", {{"metadata", {{"labels", {{kLabelQueue, "team"}}}}}});
  let_time_pass();
  EXPECT_EQ(uid_of("j"), uid) << "a running job stays in its queue";
  EXPECT_EQ(world_.phase("j"), "Running");
  world_.patch_job("j", {{"metadata", {{"labels", {{kLabelQueue, nullptr}}}}}});
  set_group("j", 0, pod_ended(0));
  expect_phase("j", "Complete");
  expect_condition("j", "Finished", "True/Succeeded");
}

TEST_F(QueueScenario, ADeletedWorkloadStopsTheJobAndIsCreatedAgain) {
  start_operator();
  create("j");
  admit("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  const Json first = workload("j");
  world_.call("DELETE", workloads() + "/" + first["metadata"]["name"].get<std::string>());
  ASSERT_TRUE(eventually([&] { return workload("j").is_object() && uid_of("j") != first["metadata"]["uid"]; }));
  expect_attempt("j", 1);
  EXPECT_TRUE(eventually([&] { return world_.live_pods().empty(); }));
  EXPECT_TRUE(world_.has_condition("j", "Restarting", "True", "QueueEvicted")) << world_.status("j").dump(1);
  admit("j");
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
}

TEST_F(QueueScenario, AWorkloadThatIsBeingDeletedStopsTheJob) {
  start_operator();
  create("j");
  admit("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  const std::string target = workloads() + "/" + workload("j")["metadata"]["name"].get<std::string>();
  world_.call("PATCH", target, {{"metadata", {{"finalizers", {"test.oarlock.dev/hold"}}}}});
  world_.call("DELETE", target);
  expect_attempt("j", 1);
  EXPECT_THAT(message_of("j", "Restarting"), HasSubstr("deleted"));
  EXPECT_TRUE(eventually([&] { return world_.live_pods().empty(); }));
  let_time_pass();
  const std::string first = uid_of("j");
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(world_.status("j")["attempt"], 1);
  world_.call("PATCH", target, {{"metadata", {{"finalizers", nullptr}}}});
  ASSERT_TRUE(eventually([&] { return !uid_of("j").empty() && uid_of("j") != first; })) << world_.status("j").dump(1);
  admit("j");
  set_group("j", 1, pod_running());
  expect_phase("j", "Running");
}

TEST_F(QueueScenario, ADeletedJobTakesItsWorkloadWithIt) {
  start_operator();
  create("j");
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); }));
  world_.delete_job("j");
  ASSERT_TRUE(eventually([&] { return workload("j").is_null(); }));
}

TEST_F(QueueScenario, ARestartOfTheOperatorChangesNothing) {
  start_operator();
  create("waiting");
  set_status("waiting", {kueue_condition("QuotaReserved", false, "Pending", "no quota")});
  expect_waiting("waiting", "Queued", "no quota");
  create("running");
  admit("running");
  set_group("running", 0, pod_running());
  expect_phase("running", "Running");
  expect_condition("running", "PodsReady", "True/Started");
  expect_events("running", {"Running"});
  const auto objects = [&] {
    Json out = {world_.job("waiting"), world_.job("running"),     workload("waiting"),
                workload("running"),   world_.pod("running-0-0"), world_.pod("running-0-1")};
    for (Json& one : out) {
      one["metadata"].erase("managedFields");
      if (one["kind"] != "Pod") continue;
      one["metadata"].erase("resourceVersion");
      one.erase("status");  // the controllers of the nodes write it, too
    }
    return out;
  };
  const Json before = objects();
  kill_operator();
  start_operator();
  create("third");  // its Workload is created when Workloads have been read
  ASSERT_TRUE(eventually([&] { return workload("third").is_object(); }));
  let_time_pass();
  const Json after = objects();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], before[i]);
  admit("waiting");
  set_group("waiting", 0, pod_running());
  expect_phase("waiting", "Running");
}

TEST_F(QueueScenario, ReportsAMissingPriorityClass) {
  const std::string name = "class-" + world_.namespace_name();
  start_operator();
  create("j", Json::object(), {{kLabelQueue, "team"}, {kLabelPriorityClass, name}});
  expect_waiting("j", "CreateRefused", "WorkloadPriorityClass " + name + " does not exist");
  world_.call("POST", kKueue + std::string("workloadpriorityclasses"),
              {{"apiVersion", "kueue.x-k8s.io/v1beta2"},
               {"kind", "WorkloadPriorityClass"},
               {"metadata", {{"name", name}}},
               {"value", 7}});
  ASSERT_TRUE(eventually([&] { return workload("j").is_object(); })) << world_.status("j").dump(1);
  EXPECT_EQ(workload("j")["spec"]["priority"], 7);
  EXPECT_EQ(workload("j")["spec"]["priorityClassRef"]["name"], name);
  expect_waiting("j", "Queued", "queue team: ");
}

TEST_F(QueueScenario, ReportsAMissingFlavorAndAnInvalidQueue) {
  const std::string flavor = "late-" + world_.namespace_name();
  start_operator();
  create("j");
  admit("j", 2, {{"cpu", flavor}});
  expect_waiting("j", "CreateRefused", "ResourceFlavor " + flavor + " does not exist");
  EXPECT_THAT(world_.pod_names(), IsEmpty());
  evict("j");
  expect_condition("j", "QuotaReserved", "False/Pending");
  admit("j", 2, {{"cpu", flavor}});
  expect_waiting("j", "CreateRefused", "ResourceFlavor " + flavor + " does not exist");
  EXPECT_EQ(world_.status("j")["attempt"], 0);
  create_flavor(flavor, {{"nodeLabels", {{"pool", "late"}}}});
  set_pod("j-0-0", Json::object());
  EXPECT_EQ(world_.pod("j-0-0")["spec"]["nodeSelector"]["pool"], "late");
  create("invalid", Json::object(), {{kLabelQueue, "Not_A_Name"}});
  expect_waiting("invalid", "CreateRefused", "spec.queueName");
}

TEST_F(QueueScenario, KueuePlacesThePodsOfATopology) {
  start_operator();
  create("j", {{"template", Json::parse(R"({"metadata": {"annotations":
    {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}},
    "spec": {"containers": [{"name": "trainer", "image": "example.invalid/t"}]}})")}});
  admit("j", 2, Json::object(),
        {{"topologyAssignment", Json::parse(R"({"levels": ["kubernetes.io/hostname"], "slices": [{"domainCount": 1,
          "podCounts": {"universal": 2}, "valuesPerLevel": [{"universal": "node-1"}]}]})")}});
  EXPECT_EQ(workload("j")["spec"]["podSets"][0]["topologyRequest"],
            Json::parse(R"({"required": "kubernetes.io/hostname", "podIndexLabel": "oarlock.dev/node-rank"})"));
  for (const char* name : {"j-0-0", "j-0-1"}) {
    set_pod(name, Json::object());
    const Json pod = world_.pod(name);
    EXPECT_EQ(pod["spec"]["schedulingGates"], Json::parse(R"([{"name": "kueue.x-k8s.io/topology"}])"));
    EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], workload("j")["metadata"]["name"]);
    EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/podset"], "nodes");
    world_.call("PATCH", world_.pods() + "/" + name,
                {{"spec", {{"schedulingGates", nullptr}, {"nodeSelector", {{"kubernetes.io/hostname", "node-1"}}}}}});
    set_pod(name, pod_running());
  }
  expect_phase("j", "Running");
}

// Kueue's webhooks do not respond. An admitted job neither stops nor waits for them, and no quota is lost.
TEST_F(QueueScenario, KueuesManagerIsDown) {
  start_operator();
  create("j", {{"failurePolicy", {{"backoffSeconds", 1}}}});
  admit("j");
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  expect_condition("j", "PodsReady", "True/Started");
  const std::string hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
  const Json resources = {"workloads", "workloads/status"};
  world_.call(
      "POST", hooks,
      {{"apiVersion", "admissionregistration.k8s.io/v1"},
       {"kind", "ValidatingWebhookConfiguration"},
       {"metadata", {{"name", "kueue-down"}}},
       {"webhooks",
        {{{"name", "vworkload.kb.io"},
          {"admissionReviewVersions", {"v1"}},
          {"sideEffects", "None"},
          {"clientConfig", {{"url", "https://127.0.0.1:1/x"}}},
          {"rules",
           {{{"apiGroups", {"kueue.x-k8s.io"}},
             {"apiVersions", {"*"}},
             {"operations", {"CREATE", "UPDATE"}},
             {"resources", resources}}}},
          {"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", world_.namespace_name()}}}}}}}}});
  create("new");
  expect_waiting("new", "CreateRefused", "webhook");
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second one begins after a delay
    set_pod(fmt::format("j-{}-1", attempt), pod_ended(1));
    set_group("j", attempt + 1, pod_running());
    expect_phase("j", "Running");
    EXPECT_EQ(condition("j", "PodsReady"), "True/Started");
  }
  set_group("j", 2, pod_ended(0));
  expect_phase("j", "Complete");
  EXPECT_EQ(condition("j", "Finished"), "");
  world_.call("DELETE", hooks + "/kueue-down");
  expect_condition("j", "Finished", "True/Succeeded");
  admit("new");
  set_group("new", 0, pod_running());
  expect_phase("new", "Running");
}

// ---- Without Kueue -------------------------------------------------------------------------------------------------

TEST_F(QueueScenario, ARunningJobContinuesWithoutKueue) {
  start_operator();
  create("running");
  admit("running");
  set_group("running", 0, pod_running());
  expect_phase("running", "Running");
  create("waiting");
  expect_waiting("waiting", "Queued", "queue team: ");
  remove_kueue();
  expect_waiting("waiting", "QueueUnavailable", "install Kueue");
  EXPECT_EQ(world_.live_pods(), (std::set<std::string>{"running-0-0", "running-0-1"}));
  EXPECT_EQ(world_.phase("running"), "Running");
  EXPECT_EQ(world_.status("running").value("attempt", 0), 0);
  set_group("running", 0, pod_ended(0));
  expect_phase("running", "Complete");
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  install_kueue();
  admit("waiting");
  set_group("waiting", 0, pod_running());
  expect_phase("waiting", "Running");
}

TEST_F(QueueScenario, AClusterWithoutKueue) {
  remove_kueue();
  start_operator();
  let_time_pass();
  EXPECT_THAT(requests_to_kueue(), IsEmpty()) << "no job has a queue";
  create("j");
  expect_waiting("j", "QueueUnavailable", "the Workloads of Kueue cannot be read");
  EXPECT_THAT(message_of("j", "Pending"), HasSubstr("install Kueue with the API kueue.x-k8s.io/v1beta2, or suspend the "
                                                    "job, remove its label kueue.x-k8s.io/queue-name and resume it"));
  EXPECT_THAT(requests_to_kueue(), Contains(HasSubstr("watch")));
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  world_.patch_job("j", {{"spec", {{"suspend", true}}}});
  expect_phase("j", "Suspended");
  world_.patch_job("j", {{"spec", {{"suspend", false}}}, {"metadata", {{"labels", {{kLabelQueue, nullptr}}}}}});
  set_group("j", 0, pod_running());
  expect_phase("j", "Running");
  EXPECT_FALSE(world_.status("j").contains("queue"));
  install_kueue();
}

}  // namespace
}  // namespace oarlock::test
