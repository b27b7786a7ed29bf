#include "operator/core/desired.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>

#include "api/resources.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

// The container whose log and shell kubectl uses if a pod has several.
constexpr char kDefaultContainer[] = "kubectl.kubernetes.io/default-container";
constexpr char kShmPath[] = "/dev/shm";
// The launcher's limit of --shrink-after, in seconds.
constexpr int kMaxShrinkAfter = 1'000'000;
constexpr char kConfigVolumeItem[] = "metadata.annotations['oarlock.dev/trainer-config']";

std::string string_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// Adds a name that the list does not contain yet.
void add_once(std::vector<std::string>& names, std::string name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
}

// Returns a short word that does not occur in the text, in a time that is proportional to the length of the text.
std::string absent_word(std::string_view text) {
  constexpr std::string_view kPrefix = "~part-";
  std::vector<uint64_t> used;
  for (size_t at = text.find(kPrefix); at != std::string_view::npos; at = text.find(kPrefix, at)) {
    at += kPrefix.size();
    uint64_t number = 0;
    if (std::from_chars(text.data() + at, text.data() + text.size(), number).ec == std::errc()) used.push_back(number);
  }
  std::ranges::sort(used);
  uint64_t unused = 0;
  for (const uint64_t number : used) {
    if (number == unused) ++unused;
  }
  return fmt::format("{}{}-", kPrefix, unused);
}

// Returns the path at which the container mounts the volume; empty if it does not mount it.
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

bool is_overridden(const std::string& variable) {
  return is_contract_variable(variable) && !is_user_settable(variable);
}

size_t trainer_index(const Json& containers) {
  for (size_t i = 0; i < containers.size(); ++i) {
    if (string_of(containers[i], "name") == kTrainerContainer) return i;
  }
  return 0;
}

void set_metadata(Json& metadata, const Job& job, int attempt) {
  for (const char* key : {"generateName", "uid", "resourceVersion", "creationTimestamp", "managedFields"})
    metadata.erase(key);
  metadata["namespace"] = job.metadata.namespace_name;
  metadata["ownerReferences"] = Json::array({owner_reference(job)});
  Json& labels = map_in(metadata, "labels");
  labels[kLabelJobName] = job.metadata.name;
  labels[kLabelAttempt] = std::to_string(attempt);
  labels[kLabelManagedBy] = kManagedByOarlock;
  if (!job.spec.trainer.empty()) map_in(metadata, "annotations")[kAnnotationConfig] = job.spec.trainer;
}

// An annotation of the template has no effect.
void set_annotation(Json& metadata, const char* name, const std::string& value) {
  if (!value.empty()) {
    map_in(metadata, "annotations")[name] = value;
  } else if (const auto it = metadata.find("annotations"); it != metadata.end() && it->is_object()) {
    it->erase(name);
  }
}

// Returns the directory of a job's checkpoints in a container; empty if it does not mount them.
std::string checkpoint_dir(const std::string& mount_path, const std::string& job) {
  return mount_path.empty() ? "" : fmt::format("{}/{}", mount_path == "/" ? "" : mount_path, job);
}

RankGroup rank_group(const Job& job, int attempt, int nodes, const Json& trainer) {
  const std::string termination_log = string_of(trainer, "terminationMessagePath");
  return {.job = job.metadata.name,
          .namespace_name = job.metadata.namespace_name,
          .uid = job.metadata.uid,
          .attempt = attempt,
          .nodes = nodes,
          .processes_per_node = job.spec.processes_per_node,
          .master_addr = master_address(job, attempt),
          .master_port = job.spec.rendezvous.port,
          .metrics_port = metrics_port(job),
          .config_file = job.spec.trainer.empty() ? "" : fmt::format("{}/{}", kConfigMountPath, kConfigFile),
          .checkpoint_dir = checkpoint_dir(mount_path_of(trainer, kCheckpointVolume), job.metadata.name),
          .termination_log = termination_log.empty() ? kDefaultTerminationLog : termination_log};
}

void add_ports(Json& trainer, const Job& job) {
  add_port(trainer, "rendezvous", job.spec.rendezvous.port);
  for (int local_rank = 0; local_rank < job.spec.processes_per_node; ++local_rank) {
    add_port(trainer, local_rank == 0 ? "metrics" : fmt::format("metrics-{}", local_rank),
             metrics_port(job) + local_rank);
  }
}

// Files in shared memory count towards the memory limit of the container, which is therefore the size of the volume.
// Without a limit the kubelet sizes it by the memory of the node.
void add_shared_memory(Json& pod_spec, Json& trainer) {
  if (mounts_at(trainer, kShmPath)) return;
  list_in(trainer, "volumeMounts").push_back({{"name", kShmVolume}, {"mountPath", kShmPath}});
  Json source = {{"medium", "Memory"}};
  const Json& limit = member(member(member(trainer, "resources"), "limits"), "memory");
  if (limit.is_string() || limit.is_number()) source["sizeLimit"] = limit;
  list_in(pod_spec, "volumes").push_back({{"name", kShmVolume}, {"emptyDir", std::move(source)}});
}

void add_config(Json& pod_spec, Json& trainer) {
  list_in(trainer, "volumeMounts")
      .push_back({{"name", kConfigVolume}, {"mountPath", kConfigMountPath}, {"readOnly", true}});
  const Json item = {{"path", kConfigFile}, {"fieldRef", {{"apiVersion", "v1"}, {"fieldPath", kConfigVolumeItem}}}};
  list_in(pod_spec, "volumes").push_back({{"name", kConfigVolume}, {"downwardAPI", {{"items", Json::array({item})}}}});
}

void remove_absent(Json& value) {
  if (!value.is_structured()) return;
  for (auto it = value.begin(); it != value.end();) {
    remove_absent(*it);
    const bool is_absent = value.is_object() && (it->is_null() || (it->is_array() && it->empty()));
    it = is_absent ? value.erase(it) : std::next(it);
  }
}

bool is_peer(const Json& value) {
  constexpr std::string_view kFields[] = {"podSelector", "namespaceSelector", "ipBlock"};
  if (!value.is_object() || value.empty()) return false;
  return std::ranges::all_of(value.items(), [&](const auto& item) {
    return item.value().is_object() && std::ranges::find(kFields, item.key()) != std::end(kFields);
  });
}

}  // namespace

std::string service_name(const Job& job) { return job.metadata.name; }

std::string network_policy_name(std::string_view job) { return fmt::format("trainingjob-{}", job); }

std::string pod_name(const Job& job, int attempt, int node_rank) {
  return fmt::format("{}-{}-{}", job.metadata.name, attempt, node_rank);
}

std::string master_address(const Job& job, int attempt) {
  return fmt::format("{}.{}.{}.svc", pod_name(job, attempt, 0), service_name(job), job.metadata.namespace_name);
}

Json owner_reference(const Job& job) {
  return {{"apiVersion", kApiVersion}, {"kind", kKind},      {"name", job.metadata.name},
          {"uid", job.metadata.uid},   {"controller", true}, {"blockOwnerDeletion", true}};
}

bool regroups(const Job& job, int nodes) {
  return job.spec.failure_policy.restarts_ranks() && nodes * job.spec.processes_per_node > 1;
}

bool regroups(const Job& job) { return regroups(job, job.group_nodes()); }

bool needs_token(const Job& job, int nodes) { return regroups(job, nodes) || (job.spec.preflight && nodes > 1); }

std::optional<api::LauncherBounds> make_launcher_bounds(const Job& job, int nodes) {
  if (!job.spec.elastic || !regroups(job, nodes) || !launcher_image(job).empty()) return std::nullopt;
  const int min_nodes = std::max(job.spec.elastic->min_nodes, 1);
  if (min_nodes >= nodes) return std::nullopt;
  return api::LauncherBounds{min_nodes, std::clamp(job.spec.elastic->shrink_after_seconds, 1, kMaxShrinkAfter)};
}

std::optional<api::LauncherBounds> launcher_bounds(const Job& job) {
  const BoxedOptional<api::GroupSize>& size = job.status.elastic;
  const bool is_recorded = job.spec.elastic && size && size->attempt == job.status.attempt;
  return is_recorded ? size->launchers : make_launcher_bounds(job, job.group_nodes());
}

std::string regroup_key_id(std::string_view key) {
  constexpr size_t kLength = 12;
  return std::string(key.substr(0, kLength));
}

RegroupSecret placeholder_secret() { return {.token = "token", .key_id = "key"}; }

int metrics_port(const Job&) { return kDefaultMetricsPort; }

Json desired_service(const Job& job) {
  const Json ports = Json::array({{{"name", "rendezvous"}, {"port", job.spec.rendezvous.port}, {"protocol", "TCP"}},
                                  {{"name", "metrics"}, {"port", metrics_port(job)}, {"protocol", "TCP"}}});
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata",
           {{"name", service_name(job)},
            {"namespace", job.metadata.namespace_name},
            {"labels", {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}}},
            {"ownerReferences", Json::array({owner_reference(job)})}}},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"ipFamilyPolicy", "PreferDualStack"},  // falls back to a single family
            {"selector", {{kLabelJobName, job.metadata.name}}},
            {"ports", ports}}}};
}

Json desired_network_policy(const Job& job, std::string_view peers) {
  const Json own_pods = {{"matchLabels", {{kLabelJobName, job.metadata.name}}}};
  Json ingress = Json::array({{{"from", Json::array({{{"podSelector", own_pods}}})}}});
  Json from = Json::parse(peers, nullptr, false);
  // A rule without peers would admit all clients.
  if (from.is_array() && !from.empty()) {
    Json ports = {{"port", metrics_port(job)}, {"protocol", "TCP"}};
    if (job.spec.processes_per_node > 1) ports["endPort"] = metrics_port(job) + job.spec.processes_per_node - 1;
    ingress.push_back({{"from", std::move(from)}, {"ports", Json::array({std::move(ports)})}});
  }
  return {{"apiVersion", "networking.k8s.io/v1"},
          {"kind", "NetworkPolicy"},
          {"metadata",
           {{"name", network_policy_name(job.metadata.name)},
            {"namespace", job.metadata.namespace_name},
            {"labels", {{kLabelJobName, job.metadata.name}, {kLabelManagedBy, kManagedByOarlock}}},
            {"ownerReferences", Json::array({owner_reference(job)})}}},
          {"spec",
           {{"podSelector", own_pods}, {"policyTypes", Json::array({"Ingress"})}, {"ingress", std::move(ingress)}}}};
}

// FNV-1a. It need not resist collisions: a client that can write a colliding spec can edit the namespace's
// NetworkPolicies, and add others, anyway.
std::string spec_digest(const Json& spec) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : dump_json(spec)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001B3ULL;
  }
  return fmt::format("{:016x}", hash);
}

Result<std::string> parse_metrics_peers(std::string_view json) {
  Json peers = Json::parse(json, nullptr, false);
  if (!peers.is_array() || !std::ranges::all_of(peers, is_peer)) {
    return fail(ExitCode::kUsage,
                fmt::format("'{}' is not a JSON list of NetworkPolicy peers; each is an object with podSelector, "
                            "namespaceSelector or ipBlock",
                            json));
  }
  remove_absent(peers);
  return dump_json(peers);
}

std::vector<std::string> overridden_variables(const Job& job) {
  const Json given = Json::parse(job.spec.pod_template, nullptr, false);
  const Json* trainer = find_item(elements(member(given, "spec"), "containers"), "name", kTrainerContainer);
  if (trainer == nullptr) return {};
  std::vector<std::string> out;
  for (const Json& variable : elements(*trainer, "env")) {
    if (std::string name = string_of(variable, "name"); is_overridden(name)) out.push_back(std::move(name));
  }
  return out;
}

PodFactory::PodFactory(const Job& job, int attempt, int nodes, const PodDefaults& defaults, const RegroupSecret& secret,
                       const std::optional<api::LauncherBounds>& launchers, const std::string& launcher_image)
    : name_prefix_(fmt::format("{}-{}-", job.metadata.name, attempt)) {
  Json pod = make_pod_template(job, defaults);
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  set_metadata(map_in(pod, "metadata"), job, attempt);
  set_annotation(pod["metadata"], kAnnotationRegroupKeyId,
                 needs_token(job, nodes) && !secret.token.empty() ? secret.key_id : "");
  Json& pod_spec = map_in(pod, "spec");
  pod_spec["subdomain"] = service_name(job);
  pod_spec["restartPolicy"] = "Never";
  if (!pod_spec.contains("automountServiceAccountToken")) pod_spec["automountServiceAccountToken"] = false;
  const size_t index = trainer_index(list_in(pod_spec, "containers"));
  Json& trainer = pod_spec["containers"][index];
  group_ = rank_group(job, attempt, nodes, trainer);
  const bool is_default = job.spec.image.empty() && string_of(trainer, "image") == defaults.image;
  set_annotation(pod["metadata"], kAnnotationTrainerImage, is_default ? defaults.image : "");
  set_annotation(pod["metadata"], kAnnotationLauncherImage, launcher_image);
  if (!launcher_image.empty()) {
    inject_launcher(launcher_image, pod_spec, trainer);
    group_.restart_policy = "group";
    Json& annotations = map_in(pod["metadata"], "annotations");
    if (!annotations.contains(kDefaultContainer)) annotations[kDefaultContainer] = kTrainerContainer;
  }
  set_restarts(job, secret, launchers);
  set_preflight(job, secret, trainer);
  // For images that write no termination message, the end of the log explains the failure.
  if (!trainer.contains("terminationMessagePolicy")) trainer["terminationMessagePolicy"] = "FallbackToLogsOnError";
  add_ports(trainer, job);
  add_shared_memory(pod_spec, trainer);
  if (!job.spec.trainer.empty()) add_config(pod_spec, trainer);
  select_variables(trainer);
  set_frame(std::move(pod), !launcher_image.empty());
  text_size_ = text(std::max(nodes, 1) - 1).size();
}

// Several launchers need a token. A single rank is restarted by a launcher that restarts all ranks only.
void PodFactory::set_restarts(const Job& job, const RegroupSecret& secret,
                              const std::optional<api::LauncherBounds>& launchers) {
  if (!job.spec.failure_policy.restarts_ranks()) return;
  const bool is_alone = group_.world_size() == 1 && group_.restart_policy == "group";
  if (!is_alone && (secret.token.empty() || !regroups(job, group_.nodes))) return;
  if (!is_alone) group_.regroup_token = secret.token;
  group_.max_restarts = job.spec.failure_policy.max_restarts;
  group_.restart_backoff = job.spec.failure_policy.backoff_seconds;
  if (!launchers) return;
  group_.min_nodes = launchers->min_nodes;
  group_.shrink_after = launchers->shrink_after_seconds;
}

// The GPUs are those that the launcher can count. Pods whose Service is of an older operator have no token.
void PodFactory::set_preflight(const Job& job, const RegroupSecret& secret, const Json& trainer) {
  const BoxedOptional<api::Preflight>& preflight = job.spec.preflight;
  if (!preflight || (group_.nodes > 1 && secret.token.empty())) return;
  constexpr char kGpus[] = "nvidia.com/gpu";
  const Json& gpus = member(member(member(trainer, "resources"), "limits"), kGpus);
  if (group_.nodes > 1) group_.regroup_token = secret.token;
  group_.preflight = fmt::format("timeout={}", preflight->timeout_seconds);
  if (!gpus.is_null()) group_.preflight += fmt::format(",devices={}", api::count_gpus({{kGpus, gpus}}));
  if (preflight->min_bandwidth_mbps) group_.preflight += fmt::format(",bandwidth={}", *preflight->min_bandwidth_mbps);
  if (preflight->max_latency_microseconds)
    group_.preflight += fmt::format(",latency={}", static_cast<double>(*preflight->max_latency_microseconds) / 1000);
}

// Removes the contract's variables from the template's environment, except for those that the user may set. part_text()
// inserts the contract before the remaining variables: Kubernetes expands $(RANK) in the variables that follow it, and
// the last of several variables with one name takes precedence.
void PodFactory::select_variables(Json& trainer) {
  Json env = Json::array();
  for (Json& variable : list_in(trainer, "env")) {
    std::string name = string_of(variable, "name");
    if (is_overridden(name)) continue;
    if (is_contract_variable(name)) add_once(user_set_, std::move(name));
    env.push_back(std::move(variable));
  }
  trainer["env"] = std::move(env);
}

// Inserts a null at the place of the contract's variables, which set_frame() replaces by a placeholder. Init containers
// and sidecars receive the same variables as the trainer, except for the paths of files that they do not have, and for
// the launcher's settings.
void PodFactory::add_environment(Json& container, bool is_trainer) {
  if (!container.is_object() || (container.contains("env") && !container["env"].is_array())) return;
  ContainerEnvironment environment{group_, user_set_};
  Json& env = list_in(container, "env");
  if (!is_trainer) {
    environment.from_template.clear();
    for (const Json& variable : env) {
      std::string name = string_of(variable, "name");
      if (is_contract_variable(name)) add_once(environment.from_template, std::move(name));
    }
    environment.group.config_file.clear();
    environment.group.termination_log.clear();
    environment.group.max_restarts = 0;
    environment.group.preflight.clear();
    environment.group.checkpoint_dir = checkpoint_dir(mount_path_of(container, kCheckpointVolume), group_.job);
  }
  if (variables(environment, 0, false).empty()) return;  // the names are the same for each node rank
  env.insert(env.begin(), nullptr);
  environments_.push_back(std::move(environment));
}

// Puts a placeholder into the place of each part, prints the pod and searches the text for the placeholders, of which
// each occurs only once, whatever the template contains.
void PodFactory::set_frame(Json pod, bool has_launcher) {
  struct Place {
    Part part;
    size_t environment;
    Json* value;
  };
  Json& spec = pod["spec"];
  std::vector<Place> places = {{Part::kName, 0, &pod["metadata"]["name"]},
                               {Part::kRankLabel, 0, &pod["metadata"]["labels"][kLabelNodeRank]},
                               {Part::kHostname, 0, &spec["hostname"]}};
  for (const char* key : {"containers", "initContainers"}) {
    const auto list = spec.find(key);
    if (list == spec.end() || !list->is_array()) continue;
    for (Json& container : *list) {
      if (has_launcher && string_of(container, "name") == kLauncherName) continue;  // it needs no environment
      const size_t known = environments_.size();
      add_environment(container,
                      std::string_view(key) == "containers" && string_of(container, "name") == kTrainerContainer);
      if (environments_.size() > known) places.push_back({Part::kEnvironment, known, &container["env"].front()});
    }
  }
  const std::string word = absent_word(dump_json(pod));
  const auto placeholder = [&](size_t place) { return fmt::format("{}{}", word, place); };
  for (size_t i = 0; i < places.size(); ++i) *places[i].value = placeholder(i);
  frame_ = dump_json(pod);
  frame_.shrink_to_fit();
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string quoted = fmt::format("\"{}\"", placeholder(i));
    placeholders_.push_back({places[i].part, places[i].environment, frame_.find(quoted), quoted.size()});
  }
  std::ranges::sort(placeholders_, {}, &Placeholder::begin);
}

std::string PodFactory::part_text(const Placeholder& placeholder, int node_rank, bool is_replacement) const {
  if (placeholder.part == Part::kRankLabel) return fmt::format("\"{}\"", node_rank);
  if (placeholder.part != Part::kEnvironment) return fmt::format("\"{}{}\"", name_prefix_, node_rank);
  const std::string list =
      dump_json(to_json(variables(environments_[placeholder.environment], node_rank, is_replacement)));
  return list.substr(1, list.size() - 2);  // never empty, see add_environment()
}

std::vector<EnvVar> PodFactory::variables(const ContainerEnvironment& environment, int node_rank, bool is_replacement) {
  RankGroup group = environment.group;
  group.is_replacement = is_replacement;
  std::vector<EnvVar> out = node_environment(group, node_rank);
  const std::vector<std::string>& given = environment.from_template;
  std::erase_if(out, [&](const EnvVar& variable) { return std::ranges::find(given, variable.name) != given.end(); });
  return out;
}

std::string PodFactory::text(int node_rank, bool is_replacement) const {
  std::string out;
  out.reserve(std::max(frame_.size(), text_size_));
  size_t done = 0;
  for (const Placeholder& placeholder : placeholders_) {
    out.append(frame_, done, placeholder.begin - done);
    out += part_text(placeholder, node_rank, is_replacement);
    done = placeholder.begin + placeholder.size;
  }
  return out.append(frame_, done);
}

Json PodFactory::pod(int node_rank, bool is_replacement) const { return Json::parse(text(node_rank, is_replacement)); }

}  // namespace oarlock::control
