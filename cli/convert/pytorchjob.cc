// PyTorchJob (kubeflow.org/v1) and MPIJob (kubeflow.org/v1 and v2beta1).
#include <fmt/format.h>

#include <algorithm>

#include "cli/convert/converters.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

// More than a TrainingJob can have; larger numbers would overflow sums.
constexpr int64_t kMaxReplicas = 1'000'000'000;

// A value of one template at which another template differs.
struct TemplateDifference {
  std::string path;
  bool is_in_other = false;  // whether the other template has a value there
};

// Finds the values at which `other` differs from `used`.
void find_differences(const Json& used, const Json& other, const std::string& path,
                      std::vector<TemplateDifference>& found) {
  if (used == other) return;
  if (used.is_object() && other.is_object()) {
    const auto below = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
    for (const auto& [key, value] : used.items()) find_differences(value, member(other, key), below(key), found);
    for (const auto& [key, value] : other.items()) {
      if (!used.contains(key)) find_differences(Json(), value, below(key), found);
    }
  } else if (used.is_array() && other.is_array() && used.size() == other.size()) {
    for (size_t i = 0; i < used.size(); ++i) find_differences(used[i], other[i], fmt::format("{}[{}]", path, i), found);
  } else {
    found.push_back({path, !other.is_null()});
  }
}

// Adds a note for each value of the Worker's template that is not in the pods, and for each one of the Master's that
// the Worker's pods did not have.
void note_difference(ObjectReader& used, const Json& template_used, ObjectReader& other, const Json& template_other) {
  std::vector<TemplateDifference> differences;
  find_differences(template_used, template_other, "", differences);
  for (const TemplateDifference& one : differences) {
    const std::string what = one.is_in_other ? "differs from" : "is absent here, but not in";
    const std::string effect = one.is_in_other ? "this value is not carried over" : "all pods have it now";
    other.note("template." + one.path,
               fmt::format("{} {}.template; a TrainingJob has one template, and {}", what, used.path(), effect));
  }
}

// The workers of an MPIJob run sshd.
void note_worker_command(Json& trainer, const std::string& path, Report& report) {
  const std::string command = dump_json(member(trainer, "command")) + dump_json(member(trainer, "args"));
  const bool is_sshd = command.find("sshd") != std::string::npos || command == "nullnull";
  if (!is_sshd) report.note(path, "the command of the workers is replaced by the program that mpirun starts");
  if (trainer.contains("readinessProbe") && !trainer["readinessProbe"].is_null())
    report.note(path, "the readinessProbe is not carried over: the pods do not run sshd");
  trainer.erase("readinessProbe");
}

// The command and the environment of the launcher become those of the ranks. Everything else of its pod served mpirun.
void note_launcher(ObjectReader& launcher, Json pod, const std::string& container_path) {
  const auto drop = [&](Json& object, std::initializer_list<std::string_view> handled, const std::string& path) {
    if (!object.is_object()) return;
    for (const auto& [key, value] : object.items()) {
      if (value.is_null() || std::ranges::find(handled, key) != handled.end()) continue;
      launcher.report().note(fmt::format("{}.{}", path, key),
                             "of the launcher, which a TrainingJob does not have; not carried over to the pods of the "
                             "workers");
    }
  };
  const std::string path = launcher.path_of("template");
  drop(pod, {"metadata", "spec"}, path);
  drop(pod["metadata"], {"creationTimestamp"}, path + ".metadata");
  drop(pod["spec"], {"containers", "restartPolicy"}, path + ".spec");
  Json& containers = pod["spec"]["containers"];
  for (size_t i = 0; i < containers.size(); ++i) {
    const std::string at = fmt::format("{}.spec.containers[{}]", path, i);
    if (at == container_path) {
      drop(containers[i], {"name", "image", "command", "args", "env"}, at);
    } else {
      launcher.report().note(at, "of the launcher, which a TrainingJob does not have; not carried over");
    }
  }
}

void convert_replica_restarts(ObjectReader& replica, JobDraft& draft) {
  const std::string policy = replica.text("restartPolicy");
  if (policy == "Never" && !draft.max_restarts) draft.max_restarts = 0;
  if (policy == "Never" && *draft.max_restarts > 0)
    replica.note("restartPolicy", fmt::format("Never: a failed pod failed the job; now the group restarts, at most {}",
                                              counted(*draft.max_restarts, "time")));
  if (policy == "ExitCode") {
    replica.note("restartPolicy",
                 "ExitCode: the exit codes 1 to 127 were permanent; now those from 64 to 78 are, except 75 and 76. "
                 "spec.failurePolicy.rules can name others");
  }
}

// The bounds are those of all nodes: the training-operator sets PET_NNODES to minReplicas:maxReplicas, with or without
// a Master (generateEnvNNodes in its pkg/controller.v1/pytorch/elastic.go), and one bound alone counts as both
// (setElasticPolicy in its pkg/apis/kubeflow.org/v1/pytorch_defaults.go).
void convert_elastic_policy(ObjectReader elastic, JobDraft& draft) {
  if (elastic.empty()) return;
  set_once(draft.max_restarts, elastic.integer("maxRestarts"), elastic.path_of("maxRestarts"), elastic.report());
  if (const auto processes = elastic.integer("nProcPerNode")) {
    if (draft.processes.empty()) draft.processes = std::to_string(*processes);
    if (draft.processes != std::to_string(*processes))
      elastic.note("nProcPerNode", fmt::format("is not carried over, because nprocPerNode is {}", draft.processes));
  }
  const auto least = elastic.integer("minReplicas");
  const auto most = elastic.integer("maxReplicas");
  if (least || most) {
    set_node_bounds(*(least ? least : most), most ? most : least,
                    elastic.path_of(least ? "minReplicas" : "maxReplicas"), elastic.report(), draft);
  }
  elastic.drop("metrics", "there is no autoscaling; not carried over");
  for (const char* key : {"rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"})
    elastic.drop(key, "replaced by MASTER_ADDR and MASTER_PORT, which the operator sets");
}

int64_t replicas_of(ObjectReader& replica) {
  const int64_t replicas = replica.integer("replicas").value_or(1);
  if (replicas < 0) replica.problem("replicas", "must not be negative");
  return std::clamp<int64_t>(replicas, 0, kMaxReplicas);
}

const Json& template_of(ObjectReader& replica) {
  const Json* pod = replica.take("template");
  static const Json kNone;
  return pod == nullptr ? kNone : *pod;
}

// The port on which the rendezvous of a PyTorchJob listens belongs to the operator. `path` is that of the container.
void remove_rendezvous_port(const std::string& path, Report& report, JobDraft& draft) {
  Json& trainer = trainer_of(draft);
  const auto ports = trainer.find("ports");
  if (ports == trainer.end() || !ports->is_array()) return;
  Json kept = Json::array();
  for (size_t i = 0; i < ports->size(); ++i) {
    if (text_at((*ports)[i], "name") != "pytorchjob-port") {
      kept.push_back((*ports)[i]);
    } else {
      report.note(fmt::format("{}.ports[{}]", path, i), "the port of the rendezvous is spec.rendezvous.port");
    }
  }
  if (kept.empty()) {
    trainer.erase("ports");
  } else {
    *ports = std::move(kept);
  }
}

}  // namespace

void convert_pytorchjob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft) {
  ObjectReader spec = root.object("spec");
  convert_run_policy(spec.object("runPolicy"), draft);
  ObjectReader replicas = spec.object("pytorchReplicaSpecs");
  ObjectReader master = replicas.object("Master");
  ObjectReader worker = replicas.object("Worker");
  if (master.empty() && worker.empty())
    return spec.problem("pytorchReplicaSpecs", "has neither Master nor Worker; one of them is required");
  const int64_t masters = master.empty() ? 0 : replicas_of(master);
  const int64_t workers = worker.empty() ? 0 : replicas_of(worker);
  draft.nodes = masters + workers;
  draft.processes = read_processes(spec, "nprocPerNode");
  convert_elastic_policy(spec.object("elasticPolicy"), draft);

  ObjectReader& used = masters == 0 && !worker.empty() ? worker : master;
  for (ObjectReader* replica : {&master, &worker}) {
    if (!replica->empty()) convert_replica_restarts(*replica, draft);
  }
  const Json& pod = template_of(used);
  if (!master.empty() && !worker.empty()) {
    ObjectReader& other = &used == &master ? worker : master;
    note_difference(used, pod, other, template_of(other));
  }
  const std::string path = used.path_of("template");
  const std::string container = convert_pod(pod, path, {"pytorch"}, options, root.report(), draft);
  remove_rendezvous_port(container, root.report(), draft);
  // A success of the master, rank 0, completed the job; an elastic job without a master waited for all workers.
  if (masters > 0 && draft.nodes > 1) {
    root.report().note(path,
                       "the job succeeded when its Master did; now all ranks must succeed. For the old behavior set "
                       "spec.successPolicy: Rank0");
  }
  convert_container_command(container, root.report(), draft);
}

// The container that runs mpirun.
struct MpiLauncher {
  const Json& container;
  std::string path;
  std::vector<std::string> words;  // of its command
};

// Absent, with a problem in the report, if the program of the ranks is not known from it.
std::optional<MpiLauncher> read_mpi_launcher(ObjectReader& launcher, const std::string& main_container,
                                             Report& report) {
  const Json& containers = member(member(template_of(launcher), "spec"), "containers");
  if (!containers.is_array() || containers.empty()) {
    report.problem(launcher.path_of("template.spec.containers"), "the launcher has no container");
    return std::nullopt;
  }
  size_t index = 0;
  for (size_t i = 0; i < containers.size() && !main_container.empty(); ++i) {
    if (text_at(containers[i], "name") == main_container) index = i;
  }
  std::string path = launcher.path_of(fmt::format("template.spec.containers[{}]", index));
  const Json& container = containers[index];
  std::vector<std::string> words = json_words(member(container, "command"));
  for (const std::string& word : json_words(member(container, "args"))) words.push_back(word);
  if (launcher_of(words) != LauncherKind::kMpirun) {
    report.problem(path + ".command",
                   "the launcher does not run mpirun directly, so its ranks are not known; a TrainingJob "
                   "has no launcher pod");
    return std::nullopt;
  }
  const auto is_horovod = [](const std::string& text) { return text.find("horovod") != std::string::npos; };
  if (is_horovod(text_at(container, "image")) || std::ranges::any_of(words, is_horovod)) {
    report.problem(path,
                   "Horovod needs mpirun and SSH between the pods, which a TrainingJob does "
                   "not have; keep it with the MPI operator");
    return std::nullopt;
  }
  return MpiLauncher{container, std::move(path), std::move(words)};
}

void convert_mpijob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft) {
  ObjectReader spec = root.object("spec");
  convert_run_policy(spec.object("runPolicy"), draft);
  ObjectReader replicas = spec.object("mpiReplicaSpecs");
  ObjectReader launcher = replicas.object("Launcher");
  ObjectReader worker = replicas.object("Worker");
  if (launcher.empty()) return replicas.problem("Launcher", "is missing; its command has the program of the ranks");
  const bool has_workers = !worker.empty();
  launcher.drop_unless("replicas", {1}, "a TrainingJob has no launcher; not carried over");
  draft.nodes = has_workers ? replicas_of(worker) : 1;
  if (spec.boolean("runLauncherAsWorker").value_or(false) && has_workers) ++draft.nodes;
  draft.processes = std::to_string(spec.integer("slotsPerWorker").value_or(1));
  if (const std::string policy = spec.text("cleanPodPolicy"); draft.clean_pod_policy.empty()) {
    draft.clean_pod_policy = policy;  // of kubeflow.org/v1
  } else if (!policy.empty() && policy != draft.clean_pod_policy) {
    spec.note("cleanPodPolicy", "is not carried over, because spec.runPolicy.cleanPodPolicy is given");
  }
  const std::string main_container = spec.text("mainContainer");
  for (const char* key : {"sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"})
    spec.drop(key, "the ranks are started without mpirun and SSH; not carried over");
  for (const char* key : {"gpus", "gpusPerNode", "processingUnits", "processingUnitsPerNode", "processingResourceType"})
    spec.drop(key, "of an old version of the API; not carried over");
  for (ObjectReader* replica : {&launcher, &worker}) {
    if (!replica->empty()) convert_replica_restarts(*replica, draft);
  }

  const Json& launcher_pod = template_of(launcher);
  const Json& pod = has_workers ? template_of(worker) : launcher_pod;
  ObjectReader& used = has_workers ? worker : launcher;
  const std::string path = used.path_of("template");
  convert_pod(pod, path, {main_container.empty() ? "mpi" : main_container, "mpi"}, options, root.report(), draft);
  if (root.report().has_problems()) return;

  const std::optional<MpiLauncher> program = read_mpi_launcher(launcher, main_container, root.report());
  if (!program) return;
  Json& trainer = trainer_of(draft);
  if (has_workers) {
    note_launcher(launcher, launcher_pod, program->path);
    note_worker_command(trainer, path + ".spec.containers", root.report());
    if (options.image.empty() && text_at(program->container, "image") != text_at(trainer, "image"))
      root.report().note(program->path + ".image", "differs from that of the workers, which is carried over");
  }
  trainer["command"] = program->words;  // the workers ran sshd
  trainer.erase("args");
  if (member(program->container, "env").is_array()) {
    const Json own = member(trainer, "env");
    merge_environment(trainer, member(program->container, "env"));
    if (own.is_array()) merge_environment(trainer, own);
  }
  convert_container_command(program->path, root.report(), draft);
}

}  // namespace oarlock::convert
