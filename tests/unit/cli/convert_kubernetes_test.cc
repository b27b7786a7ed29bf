// Jobs of other operators as TrainingJobs. tests/data/convert has inputs in the forms of the peers' published examples,
// and next to each the expected job and notes; convert_peers_test reads the published examples themselves.
#include "cli/convert/converters.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/convert_text.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "yaml/writer.h"

namespace oarlock::convert {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Returns the converted jobs and their notes as one text.
std::string text_of(const Result<std::vector<Converted>>& jobs) {
  if (!jobs) return "error: " + jobs.error().message + "\n";
  std::string text;
  for (const Converted& converted : *jobs) {
    text += (text.empty() ? "" : "---\n") + yaml::to_yaml(converted.job);
    for (const std::string& note : converted.notes) text += "# " + note + "\n";
  }
  return text;
}

std::string problems_of(const std::string& text, const ConvertOptions& options = {}) {
  const Result<std::vector<Converted>> jobs = convert_text(text, options);
  EXPECT_FALSE(jobs) << text_of(jobs);
  return jobs ? "" : jobs.error().message;
}

Json trainer_in(const Converted& converted) {
  for (const Json& container : converted.job["spec"]["template"]["spec"]["containers"]) {
    if (container["name"] == "trainer") return container;
  }
  return {};
}

class ConvertGolden : public testing::TestWithParam<const char*> {};

TEST_P(ConvertGolden, ConvertsJobAndListsNotes) {
  const std::string name = fmt::format("convert/{}", GetParam());
  const auto documents = yaml::load_all(fmt::format("{}.yaml", test::data_path(name)));
  ASSERT_TRUE(documents) << documents.error().message;
  std::vector<SourceDocument> sources;
  for (const yaml::Node& root : *documents) sources.push_back({root, std::string(GetParam()) + ".yaml"});
  test::expect_golden(name + ".golden", text_of(convert_kubernetes(sources, {})));
}

INSTANTIATE_TEST_SUITE_P(Inputs, ConvertGolden,
                         testing::Values("pytorchjob_elastic", "pytorchjob_two_templates", "trainjob_with_runtime",
                                         "trainjob_patches", "mpijob_python", "jobset_torchrun"),
                         [](const auto& row) { return std::string(row.param); });

// The guide claims that its four files describe the same job.
TEST(ConvertKubernetes, ConvertsFilesOfGuideToTheSameJob) {
  for (const char* name : {"pytorchjob", "trainjob", "jobset"}) {
    std::ifstream file(fmt::format("{}/{}.yaml", test::source_path("examples/migration"), name));
    std::stringstream text;
    text << file.rdbuf();
    const Converted converted = only_job(text.str());
    const Json& spec = converted.job["spec"];
    EXPECT_EQ(spec["nodes"], 2) << name;
    EXPECT_EQ(spec["processesPerNode"], 4) << name;
    const Json trainer = trainer_in(converted);
    EXPECT_EQ(trainer["image"], "registry.example.com/train:1") << name;
    EXPECT_EQ(trainer["command"], Json::parse(R"(["torchrun", "train.py"])")) << name;
    EXPECT_EQ(trainer["resources"], Json::parse(R"({"limits": {"nvidia.com/gpu": 4}})")) << name;
    EXPECT_EQ(trainer["volumeMounts"][0]["mountPath"], "/checkpoints") << name;
  }
}

constexpr char kPyTorchJob[] = R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: j}}
spec:
  {}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {{name: pytorch, image: i, {}}}
)";

TEST(ConvertPyTorchJob, RanksFollowTheLauncher) {
  struct Row {
    const char* processes;
    const char* container;
    Json expected;  // processesPerNode; null: absent
  };
  const Row rows[] = {
      {"nprocPerNode: \"4\"", "command: [torchrun, t.py]", 4},
      {"nprocPerNode: auto", "command: [torchrun, t.py], resources: {limits: {nvidia.com/gpu: 8}}", "auto"},
      {"nprocPerNode: auto", "command: [torchrun, t.py]", nullptr},
      {"nprocPerNode: gpu", "command: [python3, t.py], resources: {limits: {nvidia.com/gpu: 8}}", nullptr},
      {"runPolicy: {}", "command: [sh, -c, 'torchrun t.py'], resources: {limits: {nvidia.com/gpu: 8}}", "auto"},
      {"nprocPerNode: \"4\"", "command: [torchrun, --nproc-per-node=2, t.py]", 2},
      {"nprocPerNode: auto", "command: [sh, -c, 'torchrun --nproc_per_node 8 t.py']", 8},
      {"nprocPerNode: auto", "command: [sh, -c, 'torchrun --nproc-per-node=$N t.py']", nullptr},
  };
  for (const Row& row : rows) {
    const Converted converted = only_job(fmt::format(kPyTorchJob, row.processes, row.container));
    const Json& spec = converted.job["spec"];
    EXPECT_EQ(spec.contains("processesPerNode") ? spec["processesPerNode"] : Json(), row.expected) << row.container;
  }
}

TEST(ConvertPyTorchJob, BoundsOfNodesMakeTheJobElastic) {
  struct Row {
    const char* policy;
    const char* options;  // of torchrun
    int nodes;
    Json elastic;  // null: absent
    const char* note = "";
  };
  const Json one_to_three = {{"minNodes", 1}, {"maxNodes", 3}};
  const Row rows[] = {
      {"{minReplicas: 1, maxReplicas: 3}", "", 2, one_to_three},
      {"{minReplicas: 3, maxReplicas: 4}",
       "",
       3,
       {{"minNodes", 3}, {"maxNodes", 4}},
       "spec.elasticPolicy.minReplicas: the job has 3 nodes, because 2 is outside of the bounds"},
      {"{minReplicas: 1, maxReplicas: 1}", "", 1, nullptr, "the job has 1 node, because 2 is outside of the bounds"},
      {"{maxReplicas: 2}", "", 2, nullptr},
      {"{rdzvBackend: c10d}", "", 2, nullptr, "spec.elasticPolicy.rdzvBackend: replaced by MASTER_ADDR"},
      {"{minReplicas: 1, maxReplicas: 3}", "'--nnodes=1:3', ", 2, one_to_three},
      {"{minReplicas: 1, maxReplicas: 3}", "'--nnodes=1:4', ", 2, one_to_three,
       "the command starts 1 to 4 nodes, but the bounds of the job count"},
      {"{minReplicas: 1, maxReplicas: 4}", "'--nnodes=4', ", 4, nullptr,
       "--nnodes starts 4 nodes, not 1 to 4 nodes, so the job is not elastic; remove the option for an elastic job"},
      {"{}", "'--nnodes=1:3', ", 2, one_to_three},
      {"{}", "'--nnodes=3:4', ", 2, nullptr, "the command starts 3 to 4 nodes, but the job has 2 pods; the pods count"},
      {"{}", "'--nnodes=1', ", 2, nullptr, "the command starts 1 node, but the job has 2 pods; the pods count"},
  };
  for (const Row& row : rows) {
    const std::string name = fmt::format("{} {}", row.policy, row.options);
    const Converted converted =
        only_job(fmt::format(kPyTorchJob, fmt::format("nprocPerNode: \"1\"\n  elasticPolicy: {}", row.policy),
                             fmt::format("command: [torchrun, {}t.py]", row.options)));
    const Json& spec = converted.job["spec"];
    EXPECT_EQ(spec["nodes"], row.nodes) << name;
    EXPECT_EQ(spec.value("elastic", Json()), row.elastic) << name;
    if (*row.note == '\0') {
      EXPECT_THAT(converted.notes, IsEmpty()) << name;
    } else {
      EXPECT_THAT(converted.notes, ElementsAre(HasSubstr(row.note))) << name;
    }
  }
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "elasticPolicy: {minReplicas: 3, maxReplicas: 2}", "command: [t]")),
              HasSubstr("spec.elasticPolicy.minReplicas: the minimum is above the maximum"));
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "elasticPolicy: {minReplicas: 0, maxReplicas: 2}", "command: [t]")),
              HasSubstr("the converted job is not valid: spec.elastic.minNodes: 0"));
}

// accelerate launch reads the number of machines from its command line.
TEST(ConvertPyTorchJob, JobOfAccelerateIsNotElastic) {
  for (const int replicas : {1, 2}) {
    const Converted converted = only_job(fmt::format(
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: j}}\nspec:\n"
        "  nprocPerNode: \"1\"\n"
        "  elasticPolicy: {{minReplicas: 1, maxReplicas: 3}}\n"
        "  pytorchReplicaSpecs: {{Worker: {{replicas: {}, template: {{spec: {{containers: [{{name: pytorch, image: i, "
        "command: [accelerate, launch, t.py]}}]}}}}}}}}\n",
        replicas));
    EXPECT_EQ(converted.job["spec"]["nodes"], replicas);
    EXPECT_FALSE(converted.job["spec"].contains("elastic")) << converted.job.dump();
    EXPECT_THAT(converted.notes,
                ElementsAre(HasSubstr("spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command: accelerate "
                                      "launch has a fixed number of machines; the job is not elastic")));
    const std::string command = trainer_in(converted)["command"].dump();
    EXPECT_EQ(command.find("\"--num_machines\",\"2\"") != std::string::npos, replicas == 2) << command;
  }
}

TEST(ConvertPyTorchJob, NotesNameTheRemedyForBoundsOfTorchrun) {
  struct Row {
    const char* policy;
    const char* container;
    const char* note;
  };
  const std::string script =
      "the script of the shell is kept; remove its options nnodes: torchrun reads the variables "
      "PET_* that the operator sets";
  const Row rows[] = {
      {"{}", "env: [{name: PET_NNODES, value: '1:4'}], command: [torchrun, t.py]",
       "env[0]: PET_NNODES is set by the operator; set spec.elastic for the bounds 1:4"},
      {"{}", "env: [{name: PET_NNODES, value: '2'}], command: [torchrun, t.py]",
       "env[0]: PET_NNODES is set by the operator"},
      {"{}", "env: [{name: PET_NNODES, value: '1:'}], command: [torchrun, t.py]",
       "env[0]: PET_NNODES is set by the operator"},
      {"{minReplicas: 1, maxReplicas: 4}", "env: [{name: PET_NNODES, value: '1:4'}], command: [torchrun, t.py]",
       "env[0]: PET_NNODES is set by the operator"},
      {"{}", "command: [sh, -c, 'torchrun --nnodes=1:4 t.py']", "; set spec.elastic for the bounds 1:4"},
      {"{}", "command: [sh, -c, 'torchrun --nnodes  \"2:8\" t.py']", "; set spec.elastic for the bounds 2:8"},
      {"{}", "command: [sh, -c, 'torchrun --nnodes $N t.py; torchrun --nnodes 1:4 u.py']",
       "; set spec.elastic for the bounds 1:4"},
      {"{}", "command: [sh, -c, 'torchrun --nnodes=2 t.py']", ""},
      {"{}", "command: [sh, -c, 'torchrun t.py --nnodes']", ""},
      {"{minReplicas: 1, maxReplicas: 4}", "command: [sh, -c, 'torchrun --nnodes=1:4 t.py']", ""},
  };
  for (const Row& row : rows) {
    const Converted converted = only_job(
        fmt::format(kPyTorchJob, fmt::format("nprocPerNode: \"1\"\n  elasticPolicy: {}", row.policy), row.container));
    const bool is_script = std::string(row.container).find("sh, -c") != std::string::npos;
    EXPECT_THAT(converted.notes, ElementsAre(EndsWith((is_script ? script : "") + row.note))) << row.container;
  }
}

// The bounds apply to all nodes.
TEST(ConvertPyTorchJob, MasterIsPartOfAnElasticJob) {
  const std::string pod = "template: {spec: {containers: [{name: pytorch, image: i, command: [torchrun, t.py]}]}}";
  const Converted converted =
      only_job(fmt::format("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: j}}\nspec:\n"
                           "  elasticPolicy: {{minReplicas: 1, maxReplicas: 3}}\n"
                           "  pytorchReplicaSpecs: {{Master: {{{}}}, Worker: {{replicas: 2, {}}}}}\n",
                           pod, pod));
  EXPECT_EQ(converted.job["spec"]["nodes"], 3);
  EXPECT_EQ(converted.job["spec"]["elastic"], Json::parse(R"({"minNodes": 1, "maxNodes": 3})"));
}

TEST(ConvertPyTorchJob, NotesHavePlaces) {
  const Converted converted = only_job(fmt::format(kPyTorchJob, "nprocPerNode: \"2\"", "command: [python3, t.py]"));
  EXPECT_THAT(converted.notes,
              ElementsAre(AllOf(HasSubstr("job.yaml:"), HasSubstr("need a launcher in the container"))));
  const Converted unknown = only_job(fmt::format(kPyTorchJob, "colour: red", "command: [torchrun, t.py]"));
  EXPECT_THAT(unknown.notes, Contains("job.yaml:5:11: note: spec.colour: is not a known field; not carried over"));
}

TEST(ConvertPyTorchJob, ReportsInvalidValues) {
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "nprocPerNode: \"0\"", "command: [t]")),
              HasSubstr("job.yaml:5:17: spec.nprocPerNode: expected a number from 1, auto, gpu or cpu"));
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "nprocPerNode: [1]", "command: [t]")),
              HasSubstr("spec.nprocPerNode"));
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "runPolicy: 3", "command: [t]")),
              HasSubstr("spec.runPolicy: expected a map, got number"));
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "runPolicy: {backoffLimit: many}", "command: [t]")),
              HasSubstr("spec.runPolicy.backoffLimit: expected an integer"));
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "runPolicy: {}", "command: [torchrun, --nproc-per-node]")),
              HasSubstr("torchrun: --nproc-per-node needs a value"));
}

// The result is checked as `oarlock validate` checks it, and its problems name the fields of the result.
TEST(ConvertPyTorchJob, ReportsInvalidResult) {
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "runPolicy: {}", "command: [t], imagePullPolcy: Always")),
              HasSubstr("job.yaml: the converted job is not valid: spec.template.spec.containers[0].imagePullPolcy: "
                        "unknown"));
  EXPECT_THAT(problems_of(fmt::format(kPyTorchJob, "runPolicy: {}", "command: [t]"), {.name = "Upper"}),
              HasSubstr("the converted job is not valid: metadata.name"));
}

TEST(ConvertPyTorchJob, OptionsReplaceNameImageAndGpus) {
  const Converted converted =
      only_job(fmt::format(kPyTorchJob, "runPolicy: {suspend: true}", "command: [torchrun, t.py]"),
               {.name = "other", .image = "new:1", .gpus = 4});
  EXPECT_EQ(converted.job["metadata"]["name"], "other");
  EXPECT_EQ(converted.job["spec"]["suspend"], true);
  EXPECT_EQ(converted.job["spec"]["processesPerNode"], "auto");
  EXPECT_EQ(trainer_in(converted)["image"], "new:1");
  EXPECT_EQ(trainer_in(converted)["resources"]["limits"]["nvidia.com/gpu"], 4);
}

constexpr char kMpiJob[] = R"(apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: j}}
spec:
  mpiReplicaSpecs:
    Launcher: {{template: {{spec: {{containers: [{{name: l, image: {}, command: {}}}]}}}}}}
    Worker: {{replicas: 2, template: {{spec: {{containers: [{{name: w, image: i}}]}}}}}}
)";

TEST(ConvertMpiJob, RejectsProgramsOfMpi) {
  EXPECT_THAT(problems_of(fmt::format(kMpiJob, "i", "[mpirun, -n, '2', /home/mpiuser/pi]")),
              AllOf(HasSubstr("job.yaml:"), HasSubstr("'/home/mpiuser/pi' is not a Python script")));
  EXPECT_THAT(problems_of(fmt::format(kMpiJob, "horovod/horovod:1", "[mpirun, -np, '2', python, t.py]")),
              HasSubstr("Horovod needs mpirun"));
  EXPECT_THAT(problems_of(fmt::format(kMpiJob, "i", "[sleep, '60']")), HasSubstr("does not run mpirun directly"));
  EXPECT_THAT(problems_of(fmt::format(kMpiJob, "i", "[mpirun, -np, '3', python, t.py]")),
              HasSubstr("-np 3 is not a multiple of the 2 nodes"));
}

TEST(ConvertMpiJob, OneRankOnEachNodeNeedsNoLauncher) {
  const Converted converted = only_job(fmt::format(kMpiJob, "i", "[mpirun, -np, '2', python, t.py]"));
  EXPECT_EQ(trainer_in(converted)["command"], Json::parse(R"(["python", "t.py"])"));
}

TEST(ConvertJobSet, RejectsSeveralRoles) {
  EXPECT_THAT(problems_of("apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec:\n"
                          "  replicatedJobs: [{name: leader}, {name: worker}]\n"),
              HasSubstr("spec.replicatedJobs: has 2 roles"));
}

TEST(ConvertJobSet, PodsOfEachJobRunOnce) {
  const Converted converted = only_job(
      "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec:\n"
      "  replicatedJobs: [{name: r, replicas: 2, template: {spec: {parallelism: 3, completions: 5, template: {spec: "
      "{containers: [{name: c, image: i, command: [python3, t.py]}]}}}}}]\n");
  EXPECT_EQ(converted.job["spec"]["nodes"], 6);
  EXPECT_THAT(converted.notes,
              Contains(HasSubstr("spec.replicatedJobs[0].template.spec.completions: 5 is more than the parallelism; "
                                 "each Job becomes 3 nodes, and no pod runs twice")));
  EXPECT_THAT(converted.notes, Contains(HasSubstr("2 Jobs of 3 pods become 6 nodes of one group")));
}

TEST(ConvertTrainJob, RuntimeMayFollowTheJob) {
  const std::string job =
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: j}\n"
      "spec: {runtimeRef: {kind: TrainingRuntime, name: r}, trainer: {command: [torchrun, t.py]}}\n";
  const auto runtime = [](const char* kind) {
    return fmt::format(
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: {}\nmetadata: {{name: r}}\nspec:\n  mlPolicy: {{numNodes: "
        "7}}\n"
        "  template: {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {{spec: {{containers: "
        "[{{name: node, image: from-runtime}}]}}}}}}}}}}]}}}}\n",
        kind);
  };
  const Converted converted = only_job(job + "---\n" + runtime("TrainingRuntime"));
  EXPECT_EQ(converted.job["spec"]["nodes"], 7);
  EXPECT_EQ(trainer_in(converted)["image"], "from-runtime");
  // The kind of the reference counts.
  const Converted without = only_job(job + "---\n" + runtime("ClusterTrainingRuntime"));
  EXPECT_THAT(without.notes, Contains(HasSubstr("the runtime 'r' is not in the input")));
}

TEST(ConvertTrainJob, NotesNameUnknownFieldsOfOverrides) {
  const Converted converted = only_job(
      "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: j}\nspec:\n"
      "  runtimeRef: {naem: r}\n  trainer: {image: i, command: [torchrun, t.py]}\n"
      "  podTemplateOverrides: [{targetJobs: [{name: node}], spce: {volumes: []}}]\n"
      "  runtimePatches: [{trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, templaet: "
      "{}}]}}}}]\n");
  EXPECT_THAT(converted.notes, Contains(HasSubstr("spec.runtimeRef.naem: is not a known field")));
  EXPECT_THAT(converted.notes, Contains(HasSubstr("spec.runtimeRef.name: names no runtime, so the image")));
  EXPECT_THAT(converted.notes, Contains(HasSubstr("spec.podTemplateOverrides[0].spce: is not a known field")));
  EXPECT_THAT(converted.notes, Contains(HasSubstr("replicatedJobs[0].templaet: is not a known field")));
}

TEST(ConvertTrainJob, ElasticPolicyOfTheRuntimeBoundsTheNodes) {
  struct Row {
    const char* policy;
    const char* trainer;
    int nodes;
    Json elastic;
    const char* note = "";
  };
  const auto text_of_job = [](const char* policy, const char* trainer) {
    return fmt::format(
        R"(apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: r}}
spec:
  mlPolicy: {{torch: {{numProcPerNode: 1, elasticPolicy: {{maxRestarts: 7, {}}}}}}}
  template: {{spec: {{replicatedJobs: [{{name: node, template: {{spec: {{template: {{spec: {{containers: [{{name: node, image: i}}]}}}}}}}}}}]}}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: j}}
spec: {{runtimeRef: {{name: r}}, trainer: {{{}command: [torchrun, t.py]}}}}
)",
        policy, trainer);
  };
  const Row rows[] = {
      {"", "numNodes: 4, ", 4, nullptr},
      {"minNodes: 2, maxNodes: 4", "", 4, {{"minNodes", 2}, {"maxNodes", 4}}},
      {"minNodes: 2, maxNodes: 4", "numNodes: 3, ", 3, {{"minNodes", 2}, {"maxNodes", 4}}},
      {"maxNodes: 4",
       "numNodes: 5, ",
       4,
       {{"minNodes", 1}, {"maxNodes", 4}},
       "spec.trainer.numNodes: the job has 4 nodes, because 5 is outside of the bounds"},
      {"minNodes: 2", "", 2, {{"minNodes", 2}}},
      {"minNodes: 2, maxNodes: 4, metrics: [{type: Resource}]",
       "",
       4,
       {{"minNodes", 2}, {"maxNodes", 4}},
       "spec.mlPolicy.torch.elasticPolicy.metrics: there is no autoscaling; not carried over"},
  };
  for (const Row& row : rows) {
    const Converted converted = only_job(text_of_job(row.policy, row.trainer));
    const Json& spec = converted.job["spec"];
    EXPECT_EQ(spec["nodes"], row.nodes) << row.policy;
    EXPECT_EQ(spec.value("elastic", Json()), row.elastic) << row.policy;
    EXPECT_EQ(spec["failurePolicy"]["maxRestarts"], 7) << row.policy;
    if (*row.note == '\0') {
      EXPECT_THAT(converted.notes, IsEmpty()) << row.policy;
    } else {
      EXPECT_THAT(converted.notes, ElementsAre(HasSubstr(row.note))) << row.policy;
    }
  }
  for (const char* policy : {"minNodes: 4, maxNodes: 2", "maxNodes: 0"}) {
    EXPECT_THAT(problems_of(text_of_job(policy, "")),
                HasSubstr("spec.mlPolicy.torch.elasticPolicy.maxNodes: is below the minimum"))
        << policy;
  }
}

TEST(ConvertKubernetes, ReadsListsOfKubectl) {
  const std::string job = fmt::format(kPyTorchJob, "runPolicy: {}", "command: [torchrun, t.py]");
  std::string indented;
  std::istringstream in(job);
  for (std::string line; std::getline(in, line);) indented += "  " + line + "\n";
  indented[0] = '-';
  EXPECT_EQ(only_job("apiVersion: v1\nkind: List\nitems:\n" + indented).job["metadata"]["name"], "j");
}

TEST(ConvertKubernetes, ReportsInputWithoutJobs) {
  EXPECT_THAT(problems_of("apiVersion: v1\nkind: Pod\n"),
              HasSubstr("there is no PyTorchJob, TrainJob, MPIJob or JobSet in the input: this document a Pod is not"));
  EXPECT_THAT(problems_of("kind: PyTorchJob\napiVersion: other/v1\n"),
              HasSubstr("PyTorchJob of other is not supported"));
  EXPECT_THAT(problems_of("- 1\n"), HasSubstr("job.yaml:1: this is not a Kubernetes object"));
  EXPECT_THAT(problems_of("kind: {}\n"), HasSubstr("is not a Kubernetes object"));
}

TEST(ConvertKubernetes, NameIsForOneJob) {
  const std::string job = fmt::format(kPyTorchJob, "runPolicy: {}", "command: [torchrun, t.py]");
  EXPECT_THAT(problems_of(job + "---\n" + job, {.name = "x"}), HasSubstr("--name names one job, but the input has 2"));
}

// Each value of a job replaced by each other type must give a result or a message, never an exception.
TEST(ConvertKubernetes, AcceptsAnyTypeAnywhere) {
  const char* const names[] = {"pytorchjob_elastic", "trainjob_with_runtime", "trainjob_patches", "mpijob_python",
                               "jobset_torchrun"};
  const Json replacements[] = {nullptr,
                               7,
                               -1.5,
                               true,
                               "text",
                               Json::array(),
                               Json::object(),
                               Json::array({1}),
                               Json::array({Json::object()}),
                               {{"name", 1}}};
  for (const char* name : names) {
    const auto documents = yaml::load_all(fmt::format("{}/{}.yaml", test::data_path("convert"), name));
    ASSERT_TRUE(documents);
    Json whole = Json::array();
    for (const yaml::Node& root : *documents) whole.push_back(to_ordered_json(root));
    std::vector<Json::json_pointer> places;
    const auto collect = [&](const auto& self, const Json& json, const Json::json_pointer& at) -> void {
      places.push_back(at);
      if (json.is_object()) {
        for (const auto& [key, value] : json.items()) self(self, value, at / key);
      } else if (json.is_array()) {
        for (size_t i = 0; i < json.size(); ++i) self(self, json[i], at / i);
      }
    };
    for (size_t i = 0; i < whole.size(); ++i) collect(collect, whole[i], Json::json_pointer() / i);
    size_t next = 0;
    for (const Json::json_pointer& place : places) {
      Json changed = whole;
      changed[place] = replacements[next++ % std::size(replacements)];
      std::string text;
      for (const Json& document : changed) text += "---\n" + document.dump() + "\n";
      const Result<std::vector<Converted>> result = convert_text(text);
      if (!result) {
        EXPECT_THAT(result.error().message, Not(IsEmpty())) << place.to_string();
      }
    }
  }
}

// 50,000 unknown fields must neither take long nor print 50,000 notes.
TEST(ConvertKubernetes, BoundsNotes) {
  std::string fields;
  for (int i = 0; i < 50'000; ++i) fields += fmt::format("field{}: 1, ", i);
  const Converted converted =
      only_job(fmt::format(kPyTorchJob, "elasticPolicy: {" + fields + "minReplicas: 2}", "command: [torchrun, t.py]"));
  EXPECT_EQ(converted.notes.size(), Report::kMaxNotes + 1);
  EXPECT_THAT(converted.notes.back(), HasSubstr("more notes"));
}

}  // namespace
}  // namespace oarlock::convert
