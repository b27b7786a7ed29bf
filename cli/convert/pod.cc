#include "cli/convert/pod.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/resources.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/number.h"
#include "common/text.h"
#include "operator/core/environment.h"

namespace oarlock::convert {
namespace {

// Adds a note for each member of a pod template, or of its metadata, that is not one of `known`.
void note_other_members(const Json& object, std::initializer_list<std::string_view> known, const std::string& path,
                        Report& report) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null() && std::ranges::find(known, key) == known.end())
      report.note(fmt::format("{}.{}", path, key), "has no counterpart; not carried over");
  }
}

void erase_with_note(Json& object, const char* key, const std::string& path, const std::string& message,
                     Report& report) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if (!found->is_null()) report.note(fmt::format("{}.{}", path, key), message);
  object.erase(found);
}

size_t main_container(const Json& containers, const std::vector<std::string>& names, const std::string& path,
                      Report& report) {
  for (const std::string& name : names) {
    for (size_t i = 0; i < containers.size(); ++i) {
      if (text_at(containers[i], "name") == name) return i;
    }
  }
  if (containers.size() > 1)
    report.note(path, fmt::format("container '{}' becomes 'trainer', because it is the first one",
                                  text_at(containers[0], "name")));
  return 0;
}

// Returns whether a text has the form MIN:MAX.
bool is_range(const std::string& text) {
  const size_t colon = text.find(':');
  return colon != std::string::npos && parse_integer<int64_t>(text.substr(0, colon)) &&
         parse_integer<int64_t>(text.substr(colon + 1));
}

// The end of a note on bounds that were given where only a number of nodes counts.
std::string remedy_for_bounds(const std::string& bounds) {
  return fmt::format("; set spec.elastic for the bounds {}", bounds);
}

// Removes the variables that the operator sets from the container.
void convert_environment(Json& container, const std::string& path, Report& report, JobDraft& draft) {
  const auto list = container.find("env");
  if (list == container.end() || !list->is_array()) return;
  Json kept = Json::array();
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& variable = (*list)[i];
    const std::string name = text_at(variable, "name");
    if (!control::is_contract_variable(name)) {
      kept.push_back(variable);
      continue;
    }
    const std::string value = text_at(variable, "value");
    int64_t port = 0;
    if (name == kEnvMasterPort && value.size() < 6 && value.find_first_not_of("0123456789") == std::string::npos &&
        !value.empty()) {
      port = std::stoll(value);
    }
    if (port > 0) draft.port = port;
    const bool has_bounds = name == kEnvPetNnodes && is_range(value) && !draft.min_nodes;
    report.note(fmt::format("{}.env[{}]", path, i),
                fmt::format("{} is set by the operator{}", name, has_bounds ? remedy_for_bounds(value) : ""));
  }
  if (kept.empty()) {
    container.erase("env");
  } else {
    *list = std::move(kept);
  }
}

// Devices that the operator does not count for processesPerNode "auto", one rank for each.
constexpr std::string_view kOtherAccelerators[] = {"habana.ai/gaudi", "aws.amazon.com/neuroncore", "huawei.com/Ascend",
                                                   "cambricon.com/mlu", "metax-tech.com/gpu"};

bool is_gpu(const std::string& resource) { return api::count_gpus({{resource, 1}}) > 0; }

bool is_other_accelerator(const std::string& resource) {
  return !is_gpu(resource) &&
         std::ranges::any_of(kOtherAccelerators, [&](std::string_view name) { return resource.starts_with(name); });
}

const Json& limits_of(const Json& container) { return member(member(container, "resources"), "limits"); }

// Returns the devices among the limits that neither the operator nor this file counts, for a note: "google.com/tpu".
std::string uncounted_devices(const Json& container) {
  std::vector<std::string> names;
  const Json& limits = limits_of(container);
  if (!limits.is_object()) return "";
  for (const auto& [name, quantity] : limits.items()) {
    if (api::is_extended_resource(name) && !is_gpu(name) && !is_other_accelerator(name)) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> command_of(const Json& container) {
  std::vector<std::string> words = json_words(member(container, "command"));
  const std::vector<std::string> arguments = json_words(member(container, "args"));
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

// Returns the values of an option in a shell script: numbers and MIN:MAX; values that the shell computes are empty.
std::vector<std::string> option_in_script(const std::vector<std::string>& words, std::string_view option) {
  std::vector<std::string> values;
  const std::string script = fmt::format("{}", fmt::join(words, " "));
  for (size_t at = 0; (at = script.find(option, at)) != std::string::npos;) {
    at += option.size();
    const size_t begin = script.find_first_not_of("= \t'\"", at);
    if (begin == std::string::npos) break;
    const size_t end = std::min(script.find_first_not_of("0123456789:", begin), script.size());
    values.push_back(script.substr(begin, end - begin));
  }
  return values;
}

std::vector<std::string> nnodes_in_script(const std::vector<std::string>& words) {
  return option_in_script(words, "--nnodes");
}

// Returns the number of ranks on each node that torchrun in a shell script starts; "" if it is not one number.
std::string processes_in_script(const std::vector<std::string>& words) {
  std::vector<std::string> values = option_in_script(words, "--nproc_per_node");
  std::ranges::copy(option_in_script(words, "--nproc-per-node"), std::back_inserter(values));
  return values.size() == 1 && parse_integer<int>(values.front()).value_or(0) > 0 ? values.front() : "";
}

// torchrun's option takes precedence over the number of ranks of the job.
void take_processes(const std::string& processes, const std::string& path, Report& report, JobDraft& draft) {
  if (processes.empty()) return;
  const bool is_other = !draft.processes.empty() && draft.processes != "auto" && draft.processes != processes;
  if (is_other)
    report.note(path, fmt::format("the command starts {} {} on each node, not {}", processes,
                                  processes == "1" ? "rank" : "ranks", draft.processes));
  draft.processes = processes;
}

// Returns the value MIN:MAX of --nnodes in a shell script; "" if it has none.
std::string bounds_in_script(const std::vector<std::string>& words) {
  const std::vector<std::string> values = nnodes_in_script(words);
  const auto range = std::ranges::find_if(values, is_range);
  return range == values.end() ? "" : *range;
}

std::string bounds_text(const JobDraft& draft) {
  return draft.max_nodes ? fmt::format("{} to {} nodes", *draft.min_nodes, *draft.max_nodes)
                         : fmt::format("{} or more", counted(*draft.min_nodes, "node"));
}

// A command that starts a fixed number of nodes could not start with another one, so its job is not elastic.
void keep_fixed_nodes(int64_t nodes, const std::string& path, Report& report, JobDraft& draft) {
  if (!draft.min_nodes) return;
  report.note(path,
              fmt::format("--nnodes starts {}, not {}, so the job is not elastic; remove the option for an elastic "
                          "job",
                          counted(nodes, "node"), bounds_text(draft)));
  if (nodes >= *draft.min_nodes && nodes <= draft.max_nodes.value_or(nodes)) draft.nodes = nodes;
  draft.min_nodes.reset();
  draft.max_nodes.reset();
}

// Notes options of a launcher in a shell script, which is not changed.
void note_script(const std::vector<std::string>& words, const std::string& path, Report& report, JobDraft& draft) {
  const std::vector<std::string> values = nnodes_in_script(words);
  if (values.size() == 1) {
    if (const auto nodes = parse_integer<int64_t>(values.front())) keep_fixed_nodes(*nodes, path, report, draft);
  }
  take_processes(processes_in_script(words), path, report, draft);
  static constexpr const char* kOptions[] = {"rdzv",        "nnodes",      "node_rank",   "node-rank",
                                             "master_addr", "master-addr", "master_port", "master-port"};
  std::vector<std::string> found;
  for (const char* option : kOptions) {
    if (std::ranges::any_of(words,
                            [&](const auto& word) { return word.find("--" + std::string(option)) != word.npos; }))
      found.push_back(option);
  }
  if (found.empty()) return;
  const std::string bounds = draft.min_nodes ? "" : bounds_in_script(words);
  report.note(path, fmt::format("the script of the shell is kept; remove its options {}: torchrun reads the variables "
                                "PET_* that the operator sets{}",
                                fmt::join(found, ", "), bounds.empty() ? "" : remedy_for_bounds(bounds)));
}

}  // namespace

Json& trainer_of(JobDraft& draft) {
  if (!draft.pod.is_object()) draft.pod = Json::object();
  Json& containers = object_member(draft.pod, "spec")["containers"];
  if (!containers.is_array()) containers = Json::array();
  for (Json& container : containers) {
    if (text_at(container, "name") == kTrainerContainer) return container;
  }
  containers.push_back({{"name", kTrainerContainer}});
  return containers.back();
}

int64_t accelerators_of(const Json& container) {
  const Json& limits = limits_of(container);
  if (!limits.is_object()) return 0;
  if (const int64_t gpus = api::count_gpus(nlohmann::json(limits)); gpus > 0) return gpus;
  constexpr double kMaxDevices = 1000;  // more than a node has
  for (const auto& [name, quantity] : limits.items()) {
    const double number = api::quantity_value(nlohmann::json(quantity));
    if (is_other_accelerator(name) && number >= 1) return static_cast<int64_t>(std::min(number, kMaxDevices));
  }
  return 0;
}

void set_gpus(Json& container, int64_t gpus) {
  std::string resource = kGpuResource;
  Json& resources = object_member(container, "resources");
  for (const char* key : {"requests", "limits"}) {
    Json kept = Json::object();
    if (!member(resources, key).is_object()) continue;
    for (const auto& [name, quantity] : resources[key].items()) {
      if (is_gpu(name)) {
        resource = name;
      } else {
        kept[name] = quantity;
      }
    }
    resources[key] = std::move(kept);
    if (resources[key].empty()) resources.erase(key);
  }
  object_member(resources, "limits")[resource] = gpus;
}

void set_variable(Json& container, const std::string& name, const std::string& value) {
  merge_environment(container, Json::array({{{"name", name}, {"value", value}}}));
}

void merge_environment(Json& container, const Json& variables) {
  Json& list = container["env"];
  if (!list.is_array()) list = Json::array();
  for (const Json& variable : variables) {
    const auto same = std::ranges::find_if(
        list, [&](const Json& item) { return text_at(item, "name") == text_at(variable, "name"); });
    if (same != list.end()) {
      *same = variable;
    } else {
      list.push_back(variable);
    }
  }
  if (list.empty()) container.erase("env");
}

std::string convert_pod(const Json& pod, const std::string& path, const std::vector<std::string>& main_names,
                        const ConvertOptions& options, Report& report, JobDraft& draft) {
  draft.pod = Json::object();
  Json metadata = Json::object();
  const Json& given = member(pod, "metadata");
  note_other_members(pod, {"metadata", "spec"}, path, report);
  note_other_members(given, {"labels", "annotations", "creationTimestamp"}, path + ".metadata", report);
  for (const char* key : {"labels", "annotations"}) {
    Json kept = own_entries(member(given, key), fmt::format("{}.metadata.{}", path, key), EntriesOf::kPod, report);
    if (!kept.empty()) metadata[key] = std::move(kept);
  }
  if (!metadata.empty()) draft.pod["metadata"] = std::move(metadata);

  Json spec = member(pod, "spec").is_object() ? member(pod, "spec") : Json::object();
  const std::string spec_path = path + ".spec";
  if (text_at(spec, "restartPolicy") == "Never") spec.erase("restartPolicy");
  erase_with_note(spec, "restartPolicy", spec_path,
                  "a failed container is not restarted in place; the operator restarts the whole group", report);
  for (const char* key : {"hostname", "subdomain", "setHostnameAsFQDN"})
    erase_with_note(spec, key, spec_path, "the operator sets the names of the pods", report);

  const auto containers = spec.find("containers");
  if (containers == spec.end() || !containers->is_array() || containers->empty() ||
      !std::ranges::all_of(*containers, [](const Json& container) { return container.is_object(); })) {
    report.problem(spec_path + ".containers", "the pod has no list of containers");
    spec["containers"] = Json::array({{{"name", kTrainerContainer}}});
    draft.pod["spec"] = std::move(spec);
    return spec_path + ".containers";
  }
  const size_t main = main_container(*containers, main_names, spec_path + ".containers", report);
  for (size_t i = 0; i < containers->size(); ++i) {
    if (i != main && text_at((*containers)[i], "name") == kTrainerContainer)
      report.problem(fmt::format("{}.containers[{}].name", spec_path, i),
                     "'trainer' is the name of the main container of a TrainingJob; rename this one");
  }
  Json& source = (*containers)[main];
  draft.main_container = text_at(source, "name");
  Json trainer = {{"name", kTrainerContainer}};  // the name first
  for (const auto& [key, value] : source.items()) {
    if (key != "name") trainer[key] = value;
  }
  const std::string container_path = fmt::format("{}.containers[{}]", spec_path, main);
  if (!options.image.empty()) trainer["image"] = options.image;
  convert_environment(trainer, container_path, report, draft);
  if (options.gpus) set_gpus(trainer, *options.gpus);
  source = std::move(trainer);
  draft.pod["spec"] = std::move(spec);
  return container_path;
}

void convert_container_command(const std::string& path, Report& report, JobDraft& draft) {
  Json& trainer = trainer_of(draft);
  const bool has_command = member(trainer, "command").is_array() && !member(trainer, "command").empty();
  const std::vector<std::string> words = command_of(trainer);
  const bool is_mpi = launcher_of(words) == LauncherKind::kMpirun;
  if (has_command && launcher_of(words) != LauncherKind::kNone) {
    const NoteSink note = [&](const std::string& what, const std::string& message) {
      report.note(path + ".command", fmt::format("{}: {}", what, message));
    };
    const Result<LaunchCommand> command = convert_command(words, draft.nodes, note);
    if (!command) return report.problem(path + ".command", command.error().message);
    const bool is_accelerate = command->launcher == LauncherKind::kAccelerate;
    if (is_accelerate && draft.min_nodes) {
      report.note(path + ".command", "accelerate launch has a fixed number of machines; the job is not elastic");
      draft.min_nodes.reset();
      draft.max_nodes.reset();
    }
    trainer["command"] = command->words;
    trainer.erase("args");
    for (const auto& [name, value] : command->environment) set_variable(trainer, name, value);
    take_processes(command->processes, path + ".command", report, draft);
    set_once(draft.max_restarts, command->max_restarts, path + ".command", report);
    set_once(draft.port, command->port, path + ".command", report);
    if (command->nodes && !command->min_nodes && !is_accelerate)
      keep_fixed_nodes(*command->nodes, path + ".command", report, draft);
    if (const std::string started = take_node_bounds(*command, draft); !started.empty())
      report.note(path + ".command", fmt::format("the command starts {}, but {}", started,
                                                 draft.min_nodes ? "the bounds of the job count"
                                                                 : fmt::format("the job has {}; the pods count",
                                                                               counted(draft.nodes, "pod"))));
  } else if (has_command) {
    note_script(words, path + ".command", report, draft);
  }
  const bool starts_ranks = mentions_launcher(words) || is_mpi;
  const bool is_auto = draft.processes.empty() || draft.processes == "auto";
  const int64_t gpus = api::count_gpus(nlohmann::json(limits_of(trainer)));
  const int64_t accelerators = accelerators_of(trainer);
  if (starts_ranks && is_auto) {
    draft.processes = gpus > 0 ? "auto" : accelerators > 0 ? std::to_string(accelerators) : "";
    const std::string devices = uncounted_devices(trainer);
    if (accelerators == 0)
      report.note(path + ".command",
                  fmt::format("one rank on each node, because {}; set spec.processesPerNode for more",
                              devices.empty() ? "the container requests no GPU"
                                              : fmt::format("the number of ranks for {} is not known", devices)));
  } else if (!starts_ranks && is_auto) {
    draft.processes = "";
    if (accelerators > 1)
      report.note(path + (has_command ? ".command" : ""),
                  fmt::format("no torchrun in {}; one rank on each node is assumed. If it starts one for each GPU, set "
                              "spec.processesPerNode: {}",
                              has_command ? "the command" : "the container, which runs the entry point of its image",
                              gpus > 0 ? "auto" : std::to_string(accelerators)));
  } else if (!starts_ranks && draft.processes != "1") {
    report.note(path + (has_command ? ".command" : ""),
                fmt::format("{} ranks on each node need a launcher in the container, such as torchrun; there is none "
                            "in the command",
                            draft.processes));
  }
}

}  // namespace oarlock::convert
