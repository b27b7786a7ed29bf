// Jobs that are read from YAML.
#include "api/validate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/rules.h"
#include "yaml/reader.h"

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

TEST(JobYaml, ReadsAJob) {
  const auto job = read(kGood);
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->metadata.name, "bert");
  EXPECT_EQ(job->metadata.namespace_name, "default");
  EXPECT_EQ(job->spec.nodes, 2);
  EXPECT_EQ(json::parse(job->spec.trainer), json::parse(R"({"task":"image","whatever":3})"));
  EXPECT_EQ(json::parse(job->spec.pod_template)["spec"]["containers"][0]["newInKubernetes"]["a"], 1);
}

TEST(JobYaml, ReadsKubectlOutput) {
  std::string text =
      replaced("  name: bert\n", "  name: bert\n  uid: u\n  labels: {a: b}\n  managedFields: []\n  generation: 3\n");
  text += "status:\n  phase: Running\n  anything: 1\n";
  EXPECT_TRUE(read(text)) << read(text).error().message;
}

// The API server rejects the values, and kubectl changes the keys or rejects the file.
TEST(JobYaml, ReportsUnquotedValuesOfOtherTypes) {
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

TEST(JobYaml, AcceptsQuotedValuesAndNumbersOfEveryForm) {
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

TEST(JobYaml, ReadsThePolicies) {
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

TEST(JobYaml, ReportsPolicyProblems) {
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

TEST(JobYaml, ChecksBoundsOfElasticJobs) {
  const auto job =
      read(with_spec("  elastic: {minNodes: 1, maxNodes: 4, shrinkAfterSeconds: 60, growAfterSeconds: 0}\n"));
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->spec.elastic, (api::Elastic{1, 4, 60, 0}));
  EXPECT_THAT(problem(with_spec("  elastic: {minNodes: 100}\n")), HasSubstr(api::rules::kElasticBounds));
  EXPECT_THAT(problem(with_spec("  elastic: {maxNodes: 0}\n")), HasSubstr("spec.elastic.maxNodes: 0 is too small"));
  EXPECT_THAT(problem(with_spec("  elastic: {minReplicas: 1}\n")), HasSubstr("spec.elastic.minReplicas: unknown key"));
}

TEST(JobYaml, ReportsPlaceAndRemedy) {
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

TEST(JobYaml, NamesTheFieldForKeysOfOtherApis) {
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

TEST(JobYaml, ReportsAllProblemsTogether) {
  std::string text = replaced("nodes: 2", "nodes: 0\n  rendezvous: {port: 9400}");
  const std::string message = problem(text);
  EXPECT_THAT(message, HasSubstr("spec.nodes"));
  EXPECT_THAT(message, HasSubstr(std::string("job.yaml:7:22: spec.rendezvous.port: ") + api::rules::kPortIsMetrics));
}

TEST(JobYaml, RejectsTrainerOfAnotherType) {
  EXPECT_THAT(problem(replaced("trainer:\n    task: image\n    whatever: 3", "trainer: image")),
              HasSubstr("spec.trainer: expected a map"));
}

}  // namespace
}  // namespace oarlock::test
