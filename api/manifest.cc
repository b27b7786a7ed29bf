// Reads a TrainingJob from YAML, and reports what its author may have meant.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/resources.h"
#include "api/rules.h"
#include "api/validate.h"
#include "common/text.h"
#include "fields/yaml_reader.h"
#include "yaml/path.h"

namespace oarlock::api {
namespace {

void read_metadata(Metadata& metadata, Fields& fields) {
  if (fields.has("generateName") && !fields.has("name")) {
    fields.problem("name", "is required; only 'kubectl create' makes names from generateName");
  } else {
    fields.require("name");
  }
  fields.field("name", metadata.name, "");
  fields.field("namespace", metadata.namespace_name, "");
  fields.field("uid", metadata.uid, "");
  // The API server validates the other members of ObjectMeta.
  for (const char* key : {"labels", "annotations", "generateName", "finalizers", "ownerReferences", "creationTimestamp",
                          "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion",
                          "managedFields", "selfLink"}) {
    fields.skip(key);
  }
}

// The API server requires that the values of labels and annotations are strings. A null value is an empty string.
void check_metadata_strings(const yaml::Node& object, yaml::Problems& problems) {
  const std::optional<yaml::Node> metadata = object.find("metadata");
  for (const char* key : {"labels", "annotations"}) {
    const std::optional<yaml::Node> map = metadata ? metadata->find(key) : std::nullopt;
    if (!map || map->kind() == yaml::Node::Kind::kNull) continue;
    const std::string path = fmt::format("metadata.{}", key);
    if (map->kind() != yaml::Node::Kind::kMap) problems.add(map->mark(), path, "expected a map of strings");
    for (const yaml::Node::Entry& entry : map->entries()) {
      if (entry.value.kind() == yaml::Node::Kind::kNull) continue;
      yaml::check_string(entry.value, fmt::format("{}.{}", path, entry.key), problems);
    }
  }
}

// ---- Keys of other programs and of other places -----------------------------------------------------------------

struct ForeignKeys {
  std::vector<std::string_view> keys;
  const char* remedy;
};

// Keys that people write into the spec because other APIs have them, or because they belong to a part of it.
const std::vector<ForeignKeys>& foreign_keys() {
  static const std::vector<ForeignKeys> kRows = {
      {.keys = {"replicas", "numNodes", "nnodes", "numReplicas", "workers", "numWorkers", "parallelism", "completions"},
       .remedy = "the number of pods is spec.nodes"},
      {.keys = {"nprocPerNode", "numProcPerNode", "procsPerNode", "ranksPerNode", "slotsPerWorker"},
       .remedy = "the number of ranks in each pod is spec.processesPerNode"},
      {.keys = {"gpus", "gpu", "gpusPerNode", "numGpus"},
       .remedy = "GPUs are limits of spec.resourcesPerNode: {limits: {nvidia.com/gpu: 8}}"},
      {.keys = {"resources", "limits", "requests"},
       .remedy = "resources are those of spec.resourcesPerNode: {limits: {memory: 16Gi}}"},
      {.keys = {"command", "args", "env", "envFrom", "workingDir", "ports", "volumeMounts", "imagePullPolicy"},
       .remedy = "it belongs to the container 'trainer' in spec.template.spec.containers"},
      {.keys = {"containers", "initContainers", "volumes", "nodeSelector", "tolerations", "affinity", "nodeName",
                "serviceAccountName", "imagePullSecrets", "priorityClassName", "schedulerName", "hostNetwork",
                "securityContext", "topologySpreadConstraints", "terminationGracePeriodSeconds", "runtimeClassName"},
       .remedy = "it belongs to spec.template.spec"},
      {.keys = {"labels", "annotations"}, .remedy = "those of the pods are in spec.template.metadata"},
      {.keys = {"backoffLimit", "maxRestarts", "maxRetries", "retries"},
       .remedy = "the number of restarts is spec.failurePolicy.maxRestarts"},
      {.keys = {"queue", "queueName"}, .remedy = "the queue is the label kueue.x-k8s.io/queue-name of the job"},
      {.keys = {"priority", "priorityClass"}, .remedy = "it is priorityClassName in spec.template.spec"},
      {.keys = {"restartPolicy"}, .remedy = "spec.failurePolicy has the rules for restarts"},
      {.keys = {"minNodes", "maxNodes", "elasticPolicy"},
       .remedy = "the bounds of an elastic job are in spec.elastic: {minNodes: 1, maxNodes: 4}"},
      {.keys = {"pytorchReplicaSpecs", "mpiReplicaSpecs", "replicatedJobs", "runtimeRef", "runtimeSpec"},
       .remedy = "oarlock convert -f FILE translates PyTorchJobs, TrainJobs, MPIJobs and JobSets"},
      {.keys = {"task", "data", "model", "optimizer", "schedule", "epochs", "steps", "batch", "seed", "loader", "amp",
                "tracking", "evaluation"},
       .remedy = "it belongs to spec.trainer"},
  };
  return kRows;
}

constexpr std::string_view kSpecKeys[] = {"nodes",         "elastic",     "processesPerNode", "image",
                                          "trainer",       "template",    "resourcesPerNode", "checkpoints",
                                          "failurePolicy", "stallPolicy", "scheduling",       "successPolicy",
                                          "suspend",       "rendezvous",  "cleanPodPolicy",   "managedBy",
                                          "profile"};
constexpr std::string_view kMetadataKeys[] = {"name", "namespace", "labels", "annotations"};

// Reports the key of an entry with a remedy, and accepts it, so that it is not reported again.
void report_foreign_key(const yaml::Node::Entry& entry, const std::string& path, std::string_view remedy,
                        yaml::Problems& problems, Fields& fields) {
  problems.add(entry.key_mark, path.empty() ? entry.key : fmt::format("{}.{}", path, entry.key),
               fmt::format("unknown key; {}", remedy));
  fields.skip(entry.key);
}

void report_foreign_keys_of_spec(const yaml::Node& spec, yaml::Problems& problems, Fields& fields) {
  for (const yaml::Node::Entry& entry : spec.entries()) {
    for (const ForeignKeys& row : foreign_keys()) {
      if (std::ranges::find(row.keys, entry.key) == row.keys.end()) continue;
      report_foreign_key(entry, "spec", row.remedy, problems, fields);
    }
  }
}

void report_foreign_keys_of_root(const yaml::Node& root, yaml::Problems& problems, Fields& fields) {
  for (const yaml::Node::Entry& entry : root.entries()) {
    if (std::ranges::find(kSpecKeys, entry.key) != std::end(kSpecKeys))
      report_foreign_key(entry, "", "it belongs to spec", problems, fields);
    if (std::ranges::find(kMetadataKeys, entry.key) != std::end(kMetadataKeys))
      report_foreign_key(entry, "", "it belongs to metadata", problems, fields);
  }
}

// Reports a part of the spec that is a scalar with the map to write.
void report_short_forms(const yaml::Node& spec, yaml::Problems& problems) {
  for (const char* key : {"checkpoints", "resourcesPerNode"}) {
    const std::optional<yaml::Node> value = spec.find(key);
    if (!value || value->kind() != yaml::Node::Kind::kScalar) continue;
    const std::string text = shortened(value->text());
    const bool is_size = is_quantity(value->to_json());
    std::string form = is_size ? fmt::format("{{size: {}}}", text) : fmt::format("{{claimName: {}}}", text);
    if (value->value().is_boolean()) form = "{size: 10Gi}";
    if (std::string_view(key) == "resourcesPerNode") form = fmt::format("{{limits: {{nvidia.com/gpu: {}}}}}", text);
    problems.add(value->mark(), fmt::format("spec.{}", key),
                 fmt::format("expected a map, got '{}'; write {}", text, form));
  }
}

void read_root(TrainingJob& job, const yaml::Node& node, yaml::Problems& problems, Fields& fields) {
  std::string api_version = kApiVersion;
  std::string kind = kKind;
  for (const char* key : {"apiVersion", "kind", "metadata", "spec"}) fields.require(key);
  fields.field("apiVersion", api_version, "");
  if (api_version != kApiVersion) {
    fields.problem("apiVersion", fmt::format("'{}' is not {}; replace it", shortened(api_version), kApiVersion));
  }
  fields.field("kind", kind, "");
  if (kind != kKind) fields.problem("kind", fmt::format("'{}' is not {}; replace it", shortened(kind), kKind));
  const auto section = [&](const char* key, const Fields::Describe& read) {
    if (!fields.has(key)) return fields.skip(key);  // reported above
    fields.section(key, read, "");
  };
  section("metadata", [&](Fields& metadata) { read_metadata(job.metadata, metadata); });
  section("spec", [&](Fields& spec) {
    describe(job.spec, spec);
    if (const auto given = node.find("spec")) {
      report_foreign_keys_of_spec(*given, problems, spec);
      report_short_forms(*given, problems);
    }
  });
  report_foreign_keys_of_root(node, problems, fields);
  fields.skip("status");  // written by the operator; part of the output of kubectl get -o yaml
}

}  // namespace

TrainingJob training_job_from_yaml(const yaml::Node& node, yaml::Problems& problems) {
  TrainingJob job;
  const size_t problems_before = problems.size();
  check_metadata_strings(node, problems);
  YamlFieldsReader root(node, "", problems, YamlFieldsReader::LimitChecks::kOff);  // validate() checks them below
  read_root(job, node, problems, root);
  root.finish();
  if (problems.size() == problems_before) yaml::check_json_conversion(node, problems);
  if (problems.size() > problems_before) return job;
  resolve_processes_per_node(job.spec);
  for (const FieldProblem& problem : validate(job)) {
    const yaml::Mark mark = problems.is_full() ? yaml::Mark{} : yaml::find_place(node, problem.path).mark;
    problems.add(mark, problem.path, problem.message);
  }
  return job;
}

Result<TrainingJob> training_job_from_yaml(const yaml::Node& node, const std::string& file) {
  yaml::Problems problems(file);
  TrainingJob job = training_job_from_yaml(node, problems);
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  return job;
}

}  // namespace oarlock::api
