// Policies of a job against a real kube-apiserver with the real controllers: its restarts, its end, the cleanup of its
// objects, and objects that cannot be read.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/operator/policy_fixture.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// The profile changes ten times while the job restarts ten times, and once with another process of the operator.
TEST_F(Policies, ChangedProfileReachesJobAtItsResumeOnly) {
  const std::string profiles =
      "/apis/oarlock.dev/v1alpha1/namespaces/" + world_->namespace_name() + "/trainingprofiles";
  const auto spec_of = [](int value) -> Json {
    const Json variable = {{"name", "VALUE"}, {"value", std::to_string(value)}};
    return {{"template", {{"spec", {{"containers", {{{"name", "trainer"}, {"env", Json::array({variable})}}}}}}}}};
  };
  const auto value_of = [&](const std::string& pod) -> std::string {
    const Json found = world_->pod(pod);
    for (const Json& variable : found["spec"]["containers"][0]["env"]) {
      if (variable["name"] == "VALUE") return variable["value"];
    }
    return "none";
  };
  create("j", {{"nodes", 1}, {"profile", "team"}, {"failurePolicy", {{"maxRestarts", 100}, {"backoffSeconds", 0}}}});
  world_->wait("the reason", [&] { return world_->has_condition("j", "Pending", "True", "ProfileNotFound"); });
  world_->call("POST", profiles,
               {{"apiVersion", kApiVersion},
                {"kind", "TrainingProfile"},
                {"metadata", {{"name", "team"}}},
                {"spec", spec_of(0)}});
  for (int change = 1; change <= 10; ++change) {
    const std::string pod = fmt::format("j-{}-0", change - 1);
    world_->wait("pod " + pod, [&] { return has_pod(pod); });
    EXPECT_EQ(value_of(pod), "0") << pod;
    world_->set_pod(pod, pod_running());
    world_->wait_for_phase("j", "Running");
    world_->call("PATCH", profiles + "/team", {{"spec", spec_of(change)}});
    if (change == 5) {
      operator_.reset();
      operator_ = std::make_unique<OperatorProcess>(
          std::vector<std::string>{"--kubeconfig", server_->kubeconfig(), "--namespace", world_->namespace_name()});
    }
    world_->set_pod(pod, pod_ended(1));
  }
  world_->wait("the last attempt", [&] { return has_pod("j-10-0"); });
  EXPECT_EQ(value_of("j-10-0"), "0");
  world_->patch_job("j", {{"spec", {{"suspend", true}}}});
  world_->wait("the condition Suspended", [&] { return world_->has_condition("j", "Suspended", "True"); });
  world_->patch_job("j", {{"spec", {{"suspend", false}}}});
  world_->wait("the resumed attempt", [&] { return has_pod("j-11-0"); });
  EXPECT_EQ(value_of("j-11-0"), "10");
  EXPECT_EQ(world_->status("j")["profile"]["generation"], 11);
}

TEST_F(Policies, DeletesJobAfterTimeToLive) {
  create("j", {{"ttlSecondsAfterFinished", 1}});
  set_group("j", 0, pod_ended(0), pod_ended(0));
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  world_->wait("the end of what it owns",
               [&] { return !has_pod("j-0-0") && !has_pod("j-0-1") && !exists(service("j")); });
}

TEST_F(Policies, TheRoleOfTheManifestMayDeleteJobs) {
  server_->apply(test::source_path("manifests/install.yaml"));
  const Json attributes = {{"verb", "delete"}, {"group", kGroup}, {"resource", kPlural}, {"namespace", "default"}};
  const Json answer = world_->call(
      "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      {{"apiVersion", "authorization.k8s.io/v1"},
       {"kind", "SubjectAccessReview"},
       {"spec",
        {{"user", "system:serviceaccount:oarlock-system:oarlock-operator"}, {"resourceAttributes", attributes}}}});
  EXPECT_EQ(answer["status"]["allowed"], true);
}

TEST_F(Policies, ActiveDeadlineFailsJobAndDeletesPods) {
  create("j", {{"activeDeadlineSeconds", 8}});  // enough for the pods, which are set below
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Failed");
  EXPECT_EQ(condition("j", "Failed")["reason"], "DeadlineExceeded");
  EXPECT_EQ(world_->status("j")["restarts"]["total"], 0);
  world_->wait_for_pods({});
}

TEST_F(Policies, CleansUpPodsByPolicy) {
  create("all", {{"cleanPodPolicy", "All"}});
  create("none", {{"cleanPodPolicy", "None"}, {"failurePolicy", {{"maxRestarts", 0}}}});
  set_group("all", 0, pod_ended(0), pod_ended(0));
  set_group("none", 0, pod_running(), pod_ended(1));
  world_->wait_for_phase("all", "Complete");
  world_->wait_for_phase("none", "Failed");
  world_->wait("the end of the pods", [&] { return !has_pod("all-0-0") && !has_pod("all-0-1"); });
  world_->wait("the end of the Service", [&] { return !exists(service("all")); });
  let_time_pass();
  EXPECT_EQ(world_->live_pods().count("none-0-0"), 1U);
  EXPECT_TRUE(has_pod("none-0-1"));
  EXPECT_TRUE(exists(service("none")));
}

TEST_F(Policies, AJobOfAnotherManagerIsLeftAlone) {
  create("j", {{"managedBy", "kueue.x-k8s.io/multikueue"}});
  let_time_pass();
  EXPECT_EQ(world_->status("j"), Json::object());
  EXPECT_FALSE(has_pod("j-0-0"));
  EXPECT_FALSE(exists(service("j")));
}

TEST_F(Policies, Rank0AloneMakesTheJobComplete) {
  create("j", {{"successPolicy", "Rank0"}});
  set_group("j", 0, pod_running(), pod_running());
  world_->set_pod("j-0-0", pod_ended(0));  // last, because the operator then deletes the other pod
  world_->wait_for_phase("j", "Complete");
  world_->wait_for_pods({});
}

TEST_F(Policies, RulesDecideAboutRestarts) {
  const Json rules = {{{"action", "Fail"}, {"onExitCodes", {{"operator", "In"}, {"values", {42}}}}}};
  create("j", {{"failurePolicy", {{"maxRestarts", 1}, {"backoffSeconds", 0}, {"rules", rules}}}});
  Json preempted = pod_ended(143);
  Json disruption = pod_condition("DisruptionTarget", true);
  disruption["reason"] = "PreemptionByScheduler";
  preempted["conditions"].push_back(disruption);
  set_group("j", 0, pod_running(), preempted);
  world_->wait("attempt 1", [&] { return world_->status("j").value("attempt", 0) == 1; });
  EXPECT_EQ(world_->status("j")["restarts"]["total"], 1);
  EXPECT_EQ(world_->status("j")["restarts"]["charged"], 0);
  EXPECT_EQ(world_->status("j")["restarts"]["reasons"], Json::parse(R"([{"reason": "Disrupted", "count": 1}])"));
  // Its metrics are computed from its cache, which receives the status a moment later.
  world_->wait("the count in the metrics",
               [&] { return operator_->metric("trainingjob_restarts_total", {R"(reason="Disrupted")"}) == 1; });
  set_group("j", 1, pod_running(), pod_ended(42));
  world_->wait_for_phase("j", "Failed");
  EXPECT_EQ(condition("j", "Failed")["reason"], "FailurePolicy");
}

TEST_F(Policies, FailuresWithoutProgressFailTheJobWithTheReason) {
  create("j", {{"failurePolicy", {{"maxRestarts", 100}, {"maxFailuresAtStep", 3}, {"backoffSeconds", 0}}}});
  for (int attempt = 0; attempt < 3; ++attempt) fail_at_step("j", attempt, 1200);
  world_->wait_for_phase("j", "Failed");
  EXPECT_EQ(condition("j", "Failed")["reason"], "NoProgress");
  EXPECT_THAT(condition("j", "Failed")["message"], HasSubstr("failed 3 times without progress beyond step 1200"));
  EXPECT_EQ(world_->status("j")["restarts"]["charged"], 1);
  EXPECT_EQ(world_->status("j")["restarts"]["afterProgress"]["failures"], 3);
}

TEST_F(Policies, RestartsAfterProgressAreNotCharged) {
  create("j", {{"failurePolicy", {{"maxRestarts", 1}, {"backoffSeconds", 0}}}});
  for (int attempt = 0; attempt < 10; ++attempt) fail_at_step("j", attempt, 10 * (attempt + 1));
  set_group("j", 10, pod_ended(0), pod_ended(0));
  world_->wait_for_phase("j", "Complete");
  EXPECT_EQ(world_->status("j")["restarts"]["total"], 10);
  EXPECT_EQ(world_->status("j")["restarts"]["charged"], 0);
  EXPECT_EQ(world_->status("j")["restarts"]["afterProgress"]["count"], 10);
}

// The API server stores integers that fit no 64 bits as doubles: 18446744073709551615 as 18446744073709552000.
TEST_F(Policies, NumbersOfOneJobHideNoOtherJob) {
  const std::map<std::string, std::pair<Json, std::string>> numbers = {
      {"wide", {18446744073709551615ULL, "18446744073709552000"}},
      {"low", {-9300000000000000000.0, "-9300000000000000000"}},
      {"large", {1e300, "1e+300"}},
      {"tiny", {5e-324, "5e-324"}}};
  for (const auto& [name, number] : numbers) create(name, {{"trainer", {{"seed", number.first}}}});
  create("after", {});
  set_group("after", 0, pod_running(), pod_running());
  world_->wait_for_phase("after", "Running");
  for (const auto& [name, number] : numbers) {
    world_->wait("the pods of " + name, [&] { return has_pod(name + "-0-0") && has_pod(name + "-0-1"); });
    const Json pod = world_->call("GET", world_->pods() + "/" + name + "-0-0");
    EXPECT_EQ(pod["metadata"]["annotations"][kAnnotationConfig], R"({"seed":)" + number.second + "}");
  }
  EXPECT_EQ(operator_->metric("oarlock_cache_unreadable_objects_total"), 0);
  EXPECT_EQ(operator_->get("/readyz").status, 200);
}

// The API server accepts up to 10,000 levels of JSON.
TEST_F(Policies, LargeConfigurationsDoNotAffectOtherJobs) {
  create_text("deep", kTemplate, R"({"deep":)" + nested_lists(9900) + "}");
  create("long", {{"trainer", {{"text", std::string(200000, 'x')}}}});
  create("after", {});
  for (const std::string name : {"deep", "long", "after"})
    world_->wait("the pods of " + name, [&] { return has_pod(name + "-0-0") && has_pod(name + "-0-1"); });
}

TEST_F(Policies, ReportsUnreadableJobOnItself) {
  create_text("j", R"({"deep":)" + nested_lists(9900) + "," + std::string(kTemplate).substr(1), "{}");
  create("after", {});
  set_group("after", 0, pod_running(), pod_running());
  world_->wait_for_phase("after", "Running");
  world_->wait("the condition", [&] { return condition("j", "Unreadable").value("status", "") == "True"; });
  EXPECT_EQ(condition("j", "Unreadable")["reason"], "InvalidObject");
  EXPECT_THAT(condition("j", "Unreadable")["message"].get<std::string>(),
              HasSubstr("spec.template: nested deeper than 100 levels; the operator ignores the job"));
  world_->wait("the event", [&] {
    const std::vector<std::string> reasons = world_->event_reasons("j");
    return std::ranges::count(reasons, "Unreadable") == 1;
  });
  EXPECT_FALSE(has_pod("j-0-0"));
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  // The same name can be used again.
  world_->delete_job("j");
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  EXPECT_TRUE(condition("j", "Unreadable").empty());
}

TEST_F(Policies, ForegroundDeletionDeletesPodsFirst) {
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  world_->call("DELETE", world_->jobs() + "/j", {{"propagationPolicy", "Foreground"}});
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  EXPECT_FALSE(has_pod("j-0-0")) << "they went first";
  EXPECT_FALSE(has_pod("j-0-1"));
  let_time_pass();
  EXPECT_FALSE(has_pod("j-0-0")) << "and nothing is made again";
}

TEST_F(Policies, OrphanedPodsBlockNewJobOfSameName) {
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  world_->call("DELETE", world_->jobs() + "/j", {{"propagationPolicy", "Orphan"}});
  world_->wait("the end of the job", [&] { return !exists(world_->jobs() + "/j"); });
  let_time_pass();
  EXPECT_EQ(world_->live_pods().count("j-0-0") + world_->live_pods().count("j-0-1"), 2U);
  EXPECT_FALSE(world_->call("GET", world_->pods() + "/j-0-0")["metadata"].contains("ownerReferences"));
  create("j", {});
  world_->wait("word of the names", [&] { return condition("j", "Pending").value("reason", "") == "NameTaken"; });
  EXPECT_EQ(world_->live_pods().count("j-0-0"), 1U);
}

TEST_F(Policies, PodWithoutTheLabelRemainsPartOfTheGroup) {
  create("j", {});
  set_group("j", 0, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  const auto label = [&](const Json& value) {
    world_->call("PATCH", world_->pods() + "/j-0-1", {{"metadata", {{"labels", {{kLabelJobName, value}}}}}});
  };
  const auto is_reported = [&] { return condition("j", "PodsUnlabeled").value("status", "") == "True"; };
  label(nullptr);
  world_->wait("the condition", is_reported);
  EXPECT_THAT(condition("j", "PodsUnlabeled")["message"], HasSubstr("pod j-0-1 does not have the label"));
  label("j");
  world_->wait("its end", [&] { return !is_reported(); });
  label("another");
  world_->wait("the condition", is_reported);
  EXPECT_EQ(world_->status("j")["attempt"], 0);
  EXPECT_EQ(world_->phase("j"), "Running");
  world_->set_pod("j-0-1", pod_ended(1));  // no watch reports it
  world_->set_pod("j-0-0", pod_running("10.0.0.9"));
  set_group("j", 1, pod_running(), pod_running());
  world_->wait_for_phase("j", "Running");
  EXPECT_FALSE(is_reported());
  EXPECT_EQ(world_->status("j")["attempts"][0]["exitCode"], 1);
}

}  // namespace
}  // namespace oarlock::test
