#include "api/validate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/resources.h"
#include "api/rules.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kGood[] = R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata:
  name: bert
spec:
  nodes: 2
  template:
    spec:
      containers:
        - name: trainer
          image: example/trainer:1
          newInKubernetes: {a: 1}
  trainer:
    task: image
    whatever: 3
)";

Result<api::TrainingJob> read(const std::string& text) {
  return api::training_job_from_yaml(yaml::parse_all(text, "job.yaml").value().at(0), "job.yaml");
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string problem(const std::string& text) {
  const auto job = read(text);
  EXPECT_FALSE(job) << text;
  return job ? "" : job.error().message;
}

TEST(Validate, ReadsAJob) {
  const auto job = read(kGood);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->metadata.name, "bert");
  EXPECT_EQ(job->metadata.namespace_name, "default");
  EXPECT_EQ(job->spec.nodes, 2);
  EXPECT_EQ(json::parse(job->spec.trainer), json::parse(R"({"task":"image","whatever":3})"));
  EXPECT_EQ(json::parse(job->spec.pod_template)["spec"]["containers"][0]["newInKubernetes"]["a"], 1);
}

TEST(Validate, ReadsKubectlOutput) {
  std::string text =
      replaced("  name: bert\n", "  name: bert\n  uid: u\n  labels: {a: b}\n  managedFields: []\n  generation: 3\n");
  text += "status:\n  phase: Running\n  anything: 1\n";
  EXPECT_TRUE(read(text)) << read(text).error().message;
}

// The API server rejects the values, and kubectl changes the keys or rejects the file.
TEST(Validate, ReportsUnquotedValuesOfOtherTypes) {
  struct Row {
    const char* from;
    const char* to;
    const char* message;
  };
  constexpr Row kRows[] = {
      {.from = "  name: bert\n",
       .to = "  name: bert\n  labels: {version: 1.0}\n",
       .message = ": metadata.labels.version: expected a string, got the number 1.0; put it in quotes"},
      {.from = "  name: bert\n",
       .to = "  name: bert\n  labels: {gpu: yes}\n",
       .message = ": metadata.labels.gpu: expected a string, got 'yes', which is the boolean true in YAML; put it in "
                  "quotes"},
      {.from = "  name: bert\n",
       .to = "  name: bert\n  annotations: {note: true}\n",
       .message = ": metadata.annotations.note: expected a string, got the boolean true; put it in quotes"},
      {.from = "  name: bert\n",
       .to = "  name: bert\n  annotations: {note: [a]}\n",
       .message = ": metadata.annotations.note: expected a string, got a list"},
      {.from = "  name: bert\n",
       .to = "  name: bert\n  labels: [a]\n",
       .message = ": metadata.labels: expected a map of strings"},
      {.from = "  name: bert\n",
       .to = "  name: bert\n  labels: {on: \"1\"}\n",
       .message = ": metadata.labels.on: this key is the boolean true in YAML; put it in quotes"},
      {.from = "  name: bert\n",
       .to = "  name: bert\n  labels: {1.10: \"1\"}\n",
       .message = ": metadata.labels.1.10: this key is the number 1.1 in YAML; put it in quotes"},
      {.from = "    task: image\n",
       .to = "    task: image\n    lr: .inf\n",
       .message = ": spec.trainer.lr: '.inf' does not exist in JSON, so that kubectl rejects the file"},
  };
  for (const Row& row : kRows) EXPECT_THAT(problem(replaced(row.from, row.to)), HasSubstr(row.message));
}

TEST(Validate, AcceptsQuotedValuesAndNumbersOfEveryForm) {
  for (const char* labels : {"{version: \"1.0\"}", "{gpu: 'yes'}", "{\"on\": x}", "{4: x}", "{a: 1:30}", "{a: null}"}) {
    const auto job = read(replaced("  name: bert\n", std::string("  name: bert\n  labels: ") + labels + "\n"));
    EXPECT_TRUE(job) << labels << ": " << job.error().message;
  }
  for (const char* nodes : {"0x2", "02", "2.0", "2e0", "0b10", "!!int \"2\""}) {
    const auto job = read(replaced("  nodes: 2\n", std::string("  nodes: ") + nodes + "\n"));
    ASSERT_TRUE(job) << nodes << ": " << job.error().message;
    EXPECT_EQ(job->spec.nodes, 2) << nodes;
  }
}

std::string with_spec(const std::string& lines) { return replaced("  nodes: 2\n", "  nodes: 2\n" + lines); }

TEST(Validate, ReadsThePolicies) {
  const auto job = read(with_spec(R"(  successPolicy: Rank0
  cleanPodPolicy: None
  activeDeadlineSeconds: 3600
  ttlSecondsAfterFinished: 0
  managedBy: kueue.x-k8s.io/multikueue
  stallPolicy: {timeoutSeconds: 1800}
  failurePolicy:
    backoffSeconds: 0
    rules:
      - {action: Ignore, onExitCodes: {operator: In, values: [3, 42]}}
      - {action: Fail, onPodReasons: [OOMKilled]}
      - action: RestartFree
        onPodConditions: [{type: DisruptionTarget}]
)"));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->spec.success_policy, api::SuccessPolicy::kRank0);
  EXPECT_EQ(job->spec.clean_pod_policy, api::CleanPodPolicy::kNone);
  EXPECT_EQ(job->spec.active_deadline_seconds, 3600);
  EXPECT_EQ(job->spec.ttl_seconds_after_finished, 0);
  EXPECT_EQ(job->spec.stall_policy.timeout_seconds, 1800);
  EXPECT_EQ(job->spec.managed_by, "kueue.x-k8s.io/multikueue");
  const api::FailurePolicy& policy = job->spec.failure_policy;
  EXPECT_EQ(policy.backoff_seconds, 0);
  ASSERT_EQ(policy.rules.size(), 3U);
  EXPECT_EQ(
      policy.rules[0],
      (api::FailureRule{api::FailureAction::kIgnore, api::ExitCodeMatch{api::ExitCodeOperator::kIn, {3, 42}}, {}, {}}));
  EXPECT_EQ(policy.rules[1], (api::FailureRule{api::FailureAction::kFail, std::nullopt, {"OOMKilled"}, {}}));
  EXPECT_EQ(policy.rules[2],
            (api::FailureRule{api::FailureAction::kRestartFree, std::nullopt, {}, {api::PodConditionMatch()}}));
}

TEST(Validate, ReportsPolicyProblems) {
  const auto rule = [](const std::string& text) {
    return problem(with_spec("  failurePolicy:\n    rules:\n      - " + text + "\n"));
  };
  EXPECT_THAT(problem(with_spec("  cleanPodPolicy: Some\n")), HasSubstr("job.yaml:7:19: spec.cleanPodPolicy: "));
  EXPECT_THAT(problem(with_spec("  activeDeadlineSeconds: 0\n")),
              HasSubstr("spec.activeDeadlineSeconds: 0 is too small; the minimum is 1"));
  EXPECT_THAT(problem(with_spec("  stallPolicy: {timeoutSeconds: 0}\n")),
              HasSubstr("spec.stallPolicy.timeoutSeconds: 0 is too small; the minimum is 1"));
  EXPECT_THAT(problem(with_spec("  ttlSecondsAfterFinished: -1\n")),
              HasSubstr("spec.ttlSecondsAfterFinished: -1 is too small; the minimum is 0"));
  for (const char* value : {"me", "/me", "a/", "a/b/c"}) {
    EXPECT_THAT(problem(with_spec("  managedBy: " + std::string(value) + "\n")), HasSubstr(api::rules::kManagedByForm));
  }
  EXPECT_THAT(problem(with_spec("  failurePolicy: {backoffSeconds: 4000}\n")),
              HasSubstr("spec.failurePolicy.backoffSeconds: 4000 is too large; the maximum is 3600"));
  EXPECT_THAT(rule("{action: Fail}"),
              HasSubstr(std::string("job.yaml:9:9: spec.failurePolicy.rules[0]: ") + api::rules::kOneRequirement));
  EXPECT_THAT(rule("{action: Fail, onPodReasons: [A], onExitCodes: {operator: In, values: [1]}}"),
              HasSubstr(api::rules::kOneRequirement));
  EXPECT_THAT(rule("{action: Ignore, onPodReasons: [Evicted]}"), HasSubstr(api::rules::kIgnoreNeedsExit));
  EXPECT_THAT(rule("{action: Fail, onExitCodes: {operator: In, values: [0]}}"),
              HasSubstr("0 is not the exit code of a failure: 1 to 255"));
  EXPECT_THAT(rule("{action: Fail, onExitCodes: {operator: In, values: [1, 1]}}"), HasSubstr("1 occurs twice"));
  EXPECT_THAT(rule("{action: Fail, onExitCodes: {operator: In, values: []}}"), HasSubstr("at least one exit code"));
  EXPECT_THAT(rule("{action: Fail, onPodReasons: [not one]}"), HasSubstr("is not one CamelCase word"));
  EXPECT_THAT(rule("{action: Fail, onPodConditions: [{type: Ready}]}"),
              HasSubstr("'Ready' is not one of DisruptionTarget"));
  EXPECT_THAT(rule("{action: Fail, onExitCode: {}}"), HasSubstr("did you mean 'onExitCodes'?"));
}

TEST(Validate, ChecksBoundsOfElasticJobs) {
  const auto job =
      read(with_spec("  elastic: {minNodes: 1, maxNodes: 4, shrinkAfterSeconds: 60, growAfterSeconds: 0}\n"));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->spec.elastic, (api::Elastic{1, 4, 60, 0}));
  EXPECT_THAT(problem(with_spec("  elastic: {minNodes: 100}\n")), HasSubstr(api::rules::kElasticBounds));
  EXPECT_THAT(problem(with_spec("  elastic: {maxNodes: 0}\n")), HasSubstr("spec.elastic.maxNodes: 0 is too small"));
  EXPECT_THAT(problem(with_spec("  elastic: {minReplicas: 1}\n")), HasSubstr("spec.elastic.minReplicas: unknown key"));
}

TEST(Validate, ReportsPlaceAndRemedy) {
  EXPECT_THAT(problem(replaced("nodes: 2", "nodess: 2")),
              HasSubstr("job.yaml:6:3: spec.nodess: unknown key; did you mean 'nodes'?"));
  EXPECT_THAT(problem(replaced("nodes: 2", "nodes: '2'")),
              AllOf(HasSubstr("job.yaml:6:10: spec.nodes: expected an integer")));
  EXPECT_THAT(problem(replaced("nodes: 2", "nodes: 0")),
              HasSubstr("job.yaml:6:10: spec.nodes: 0 is too small; the minimum is 1"));
  EXPECT_THAT(problem(replaced("nodes: 2", "nodes: 5000")),
              HasSubstr("job.yaml:6:10: spec.nodes: 5000 is too large; the maximum is 4096"));
  EXPECT_THAT(problem(replaced("kind: TrainingJob", "kind: PyTorchJob")),
              HasSubstr("job.yaml:2:7: kind: 'PyTorchJob' is not TrainingJob"));
  EXPECT_THAT(problem(replaced("oarlock.dev/v1alpha1", "kubeflow.org/v1")),
              HasSubstr("job.yaml:1:13: apiVersion: 'kubeflow.org/v1' is not"));
  EXPECT_THAT(problem(replaced("name: trainer", "name: main")),
              HasSubstr(std::string("job.yaml:10:9: spec.template.spec.containers: ") + api::rules::kTrainer));
  EXPECT_THAT(problem(replaced("name: bert", "name: 9bert")),
              HasSubstr(std::string("job.yaml:4:9: metadata.name: ") + api::rules::kName));
  EXPECT_THAT(problem(replaced("spec:\n  nodes: 2\n  template", "spec:\n  nodes: 2\n  tmplate")),
              HasSubstr("job.yaml:7:3: spec.tmplate: unknown key; did you mean 'template'?"));
  EXPECT_THAT(problem("apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n"),
              HasSubstr("job.yaml:1:1: spec: is required"));
  EXPECT_THAT(problem("- a\n"), HasSubstr("job.yaml:1:1: expected a map"));
}

TEST(Validate, NamesTheFieldForKeysOfOtherApis) {
  struct Row {
    const char* key;
    const char* remedy;
  };
  constexpr Row kRows[] = {
      {.key = "replicas", .remedy = "unknown key; the number of pods is spec.nodes"},
      {.key = "nprocPerNode", .remedy = "unknown key; the number of ranks in each pod is spec.processesPerNode"},
      {.key = "gpus", .remedy = "unknown key; GPUs are limits of spec.resourcesPerNode"},
      {.key = "resources", .remedy = "unknown key; resources are those of spec.resourcesPerNode"},
      {.key = "command",
       .remedy = "unknown key; it belongs to the container 'trainer' in spec.template.spec.containers"},
      {.key = "nodeSelector", .remedy = "unknown key; it belongs to spec.template.spec"},
      {.key = "backoffLimit", .remedy = "unknown key; the number of restarts is spec.failurePolicy.maxRestarts"},
      {.key = "pytorchReplicaSpecs", .remedy = "unknown key; oarlock convert -f FILE translates PyTorchJobs"},
      {.key = "epochs", .remedy = "unknown key; it belongs to spec.trainer"}};
  for (const Row& row : kRows) {
    const std::string message = problem(with_spec(fmt::format("  {}: 1\n", row.key)));
    EXPECT_THAT(message, HasSubstr(fmt::format("job.yaml:7:3: spec.{}: {}", row.key, row.remedy)));
    EXPECT_EQ(std::ranges::count(message, '\n'), 0) << message;
  }
  const std::string head = "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\n";
  EXPECT_THAT(problem(head + "metadata: {name: a}\nspec: {}\nnodes: 2\n"),
              testing::EndsWith("job.yaml:5:1: nodes: unknown key; it belongs to spec"));
  EXPECT_THAT(problem(head + "name: a\nmetadata: {}\nspec: {}\n"),
              HasSubstr("job.yaml:3:1: name: unknown key; it belongs to metadata"));
}

TEST(Validate, ReportsAllProblemsTogether) {
  std::string text = replaced("nodes: 2", "nodes: 0\n  rendezvous: {port: 9400}");
  const std::string message = problem(text);
  EXPECT_THAT(message, HasSubstr("spec.nodes"));
  EXPECT_THAT(message, HasSubstr(std::string("job.yaml:7:22: spec.rendezvous.port: ") + api::rules::kPortIsMetrics));
}

TEST(Validate, RejectsTrainerOfAnotherType) {
  EXPECT_THAT(problem(replaced("trainer:\n    task: image\n    whatever: 3", "trainer: image")),
              HasSubstr("spec.trainer: expected a map"));
}

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
