// The placement of a job's pods against a real kube-apiserver with the real controllers: capacity, quotas and
// admission, domains of nodes, and nodes on which the job has failed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/operator/policy_fixture.h"

namespace oarlock::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class Placement : public Policies {};

TEST_F(Placement, WaitsForCapacityWithoutCharge) {
  create("j", {{"failurePolicy", {{"maxRestarts", 0}, {"backoffSeconds", 1}}}});
  Json unschedulable = {{"conditions", {pod_condition("PodScheduled", false)}}};
  unschedulable["conditions"][0].update({{"reason", "Unschedulable"}, {"message", "0/3 nodes are available"}});
  set_group("j", 0, unschedulable,
            pod_ended(75, R"({"rank":1,"step":0,"checkpointStep":-1,"reason":"RendezvousTimeout","message":""})"));
  // The node of a pod of the next attempt does not admit it.
  const Json rejected = {{"phase", "Failed"}, {"reason", "OutOfcpu"}, {"message", "Node didn't have enough cpu"}};
  set_group("j", 1, pod_running(), rejected);
  set_group("j", 2, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  const Json status = world_->status("j");
  EXPECT_EQ(status["attempts"][0]["reason"], "Unschedulable");
  EXPECT_EQ(status["attempts"][1]["reason"], "OutOfcpu");
  EXPECT_EQ(status["restarts"]["total"], 2);
  EXPECT_EQ(status["restarts"].value("charged", 0), 0);
}

// A webhook that does not respond, and a LimitRange that is created while the job runs.
TEST_F(Placement, AdmissionProblemsAreReportedAndRetried) {
  create("j", {{"resourcesPerNode", {{"requests", {{"memory", "1Gi"}}}}}});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  const std::string limits = "/api/v1/namespaces/" + world_->namespace_name() + "/limitranges";
  world_->call("POST", limits,
               {{"apiVersion", "v1"},
                {"kind", "LimitRange"},
                {"metadata", {{"name", "defaults"}}},
                {"spec", {{"limits", {{{"type", "Container"}, {"default", {{"memory", "512Mi"}}}}}}}}});
  world_->set_pod("j-0-1", pod_ended(1));
  world_->wait("the refusal", [&] {
    return condition("j", "Restarting").value("message", "").find("the API server refused: ") != std::string::npos;
  });
  world_->call("DELETE", limits + "/defaults");
  const std::string hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
  world_->call(
      "POST", hooks,
      {{"apiVersion", "admissionregistration.k8s.io/v1"},
       {"kind", "ValidatingWebhookConfiguration"},
       {"metadata", {{"name", "down"}}},
       {"webhooks",
        {{{"name", "down.example.com"},
          {"admissionReviewVersions", {"v1"}},
          {"sideEffects", "None"},
          {"clientConfig", {{"url", "https://127.0.0.1:1/x"}}},
          {"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", world_->namespace_name()}}}}},
          {"rules",
           {{{"apiGroups", {""}}, {"apiVersions", {"v1"}}, {"operations", {"CREATE"}}, {"resources", {"pods"}}}}}}}}});
  create("other", {});
  world_->wait("the webhook's error", [&] {
    const Json pending = condition("other", "Pending");
    return pending.value("reason", "") == "CreateRefused" &&
           pending.value("message", "").find("failed calling webhook") != std::string::npos;
  });
  world_->call("DELETE", hooks + "/down");
  set_group("other", 0, pod_running(), pod_running());
}

// A quota on count/pods counts the failed pod of attempt 0, which is kept for its log.
TEST_F(Placement, QuotaThatCountsEndedPodsDoesNotBlockNextAttempt) {
  set_quota("count/pods", 2);
  create("j", {{"failurePolicy", {{"backoffSeconds", 1}}}});
  set_group("j", 0, pod_running(), pod_ended(1));
  world_->wait("the refusal", [&] {
    const Json restarting = condition("j", "Restarting");
    return restarting.value("message", "").find("which this quota counts, are deleted 30 s after") != std::string::npos;
  });
  EXPECT_TRUE(has_pod("j-0-1"));
  set_group("j", 1, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  EXPECT_FALSE(has_pod("j-0-1"));
  EXPECT_THAT(world_->event_reasons("j"), Contains("LogsNotKept"));
}

// A quota of three pods, and two jobs of two: the second one must not keep the pod that it got.
TEST_F(Placement, GroupThatCannotBePlacedReleasesItsRoom) {
  set_quota("pods", 3);
  create("first", {});
  set_group("first", 0, pod_running(), pod_running());
  create("second", {{"scheduling", {{"pendingTimeoutSeconds", 3}}}});
  world_->wait("its release", [&] { return condition("second", "Restarting").value("status", "") == "True"; });
  const Json record = world_->status("second")["attempts"][0];
  EXPECT_EQ(record["reason"], "NotPlaced");
  EXPECT_THAT(record["message"], HasSubstr("not all pods were placed within 3 s"));
  EXPECT_THAT(record["message"], HasSubstr("exceeded quota: quota"));
  create("third", {{"nodes", 1}});
  world_->wait("a pod in the room that was released", [&] { return has_pod("third-0-0"); });
  for (const char* job : {"first", "third"}) world_->call("DELETE", world_->jobs() + "/" + job);
  world_->wait("both pods of a later attempt", [&] {
    const std::string prefix = fmt::format("second-{}-", world_->status("second").value("attempt", 0));
    return has_pod(prefix + "0") && has_pod(prefix + "1");
  });
  set_group("second", world_->status("second")["attempt"], pod_running(), pod_running());
  world_->wait_for_phase("second", "Running");
  EXPECT_EQ(world_->status("second")["restarts"].value("charged", 0), 0);
}

// Two domains of two nodes with room for two pods each, and the real scheduler. Other tests' pods do not tolerate the
// nodes.
TEST_F(Placement, ExclusiveDomainsHaveOneJobEach) {
  const Json room = {{"cpu", "8"}, {"memory", "8Gi"}, {"pods", "2"}};
  std::map<std::string, std::string> domain_of;
  for (const char* name : {"a-1", "a-2", "b-1", "b-2"}) {
    domain_of[name] = std::string(name, 1);
    world_->call("POST", "/api/v1/nodes",
                 {{"metadata", {{"name", name}, {"labels", {{"example.com/rack", domain_of[name]}}}}},
                  {"spec", {{"taints", {{{"key", "test"}, {"value", "racks"}, {"effect", "NoSchedule"}}}}}},
                  {"status", {{"capacity", room}, {"allocatable", room}}}});
  }
  const Json pod_template = {{"spec",
                              {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}},
                               {"tolerations", {{{"operator", "Exists"}}}}}}};
  const Json exclusive = {{"topology", {{"key", "example.com/rack"}, {"mode", "Exclusive"}}}};
  const auto domains = [&](const std::string& job) {
    std::multiset<std::string> out;
    for (const char* rank : {"0", "1"}) {
      const std::string pod = job + "-0-" + rank;
      if (!has_pod(pod)) continue;
      const std::string node = world_->call("GET", world_->pods() + "/" + pod)["spec"].value("nodeName", "");
      out.insert(node.empty() ? "" : domain_of.at(node));
    }
    return out;
  };
  for (const char* job : {"one", "two"}) create(job, {{"template", pod_template}, {"scheduling", exclusive}});
  const auto has_domain = [&](const std::string& job) {
    return domains(job).size() == 2 && !domains(job).contains("");
  };
  world_->wait("nodes for both jobs", [&] { return has_domain("one") && has_domain("two"); });
  EXPECT_EQ(domains("one").count(*domains("one").begin()), 2U);
  EXPECT_EQ(domains("two").count(*domains("two").begin()), 2U);
  EXPECT_NE(*domains("one").begin(), *domains("two").begin());
  // There is room for four more pods, but no domain without another job, and none that permits another job.
  create("three", {{"template", pod_template}, {"scheduling", exclusive}});
  create("four", {{"template", pod_template}});
  for (const char* job : {"three", "four"}) {
    world_->wait("the scheduler's message",
                 [&] { return condition(job, "Pending").value("reason", "") == "Unschedulable"; });
    EXPECT_THAT(condition(job, "Pending")["message"], HasSubstr("anti-affinity"));
  }
  world_->call("DELETE", world_->jobs() + "/one");
  // As a kubelet confirms the end of pods.
  for (const char* pod : {"one-0-0", "one-0-1"})
    world_->call("DELETE", world_->pods() + "/" + pod, {{"gracePeriodSeconds", 0}});
  world_->wait("the domain of the deleted job", [&] { return has_domain("three") || has_domain("four"); });
  for (const auto& [node, domain] : domain_of) world_->call("DELETE", "/api/v1/nodes/" + node);
}

// Two nodes, on which one job fails twice on the first one and then on the other, and the real scheduler. The pods of
// other tests do not tolerate the nodes.
TEST_F(Placement, PodsAvoidNodesOnWhichTheirJobHasFailed) {
  const Json room = {{"cpu", "8"}, {"memory", "8Gi"}, {"pods", "10"}};
  for (const char* name : {"c-1", "c-2"}) {
    world_->call("POST", "/api/v1/nodes",
                 {{"metadata", {{"name", name}, {"labels", {{"example.com/rack", "c"}}}}},
                  {"spec", {{"taints", {{{"key", "test"}, {"value", "bad-nodes"}, {"effect", "NoSchedule"}}}}}},
                  {"status", {{"capacity", room}, {"allocatable", room}}}});
  }
  const Json rack = {{"key", "example.com/rack"}, {"operator", "In"}, {"values", {"c"}}};
  const Json affinity = {
      {"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", {{{"matchExpressions", {rack}}}}}}}};
  const Json pod_template = {{"spec",
                              {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}},
                               {"affinity", {{"nodeAffinity", affinity}}},
                               {"tolerations", {{{"operator", "Exists"}}}}}}};
  create("j", {{"nodes", 1},
               {"template", pod_template},
               {"scheduling", {{"pendingTimeoutSeconds", 3}}},
               {"failurePolicy", {{"maxRestarts", 9}, {"backoffSeconds", 0}}}});
  const auto node_of = [&](int attempt) {
    const std::string pod = fmt::format("{}/j-{}-0", world_->pods(), attempt);
    std::string node;
    world_->wait(fmt::format("a node for attempt {}", attempt), [&] {
      const Reply reply = server_->call("GET", pod);  // it may be deleted and created again
      if (reply.status == 200) node = reply.body["spec"].value("nodeName", "");
      return !node.empty();
    });
    return node;
  };
  const auto fail = [&](int attempt, int exit_code) {
    const std::string pod = fmt::format("j-{}-0", attempt);
    world_->set_pod(pod, pod_running());
    world_->wait_for_phase("j", "Running");
    world_->set_pod(pod, pod_ended(exit_code));
  };
  const std::string first = node_of(0);
  fail(0, 79);  // a failed device
  const std::string second = node_of(1);
  EXPECT_NE(second, first);
  EXPECT_EQ(world_->status("j")["badNodes"][0]["name"], first);
  EXPECT_EQ(world_->status("j")["badNodes"][0]["avoidance"], "Required");
  fail(1, 1);
  EXPECT_EQ(node_of(2), second) << "other nodes are only preferred";
  fail(2, 1);
  // No node is left, so that the pod is created again until it can be placed.
  EXPECT_THAT((std::vector<std::string>{first, second}), Contains(node_of(3)));
  EXPECT_EQ(world_->status("j")["attempt"], 3) << "the avoidance has caused no further attempt";
  world_->wait("the events", [&] {
    const std::vector<std::string> reasons = world_->event_reasons("j");
    return std::ranges::count(reasons, "AvoidingNode") > 0 && std::ranges::count(reasons, "NodeAvoidanceRelaxed") > 0;
  });
  world_->wait("the metric",
               [&] { return operator_->metric("trainingjob_avoided_nodes", {R"(trainingjob="j")"}) == 2; });
  for (const char* name : {"c-1", "c-2"}) world_->call("DELETE", std::string("/api/v1/nodes/") + name);
}

TEST_F(Placement, ReportsPodsRejectedByPodSecurity) {
  world_->call("PATCH", "/api/v1/namespaces/" + world_->namespace_name(),
               {{"metadata", {{"labels", {{"pod-security.kubernetes.io/enforce", "restricted"}}}}}});
  const Json container = {
      {"name", "trainer"},
      {"image", "example.invalid/t"},
      {"securityContext", {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", {"ALL"}}}}}}};
  const Json pod = {{"securityContext", {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                    {"containers", {container}}};
  create("good", {{"template", {{"spec", pod}}}, {"trainer", {{"task", "mlp"}}}});
  set_group("good", 0, pod_running(), pod_running());
  world_->wait_for_phase("good", "Running");
  create("bad", {});
  world_->wait("the refusal", [&] { return condition("bad", "Pending").value("reason", "") == "CreateRefused"; });
  EXPECT_THAT(condition("bad", "Pending")["message"], HasSubstr("violates PodSecurity \"restricted"));
}

}  // namespace
}  // namespace oarlock::test
