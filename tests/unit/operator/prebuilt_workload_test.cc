// Whether the pods of a job may run with a Workload that the operator has not created, and what a pod requests.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "operator/core/desired.h"
#include "operator/core/pod_requests.h"
#include "operator/core/workload.h"
#include "tests/support/builders.h"

namespace oarlock::control {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// ---- Requests of a pod ---------------------------------------------------------------------------------------------

PodRequests requests_of(const char* pod_spec) { return pod_requests(Json::parse(pod_spec)); }

TEST(PodRequests, AreTheSumOfTheContainers) {
  EXPECT_EQ(requests_of(R"({"containers": [
              {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 4, "nvidia.com/gpu": 8}}},
              {"resources": {"requests": {"cpu": 1}}}, {}]})"),
            (PodRequests{{"cpu", 1.5}, {"memory", 1073741824}, {"nvidia.com/gpu", 8}}))
      << "a limit without a request is one";
}

TEST(PodRequests, AnInitContainerCountsWhileItRuns) {
  constexpr const char* kSpec = R"({"containers": [{"resources": {"requests": {"cpu": 2, "memory": 1}}}],
    "initContainers": [{"resources": {"requests": {"cpu": 3}}},
                       {"restartPolicy": "Always", "resources": {"requests": {"cpu": 2}}},
                       {"resources": {"requests": {"memory": 5}}}]})";
  EXPECT_EQ(requests_of(kSpec), (PodRequests{{"cpu", 4}, {"memory", 5}})) << "a sidecar runs next to the others";
}

TEST(PodRequests, HaveTheResourcesOfThePodItsOverheadAndClaims) {
  EXPECT_EQ(requests_of(R"({"containers": [{"resources": {"requests": {"cpu": 2, "memory": 1}}}],
              "resources": {"requests": {"cpu": 3}}, "overhead": {"cpu": "250m"},
              "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "gpus"},
                                 {"name": "b", "resourceClaimTemplateName": "gpus"},
                                 {"name": "c", "resourceClaimName": "nic"}]})"),
            (PodRequests{{"cpu", 3.25}, {"memory", 1}, {"resource claim gpus", 2}, {"resource claim nic", 1}}));
}

TEST(PodRequests, AcceptAnyPodSpec) {
  for (const char* spec : {"null", "3", R"({"containers": 3, "initContainers": {}, "resources": [], "overhead": "x"})",
                           R"({"containers": [7, {"resources": {"limits": [1], "requests": null}}]})"})
    EXPECT_EQ(requests_of(spec), PodRequests()) << spec;
}

// ---- A Workload of MultiKueue --------------------------------------------------------------------------------------

Json pod_with(const std::string& resources, const std::string& more = "") {
  const Job job = test::JobBuilder().pod_template(R"({"spec": {"containers": [{"name": "trainer", "image": "i",
    "resources": )" + resources + "}]" + more + "}}");
  return PodFactory(job, 0).pod(0);
}

Json workload_with(const std::string& resources) {
  return desired_workload(test::JobBuilder(), {"w", "team", 2}, pod_with(resources), {});
}

TEST(PrebuiltProblem, PodsMayRequestWhatTheWorkloadDoes) {
  const std::string requested = R"({"limits": {"nvidia.com/gpu": 8, "cpu": 0.3, "memory": "64Gi"}})";
  EXPECT_EQ(prebuilt_problem(workload_with(requested), pod_with(requested)), "");
  EXPECT_EQ(prebuilt_problem(workload_with(requested), pod_with("{}")), "");
  EXPECT_EQ(
      prebuilt_problem(workload_with(R"({"limits": {"nvidia.com/gpu": "8", "cpu": "300m", "memory": "65536Mi"}})"),
                       pod_with(requested)),
      "")
      << "Kueue stores quantities in another form";
  EXPECT_EQ(
      prebuilt_problem(workload_with(requested), pod_with(requested, R"(, "initContainers": [{"name": "a", "image": "i",
                               "resources": {"limits": {"cpu": "300m"}}}])")),
      "")
      << "it ends before the trainer starts";
}

TEST(PrebuiltProblem, NamesTheResourceOfWhichPodsRequestMore) {
  const Json workload = workload_with(R"({"limits": {"nvidia.com/gpu": 4}})");
  EXPECT_EQ(prebuilt_problem(workload, pod_with(R"({"limits": {"nvidia.com/gpu": 8}})")),
            "each pod of the job requests 8 of nvidia.com/gpu, and Workload w was admitted for 4; use the template and "
            "the TrainingProfile of the manager cluster");
  EXPECT_THAT(prebuilt_problem(workload, pod_with(R"({"limits": {"nvidia.com/gpu": 4, "cpu": 1}})")),
              HasSubstr("requests 1 of cpu, and Workload w was admitted for 0"));
}

TEST(PrebuiltProblem, TheWorkloadHasOnePodSet) {
  Json workload = workload_with("{}");
  workload["spec"]["podSets"].push_back(workload["spec"]["podSets"][0]);
  EXPECT_THAT(prebuilt_problem(workload, pod_with("{}")), HasSubstr("Workload w has 2 podSets"));
  EXPECT_THAT(prebuilt_problem(Json(), pod_with("{}")), HasSubstr("has 0 podSets"));
}

}  // namespace
}  // namespace oarlock::control
