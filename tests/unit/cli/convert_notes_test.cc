// Nothing of a job of another operator is dropped without a note: each row has a part of a job that a TrainingJob does
// not have, or has in another form.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/convert/converters.h"
#include "tests/support/convert_text.h"
#include "tests/support/paths.h"
#include "yaml/writer.h"

namespace oarlock::convert {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string notes_of(const Converted& job) { return fmt::format("{}", fmt::join(job.notes, "\n")); }

// A PyTorchJob of two workers.
std::string pytorchjob(const std::string& container, const std::string& spec = "", const std::string& metadata = "") {
  return fmt::format(
      "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {{name: j{}}}\nspec:\n  {}\n  pytorchReplicaSpecs:\n"
      "    Worker: {{replicas: 2, template: {{spec: {{containers: [{{name: pytorch, image: i, {}}}]}}}}}}\n",
      metadata.empty() ? "" : ", " + metadata, spec.empty() ? "runPolicy: {}" : spec, container);
}

// A JobSet of one role, whose Job has these members, and whose pod has a second container.
std::string jobset(const std::string& job, const std::string& metadata = "{}") {
  return fmt::format(
      "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{name: j}}\nspec:\n  replicatedJobs: [{{name: w, "
      "template: {{metadata: {}, spec: {{parallelism: 2, {}template: {{spec: {{containers: [{{name: w, image: i, "
      "command: [python, t.py]}}, {{name: uploader, image: b}}]}}}}}}}}}}]\n",
      metadata, job.empty() ? "" : job + ", ");
}

constexpr char kMpiJobV1[] = R"(apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: mpi}
spec:
  cleanPodPolicy: All
  mpiReplicaSpecs:
    Launcher:
      template:
        metadata: {labels: {role: launcher}}
        spec:
          serviceAccountName: data-reader
          volumes: [{name: code, configMap: {name: code}}]
          containers:
          - name: mpi
            image: b:1
            command: [mpirun, -np, "2", python, /code/train.py]
            volumeMounts: [{name: code, mountPath: /code}]
            envFrom: [{secretRef: {name: wandb}}]
          - {name: sidecar, image: c:1}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: mpi, image: a:1, command: [sleep], resources: {limits: {nvidia.com/gpu: 1}}}]}}
)";

TEST(ConvertNotes, RanksFollowTheDevicesOfEachVendor) {
  struct Row {
    const char* limits;
    Json processes;  // null: absent
    const char* note = "";
  };
  const Row rows[] = {
      {"{nvidia.com/gpu: 8}", "auto"},
      {"{amd.com/gpu: \"8\"}", "auto"},
      {"{gpu.intel.com/i915: 2}", "auto"},
      {"{gpu.intel.com/xe: 2}", "auto"},
      {"{nvidia.com/mig-1g.5gb: 4}", "auto"},
      {"{nvidia.com/gpu.shared: 2}", "auto"},
      {"{habana.ai/gaudi: 8}", 8},
      {"{aws.amazon.com/neuroncore: \"4\"}", 4},
      {"{huawei.com/Ascend910: 8}", 8},
      {"{aws.amazon.com/neuron: 16}", nullptr, "because the number of ranks for aws.amazon.com/neuron is not known"},
      {"{google.com/tpu: 4}", nullptr, "because the number of ranks for google.com/tpu is not known"},
      {"{nvidia.com/gpu: 0}", nullptr, "because the container requests no GPU"},
      {"{memory: 8Gi}", nullptr, "because the container requests no GPU"},
  };
  for (const Row& row : rows) {
    const std::string limits = fmt::format("resources: {{limits: {}}}", row.limits);
    const Converted launched = only_job(pytorchjob("command: [torchrun, t.py], " + limits, "nprocPerNode: auto"));
    EXPECT_EQ(launched.job["spec"].value("processesPerNode", Json()), row.processes) << row.limits;
    EXPECT_THAT(notes_of(launched), HasSubstr(row.note)) << row.limits;
    const Converted plain = only_job(pytorchjob("command: [python, t.py], " + limits));
    const std::string number = row.processes.is_string() ? "auto" : row.processes.dump();
    const std::string remedy = row.processes.is_null() ? "" : "set spec.processesPerNode: " + number;
    EXPECT_THAT(notes_of(plain), HasSubstr(remedy)) << row.limits;
  }
}

TEST(ConvertNotes, NumberOfGpusReplacesThatOfTheSource) {
  const char* container =
      "command: [torchrun, t.py], resources: {requests: {amd.com/gpu: 8, cpu: 2}, limits: {amd.com/gpu: 8}}";
  const Converted converted = only_job(pytorchjob(container), {.name = {}, .image = {}, .gpus = 4});
  const Json& resources = converted.job["spec"]["template"]["spec"]["containers"][0]["resources"];
  EXPECT_EQ(resources, Json::parse(R"({"requests": {"cpu": 2}, "limits": {"amd.com/gpu": 4}})")) << resources;
}

TEST(ConvertNotes, EachDifferenceOfTheTemplatesIsNoted) {
  const auto text_of = [](const char* replicas) {
    return fmt::format(R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: diffs}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: {}
      template:
        metadata: {{labels: {{role: master}}}}
        spec:
          priorityClassName: high
          nodeSelector: {{pool: cpu}}
          tolerations: [{{key: a, operator: Exists}}]
          containers: [{{name: pytorch, image: "a:1", command: [python, a.py], env: [{{name: A, value: "1"}}, {{name: B, value: "1"}}], resources: {{limits: {{memory: 1Gi}}}}}}]
    Worker:
      replicas: 1
      template:
        metadata: {{labels: {{role: worker}}}}
        spec:
          priorityClassName: low
          nodeSelector: {{pool: gpu}}
          containers: [{{name: pytorch, image: "b:1", command: [python, b.py], env: [{{name: A, value: "2"}}, {{name: B, value: "2"}}], resources: {{limits: {{memory: 100Gi, nvidia.com/gpu: 8}}}}}}]
)",
                       replicas);
  };
  const std::string notes = notes_of(only_job(text_of("1")));
  for (const char* path :
       {"metadata.labels.role", "spec.priorityClassName", "spec.nodeSelector.pool", "spec.containers[0].image",
        "spec.containers[0].command[1]", "spec.containers[0].env[0].value", "spec.containers[0].env[1].value",
        "spec.containers[0].resources.limits.memory", "spec.containers[0].resources.limits.nvidia.com/gpu"}) {
    EXPECT_THAT(notes, HasSubstr(fmt::format("Worker.template.{}: differs from", path)));
  }
  EXPECT_THAT(notes,
              HasSubstr("spec.tolerations: is absent here, but not in spec.pytorchReplicaSpecs.Master.template"));
  // Without a Master, the pods are those of the Worker.
  const Converted workers = only_job(text_of("0"));
  EXPECT_EQ(workers.job["spec"]["nodes"], 1);
  EXPECT_EQ(workers.job["spec"]["template"]["spec"]["nodeSelector"]["pool"], "gpu");
  EXPECT_THAT(notes_of(workers), HasSubstr("Master.template.spec.nodeSelector.pool: differs from"));
}

TEST(ConvertNotes, RulesMatchFailuresOfTheTrainerOnly) {
  struct Row {
    const char* rule;
    Json rules;  // null: none
    const char* note = "";
  };
  const Json each_failure = Json::parse(R"([{"action": "Fail", "onExitCodes": {"operator": "In", "values": [255]}},
                                            {"action": "Fail", "onExitCodes": {"operator": "NotIn", "values": [255]}}])");
  const Json disruption =
      Json::parse(R"([{"action": "RestartFree", "onPodConditions": [{"type": "DisruptionTarget"}]}])");
  const Row rows[] = {
      {"{action: Ignore, onExitCodes: {containerName: uploader, operator: In, values: [3]}}", nullptr,
       "onExitCodes.containerName: the rule is not carried over: it is about container 'uploader'"},
      {"{action: Ignore, onExitCodes: {containerName: w, operator: In, values: [3]}}",
       Json::parse(R"([{"action": "RestartFree", "onExitCodes": {"operator": "In", "values": [3]}}])")},
      {"{action: FailJob, onExitCodes: {operator: NotIn, values: [0]}}", each_failure,
       "onExitCodes: matched the exit codes of all containers; now those of 'trainer' only"},
      {"{action: FailJob, onExitCodes: {containerName: w, operator: NotIn, values: [0, 3]}}",
       Json::parse(R"([{"action": "Fail", "onExitCodes": {"operator": "NotIn", "values": [3]}}])")},
      {"{action: FailJob, onExitCodes: {containerName: w, operator: In, values: [3, 256, -1]}}",
       Json::parse(R"([{"action": "Fail", "onExitCodes": {"operator": "In", "values": [3]}}])"),
       "256 is not an exit code from 1 to 255; not carried over"},
      {"{action: FailJob, onExitCodes: {containerName: w, operator: In, values: [300]}}", nullptr,
       "there is no exit code of a failure; the rule is not carried over"},
      {"{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}", disruption},
      {"{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: \"False\"}]}", nullptr,
       "DisruptionTarget=False has no counterpart"},
      {"{action: Ignore, onPodConditions: [{type: ConfigIssue}, {type: DisruptionTarget, status: \"True\"}]}",
       disruption, "ConfigIssue has no counterpart"},
      {"{action: FailIndex, onExitCodes: {containerName: w, operator: In, values: [3]}}",
       Json::parse(R"([{"action": "Fail", "onExitCodes": {"operator": "In", "values": [3]}}])"),
       "FailIndex failed one index; now the job fails"},
  };
  for (const Row& row : rows) {
    const Converted converted = only_job(jobset(fmt::format("podFailurePolicy: {{rules: [{}]}}", row.rule)));
    EXPECT_EQ(converted.job["spec"].value("failurePolicy", Json::object()).value("rules", Json()), row.rules)
        << row.rule;
    EXPECT_THAT(notes_of(converted), HasSubstr(row.note)) << row.rule;
    EXPECT_THAT(notes_of(converted), Not(HasSubstr("is not a known field"))) << row.rule;
  }
}

TEST(ConvertNotes, FinishedJobsDoNotRunAgain) {
  const char* statuses[] = {
      "status: {completionTime: \"2026-01-01T05:00:00Z\", conditions: [{type: Succeeded, status: \"True\"}]}\n",
      "status: {conditions: [{type: Created, status: \"True\"}, {type: Failed, status: \"True\"}]}\n",
      "status: {conditions: [{type: Complete, status: \"True\"}]}\n",
      "status: {conditions: [{type: Completed, status: \"True\"}]}\n",
      "status: {terminalState: Completed}\n",
  };
  const std::string job = pytorchjob("command: [python, t.py]");
  for (const char* status : statuses) {
    const auto alone = convert_text(job + status);
    ASSERT_FALSE(alone) << status;
    EXPECT_THAT(alone.error().message, HasSubstr("PyTorchJob 'j' has finished"));
    const Converted other = only_job(job + status + "---\n" + job);
    EXPECT_THAT(notes_of(other), HasSubstr("skipped, because it would run again. To run it again, remove its status"));
  }
  EXPECT_FALSE(convert_text(pytorchjob("command: [t]", "", "deletionTimestamp: \"2026-01-02T00:00:00Z\"")));
  const Converted running = only_job(job +
                                     "status: {conditions: [{type: Running, status: \"True\"}, {type: Succeeded, "
                                     "status: \"False\"}]}\n");
  EXPECT_THAT(notes_of(running), Not(HasSubstr("skipped")));
}

TEST(ConvertNotes, LauncherOfMpiIsNotDroppedSilently) {
  const Converted converted = only_job(kMpiJobV1);
  EXPECT_EQ(converted.job["spec"]["cleanPodPolicy"], "All");
  for (const char* part : {"Launcher.template.metadata.labels", "Launcher.template.spec.serviceAccountName",
                           "Launcher.template.spec.volumes", "containers[0].volumeMounts", "containers[0].envFrom",
                           "containers[1]: of the launcher", "containers[0].image: differs from that of the workers",
                           "the command of the workers is replaced"}) {
    EXPECT_THAT(notes_of(converted), HasSubstr(part));
  }
}

TEST(ConvertNotes, EachPartWithoutCounterpartIsNoted) {
  struct Row {
    std::string job;
    const char* note;
  };
  const std::string torchrun = "command: [torchrun, t.py]";
  const Row rows[] = {
      {pytorchjob(torchrun, "", "labels: {kueue.x-k8s.io/job-slice-name: q}"),
       "job.yaml:3:61: note: metadata.labels.kueue.x-k8s.io/job-slice-name: has no effect on a TrainingJob"},
      {pytorchjob(torchrun, "", "annotations: {kueue.x-k8s.io/podset-required-topology: rack}"),
       "metadata.annotations.kueue.x-k8s.io/podset-required-topology: has no effect on a TrainingJob"},
      {jobset("", "{labels: {kueue.x-k8s.io/queue-name: q}}"),
       "template.metadata.labels.kueue.x-k8s.io/queue-name: of the Job; not carried over"},
      {pytorchjob(torchrun, "", "annotations: {scheduling.volcano.sh/queue-name: q}"),
       "scheduling.volcano.sh/queue-name: has no effect"},
      {pytorchjob(torchrun, "", "ownerReferences: [{name: o}]"), "metadata.ownerReferences: not carried over"},
      {pytorchjob(torchrun, "", "finalizers: [a/b]"), "metadata.finalizers: not carried over"},
      {pytorchjob(torchrun, "", "clusterName: c"), "metadata.clusterName: is not a known field"},
      {pytorchjob(torchrun, "runPolicy: {schedulingPolicy: {queue: q}}"),
       "spec.runPolicy.schedulingPolicy.queue: a gang scheduler"},
      {pytorchjob(torchrun, "runPolicy: {backoffLimit: 3}\n  elasticPolicy: {maxRestarts: 5}"),
       "spec.elasticPolicy.maxRestarts: 5 is not carried over, because 3 is given elsewhere"},
      {pytorchjob("command: [torchrun, --max-restarts=7, t.py]", "runPolicy: {backoffLimit: 3}"),
       "7 is not carried over, because 3 is given elsewhere"},
      {pytorchjob("ports: [{name: pytorchjob-port, containerPort: 23456}], " + torchrun),
       "ports[0]: the port of the rendezvous is spec.rendezvous.port"},
      {pytorchjob("command: [sh, -c, 'torchrun --nnodes=2 t.py']", "elasticPolicy: {minReplicas: 1, maxReplicas: 3}"),
       "--nnodes starts 2 nodes, not 1 to 3 nodes, so the job is not elastic"},
      {pytorchjob("command: [torchrun, --nproc-per-node=2, t.py]", "nprocPerNode: \"4\""),
       "containers[0].command: the command starts 2 ranks on each node, not 4"},
      {pytorchjob("command: [sh, -c, 'torchrun --nproc_per_node 2 t.py']", "nprocPerNode: \"4\""),
       "containers[0].command: the command starts 2 ranks on each node, not 4"},
      {jobset("", "{labels: {cost: x}}"), "metadata.labels.cost: of the Job; not carried over"},
      {jobset("", "{annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}"),
       "template.metadata.annotations.alpha.jobset.sigs.k8s.io/exclusive-topology: becomes spec.scheduling.topology "
       "with the mode Exclusive"},
      {jobset("suspend: true"), "spec.suspend: of the Job; not carried over"},
      {jobset("podFailurePolicy: {rulez: []}"), "podFailurePolicy.rulez: is not a known field"},
      {jobset("", "{}") + "  coordinator: {replicatedJob: w}\n", "spec.coordinator: "},
      {jobset("", "{}") + "  network: {subdomain: s}\n", "spec.network.subdomain: "},
      {jobset("", "{}") + "  failurePolicy: {restartStrategy: InPlaceRestart}\n", "spec.failurePolicy.restartStrategy"},
      {jobset("", "{}") + "  successPolicy: {operator: Any}\n", "spec.successPolicy.operator: now all ranks"},
  };
  for (const Row& row : rows) EXPECT_THAT(notes_of(only_job(row.job)), HasSubstr(row.note)) << row.job;
  // What a TrainingJob does anyway needs no note.
  EXPECT_THAT(only_job(jobset("completionMode: Indexed, podReplacementPolicy: Failed") +
                       "  network: {enableDNSHostnames: true}\n  successPolicy: {operator: All}\n")
                  .notes,
              IsEmpty());
}

// A PyTorchJob with a queue, whose pods have these labels and annotations.
std::string queued_job(const std::string& pod_metadata, const std::string& policy) {
  return fmt::format(
      "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: j\n  labels: {{kueue.x-k8s.io/queue-name: q, "
      "kueue.x-k8s.io/priority-class: high}}\nspec:\n  runPolicy: {}\n  pytorchReplicaSpecs:\n    Worker: {{replicas: "
      "2, template: {{metadata: {}, spec: {{containers: [{{name: pytorch, image: i, command: [torchrun, "
      "t.py]}}]}}}}}}\n",
      policy, pod_metadata);
}

TEST(ConvertNotes, QueuesAndTopologyOfKueueWork) {
  const Converted converted =
      only_job(queued_job("{annotations: {kueue.x-k8s.io/podset-required-topology: rack}}", "{suspend: false}"));
  const Json expected = {{"kueue.x-k8s.io/queue-name", "q"}, {"kueue.x-k8s.io/priority-class", "high"}};
  EXPECT_EQ(converted.job["metadata"]["labels"], expected);
  EXPECT_EQ(converted.job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"],
            "rack");
  EXPECT_THAT(notes_of(converted), Not(HasSubstr("kueue.x-k8s.io")));
}

TEST(ConvertNotes, QueueReplacesSuspension) {
  const Converted converted = only_job(queued_job("{}", "{suspend: true}"));
  EXPECT_FALSE(converted.job["spec"].contains("suspend"));
  EXPECT_THAT(notes_of(converted), HasSubstr("job.yaml:7:24: note: spec.runPolicy.suspend: not carried over, because "
                                             "the job waits in its queue"));
  EXPECT_EQ(only_job(pytorchjob("command: [t]", "runPolicy: {suspend: true}")).job["spec"]["suspend"], true);
}

TEST(ConvertNotes, LabelsOfKueueLeaveThePods) {
  const Converted converted = only_job(queued_job("{labels: {kueue.x-k8s.io/queue-name: q, a: b}}", "{}"));
  const Json expected = {{"a", "b"}};
  EXPECT_EQ(converted.job["spec"]["template"]["metadata"]["labels"], expected);
  EXPECT_THAT(
      notes_of(converted),
      HasSubstr("Worker.template.metadata.labels.kueue.x-k8s.io/queue-name: not carried over: Kueue would queue "
                "each pod for itself"));
}

TEST(ConvertNotes, GeneratedNameIsTheSameEachTime) {
  std::string job = pytorchjob("command: [t]");
  job.replace(job.find("name: j"), 7, "generateName: train-");
  const Converted converted = only_job(job);
  EXPECT_EQ(converted.job["metadata"]["name"], "train");
  EXPECT_THAT(notes_of(converted), HasSubstr("metadata.generateName: the name is 'train', the same each time"));
  EXPECT_THAT(notes_of(only_job(job, {.name = "mine", .image = {}, .gpus = {}})), Not(HasSubstr("generateName")));
}

// Returns whether a note is about one of the maps and lists around a place: "note: spec.replicatedJobs[0]: ".
bool has_note_around(const std::string& notes, const Json::json_pointer& place) {
  std::string path;
  for (std::string rest = place.to_string().substr(1); !rest.empty();) {
    const std::string key = rest.substr(0, rest.find('/'));
    rest.erase(0, std::min(key.size() + 1, rest.size()));
    const bool is_index = key.find_first_not_of("0123456789") == std::string::npos;
    path += is_index ? fmt::format("[{}]", key) : (path.empty() ? "" : ".") + key;
    for (const char* end : {": ", ".name: patches", ".targetJobs: overrides"}) {
      if (notes.find("note: " + path + end) != std::string::npos) return true;
    }
  }
  return false;
}

// A new member in any map of any job is in the result, in a note about it or a map around it, or an error.
TEST(ConvertNotes, UnknownMemberAnywhereIsReported) {
  size_t places = 0;
  for (const char* name : {"pytorchjob_elastic", "pytorchjob_two_templates", "trainjob_with_runtime",
                           "trainjob_patches", "mpijob_python", "jobset_torchrun"}) {
    const auto documents = yaml::load_all(fmt::format("{}/{}.yaml", test::data_path("convert"), name));
    ASSERT_TRUE(documents);
    Json whole = Json::array();
    for (const yaml::Node& root : *documents) whole.push_back(to_ordered_json(root));
    std::vector<Json::json_pointer> maps;
    const auto collect = [&](const auto& self, const Json& json, const Json::json_pointer& at) -> void {
      if (json.is_object() && !at.empty()) maps.push_back(at);
      if (json.is_object()) {
        for (const auto& [key, value] : json.items()) self(self, value, at / key);
      } else if (json.is_array()) {
        for (size_t i = 0; i < json.size(); ++i) self(self, json[i], at / i);
      }
    };
    for (size_t i = 0; i < whole.size(); ++i) collect(collect, whole[i], Json::json_pointer() / i);
    for (const Json::json_pointer& map : maps) {
      const std::string place = map.to_string();
      const Json& document = whole[place[1] - '0'];
      const std::string kind = document["kind"];
      // Of the runtime, only the spec is part of a job; a role that does not train has one note for all of it.
      if (kind == "ConfigMap" || (kind.ends_with("Runtime") && place.find("/spec") == std::string::npos)) continue;
      Json changed = whole;
      changed[map]["zzUnknown"] = "zzValue";
      std::string text;
      for (const Json& one : changed) text += "---\n" + one.dump() + "\n";
      const Result<std::vector<Converted>> result = convert_text(text);
      if (!result) {
        EXPECT_THAT(result.error().message, HasSubstr("zz")) << place;
      } else {
        std::string printed;
        for (const Converted& one : *result) printed += one.job.dump() + "\n" + notes_of(one);
        Json::json_pointer in_document(place.substr(2));
        // The job replaces a variable of its runtime, and the rules of roles need no counterpart.
        const bool is_replaced = place.find("/dependsOn/") != std::string::npos ||
                                 place.find("/targetJobs/") != std::string::npos ||
                                 (kind.ends_with("Runtime") && place.ends_with("/env/0"));
        EXPECT_TRUE(is_replaced || printed.find("zz") != std::string::npos || has_note_around(printed, in_document))
            << name << " " << place << "\n"
            << printed;
      }
      ++places;
    }
  }
  EXPECT_GT(places, 100U);
}

}  // namespace
}  // namespace oarlock::convert
