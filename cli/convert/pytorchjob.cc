// PyTorchJob (kubeflow.org/v1) and MPIJob (kubeflow.org/v1 and v2beta1).
#include <fmt/format.h>

#include <algorithm>

#include "cli/convert/converters.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

// More than a TrainingJob can have; larger numbers would overflow sums.
constexpr int64_t kMostReplicas = 1'000'000'000;

// Returns the paths at which two JSON values differ, at most `most` of them.
void find_differences(const Json& a, const Json& b, const std::string& path, size_t most,
                      std::vector<std::string>& found) {
  if (found.size() >= most || a == b) return;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items())
      find_differences(value, member(b, key), path.empty() ? key : path + "." + key, most, found);
    for (const auto& [key, value] : b.items()) {
      if (!a.contains(key)) find_differences(Json(), value, path.empty() ? key : path + "." + key, most, found);
    }
    return;
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) find_differences(a[i], b[i], fmt::format("{}[{}]", path, i), most, found);
    return;
  }
  found.push_back(path);
}

void note_difference(ObjectReader& used, const Json& template_used, ObjectReader& other, const Json& template_other) {
  constexpr size_t kMost = 5;
  std::vector<std::string> paths;
  find_differences(template_used, template_other, "", kMost, paths);
  for (const std::string& path : paths) {
    other.note("template." + path, fmt::format("differs from {}.template; a TrainingJob has one template, and this "
                                               "value is not carried over",
                                               used.path()));
  }
}

void convert_replica_restarts(ObjectReader& replica, JobDraft& draft) {
  const std::string policy = replica.text("restartPolicy");
  if (policy == "Never" && !draft.max_restarts) draft.max_restarts = 0;
  if (policy == "ExitCode") {
    replica.note("restartPolicy",
                 "ExitCode: the exit codes 1 to 127 were permanent; now those from 64 to 78 are, except 75 and 76. "
                 "spec.failurePolicy.rules can name others");
  }
}

// Reads nprocPerNode, which is a string or, in old versions, a number.
std::string processes_of(ObjectReader& spec, const std::string& key) {
  const Json* value = spec.take(key);
  if (value == nullptr) return "";
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  if (text == "auto" || text == "gpu") return "auto";
  if (text == "cpu") {
    spec.note(key, "'cpu' has no counterpart; set spec.processesPerNode to the number of ranks on each node");
    return "";
  }
  if (!text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos && text[0] != '0')
    return text;
  spec.problem(key, "expected a number from 1, auto, gpu or cpu");
  return "";
}

// The bounds are those of all nodes: the training-operator sets PET_NNODES to minReplicas:maxReplicas, with or without
// a Master (generateEnvNNodes in its pkg/controller.v1/pytorch/elastic.go), and one bound alone counts as both
// (setElasticPolicy in its pkg/apis/kubeflow.org/v1/pytorch_defaults.go).
void convert_elastic_policy(ObjectReader elastic, JobDraft& draft) {
  if (elastic.empty()) return;
  if (const auto restarts = elastic.integer("maxRestarts"); restarts && !draft.max_restarts)
    draft.max_restarts = restarts;
  if (const auto processes = elastic.integer("nProcPerNode"); processes && draft.processes.empty())
    draft.processes = std::to_string(*processes);
  const auto least = elastic.integer("minReplicas");
  const auto most = elastic.integer("maxReplicas");
  if (least || most) {
    set_node_bounds(*(least ? least : most), most ? most : least,
                    elastic.path_of(least ? "minReplicas" : "maxReplicas"), elastic.report(), draft);
  }
  elastic.drop("metrics", "there is no autoscaling; not carried over");
  for (const char* key : {"rdzvBackend", "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "standalone"})
    elastic.drop(key, "replaced by MASTER_ADDR and MASTER_PORT, which the operator sets");
  elastic.finish();
}

int64_t replicas_of(ObjectReader& replica) {
  const int64_t replicas = replica.integer("replicas").value_or(1);
  if (replicas < 0) replica.problem("replicas", "must not be negative");
  return std::clamp<int64_t>(replicas, 0, kMostReplicas);
}

const Json& template_of(ObjectReader& replica) {
  const Json* pod = replica.take("template");
  static const Json kNone;
  return pod == nullptr ? kNone : *pod;
}

// The port on which the rendezvous of a PyTorchJob listens belongs to the operator.
void remove_rendezvous_port(JobDraft& draft) {
  Json& trainer = trainer_of(draft);
  const auto ports = trainer.find("ports");
  if (ports == trainer.end() || !ports->is_array()) return;
  Json kept = Json::array();
  for (const Json& port : *ports) {
    if (text_at(port, "name") != "pytorchjob-port") kept.push_back(port);
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
  replicas.finish();
  if (master.empty() && worker.empty())
    return spec.problem("pytorchReplicaSpecs", "has neither Master nor Worker; one of them is required");
  const int64_t masters = master.empty() ? 0 : replicas_of(master);
  const int64_t workers = worker.empty() ? 0 : replicas_of(worker);
  draft.nodes = masters + workers;
  draft.processes = processes_of(spec, "nprocPerNode");
  convert_elastic_policy(spec.object("elasticPolicy"), draft);
  spec.finish();

  ObjectReader& used = master.empty() ? worker : master;
  for (ObjectReader* replica : {&master, &worker}) {
    if (!replica->empty()) convert_replica_restarts(*replica, draft);
  }
  const Json& pod = template_of(used);
  if (!master.empty() && !worker.empty()) note_difference(used, pod, worker, template_of(worker));
  master.finish();
  worker.finish();
  const std::string path = used.path_of("template");
  const std::string container = convert_pod(pod, path, {"pytorch"}, options, root.report(), draft);
  remove_rendezvous_port(draft);
  // A success of the master, rank 0, completed the job; an elastic job without a master waited for all workers.
  if (!master.empty() && draft.nodes > 1) {
    root.report().note(path,
                       "the job succeeded when its Master did; now all ranks must succeed. For the old behavior set "
                       "spec.successPolicy: Rank0");
  }
  convert_container_command(container, root.report(), draft);
}

void convert_mpijob(ObjectReader& root, const ConvertOptions& options, JobDraft& draft) {
  ObjectReader spec = root.object("spec");
  convert_run_policy(spec.object("runPolicy"), draft);
  ObjectReader replicas = spec.object("mpiReplicaSpecs");
  ObjectReader launcher = replicas.object("Launcher");
  ObjectReader worker = replicas.object("Worker");
  replicas.finish();
  if (launcher.empty()) return replicas.problem("Launcher", "is missing; its command has the program of the ranks");
  const bool has_workers = !worker.empty();
  launcher.drop_silently("replicas");
  draft.nodes = has_workers ? replicas_of(worker) : 1;
  if (spec.boolean("runLauncherAsWorker").value_or(false) && has_workers) ++draft.nodes;
  draft.processes = std::to_string(spec.integer("slotsPerWorker").value_or(1));
  for (const char* key :
       {"sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation", "mainContainer", "cleanPodPolicy"}) {
    spec.drop_silently(key);
  }
  spec.drop("gpus", "of an old version of the API; not carried over");
  spec.finish();
  for (ObjectReader* replica : {&launcher, &worker}) {
    if (!replica->empty()) convert_replica_restarts(*replica, draft);
  }

  const Json& launcher_pod = template_of(launcher);
  const Json& pod = has_workers ? template_of(worker) : launcher_pod;
  launcher.finish();
  worker.finish();
  ObjectReader& used = has_workers ? worker : launcher;
  const std::string path = used.path_of("template");
  convert_pod(pod, path, {"mpi"}, options, root.report(), draft);
  if (root.report().has_problems()) return;

  const std::string launcher_path = launcher.path_of("template.spec.containers[0]");
  const Json& containers = member(member(launcher_pod, "spec"), "containers");
  if (!containers.is_array() || containers.empty())
    return root.report().problem(launcher.path_of("template.spec.containers"), "the launcher has no container");
  const Json& source = containers.front();
  std::vector<std::string> words = json_words(member(source, "command"));
  for (const std::string& word : json_words(member(source, "args"))) words.push_back(word);
  if (launcher_of(words) != LauncherKind::kMpirun)
    return root.report().problem(launcher_path + ".command",
                                 "the launcher does not run mpirun directly, so its ranks are not known; a TrainingJob "
                                 "has no launcher pod");
  const auto is_horovod = [](const std::string& text) { return text.find("horovod") != std::string::npos; };
  if (is_horovod(text_at(source, "image")) || std::ranges::any_of(words, is_horovod))
    return root.report().problem(launcher_path,
                                 "Horovod needs mpirun and SSH between the pods, which a TrainingJob does "
                                 "not have; keep it with the MPI operator");
  Json& trainer = trainer_of(draft);
  trainer["command"] = words;  // the workers ran sshd
  trainer.erase("args");
  trainer.erase("readinessProbe");
  if (member(source, "env").is_array()) {
    const Json own = member(trainer, "env");
    merge_environment(trainer, member(source, "env"));
    if (own.is_array()) merge_environment(trainer, own);
  }
  const std::string slots = draft.processes;
  convert_container_command(launcher_path, root.report(), draft);
  if (draft.processes != slots)
    root.report().note(launcher_path + ".command",
                       fmt::format("mpirun starts {} {} on each of {}, not slotsPerWorker ({})", draft.processes,
                                   draft.processes == "1" ? "rank" : "ranks", counted(draft.nodes, "node"), slots));
}

}  // namespace oarlock::convert
