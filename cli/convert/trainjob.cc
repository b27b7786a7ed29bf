// TrainJob (trainer.kubeflow.org/v1alpha1) together with its TrainingRuntime or ClusterTrainingRuntime.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/convert/converters.h"
#include "common/json_access.h"

namespace oarlock::convert {
namespace {

constexpr char kStepLabel[] = "trainer.kubeflow.org/trainjob-ancestor-step";
constexpr char kDefaultNode[] = "node";

bool is_trainer_step(const Json& role) {
  const Json& labels = member(member(member(role, "template"), "metadata"), "labels");
  return text_at(labels, kStepLabel) == "trainer";
}

// Returns the role of a runtime whose pods train: the one with the label of the step, else the one named "node".
const Json* trainer_role(const Json& roles) {
  const Json* named = nullptr;
  for (const Json& role : roles) {
    if (is_trainer_step(role)) return &role;
    if (text_at(role, "name") == kDefaultNode) named = &role;
  }
  return named;
}

// Merges a patch of a pod template: maps are merged, lists of objects with names by name, other lists are appended.
// Parts of the patch that have another type than in the base are left out, and then the result is false.
bool merge_patch(Json& base, const Json& patch) {
  bool is_complete = true;
  if (base.is_object() && patch.is_object()) {
    for (const auto& [key, value] : patch.items()) {
      if (base.contains(key)) {
        is_complete = merge_patch(base[key], value) && is_complete;
      } else {
        base[key] = value;
      }
    }
  } else if (base.is_array() && patch.is_array()) {
    for (const Json& item : patch) {
      const std::string name = text_at(item, "name");
      const auto same = std::ranges::find_if(
          base, [&](const Json& other) { return !name.empty() && text_at(other, "name") == name; });
      if (same == base.end()) {
        base.push_back(item);
      } else {
        is_complete = merge_patch(*same, item) && is_complete;
      }
    }
  } else if (base.is_structured()) {
    return patch.is_null();
  } else if (!patch.is_null()) {
    base = patch;
  }
  return is_complete;
}

constexpr char kOtherType[] = "a part has another type than in the pod of the runtime; not carried over";

// The parts of a runtime that a TrainJob overrides.
struct RuntimeParts {
  std::string role = kDefaultNode;
  Json pod = Json::object();
  bool is_elastic = false;
  std::optional<int64_t> min_nodes;
  std::optional<int64_t> max_nodes;
  bool has_nodes = false;  // numNodes is given
};

// The bounds apply to the nodes that the job requests, so they are only read here.
void read_elastic_policy(ObjectReader elastic, RuntimeParts& parts, JobDraft& draft) {
  if (elastic.empty()) return;
  draft.max_restarts = elastic.integer("maxRestarts");
  parts.min_nodes = elastic.integer("minNodes");
  parts.max_nodes = elastic.integer("maxNodes");
  parts.is_elastic = parts.min_nodes || parts.max_nodes;
  if (parts.max_nodes && parts.min_nodes.value_or(1) > *parts.max_nodes)
    elastic.problem("maxNodes", "is below the minimum");
  elastic.drop("metrics", "there is no autoscaling; not carried over");
}

// Reads spec.mlPolicy. Returns whether it has a section "mpi".
bool read_policy(ObjectReader policy, RuntimeParts& parts, JobDraft& draft) {
  if (const auto nodes = policy.integer("numNodes")) {
    draft.nodes = *nodes;
    parts.has_nodes = true;
  }
  ObjectReader torch = policy.object("torch");
  draft.processes = read_processes(torch, "numProcPerNode");
  read_elastic_policy(torch.object("elasticPolicy"), parts, draft);
  ObjectReader mpi = policy.object("mpi");
  if (!mpi.empty()) {
    draft.processes = read_processes(mpi, "numProcPerNode");
    policy.note("mpi",
                "the ranks are started without MPI and SSH; MASTER_ADDR, RANK and the PET_ variables are set "
                "instead");
    for (const char* key : {"mpiImplementation", "sshAuthMountPath"}) mpi.take(key);  // the note covers them
    mpi.drop_unless("runLauncherAsNode", {true}, "there is no launcher: each of numNodes pods runs ranks");
  }
  for (const char* key : {"jax", "flux", "xgboost", "plainML"})
    policy.drop(key, "its environment has no counterpart; the pods have the variables of PyTorch");
  return !mpi.empty();
}

// Reads the fields of the JobSet other than its roles.
void read_jobset(ObjectReader& jobset, JobDraft& draft) {
  drop_network(jobset.object("network"));
  jobset.drop("successPolicy", "not carried over; spec.successPolicy is AllRanks or Rank0");
  jobset.drop("startupPolicy", "has no counterpart: a TrainingJob is one group of equal pods");
  jobset.drop_unless("suspend", {false}, "of the runtime; not carried over. spec.suspend suspends the TrainingJob");
  jobset.drop("managedBy", "of the runtime's JobSets; not carried over");
  jobset.drop("coordinator", "the coordinator is node rank 0; MASTER_ADDR has its name");
  ObjectReader failure = jobset.object("failurePolicy");
  if (const auto restarts = failure.integer("maxRestarts"))
    set_once(draft.max_restarts, restarts, failure.path_of("maxRestarts"), failure.report());
  failure.drop("rules",
               "rules by the reason of a failed Job have no counterpart; spec.failurePolicy.rules match exit codes, "
               "reasons and conditions of a pod");
  failure.drop_unless("restartStrategy", {"Recreate", "BlockingRecreate"},
                      "has no counterpart; the operator creates all pods of the group again");
  draft.ttl_seconds_after_finished = jobset.integer("ttlSecondsAfterFinished");
}

// Adds a note about a role that is not that of the ranks.
void note_other_role(ObjectReader& role, const std::string& name, bool is_mpi) {
  role.report().mark_handled(role.path());  // by the note
  if (is_mpi && name == kDefaultNode) {
    role.note("",
              "the workers, which waited for SSH connections, are not carried over: the pods are those of the "
              "launcher's role. Compare resources and volumes");
    return;
  }
  role.note("", fmt::format("'{}' is not carried over: a TrainingJob is one group of equal pods. Run it as a Job "
                            "before, or as an init container that only node rank 0 executes",
                            name));
}

// Reads the role of the ranks.
void read_trainer_role(ObjectReader& role, const std::string& name, const ConvertOptions& options, RuntimeParts& parts,
                       JobDraft& draft) {
  parts.role = name;
  role.drop_unless("groupName", {"default"}, "has no counterpart; not carried over");
  role.take("dependsOn");  // the note of the other role covers it
  ObjectReader job_template = role.object("template");
  if (role.integer("replicas").value_or(1) != 1) role.note("replicas", "numNodes is the number of pods");
  drop_metadata(job_template.object("metadata"), "Job", draft);
  ObjectReader job = job_template.object("spec");
  for (const char* key : {"parallelism", "completions"})
    job.drop_unless(key, {1}, "numNodes is the number of pods; not carried over");
  convert_job_spec(job, {kDefaultNode, "trainer", name}, options, draft);
  parts.pod = std::move(draft.pod);
}

RuntimeParts read_runtime(ObjectReader& runtime, const ConvertOptions& options, JobDraft& draft) {
  RuntimeParts parts;
  for (const char* key : {"apiVersion", "kind", "metadata", "status"}) runtime.take(key);  // of the runtime itself
  ObjectReader spec = runtime.object("spec");
  const bool is_mpi = read_policy(spec.object("mlPolicy"), parts, draft);
  spec.drop("podGroupPolicy", kGangsNeedNoField);
  ObjectReader jobset_template = spec.object("template");
  drop_metadata(jobset_template.object("metadata"), "JobSet", draft);
  ObjectReader jobset = jobset_template.object("spec");
  read_jobset(jobset, draft);
  std::vector<ObjectReader> roles = jobset.objects("replicatedJobs");
  const Json* chosen = trainer_role(member(jobset.json(), "replicatedJobs"));
  for (ObjectReader& role : roles) {
    const std::string name = role.text("name");
    if (&role.json() == chosen) {
      read_trainer_role(role, name, options, parts, draft);
    } else {
      note_other_role(role, name, is_mpi);
    }
  }
  if (chosen == nullptr)
    runtime.problem("spec.template.spec.replicatedJobs",
                    fmt::format("no role has the label {}: trainer or the name node", kStepLabel));
  return parts;
}

bool is_target(ObjectReader& override, const std::string& role) {
  override.take("targetJobs");
  const Json& targets = member(override.json(), "targetJobs");
  if (!targets.is_array() || targets.empty()) return true;
  return std::ranges::any_of(targets, [&](const Json& target) { return text_at(target, "name") == role; });
}

// The containers of a patch have the names of the runtime.
Json with_trainer_name(Json pod) {
  if (!pod.is_object() || !member(pod, "spec").is_object()) return pod;
  const auto containers = pod["spec"].find("containers");
  if (containers == pod["spec"].end() || !containers->is_array()) return pod;
  for (Json& container : *containers) {
    if (text_at(container, "name") == kDefaultNode) container["name"] = "trainer";
  }
  return pod;
}

// podTemplateOverrides of Kubeflow Trainer 2.0 and 2.1.
void apply_overrides(ObjectReader& spec, const std::string& role, JobDraft& draft) {
  for (ObjectReader& override : spec.objects("podTemplateOverrides")) {
    if (!is_target(override, role)) {
      override.note("targetJobs", "overrides other pods than those that train; not carried over");
      override.report().mark_handled(override.path());
      continue;
    }
    Json patch = Json::object();
    for (const char* key : {"metadata", "spec"}) {
      if (const Json* part = override.take(key)) patch[key] = *part;
    }
    if (!merge_patch(draft.pod, with_trainer_name(std::move(patch)))) override.note("", kOtherType);
  }
}

// Adds the labels or annotations of a member to those of the job.
void take_entries(ObjectReader& object, const char* key, Json& metadata) {
  const Json* map = object.take(key);
  if (map == nullptr) return;
  const Json kept = own_entries(*map, object.path_of(key), EntriesOf::kJob, object.report());
  for (const auto& [name, value] : kept.items()) object_member(metadata, key)[name] = value;
}

// runtimePatches of Kubeflow Trainer since 2.2.
void apply_patches(ObjectReader& spec, const std::string& role, JobDraft& draft) {
  for (ObjectReader& patch : spec.objects("runtimePatches")) {
    for (const char* key : {"manager", "time"}) patch.take(key);  // who wrote the patch, and when
    ObjectReader runtime = patch.object("trainingRuntimeSpec");
    ObjectReader jobset = runtime.object("template");
    ObjectReader metadata = jobset.object("metadata");
    for (const char* key : {"labels", "annotations"}) take_entries(metadata, key, draft.metadata);
    ObjectReader jobset_spec = jobset.object("spec");
    for (ObjectReader& replicated : jobset_spec.objects("replicatedJobs")) {
      if (replicated.text("name") != role) {
        replicated.note("name", "patches other pods than those that train; not carried over");
        replicated.report().mark_handled(replicated.path());
        continue;
      }
      ObjectReader job = replicated.object("template");
      drop_metadata(job.object("metadata"), "Job", draft);
      ObjectReader job_spec = job.object("spec");
      const Json* pod = job_spec.take("template");
      if (pod != nullptr && !merge_patch(draft.pod, with_trainer_name(*pod))) replicated.note("", kOtherType);
    }
  }
}

// Sets `has_nodes` if the number of nodes is given.
void apply_trainer(ObjectReader trainer, const ConvertOptions& options, JobDraft& draft, bool& has_nodes) {
  Json& container = trainer_of(draft);
  if (const std::string image = trainer.text("image"); !image.empty() && options.image.empty())
    container["image"] = image;
  const std::vector<std::string> command = trainer.texts("command");
  const std::vector<std::string> arguments = trainer.texts("args");
  if (!command.empty()) {
    container["command"] = command;
    container.erase("args");
  }
  if (!arguments.empty()) container["args"] = arguments;
  if (const Json* environment = trainer.take("env"); environment != nullptr) {
    if (!environment->is_array())
      trainer.problem("env", fmt::format("expected a list, got {}", environment->type_name()));
    if (environment->is_array()) merge_environment(container, *environment);
  }
  if (const auto nodes = trainer.integer("numNodes")) {
    draft.nodes = *nodes;
    has_nodes = true;
  }
  if (const std::string processes = read_processes(trainer, "numProcPerNode"); !processes.empty())
    draft.processes = processes;
  if (const Json* resources = trainer.take("resourcesPerNode")) container["resources"] = *resources;
}

void note_initializer(ObjectReader& spec) {
  ObjectReader initializer = spec.object("initializer");
  for (const char* key : {"dataset", "model"}) {
    const Json* part = initializer.take(key);
    if (part == nullptr) continue;
    const std::string uri = text_at(*part, "storageUri");
    initializer.note(key, fmt::format("the download{} is not carried over: use an init container, a Job before, or "
                                      "a volume that has the data",
                                      uri.empty() ? "" : fmt::format(" of {}", uri)));
  }
}

}  // namespace

void convert_trainjob(ObjectReader& root, ObjectReader* runtime, const ConvertOptions& options, JobDraft& draft) {
  ObjectReader spec = root.object("spec");
  ObjectReader reference = spec.object("runtimeRef");
  const std::string runtime_name = reference.text("name");
  for (const char* key : {"apiGroup", "kind"}) reference.take(key);  // of the runtime
  RuntimeParts parts;
  if (runtime != nullptr) {
    parts = read_runtime(*runtime, options, draft);
    if (runtime->report().has_problems()) return;
    draft.pod = std::move(parts.pod);
  } else {
    draft.processes = "auto";  // as in the runtimes of Kubeflow for PyTorch
    reference.note("name", runtime_name.empty()
                               ? "names no runtime, so the image, volumes and policies of one are missing"
                               : fmt::format("the runtime '{}' is not in the input, so its image, volumes and "
                                             "policies are missing; add it with another -f (kubectl get "
                                             "clustertrainingruntime {} -o yaml)",
                                             runtime_name, runtime_name));
  }
  trainer_of(draft);  // creates the container if there is no runtime
  note_initializer(spec);
  apply_overrides(spec, parts.role, draft);
  apply_patches(spec, parts.role, draft);
  apply_trainer(spec.object("trainer"), options, draft, parts.has_nodes);
  if (parts.is_elastic) {
    // Without numNodes, torchrun starts with any number within the bounds.
    if (!parts.has_nodes) draft.nodes = parts.max_nodes.value_or(parts.min_nodes.value_or(draft.nodes));
    set_node_bounds(parts.min_nodes.value_or(1), parts.max_nodes, "spec.trainer.numNodes", root.report(), draft);
  }
  for (const char* key : {"labels", "annotations"}) take_entries(spec, key, draft.metadata);
  convert_suspend(spec, draft);
  const auto take_first = [&](const char* key, std::optional<int64_t>& target) {
    const std::optional<int64_t> before = std::exchange(target, spec.integer(key));
    set_once(target, before, spec.path_of(key), root.report());
  };
  take_first("activeDeadlineSeconds", draft.active_deadline_seconds);
  take_first("ttlSecondsAfterFinished", draft.ttl_seconds_after_finished);
  convert_managed_by(spec, "trainer.kubeflow.org", draft);

  // The overrides and spec.trainer may have added fields that a TrainingJob does not support.
  const Json pod = std::move(draft.pod);
  convert_pod(pod, "spec.trainer", {"trainer"}, options, root.report(), draft);
  convert_container_command("spec.trainer", root.report(), draft);
}

}  // namespace oarlock::convert
