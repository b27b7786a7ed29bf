#include "cli/run/local_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/launch/group.h"
#include "common/contract.h"
#include "common/terminal.h"
#include "operator/core/desired.h"
#include "operator/core/environment.h"

namespace oarlock::run {
namespace {

using Json = nlohmann::json;

// The trainer container of a pod or a pod template.
const Json& trainer_of(const Json& pod) {
  for (const Json& container : pod["spec"]["containers"]) {
    if (container.value("name", "") == kTrainerContainer) return container;
  }
  return pod["spec"]["containers"][0];  // api::validate() rejects such a job
}

Json list_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_array() ? *it : Json::array();
}

std::string string_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

std::vector<std::string> words_of(const Json& container, const char* key) {
  std::vector<std::string> words;
  for (const Json& word : list_of(container, key)) {
    if (word.is_string()) words.push_back(word);
  }
  return words;
}

Lookup lookup_in(const Environment& environment) {
  return [&environment](const std::string& name) -> std::optional<std::string> {
    const auto it = environment.find(name);
    return it == environment.end() ? std::nullopt : std::optional(it->second);
  };
}

// Combines, in ascending order of precedence, `base`, the variables of the contract, and the list of the template with
// $(NAME) expanded.
Environment local_environment(const Json& template_list, const std::vector<control::EnvVar>& contract,
                              const Environment& base, const std::vector<LocalVolume>& volumes) {
  Environment out = base;
  std::erase_if(out, [](const auto& variable) { return control::is_contract_variable(variable.first); });
  Environment known;  // $(NAME) refers to the list of the container, not to the image
  for (const control::EnvVar& variable : contract) out[variable.name] = known[variable.name] = variable.value;
  for (const Json& variable : template_list) {
    const std::string name = string_of(variable, "name");
    // A checkpoint directory in the template is a path in the pod, so only the configuration file may be overridden.
    const bool users = !control::is_contract_variable(name) || name == kEnvConfig;
    if (!users || variable.contains("valueFrom")) continue;
    known[name] = expand(string_of(variable, "value"), lookup_in(known));
    out[name] = localize(known[name], volumes);
  }
  return out;
}

control::RankGroup local_group(const control::RankGroup& in_cluster, const HostSettings& settings, int node) {
  control::RankGroup group = in_cluster;
  group.master_addr = "127.0.0.1";
  group.master_port = settings.master_port;
  group.metrics_port = settings.metrics_ports[static_cast<size_t>(node)];
  if (!group.config_file.empty()) group.config_file = settings.config_file;
  if (!group.checkpoint_dir.empty()) group.checkpoint_dir = settings.checkpoint_dir;
  group.termination_log.clear();
  return group;
}

// Calls fn(path, text) for every string in a JSON value.
template <typename Fn>
void each_string(const Json& value, const std::string& path, Fn fn) {
  if (value.is_string()) return fn(path, value.get_ref<const std::string&>());
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) each_string(child, path + "." + key, fn);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) each_string(value[i], fmt::format("{}[{}]", path, i), fn);
  }
}

bool is_within(const std::string& path, std::string directory) {
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  return path == directory || path.starts_with(directory + "/");
}

}  // namespace

std::string expand(std::string_view text, const Lookup& lookup) {
  std::string out;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    out += text.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    text.remove_prefix(dollar);
    if (text.starts_with("$$")) {
      out += '$';
      text.remove_prefix(2);
      continue;
    }
    const size_t end = text.starts_with("$(") ? text.find(')') : std::string_view::npos;
    if (end == std::string_view::npos) {
      out += '$';
      text.remove_prefix(1);
      continue;
    }
    const std::string_view reference = text.substr(0, end + 1);
    out += lookup(std::string(reference.substr(2, end - 2))).value_or(std::string(reference));
    text.remove_prefix(end + 1);
  }
  return out;
}

std::vector<LocalProcess> local_processes(const api::TrainingJob& job, const HostSettings& settings) {
  const control::PodFactory factory(job, settings.attempt);
  const Json pod = control::make_pod_template(job, {});
  const Json& trainer = trainer_of(pod);
  const Json list = list_of(trainer, "env");
  std::vector<LocalProcess> processes;
  for (int node = 0; node < job.spec.nodes; ++node) {
    const control::RankGroup group = local_group(factory.group(), settings, node);
    const auto add = [&](std::vector<std::string> argv, const std::vector<control::EnvVar>& contract, int rank) {
      Environment environment = local_environment(list, contract, settings.base, settings.volumes);
      for (std::string& word : argv) word = localize(expand(word, lookup_in(environment)), settings.volumes);
      processes.push_back({std::move(argv), std::move(environment), node, rank});
    };
    std::vector<std::string> argv = words_of(trainer, "command");
    std::vector<std::string> arguments = words_of(trainer, "args");
    if (!argv.empty()) {
      argv.insert(argv.end(), arguments.begin(), arguments.end());
      add(argv, control::node_environment(group, node), group.processes_per_node == 1 ? node : -1);
      continue;
    }
    if (arguments.empty()) arguments = {"oarlock-trainer"};
    for (int local_rank = 0; local_rank < group.processes_per_node; ++local_rank) {
      add(arguments, control::rank_environment(group, node, local_rank), node * group.processes_per_node + local_rank);
    }
  }
  return processes;
}

bool runs_default_command(const api::TrainingJob& job) {
  const Json pod = control::make_pod_template(job, {});
  return list_of(trainer_of(pod), "command").empty() && list_of(trainer_of(pod), "args").empty();
}

bool runs_trainer(const api::TrainingJob& job) {
  if (runs_default_command(job)) return true;
  const Json pod = control::make_pod_template(job, {});
  std::vector<std::string> words = words_of(trainer_of(pod), "command");
  for (std::string& word : words_of(trainer_of(pod), "args")) words.push_back(std::move(word));
  return std::ranges::any_of(words,
                             [](const std::string& word) { return word.find("oarlock-trainer") != std::string::npos; });
}

bool saves_checkpoints(const api::TrainingJob& job) {
  return !control::PodFactory(job, 0).group().checkpoint_dir.empty();
}

std::vector<std::string> describe_differences(const api::TrainingJob& job, const Environment& base,
                                              const std::vector<LocalVolume>& volumes) {
  std::vector<std::string> notes;
  for (const LocalVolume& volume : volumes) {
    notes.push_back(fmt::format("the volume '{}' ({}) is {} here, with the files of the ConfigMap '{}'", volume.name,
                                volume.mount_path, volume.target.string(), volume.config_map));
  }
  const Json pod = control::make_pod_template(job, {});
  const Json& trainer = trainer_of(pod);
  const auto note_paths = [&](const Json& value, const std::string& where) {
    each_string(value, where, [&](const std::string& path, const std::string& text) {
      for (const Json& mount : list_of(trainer, "volumeMounts")) {
        const std::string directory = string_of(mount, "mountPath");
        if (directory.empty() || !is_within(text, directory)) continue;
        const bool is_provided =
            std::ranges::any_of(volumes, [&](const LocalVolume& volume) { return is_within(text, volume.mount_path); });
        if (is_provided && !path.starts_with("spec.trainer")) continue;
        notes.push_back(fmt::format(
            "{} is '{}', on the volume '{}' of the pod; volumes are not mounted here, so it is a path of this machine",
            path, text, string_of(mount, "name")));
      }
    });
  };
  if (!job.spec.trainer.empty()) note_paths(Json::parse(job.spec.trainer), "spec.trainer");
  const std::string container = "spec.template.spec.containers[trainer]";
  for (const char* key : {"command", "args"}) note_paths(list_of(trainer, key), container + "." + key);
  for (const Json& variable : list_of(trainer, "env")) {
    const std::string name = string_of(variable, "name");
    if (control::is_contract_variable(name)) continue;
    if (!variable.contains("valueFrom")) {
      note_paths(string_of(variable, "value"), container + ".env." + name);
    } else if (!base.contains(name)) {
      notes.push_back(fmt::format(
          "{}.env.{} comes from the cluster (valueFrom) and is not set here; set it in this shell if it is needed",
          container, name));
    }
  }
  if (!list_of(trainer, "envFrom").empty())
    notes.push_back(container + ".envFrom comes from the cluster; set what is needed in this shell");
  if (const std::string directory = string_of(trainer, "workingDir"); !directory.empty()) {
    notes.push_back(
        fmt::format("{}.workingDir '{}' is a directory of the image; the processes run in the current directory",
                    container, directory));
  }
  std::vector<std::string> others;
  for (const char* key : {"initContainers", "containers"}) {
    for (const Json& other : list_of(pod["spec"], key)) {
      if (string_of(other, "name") != kTrainerContainer) others.push_back(string_of(other, "name"));
    }
  }
  if (!others.empty())
    notes.push_back(fmt::format("only the container 'trainer' is run here, not: {}", fmt::join(others, ", ")));
  if (job.spec.suspend) notes.push_back("spec.suspend is true: on a cluster no pod would start");
  return notes;
}

namespace {

bool is_program(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::filesystem::path own_directory() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

Result<std::vector<std::string>> find_program(std::vector<std::string> argv, const std::filesystem::path& directory,
                                              const std::string& path) {
  constexpr char kTrainer[] = "oarlock-trainer";
  if (argv.front() != kTrainer && argv.front() != "oarlock") return argv;
  if (is_program(directory / argv.front())) {
    argv.front() = (directory / argv.front()).string();
    return argv;
  }
  std::istringstream entries(path);
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (is_program(std::filesystem::path(entry) / argv.front())) return argv;
  }
  return fail(ExitCode::kUnavailable, fmt::format("{} is neither in {} nor in PATH; build it (cmake --preset release "
                                                  "&& cmake --build --preset release) or install it there",
                                                  argv.front(), directory.string()));
}

std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int nodes) {
  const auto count = static_cast<size_t>(nodes);
  std::vector<std::vector<int>> parts(count);
  if (count < 2 || cores.size() < count) return parts;
  for (size_t node = 0; node < count; ++node) {
    const size_t begin = cores.size() * node / count;
    const size_t end = cores.size() * (node + 1) / count;
    for (size_t i = begin; i < end; ++i) parts[node].push_back(cores[i]);
  }
  return parts;
}

}  // namespace oarlock::run
