#include "api/validate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/resources.h"
#include "api/rules.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct InvalidTemplate {
  const char* pointer;  // into the template
  json value;
  const char* path;
  std::string message;
};

TEST(Validate, RejectsInvalidJobs) {
  const InvalidTemplate cases[] = {
      {.pointer = "/spec/restartPolicy",
       .value = "OnFailure",
       .path = "spec.template.spec.restartPolicy",
       .message = api::rules::kRestartPolicy},
      {.pointer = "/spec/containers/0/restartPolicy",
       .value = "Always",
       .path = "spec.template.spec.containers[0].restartPolicy",
       .message = api::rules::kTrainerRestarts},
      {.pointer = "/spec/containers/0/restartPolicyRules",
       .value = json::array({{{"action", "Restart"}}}),
       .path = "spec.template.spec.containers[0].restartPolicyRules",
       .message = api::rules::kTrainerRestarts},
      {.pointer = "/spec/hostname",
       .value = "h",
       .path = "spec.template.spec.hostname",
       .message = api::rules::kHostname},
      {.pointer = "/spec/subdomain",
       .value = "s",
       .path = "spec.template.spec.subdomain",
       .message = api::rules::kHostname},
      {.pointer = "/spec/volumes",
       .value = json::array({{{"name", "oarlock-shm"}}}),
       .path = "spec.template.spec.volumes[0].name",
       .message = api::rules::kVolumeName},
      {.pointer = "/spec/containers/0/name",
       .value = "main",
       .path = "spec.template.spec.containers",
       .message = api::rules::kTrainer},
      {.pointer = "/spec/containers/1",
       .value = {{"name", "trainer"}},
       .path = "spec.template.spec.containers",
       .message = api::rules::kTrainer},
      {.pointer = "/spec/containers/1",
       .value = {{"name", "x"}, {"ports", json::array({{{"containerPort", 29500}}})}},
       .path = "spec.template.spec.containers[1].ports[0].containerPort",
       .message = api::rules::kPortTaken},
      {.pointer = "/spec/containers/1",
       .value = {{"name", "x"}, {"ports", json::array({{{"containerPort", 9401}}})}},
       .path = "spec.template.spec.containers[1].ports[0].containerPort",
       .message = api::rules::kPortTaken},
      {.pointer = "/spec/containers/0/volumeMounts",
       .value = json::array({{{"name", "v"}, {"mountPath", "/etc/oarlock/"}}}),
       .path = "spec.template.spec.containers[0].volumeMounts[0].mountPath",
       .message = api::rules::kConfigMount},
      {.pointer = "/spec/containers/0/volumeMounts",
       .value = "x",
       .path = "spec.template.spec.containers[0].volumeMounts",
       .message = "expected a list, got string"},
      {.pointer = "/spec/containers/0/env",
       .value = json::array({"A=b"}),
       .path = "spec.template.spec.containers[0].env[0]",
       .message = "expected a map, got string"},
      {.pointer = "/spec",
       .value = json::array(),
       .path = "spec.template.spec",
       .message = "expected a map, got array"},
      {.pointer = "/spec/containers",
       .value = {{"name", "trainer"}},
       .path = "spec.template.spec.containers",
       .message = "expected a list, got object"},
      {.pointer = "/spec/initContainers",
       .value = std::vector<json>(100'000, json::object()),
       .path = "spec.template.spec.initContainers",
       .message = "has 100000 items; the maximum is 32"},
      {.pointer = "/metadata",
       .value = {{"labels", {{"a", 1}}}},
       .path = "spec.template.metadata.labels",
       .message = "'a' is not a string; put its value in quotes"},
      {.pointer = "/spec/containers/0/resources",
       .value = {{"limits", {{"cpu", "1e999999999"}}}},
       .path = "spec.template.spec.containers[0].resources.limits.cpu",
       .message = fmt::format("1e999999999: {}", api::rules::kQuantityTooLong)},
      {.pointer = "/spec/containers/0/resources",
       .value = {{"limits", {{"nvidia.com/gpu", "1500m"}}}},
       .path = "spec.template.spec.containers[0].resources.limits.nvidia.com/gpu",
       .message = fmt::format("\"1500m\" {}", api::rules::kNotWhole)},
      {.pointer = "/spec/overhead",
       .value = {{"memory", "1E+100"}},
       .path = "spec.template.spec.overhead.memory",
       .message = fmt::format("1E+100: {}", api::rules::kQuantityTooLong)},
      {.pointer = "/spec/volumes",
       .value = json::array({{{"name", "v"}, {"emptyDir", {{"sizeLimit", std::string(65, '9')}}}}}),
       .path = "spec.template.spec.volumes[0].emptyDir.sizeLimit",
       .message = fmt::format("{}: {}", std::string(65, '9'), api::rules::kQuantityTooLong)},
  };
  for (const InvalidTemplate& test : cases) {
    json pod = json::parse(kMinimalTemplate);
    pod[json::json_pointer(test.pointer)] = test.value;
    const auto problems =
        api::validate(JobBuilder().processes_per_node(2).trainer("{}").pod_template(pod.dump()).build());
    ASSERT_FALSE(problems.empty()) << test.pointer << " " << test.value;
    EXPECT_EQ(problems[0], (api::FieldProblem{test.path, test.message}));
  }
}

TEST(Validate, AcceptsExponentsThatAreNotThoseOfQuantities) {
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["containers"][0]["args"] = {"--lr=1e-300"};
  pod["spec"]["containers"][0]["env"] = json::array({{{"name", "limits"}, {"value", "1e999"}}});
  pod["spec"]["containers"][0]["resources"]["limits"] = {{"cpu", "1e3"}, {"memory", "12E"}, {"example.com/eye", 2}};
  EXPECT_THAT(api::validate(JobBuilder().pod_template(pod.dump()).build()), testing::IsEmpty());
}

// The size is checked before the template is parsed, because its JSON tree would use some ten MiB.
TEST(Validate, RejectsLargeTemplate) {
  const auto problems_of = [](size_t size) {
    const std::string frame = R"({"spec":{"containers":[{"name":"trainer","image":"x"}],"note":""}})";
    std::string text = frame;
    text.insert(text.size() - 3, size - frame.size(), 'x');
    return api::validate(JobBuilder().nodes(1).pod_template(text));
  };
  EXPECT_TRUE(problems_of(512 << 10).empty());
  const std::vector<api::FieldProblem> problems = problems_of((512 << 10) + 1);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].path, "spec.template");
  EXPECT_THAT(problems[0].message, HasSubstr("has 513 KiB; the maximum is 512 KiB: move large parts"));
}

// Otherwise one job would take GiBs: a path for each problem, with a key of any length in each.
TEST(Validate, ProblemsOfALargeTemplateTakeLittleMemory) {
  const std::string key(300'000, 'k');
  const auto problems_of = [&key](const char* item) {
    json pod = {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "x"}}}}}}};
    pod["spec"][key] = json::array();
    for (int i = 0; i < 8000; ++i) pod["spec"][key].push_back(json::parse(item));
    return api::validate(JobBuilder().nodes(1).pod_template(pod.dump()));
  };
  const std::vector<api::FieldProblem> problems = problems_of(R"({"sizeLimit": "1e999"})");
  ASSERT_EQ(problems.size(), api::kMaxProblems);
  for (const api::FieldProblem& problem : problems) {
    EXPECT_LT(problem.path.size(), 1100U);
    EXPECT_THAT(problem.path, testing::StartsWith("spec.template.spec.kkk"));
  }
  EXPECT_THAT(problems_of("{}"), testing::IsEmpty());
}

// The number of processes is resolved for each event of a watch, before the size of the template is checked.
TEST(Validate, GpusOfATemplateAreReadWithoutTheRestOfIt) {
  const auto processes_of = [](const std::string& limits, const std::string& rest) {
    api::TrainingJob job = JobBuilder().pod_template(
        fmt::format(R"({{"spec":{{"containers":[{{"image":"x","name":"trainer","resources":{{"limits":{}}}}}]{}}}}})",
                    limits, rest));
    job.spec.processes_from = NumberForm::kName;
    job.spec.resources_per_node.emplace().limits = R"({"nvidia.com/gpu":4})";
    api::resolve_processes_per_node(job.spec);
    return job.spec.processes_per_node;
  };
  EXPECT_EQ(processes_of(R"({"nvidia.com/gpu":2,"cpu":"4"})", ""), 2);
  EXPECT_EQ(processes_of(R"({"nvidia.com/gpu":null,"amd.com/gpu":"3"})", ""), 3);
  EXPECT_EQ(processes_of("null", ""), 1);
  EXPECT_EQ(processes_of("{}", R"(,"containers":{"limits":{"nvidia.com/gpu":7}})"), 4) << "the last key applies";
  EXPECT_EQ(processes_of(R"({"x":[[{"nvidia.com/gpu":9}]],"cpu":{"nvidia.com/gpu":9},"nvidia.com/gpu":2})", ""), 2);
  EXPECT_EQ(processes_of(R"({"nvidia.com/gpu":2})", ",\"x\":\"" + std::string(600 << 10, 'x') + "\""), 4)
      << "a template that is too large counts as none";
}

TEST(Validate, NumbersDoNotOverflow) {
  for (const int number : {std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    const std::vector<api::FieldProblem> problems =
        api::validate(JobBuilder().nodes(number).processes_per_node(number));
    EXPECT_EQ(problems.at(0).path, "spec.nodes");
    for (const api::FieldProblem& problem : problems) EXPECT_NE(problem.message, api::rules::kPortTaken);
  }
  EXPECT_TRUE(std::ranges::any_of(
      api::validate(JobBuilder().processes_per_node(std::numeric_limits<int>::max())),
      [](const api::FieldProblem& problem) { return problem.message == api::rules::kPortIsMetrics; }))
      << "every port after 9400 is a metrics port";
}

// The launchers of several nodes use the port after rendezvous.port.
TEST(Validate, ReservesThePortAfterTheRendezvousPort) {
  const auto problems = [](const JobBuilder& builder, int port) {
    api::TrainingJob job = JobBuilder(builder).restart_scope(api::RestartScope::kRank);
    job.spec.rendezvous.port = port;
    return api::validate(job);
  };
  const JobBuilder two = JobBuilder().nodes(2);
  for (const int port : {65535, 9399}) {
    EXPECT_THAT(problems(two, port),
                testing::ElementsAre(api::FieldProblem{"spec.rendezvous.port", api::rules::kPortAfter}));
    EXPECT_THAT(problems(JobBuilder().nodes(1), port), testing::IsEmpty());
    EXPECT_THAT(problems(JobBuilder(two).max_restarts(0), port), testing::IsEmpty());
  }
  EXPECT_THAT(problems(two, 29500), testing::IsEmpty());
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["containers"][1] = {{"name", "side"}, {"ports", json::array({{{"containerPort", 29501}}})}};
  EXPECT_THAT(problems(JobBuilder(two).pod_template(pod.dump()), 29500),
              testing::ElementsAre(api::FieldProblem{"spec.template.spec.containers[1].ports[0].containerPort",
                                                     api::rules::kPortTaken}));
  EXPECT_THAT(api::validate(JobBuilder(two).pod_template(pod.dump())), testing::IsEmpty()) << "restartScope Group";
}

// The launchers of several nodes use the second port after rendezvous.port for the preflight.
TEST(Validate, ReservesThePortOfThePreflight) {
  const auto problems = [](const JobBuilder& builder, int port) {
    api::TrainingJob job = builder;
    job.spec.preflight.emplace();
    job.spec.rendezvous.port = port;
    return api::validate(job);
  };
  const JobBuilder two = JobBuilder().nodes(2);
  for (const int port : {65535, 65534, 9398}) {
    EXPECT_THAT(problems(two, port),
                testing::ElementsAre(api::FieldProblem{"spec.rendezvous.port", api::rules::kPortAfter}));
    EXPECT_THAT(problems(JobBuilder().nodes(1), port), testing::IsEmpty());
  }
  EXPECT_THAT(problems(two, 65533), testing::IsEmpty());
  EXPECT_THAT(problems(two, 9399), testing::IsEmpty()) << "restartScope Group does not use the port after it";
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["containers"][1] = {{"name", "side"}, {"ports", json::array({{{"containerPort", 29502}}})}};
  EXPECT_THAT(problems(JobBuilder(two).pod_template(pod.dump()), 29500),
              testing::ElementsAre(api::FieldProblem{"spec.template.spec.containers[1].ports[0].containerPort",
                                                     api::rules::kPortTaken}));
  EXPECT_THAT(api::validate(JobBuilder(two).pod_template(pod.dump())), testing::IsEmpty()) << "no preflight";
}

TEST(Validate, PreflightHasTheTimeOfASlowStart) {
  api::TrainingJob job = JobBuilder();
  job.spec.preflight.emplace().timeout_seconds = 60;
  EXPECT_THAT(api::validate(job), testing::IsEmpty());
  job.spec.preflight->timeout_seconds = 59;
  EXPECT_EQ(api::validate(job).at(0).path, "spec.preflight.timeoutSeconds");
}

// The profile may have another rendezvous.port. The job that is merged with it is checked again.
TEST(Validate, AJobThatNamesItsProfileMayUseTheDefaultPort) {
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["containers"][1] = {{"name", "side"}, {"ports", json::array({{{"containerPort", 29500}}})}};
  api::TrainingJob job = JobBuilder().pod_template(pod.dump());
  job.spec.profile = "";
  EXPECT_FALSE(api::validate(job).empty());
  job.spec.profile = "gpus";
  EXPECT_THAT(api::validate(job), testing::IsEmpty());
  job.status.profile = api::AppliedProfile{"gpus", "team", "uid", 1};
  EXPECT_FALSE(api::validate(job).empty()) << "the profile has the default, too";
  job.spec.rendezvous.port = 30000;
  EXPECT_THAT(api::validate(job), testing::IsEmpty());
}

TEST(Validate, AcceptsSimilarValidTemplate) {
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["restartPolicy"] = "Never";
  pod["spec"]["containers"][0]["ports"] = json::array({{{"containerPort", 9400}}});
  pod["spec"]["containers"][0]["volumeMounts"] = json::array({{{"name", "v"}, {"mountPath", "/etc/oarlock"}}});
  pod["spec"]["containers"][1] = {{"name", "side"}, {"ports", json::array({{{"containerPort", 9401}}})}};
  EXPECT_TRUE(api::validate(JobBuilder().pod_template(pod.dump()).build()).empty())
      << "one process per node, no spec.trainer";
}

// The schema cannot limit the total size of the pods of a job.
TEST(Validate, LimitsTotalSizeOfPods) {
  const auto problems = [](int nodes, size_t bytes) {
    return api::validate(JobBuilder().nodes(nodes).trainer(json{{"x", std::string(bytes, 'x')}}.dump()).build());
  };
  EXPECT_TRUE(problems(4096, 60 << 10).empty());
  EXPECT_TRUE(problems(1024, 240 << 10).empty());
  const auto found = problems(4096, 240 << 10);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].path, "spec.trainer");
  EXPECT_THAT(
      found[0].message,
      HasSubstr("4096 nodes times 241 KiB of spec.template and spec.trainer are 961 MiB; the maximum is 256 MiB"));
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["containers"][0]["args"] = {std::string(100 << 10, 'x')};
  const auto large_template = api::validate(JobBuilder().nodes(4096).pod_template(pod.dump()).build());
  ASSERT_EQ(large_template.size(), 1U);
  EXPECT_EQ(large_template[0].path, "spec.template");
  // Each container receives the environment of the job.
  pod = json::parse(kMinimalTemplate);
  for (int i = 0; i < 31; ++i) {
    const std::string name = fmt::format("container-with-a-long-name-{}", i);
    pod["spec"]["containers"].push_back({{"name", name}, {"image", "i"}});
    pod["spec"]["initContainers"].push_back({{"name", "init-" + name}, {"image", "i"}});
  }
  const std::string many_containers = pod.dump();
  EXPECT_TRUE(api::validate(JobBuilder().nodes(2048).pod_template(many_containers).build()).empty());
  const auto environments = api::validate(JobBuilder().nodes(4096).pod_template(many_containers).build());
  ASSERT_EQ(environments.size(), 1U);
  EXPECT_THAT(environments[0].message,
              HasSubstr("of spec.template, the environment of its containers and spec.trainer"));
}

// The API server accepts 262,144 bytes of annotations, keys included.
TEST(Validate, LimitsSizeOfAnnotations) {
  json pod = json::parse(kMinimalTemplate);
  pod["metadata"]["annotations"]["note"] = "12345";
  const auto problems = [&](size_t trainer) {
    const std::string text = json{{"x", std::string(trainer - 8, 'x')}}.dump();
    return api::validate(JobBuilder().pod_template(pod.dump()).trainer(text).build());
  };
  const size_t most = (256 << 10) - 9 - std::string_view(kAnnotationConfig).size();
  EXPECT_TRUE(problems(most).empty());
  const auto found = problems(most + 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].path, "spec.trainer");
  EXPECT_THAT(found[0].message, HasSubstr("262145 bytes; the maximum is 262144"));
}

TEST(Validate, NamesLeaveRoomForAttemptAndRank) {
  const auto problems = [](size_t length, int nodes) {
    return api::validate(JobBuilder(std::string(length, 'a')).nodes(nodes).build());
  };
  EXPECT_TRUE(problems(56, 10).empty());
  ASSERT_EQ(problems(56, 11).size(), 1U);
  EXPECT_EQ(problems(56, 11)[0], (api::FieldProblem{"metadata.name", api::rules::kNameLength}));
  EXPECT_EQ(std::string(56, 'a').size() + std::string("-9999-9").size(), 63U);
  for (const char* name : {"", "A", "1a", "a.b", "a-", "-a", "a_b"})
    EXPECT_FALSE(api::validate(JobBuilder(name).build()).empty()) << name;
}

}  // namespace
}  // namespace oarlock::test
