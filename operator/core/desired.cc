#include "operator/core/desired.h"

#include <fmt/format.h>

#include <algorithm>

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr char kShmPath[] = "/dev/shm";
constexpr char kConfigVolumeItem[] = "metadata.annotations['oarlock.dev/trainer-config']";

std::string string_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// object[key] as a list; made when it is not there.
Json& list_in(Json& object, const char* key) {
  Json& list = object[key];
  if (!list.is_array()) list = Json::array();
  return list;
}

Json& map_in(Json& object, const char* key) {
  Json& map = object[key];
  if (!map.is_object()) map = Json::object();
  return map;
}

std::string text_of(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

size_t longest_run(std::string_view text, char of) {
  size_t longest = 0;
  size_t run = 0;
  for (const char c : text) {
    run = c == of ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Where the container mounts the volume; empty: it does not.
std::string mount_path_of(const Json& container, const char* volume) {
  const auto mounts = container.find("volumeMounts");
  if (mounts == container.end() || !mounts->is_array()) return "";
  for (const Json& mount : *mounts) {
    if (string_of(mount, "name") == volume) return without_trailing_slash(string_of(mount, "mountPath"));
  }
  return "";
}

bool mounts_at(const Json& container, std::string_view path) {
  const auto mounts = container.find("volumeMounts");
  if (mounts == container.end() || !mounts->is_array()) return false;
  for (const Json& mount : *mounts) {
    if (without_trailing_slash(string_of(mount, "mountPath")) == path) return true;
  }
  return false;
}

bool declares_port(const Json& ports, int number, const std::string& name) {
  for (const Json& port : ports) {
    if (string_of(port, "name") == name) return true;
    const auto it = port.find("containerPort");
    if (it != port.end() && it->is_number_integer() && it->get<int64_t>() == number) return true;
  }
  return false;
}

void add_port(Json& container, const std::string& name, int number) {
  Json& ports = list_in(container, "ports");
  if (declares_port(ports, number, name)) return;
  ports.push_back({{"name", name}, {"containerPort", number}, {"protocol", "TCP"}});
}

Json to_json(const std::vector<EnvVar>& variables) {
  Json out = Json::array();
  for (const EnvVar& variable : variables) out.push_back({{"name", variable.name}, {"value", variable.value}});
  return out;
}

size_t trainer_index(const Json& containers) {
  for (size_t i = 0; i < containers.size(); ++i) {
    if (string_of(containers[i], "name") == kTrainerContainer) return i;
  }
  return 0;
}

void add_shared_memory(Json& pod_spec, Json& trainer) {
  if (mounts_at(trainer, kShmPath)) return;
  list_in(trainer, "volumeMounts").push_back({{"name", kShmVolume}, {"mountPath", kShmPath}});
  list_in(pod_spec, "volumes").push_back({{"name", kShmVolume}, {"emptyDir", {{"medium", "Memory"}}}});
}

void add_config(Json& pod_spec, Json& trainer) {
  list_in(trainer, "volumeMounts")
      .push_back({{"name", kConfigVolume}, {"mountPath", kConfigMountPath}, {"readOnly", true}});
  const Json item = {{"path", kConfigFile}, {"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", kConfigVolumeItem}}}};
  list_in(pod_spec, "volumes").push_back({{"name", kConfigVolume}, {"downwardAPI", {{"items", Json::array({item})}}}});
}

}  // namespace

std::string service_name(const Job& job) { return job.metadata.name; }

std::string pod_name(const Job& job, int attempt, int node_rank) {
  return fmt::format("{}-{}-{}", job.metadata.name, attempt, node_rank);
}

std::string master_address(const Job& job, int attempt) {
  return fmt::format("{}.{}.{}.svc", pod_name(job, attempt, 0), service_name(job), job.metadata.name_space);
}

Json owner_reference(const Job& job) {
  return {{"apiVersion", kApiVersion}, {"kind", kKind},      {"name", job.metadata.name},
          {"uid", job.metadata.uid},   {"controller", true}, {"blockOwnerDeletion", true}};
}

int metrics_port(const Job&) { return kDefaultMetricsPort; }

Json desired_service(const Job& job) {
  const Json ports = Json::array({{{"name", "rendezvous"}, {"port", job.spec.rendezvous.port}, {"protocol", "TCP"}},
                                  {{"name", "metrics"}, {"port", metrics_port(job)}, {"protocol", "TCP"}}});
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", service_name(job)},
            {"namespace", job.metadata.name_space},
            {"labels", {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}}},
            {"ownerReferences", Json::array({owner_reference(job)})}}},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"ipFamilyPolicy", "PreferDualStack"},  // one family where the cluster has one
            {"selector", {{kLabelJobName, job.metadata.name}}},
            {"ports", ports}}}};
}

PodFactory::PodFactory(const Job& job, int attempt) : name_prefix_(fmt::format("{}-{}-", job.metadata.name, attempt)) {
  // The template comes first; everything after it is what the operator adds or insists on.
  Json pod = Json::parse(job.spec.pod_template, nullptr, false);
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  Json& metadata = map_in(pod, "metadata");
  for (const char* key : {"generateName", "uid", "resourceVersion", "creationTimestamp", "managedFields"})
    metadata.erase(key);
  metadata["namespace"] = job.metadata.name_space;
  metadata["ownerReferences"] = Json::array({owner_reference(job)});
  Json& labels = map_in(metadata, "labels");
  labels[kLabelJobName] = job.metadata.name;
  labels[kLabelAttempt] = std::to_string(attempt);
  labels[kLabelManagedBy] = kManagedByOarlock;
  if (!job.spec.trainer.empty()) map_in(metadata, "annotations")[kAnnotationConfig] = job.spec.trainer;

  Json& pod_spec = map_in(pod, "spec");
  pod_spec["subdomain"] = service_name(job);
  pod_spec["restartPolicy"] = "Never";
  if (!pod_spec.contains("automountServiceAccountToken")) pod_spec["automountServiceAccountToken"] = false;
  const size_t index = trainer_index(list_in(pod_spec, "containers"));
  Json& trainer = pod_spec["containers"][index];
  const std::string checkpoints = mount_path_of(trainer, kCheckpointVolume);
  const std::string termination_log = string_of(trainer, "terminationMessagePath");

  group_ = {.job = job.metadata.name,
            .name_space = job.metadata.name_space,
            .uid = job.metadata.uid,
            .attempt = attempt,
            .nodes = job.spec.nodes,
            .processes_per_node = job.spec.processes_per_node,
            .master_addr = master_address(job, attempt),
            .master_port = job.spec.rendezvous.port,
            .metrics_port = metrics_port(job),
            .config_file = job.spec.trainer.empty() ? "" : fmt::format("{}/{}", kConfigMountPath, kConfigFile),
            .checkpoint_dir = checkpoints.empty()
                                  ? ""
                                  : fmt::format("{}/{}", checkpoints == "/" ? "" : checkpoints, job.metadata.name),
            .termination_log = termination_log.empty() ? kDefaultTerminationLog : termination_log};

  // The end of the log is a better last word than none, for images that write no termination message.
  if (!trainer.contains("terminationMessagePolicy")) trainer["terminationMessagePolicy"] = "FallbackToLogsOnError";
  add_port(trainer, "rendezvous", job.spec.rendezvous.port);
  for (int local_rank = 0; local_rank < job.spec.processes_per_node; ++local_rank) {
    add_port(trainer, local_rank == 0 ? "metrics" : fmt::format("metrics-{}", local_rank),
             metrics_port(job) + local_rank);
  }
  add_shared_memory(pod_spec, trainer);
  if (!job.spec.trainer.empty()) add_config(pod_spec, trainer);

  // The contract comes first: Kubernetes expands $(RANK) in the variables after it, and of two variables of one name
  // the later one wins.
  Json env = Json::array();
  for (Json& variable : list_in(trainer, "env")) {
    std::string name = string_of(variable, "name");
    if (is_contract_variable(name) && !user_may_set(name)) {
      overridden_.push_back(std::move(name));
      continue;
    }
    if (is_contract_variable(name)) user_set_.push_back(std::move(name));
    env.push_back(std::move(variable));
  }
  trainer["env"] = std::move(env);
  set_frame(std::move(pod), index);
}

// Puts a placeholder into each gap, writes the pod as text and finds the placeholders in it. A placeholder is a longer
// run of one character than the text has anywhere, so that it occurs once, whatever the template holds.
void PodFactory::set_frame(Json pod, size_t trainer_index) {
  Json& env = pod["spec"]["containers"][trainer_index]["env"];
  env.insert(env.begin(), nullptr);
  const std::pair<Part, Json*> places[] = {{Part::kName, &pod["metadata"]["name"]},
                                           {Part::kRankLabel, &pod["metadata"]["labels"][kLabelNodeRank]},
                                           {Part::kEnvironment, &env.front()},
                                           {Part::kHostname, &pod["spec"]["hostname"]}};
  const std::string run(longest_run(text_of(pod), '~') + 1, '~');
  const auto placeholder = [&](Part part) { return fmt::format("{}{}", run, static_cast<int>(part)); };
  for (const auto& [part, place] : places) *place = placeholder(part);
  frame_ = text_of(pod);
  frame_.shrink_to_fit();
  for (const auto& [part, place] : places) {
    const std::string quoted = fmt::format("\"{}\"", placeholder(part));
    gaps_.push_back({part, frame_.find(quoted), quoted.size()});
  }
  std::ranges::sort(gaps_, {}, &Gap::begin);
}

std::string PodFactory::part_text(Part part, int node_rank) const {
  if (part == Part::kRankLabel) return fmt::format("\"{}\"", node_rank);
  if (part != Part::kEnvironment) return fmt::format("\"{}{}\"", name_prefix_, node_rank);
  std::vector<EnvVar> contract = node_environment(group_, node_rank);
  std::erase_if(contract,
                [&](const EnvVar& variable) { return std::ranges::find(user_set_, variable.name) != user_set_.end(); });
  const std::string list = text_of(to_json(contract));
  return list.substr(1, list.size() - 2);  // never empty: most variables cannot be set by the user
}

std::string PodFactory::text(int node_rank) const {
  constexpr size_t kPartsSize = 4096;
  std::string out;
  out.reserve(frame_.size() + kPartsSize);
  size_t done = 0;
  for (const Gap& gap : gaps_) {
    out.append(frame_, done, gap.begin - done);
    out += part_text(gap.part, node_rank);
    done = gap.begin + gap.size;
  }
  return out.append(frame_, done);
}

Json PodFactory::pod(int node_rank) const { return Json::parse(text(node_rank)); }

}  // namespace oarlock::control
