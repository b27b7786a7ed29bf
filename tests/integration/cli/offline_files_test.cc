// Files of jobs as the offline commands read them: lists, scalars, and errors with their place and a remedy.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/integration/cli/offline_support.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using Json = nlohmann::json;

class OfflineFilesTest : public OfflineTest {};

TEST_F(OfflineFilesTest, ValidateReportsEveryProblemOfEveryFile) {
  write("good.yaml", kJob);
  write("bad.yaml",
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: j}\nspec:\n  nodse: 2\n  "
        "processesPerNode: two\n  template: {spec: {}}\n");
  const auto run = start({"validate", "-f", "good.yaml", "bad.yaml", "missing.yaml"});
  EXPECT_EQ(run->wait(), 78);
  EXPECT_THAT(lines(run->out()), ElementsAre("good.yaml: TrainingJob j is valid: 2 nodes x 1 rank"));
  EXPECT_THAT(run->err(), AllOf(HasSubstr("bad.yaml:5:3: "), HasSubstr("did you mean 'nodes'?"),
                                HasSubstr("bad.yaml:6:21: "), HasSubstr("missing.yaml: cannot be opened")));
  const auto missing = start({"validate", "-f", "missing.yaml"});
  EXPECT_EQ(missing->wait(), 66);
}

TEST_F(OfflineFilesTest, RejectsDuplicateJobNames) {
  const std::string job = kJob;
  std::string elsewhere = kJob;
  elsewhere.replace(elsewhere.find("name: j"), 7, "name: j, namespace: other");
  write("different.yaml", job + "---\n" + elsewhere);
  EXPECT_EQ(start({"validate", "-f", "different.yaml"})->wait(), 0);
  write("same.yaml", job + "---\n" + job);
  for (const std::string command : {"validate", "run", "render"}) {
    const auto run = start({command, "-f", "same.yaml"});
    EXPECT_EQ(run->wait(), 78);
    EXPECT_THAT(lines(run->err()),
                ElementsAre(HasSubstr(
                    "same.yaml:10:18: metadata.name: a TrainingJob 'j' is already at line 3; give it another name")));
  }
}

TEST_F(OfflineFilesTest, RejectsOtherFilesInOneLine) {
  write("trainer.yaml", "task: image_classification\nepochs: 3\nbatch: {size: 8}\noptimizer: {lr: 0.1}\n");
  write("list.yaml", "- apiVersion: oarlock.dev/v1alpha1\n  kind: TrainingJob\n");
  write("compose.yaml", "services: {web: {image: x}}\n");
  for (const std::string command : {"validate", "run", "render"}) {
    for (const auto& [file, message] : std::vector<std::pair<std::string, std::string>>{
             {"trainer.yaml", "trainer.yaml:1:1: this is a configuration of oarlock-trainer, not a TrainingJob"},
             {"list.yaml", "list.yaml:1:1: this is not a map"},
             {"compose.yaml", "compose.yaml:1:1: this is not a Kubernetes object"}}) {
      const auto run = start({command, "-f", file});
      EXPECT_EQ(run->wait(), 78);
      EXPECT_THAT(lines(run->err()), ElementsAre(HasSubstr(message)));
    }
  }
}

// The output of `kubectl get trainingjobs -o yaml` and of the API, with the fields that the API server sets.
TEST_F(OfflineFilesTest, ReadsListsOfKubectl) {
  const std::string items = R"(items:
- apiVersion: oarlock.dev/v1alpha1
  kind: TrainingJob
  metadata: {name: a, namespace: team, uid: 5c0a, resourceVersion: "7", generation: 1, managedFields: [{manager: kubectl}]}
  spec: {nodes: 2, template: {spec: {containers: [{name: trainer, image: x}]}}}
  status: {phase: Running}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
- apiVersion: oarlock.dev/v1alpha1
  kind: TrainingJob
  metadata: {name: b}
  spec: {template: {spec: {containers: [{name: trainer, image: x}]}}}
)";
  for (const std::string head :
       {"apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\n",
        "apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJobList\nmetadata: {resourceVersion: \"9\"}\n"}) {
    write("list.yaml", head + items);
    const auto valid = start({"validate", "list.yaml"});
    EXPECT_EQ(valid->wait(), 0) << valid->err();
    EXPECT_THAT(lines(valid->out()), ElementsAre("list.yaml: TrainingJob a is valid: 2 nodes x 1 rank",
                                                 "list.yaml: TrainingJob b is valid: 1 node x 1 rank"));
    const auto rendered = start({"render", "list.yaml", "--name", "a", "-o", "json"});
    EXPECT_EQ(rendered->wait(), 0) << rendered->err();
    EXPECT_EQ(Json::parse(rendered->out())["items"][0]["metadata"]["ownerReferences"][0]["uid"], "5c0a");
    const auto run = start({"run", "list.yaml"});
    EXPECT_EQ(run->wait(), 64);
    EXPECT_THAT(run->err(), HasSubstr("list.yaml holds 2 TrainingJobs; choose one with --name: a, b"));
  }
  std::string wrong = items;
  wrong.replace(wrong.find("spec: {template"), 15, "spec: {tempalte");
  write("list.yaml", "apiVersion: v1\nkind: List\n" + wrong);
  for (const std::string command : {"validate", "render", "run", "submit"}) {
    const auto failed = start({command, "-f", "list.yaml"});
    EXPECT_EQ(failed->wait(), 78);
    EXPECT_THAT(
        lines(failed->err()),
        ElementsAre(EndsWith("list.yaml:13:10: items[2].spec.tempalte: unknown key; did you mean 'template'?")));
  }
  write("list.yaml", "apiVersion: v1\nkind: List\nitems: []\n");
  const auto none = start({"validate", "list.yaml"});
  EXPECT_EQ(none->wait(), 78);
  EXPECT_THAT(none->err(), HasSubstr("list.yaml: there is no TrainingJob"));
}

// The values are those that the API server receives from kubectl.
TEST_F(OfflineFilesTest, ReadsScalarsAsKubectlDoes) {
  write("job.yaml", R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j, labels: {version: 1.0, "on": "yes"}}
spec:
  nodes: 0x2
  template:
    metadata: {labels: {release: 2026.10}}
    spec: {containers: [{name: trainer, image: x, command: [python3], env: [{name: DEBUG, value: on}]}]}
)");
  const auto bad = start({"validate", "job.yaml"});
  EXPECT_EQ(bad->wait(), 78);
  EXPECT_THAT(
      lines(bad->err()),
      ElementsAre("job.yaml:3:39: metadata.labels.version: expected a string, got the number 1.0; put it in quotes",
                  "job.yaml:7:34: spec.template.metadata.labels.release: expected a string, got the number "
                  "2026.10; put it in quotes",
                  "job.yaml:8:98: spec.template.spec.containers[0].env[0].value: expected a string, got 'on', "
                  "which is the boolean true in YAML; put it in quotes"));
  write("job.yaml", R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j, labels: {version: "1.0"}}
spec:
  nodes: 0x2
  template:
    spec:
      hostNetwork: yes
      terminationGracePeriodSeconds: 1_0
      containers: [{name: trainer, image: x, command: [python3]}]
)");
  const auto rendered = start({"render", "job.yaml", "-o", "json"});
  EXPECT_EQ(rendered->wait(), 0) << rendered->err();
  const Json objects = Json::parse(rendered->out())["items"];
  ASSERT_EQ(objects.size(), 3U);  // the Service and two pods
  EXPECT_EQ(objects[1]["spec"]["hostNetwork"], true);
  EXPECT_EQ(objects[1]["spec"]["terminationGracePeriodSeconds"], 10);
}

// Each command names the cause of a syntax error in one line.
TEST_F(OfflineFilesTest, ReportsSyntaxErrorsInOneLine) {
  struct Row {
    const char* text;
    const char* error;
  };
  constexpr Row kRows[] = {
      {.text = "kind: TrainingJob\nspec:\n\tnodes: 2\n",
       .error = "f.yaml:3:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "kind: TrainingJob\nspec:\n  nodes 2\n  image: x\n",
       .error = "f.yaml:3:3: a ':' is missing after the key 'nodes'; write 'nodes: ...'"},
      {.text = "kind: TrainingJob\nspec:\n  nodes: 2\n image: x\n",
       .error =
           "f.yaml:4:2: this line is indented by 1 space, and the lines that can contain it by 0 or 2; indent it like "
           "one of them"},
      {.text = "kind: \"TrainingJob\nspec: {nodes: 2}\n",
       .error = "f.yaml:1:7: the quote \" that begins here has no end; add the closing \""},
      {.text = "kind: TrainingJob\nspec: {}\nspec: {nodes: 2}\n",
       .error = "f.yaml:3:1: duplicate key 'spec'; remove one of them; the first is in line 2"},
      {.text = "kind: TrainingJob\n<<<<<<< HEAD\nspec: {}\n=======\n>>>>>>> b\n",
       .error = "f.yaml:2:1: this line is a conflict marker of git; resolve the conflict, and remove the markers"},
      {.text = "kind: TrainingJob\nspec:\n\xC2\xA0\xC2\xA0nodes: 2\n  image: x\n",
       .error = "f.yaml:3:1: a no-break space is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "```yaml\nkind: TrainingJob\n```\n",
       .error = "f.yaml:1:1: this line is a code fence of Markdown; remove it"},
      {.text = "\xff\xfek", .error = "f.yaml:1:1: the file is encoded as UTF-16, not as UTF-8; save it as UTF-8"},
      {.text = "{\"kind\": \"TrainingJob\" \"spec\": {}}\n",
       .error = "f.yaml:1:24: ',', ':' or '}' is missing before this; the '{' in line 1 is still open"},
  };
  for (const Row& row : kRows) {
    write("f.yaml", row.text);
    for (const std::string command : {"validate", "render", "run", "submit", "convert"}) {
      const auto run = start({command, "-f", "f.yaml"});
      EXPECT_EQ(run->wait(), 78) << command;
      EXPECT_THAT(lines(run->err()), ElementsAre(EndsWith(row.error))) << command;
    }
  }
}

// Sanitizers reserve terabytes of addresses.
#ifdef OARLOCK_SANITIZED
constexpr char kMemoryLimit[] = "";
#else
constexpr char kMemoryLimit[] = "ulimit -v 2000000; ";
#endif

TEST_F(OfflineFilesTest, SurvivesHostileFiles) {
  std::string bomb = "a0: &a0 x\n";
  for (int i = 1; i < 60; ++i) {
    const std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + previous;
    for (int k = 1; k < 9; ++k) bomb += ", " + previous;
    bomb += "]\n";
  }
  write("bomb.yaml", bomb);
  write("deep.yaml", std::string(100'000, '['));
  std::string documents;
  for (int i = 0; i < 1'000'000; ++i) documents += "---\n";
  write("documents.yaml", documents);
  std::string wrong = kJob;
  for (int i = 0; i < 1000; ++i) wrong += "k" + std::to_string(i) + "\x1b[31m: 1\n";
  write("raw.yaml", wrong);
  wrong = kJob;
  for (int i = 0; i < 1000; ++i) wrong += "\"k" + std::to_string(i) + "\\e[31m\": 1\n";
  write("escaped.yaml", wrong);
  for (const auto& [file, most_lines] : std::vector<std::pair<std::string, size_t>>{
           {"bomb.yaml", 1}, {"deep.yaml", 1}, {"documents.yaml", 1}, {"raw.yaml", 1}, {"escaped.yaml", 21}}) {
    const std::string script = std::string(kMemoryLimit) + "exec ./oarlock validate -f " + file;
    Program run({"/bin/sh", "-c", script}, {.directory = directory_.path()});
    EXPECT_EQ(run.wait(), 78) << file << run.err();
    EXPECT_THAT(lines(run.err()), testing::SizeIs(most_lines)) << run.err();
    EXPECT_EQ(run.err().find('\x1b'), std::string::npos) << file;
  }
}

TEST_F(OfflineFilesTest, ValidateReportsTyposInTheTemplate) {
  write("job.yaml", R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  template:
    spec:
      nodeselector: {disk: ssd}
      containers:
        - name: trainer
          image: x
          resouces:
            limits: {nvidia.com/gpu: 8}
          env:
            - {name: EPOCHS, value: 3}
)");
  const auto run = start({"validate", "-f", "job.yaml"});
  EXPECT_EQ(run->wait(), 78);
  EXPECT_THAT(lines(run->err()),
              testing::UnorderedElementsAre(
                  "job.yaml:7:7: spec.template.spec.nodeselector: unknown key; did you mean 'nodeSelector'?",
                  "job.yaml:11:11: spec.template.spec.containers[0].resouces: unknown key; did you mean 'resources'?",
                  "job.yaml:14:37: spec.template.spec.containers[0].env[0].value: expected a string, got the "
                  "number 3; put it in quotes"));
  const auto newer = start({"validate", "-f", "job.yaml", "--any-pod-fields"});
  EXPECT_EQ(newer->wait(), 0) << newer->err();
  // render shows what the operator would create, which includes the typo.
  const auto rendered = start({"render", "-f", "job.yaml", "-o", "json"});
  EXPECT_EQ(rendered->wait(), 0);
  EXPECT_TRUE(Json::parse(rendered->out())["items"][1]["spec"].contains("nodeselector"));
  EXPECT_THAT(rendered->err(), AllOf(HasSubstr("oarlock render: note: Kubernetes v1."), HasSubstr("job.yaml:7:7: "),
                                     HasSubstr("did you mean 'resources'?")));
}

// Each message is one line with the place, the value and a remedy.
TEST_F(OfflineFilesTest, ReportsMistakesOfNewUsersInOneLine) {
  struct Row {
    const char* spec;
    const char* error;  // without "job.yaml:"
  };
  constexpr Row kRows[] = {
      {.spec = "nodes: \"2\"",
       .error = "5:10: spec.nodes: expected an integer, got the string \"2\"; remove the quotes"},
      {.spec = "suspend: \"true\"",
       .error = "5:12: spec.suspend: expected true or false, got the string \"true\"; remove the quotes"},
      {.spec = "processesPerNode: gpu", .error = "5:21: spec.processesPerNode: expected an integer or auto, got 'gpu'"},
      {.spec = "activeDeadlineSeconds: 2h",
       .error = "5:26: spec.activeDeadlineSeconds: expected an integer, got '2h'; write 7200, the number of seconds"},
      {.spec = "activeDeadline: 7200",
       .error = "5:3: spec.activeDeadline: unknown key; did you mean 'activeDeadlineSeconds'?"},
      {.spec = "elastic: {min: 1}", .error = "5:13: spec.elastic.min: unknown key; did you mean 'minNodes'?"},
      {.spec = "checkpoints: 10Gi", .error = "5:16: spec.checkpoints: expected a map, got '10Gi'; write {size: 10Gi}"},
      {.spec = "checkpoints: my-claim",
       .error = "5:16: spec.checkpoints: expected a map, got 'my-claim'; write {claimName: my-claim}"},
      {.spec = "checkpoints: {size: \"10\"}",
       .error = "5:23: spec.checkpoints.size: 10 is less than 1 MiB; did you mean 10Gi?"},
      {.spec = "checkpoints: {claimName: My_Claim}",
       .error = "5:28: spec.checkpoints.claimName: 'My_Claim' cannot be a name: names have a-z, 0-9, '.' and '-' only"},
      {.spec = "resourcesPerNode: 8",
       .error = "5:21: spec.resourcesPerNode: expected a map, got '8'; write {limits: {nvidia.com/gpu: 8}}"},
      {.spec = "resourcesPerNode: {limits: {nvidia.com/gpus: 8}}",
       .error = "5:31: spec.resourcesPerNode.limits.nvidia.com/gpus: there is no such resource; did you mean "
                "'nvidia.com/gpu'?"},
      {.spec = "image: \"\"", .error = "5:10: spec.image: is empty; leave it out for the default image"},
      {.spec = "image: MyOrg/Trainer:1",
       .error = "5:10: spec.image: 'MyOrg/Trainer:1' is not the reference of an image, such as "
                "registry.example.com/team/trainer:1.0; the repository has lowercase letters only"},
      {.spec = "template: {spec: {containers: [{name: trainer, env: [A=b]}]}}",
       .error = "5:56: spec.template.spec.containers[0].env[0]: expected a map, got 'A=b'; write {name: A, value: b}"},
      {.spec = "template: {spec: {volumes: [{name: d, pvc: x}]}}",
       .error = "5:41: spec.template.spec.volumes[0].pvc: unknown key; did you mean 'persistentVolumeClaim'?"},
      {.spec = "template: {spec: {volumes: [{name: d, persistentVolumeClaim: x}]}}",
       .error = "5:64: spec.template.spec.volumes[0].persistentVolumeClaim: expected a map, got 'x'; write {claimName: "
                "x}"},
      {.spec = "template: {spec: {containers: [{name: trainer, volumeMounts: [{name: data, mountPath: /data}]}]}}",
       .error = "5:72: spec.template.spec.containers[0].volumeMounts[0].name: there is no volume 'data' in "
                "spec.template.spec.volumes; add it there"},
      {.spec = "trainer: \"task: images\"", .error = "5:12: spec.trainer: expected a map, got 'task: images'"},
      {.spec = "template: [{spec: {}}]", .error = "5:13: spec.template: expected a map, got a list"},
      {.spec = "replicas: 2", .error = "5:3: spec.replicas: unknown key; the number of pods is spec.nodes"}};
  for (const Row& row : kRows) {
    write("job.yaml",
          fmt::format("apiVersion: oarlock.dev/v1alpha1\nkind: TrainingJob\nmetadata: {{name: j}}\nspec:\n  {}\n",
                      row.spec));
    for (const std::string command : {"validate", "submit"}) {
      const auto run = start({command, "job.yaml"});
      EXPECT_EQ(run->wait(), 78) << row.spec;
      EXPECT_THAT(lines(run->err()), ElementsAre(EndsWith(fmt::format("job.yaml:{}", row.error)))) << row.spec;
    }
  }
  write("job.yaml", "");
  const auto empty = start({"validate", "job.yaml"});
  EXPECT_EQ(empty->wait(), 78);
  EXPECT_THAT(lines(empty->err()), ElementsAre(EndsWith("in this file, which is empty")));
  write("job.yaml", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\n");
  const auto other = start({"validate", "job.yaml"});
  EXPECT_EQ(other->wait(), 78);
  EXPECT_THAT(lines(other->err()),
              ElementsAre(EndsWith("but a PyTorchJob; translate it with oarlock convert -f FILE")));
}

}  // namespace
}  // namespace oarlock::test
