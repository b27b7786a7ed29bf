// Pods that the API server can never accept: the path in the job, and the end of the job.
#include "operator/core/rejection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "operator/core/desired.h"
#include "operator/core/reconcile.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"
#include "tests/support/template_typos.h"

namespace oarlock::control {
namespace {

using test::JobBuilder;
using test::names;
using test::only;
using test::seen;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kStrict[] =
    R"(Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "{}")";

// Returns the path of a field of full_template() in the pod, where the contract's variables precede those of the
// template.
std::string path_in_pod(const Job& job, std::string path) {
  path.erase(0, std::string("spec.template.").size());
  const std::string marker = ".env[";
  const size_t at = path.find(marker);
  if (at == std::string::npos) return path;
  const size_t digit = at + marker.size();
  const char* const containers = path.starts_with("spec.initContainers") ? "initContainers" : "containers";
  const auto variables = [&](const Json& pod) { return pod.at("spec").at(containers).at(0).at("env").size(); };
  const size_t own = variables(PodFactory(job, 0).pod(0)) - variables(test::full_template());
  return path.replace(digit, 1, std::to_string(own + static_cast<size_t>(path[digit] - '0')));
}

TEST(Rejection, TyposHaveThePathInTheJob) {
  for (const test::TemplateTypo& typo : test::template_typos()) {
    const Job job = JobBuilder().pod_template(test::with_typo(typo).dump()).build();
    const std::string path = test::path_of(typo);
    const auto text = explain_invalid_pod(job, 400, fmt::format(fmt::runtime(kStrict), path_in_pod(job, path)));
    ASSERT_TRUE(text) << path;
    EXPECT_EQ(*text, path + ": unknown field");
  }
}

TEST(Rejection, OverriddenVariablesDoNotShiftThePath) {
  const Job job = JobBuilder().pod_template(R"({"spec": {"containers": [{"name": "trainer", "image": "i", "env": [
    {"name": "RANK", "value": "1"}, {"name": "A", "valeu": "b"}]}]}})");
  const size_t last = PodFactory(job, 0).pod(0)["spec"]["containers"][0]["env"].size() - 1;
  EXPECT_EQ(explain_invalid_pod(
                job, 400, fmt::format(fmt::runtime(kStrict), fmt::format("spec.containers[0].env[{}].valeu", last))),
            "spec.template.spec.containers[0].env[1].valeu: unknown field");
}

TEST(Rejection, SeveralFieldsAndInvalidValues) {
  const Job job = JobBuilder().pod_template(
      R"({"spec": {"foo": 1, "containers": [{"name": "trainer", "image": "i", "bar": 2, "resources": {"limits": {"cpu": "x"}}}]}})");
  EXPECT_EQ(
      explain_invalid_pod(job, 400,
                          R"(Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field )"
                          R"("spec.containers[0].bar", unknown field "spec.foo")"),
      "spec.template.spec.containers[0].bar: unknown field, spec.template.spec.foo: unknown field");
  EXPECT_EQ(
      explain_invalid_pod(
          job, 400, R"(Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression)"),
      "spec.template.spec.containers[0].resources.limits.cpu: \"x\" is not a quantity, such as 4, 500m or 16Gi");
  EXPECT_EQ(explain_invalid_pod(
                job, 422, R"(Pod "bert-0-0" is invalid: spec.containers[0].resources.limits[cpu]: Invalid value)"),
            "spec.template.spec.containers[0].resources.limits[cpu]: Invalid value");
}

TEST(Rejection, NamesInvalidSizeLimit) {
  const Job job =
      JobBuilder().pod_template(R"({"spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "x"}}]}})");
  EXPECT_EQ(
      explain_invalid_pod(
          job, 400, R"(Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression)"),
      "spec.template.spec.volumes[0].emptyDir.sizeLimit: \"x\" is not a quantity, such as 4, 500m or 16Gi");
}

// The messages of kube-apiserver 1.35, which name the types of Go, and fields without indices.
TEST(Rejection, ValuesOfWrongTypesHaveThePathInTheJob) {
  struct WrongValue {
    const char* problem;
    const char* expected;
  };
  const Job job = JobBuilder().pod_template(R"({"spec": {
    "hostNetwork": "true", "nodeSelector": {"disk": "ssd", "gpu": true}, "terminationGracePeriodSeconds": 1.5,
    "tolerations": {"key": "a"}, "initContainers": [{"name": "a", "args": ["b", 3]}],
    "containers": [{"name": "side"}, {"name": "trainer", "image": "i", "command": "python3 train.py",
      "env": [{"name": "A", "value": "1"}, {"name": "B", "value": 3}], "livenessProbe": {"httpGet": {"port": 80.5}}}]}})");
  const WrongValue rows[] = {
      {.problem = "string into Go struct field Container.spec.containers.command of type []string",
       .expected = "spec.containers[1].command: expected a list, got a string"},
      {.problem = "number into Go struct field EnvVar.spec.containers.env.value of type string",
       .expected = "spec.containers[1].env[1].value: expected a string; put it in quotes, got a number"},
      {.problem = "number into Go struct field Container.spec.initContainers.args of type string",
       .expected = "spec.initContainers[0].args[1]: expected a string; put it in quotes, got a number"},
      {.problem = "bool into Go struct field PodSpec.spec.nodeSelector of type string",
       .expected = "spec.nodeSelector.gpu: expected a string; put it in quotes, got true or false"},
      {.problem = "string into Go struct field PodSpec.spec.hostNetwork of type bool",
       .expected = "spec.hostNetwork: expected true or false, got a string"},
      {.problem = "object into Go struct field PodSpec.spec.tolerations of type []v1.Toleration",
       .expected = "spec.tolerations: expected a list, got a map"},
      {.problem = "number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
       .expected = "spec.terminationGracePeriodSeconds: expected an integer, got a number"},
      {.problem = "number 80.5 into Go struct field "
                  "HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
       .expected = "spec.containers[1].livenessProbe.httpGet.port: expected an integer, got a number"},
      {.problem = "string into Go struct field PodSpec.spec.absent.field of type v1.Absent",
       .expected = "spec.absent.field: expected a map, got a string"}};
  for (const WrongValue& row : rows) {
    EXPECT_EQ(
        explain_invalid_pod(
            job, 400,
            fmt::format(R"(Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal {})", row.problem)),
        fmt::format("spec.template.{}", row.expected));
  }
}

TEST(Rejection, PartsOfTheOperatorAreNamedByTheirFieldOrAsThePods) {
  Job job = JobBuilder();
  job.spec.pod_template.clear();
  job.spec.resources_per_node =
      api::Resources{.requests = R"({"memory":"1Gi"})", .limits = R"({"nvidia.com/gpu":"x"})"};
  job.spec.checkpoints.emplace().claim_name = "runs";
  const std::pair<const char*, const char*> rows[] = {
      {"spec.containers[0].image: Invalid value", "spec.image: Invalid value"},
      {"spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value",
       "spec.resourcesPerNode.limits[nvidia.com/gpu]: Invalid value"},
      {"spec.containers[0].resources.requests: Invalid value", "spec.resourcesPerNode.requests: Invalid value"},
      {"spec.volumes[0].persistentVolumeClaim.claimName: Required value", "spec.checkpoints.claimName: Required value"},
      {"spec.restartPolicy: Unsupported value", "the pod's spec.restartPolicy: Unsupported value"}};
  for (const auto& [problem, expected] : rows)
    EXPECT_EQ(explain_invalid_pod(job, 422, fmt::format(R"(Pod "bert-0-0" is invalid: {})", problem)), expected);
}

TEST(Rejection, InitContainerOfTheLauncherIsNotInTheTemplate) {
  Job job = JobBuilder().pod_template(R"({"spec": {"initContainers": [{"name": "a"}],
    "containers": [{"name": "trainer", "image": "i", "command": ["c"]}]}})");
  job.status.launcher = api::InjectedLauncher{"launcher:1", ""};
  const std::pair<const char*, const char*> rows[] = {
      {"spec.initContainers[0].image: Invalid value", "the pod's spec.initContainers[0].image: Invalid value"},
      {"spec.initContainers[1].image: Required value", "spec.template.spec.initContainers[0].image: Required value"}};
  for (const auto& [problem, expected] : rows)
    EXPECT_EQ(explain_invalid_pod(job, 422, fmt::format(R"(Pod "bert-0-0" is invalid: {})", problem)), expected);
}

TEST(Rejection, QuotesInNamesOfFields) {
  const Job job = JobBuilder().pod_template(R"({"spec": {"a\"b": 1, "containers": [{"name": "trainer"}]}})");
  EXPECT_EQ(explain_invalid_pod(job, 400, fmt::format(fmt::runtime(kStrict), R"(spec.a\"b)")),
            R"(spec.template.spec.a\"b: unknown field)");
}

TEST(Rejection, PodTooLargeForTheApiServer) {
  const auto problem = explain_invalid_pod(JobBuilder(), 413, "Request entity too large: limit is 3145728");
  ASSERT_TRUE(problem);
  EXPECT_THAT(*problem, HasSubstr("spec.template: the API server does not accept pods of this size"));
}

TEST(Rejection, MayBeTemporary) {
  const Job job = JobBuilder();
  const std::pair<int, const char*> rows[] = {
      {403, R"(pods "bert-0-0" is forbidden: exceeded quota: q)"},
      {403, R"(pods "bert-0-0" is forbidden: violates PodSecurity "restricted:latest")"},
      {400, R"(admission webhook "w" denied the request: Pod in version "v1" cannot be handled as a Pod:)"},
      {422, R"(admission webhook "w" denied the request: Pod "bert-0-0" is invalid: spec.foo)"},
      {429, R"(Pod "bert-0-0" is invalid: spec.foo)"},
      {500, "internal error"}};
  for (const auto& [status, message] : rows) EXPECT_FALSE(explain_invalid_pod(job, status, message)) << message;
}

TEST(InvalidTemplate, FailsTheJobAndNamesTheField) {
  Observed observed = seen(JobBuilder().phase(api::Phase::kPending));
  observed.template_error = "spec.template.spec.containers[0].resouces: unknown field";
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kComplete);
  EXPECT_THAT(names(plan), ElementsAre("PatchStatus Failed 0", "EmitEvent Failed", "DeleteService bert"));
  const api::Status status = test::status_after(observed, plan);
  const api::Condition* condition = find_condition(status, api::Phase::kFailed);
  ASSERT_NE(condition, nullptr);
  EXPECT_EQ(condition->reason, kInvalidTemplate);
  EXPECT_EQ(condition->message, observed.template_error);
  EXPECT_THAT(only<EmitEvent>(plan)[0].message, HasSubstr("containers[0].resouces"));
}

// The template is the same as that of the pods that were accepted, so admission has changed.
TEST(InvalidTemplate, AcceptedTemplateIsTriedAgain) {
  for (const bool has_pod : {true, false}) {
    Observed observed = seen(JobBuilder().phase(has_pod ? api::Phase::kPending : api::Phase::kRestarting, 1));
    if (has_pod) observed.pods = {test::PodBuilder("bert", 1, 0).running()};
    if (!has_pod) observed.job.status.attempts.emplace_back().attempt = 0;
    observed.template_error = "spec.resourcesPerNode.requests: Invalid value";
    const Plan plan = reconcile(observed);
    const api::Status status = test::status_after(observed, plan);
    EXPECT_NE(status.phase, api::Phase::kFailed);
    EXPECT_THAT(names(plan), ::testing::Contains("CreatePod bert-1-1"));
    EXPECT_THAT(find_condition(status, status.phase)->message, HasSubstr("the API server refused: spec.resources"));
  }
  // A resume may follow a change of the template.
  Observed resumed = seen(JobBuilder().phase(api::Phase::kPending, 2));
  resumed.job.status.attempts.emplace_back().attempt = 0;
  resumed.template_error = "spec.template.spec.foo: unknown field";
  EXPECT_EQ(test::status_after(resumed, reconcile(resumed)).phase, api::Phase::kFailed);
}

TEST(Rejection, FieldsThatAdmissionAddedAreNotTheTemplates) {
  const Job job = JobBuilder().pod_template(
      R"({"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "trainer", "image": "i",
          "resources": {"requests": {"memory": "1Gi", "cpu": "4"}, "limits": {"cpu": "2"}}}]}})");
  const std::string begin = R"(Pod "bert-0-0" is invalid: )";
  const char* added[] = {
      R"(spec.containers[0].resources.requests: Invalid value: "1Gi": must be less than or equal to memory limit of 512Mi)",
      R"(spec.containers[1].image: Required value)", R"(spec.volumes[9].name: Duplicate value: "v")",
      R"(spec.securityContext.fsGroup: Forbidden: cannot be set)"};
  for (const char* problem : added) EXPECT_FALSE(explain_invalid_pod(job, 422, begin + problem)) << problem;
  const char* own[] = {
      R"(spec.containers[0].resources.requests: Invalid value: "4": must be less than or equal to cpu limit of 2)",
      R"(spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources)",
      R"(spec.containers[0].livenessProbe: Required value: must specify a handler type)",
      R"(spec.volumes[0].name: Invalid value: "v")"};
  for (const char* problem : own) EXPECT_TRUE(explain_invalid_pod(job, 422, begin + problem)) << problem;
  EXPECT_TRUE(explain_invalid_pod(job, 413, "Request entity too large: limit is 3145728"));
  EXPECT_FALSE(explain_invalid_pod(job, 413, R"(admission webhook "a.example.com" denied the request: too large)"));
}

TEST(InvalidTemplate, DoesNotAffectPodsThatExist) {
  Observed observed =
      seen(JobBuilder().nodes(1).phase(api::Phase::kRunning), {test::PodBuilder("bert", 0, 0).running()});
  const Plan before = reconcile(observed);
  observed.template_error = "spec.template.spec.foo: unknown field";
  EXPECT_EQ(reconcile(observed), before);
}

}  // namespace
}  // namespace oarlock::control
