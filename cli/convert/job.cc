#include "cli/convert/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "cli/job_file.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/yaml/writer.h"
#include "operator/api/resources.h"
#include "operator/api/validate.h"
#include "operator/core/environment.h"

namespace oarlock::convert {
namespace {

constexpr char kLastApplied[] = "kubectl.kubernetes.io/last-applied-configuration";  // a copy of the source

// Labels and annotations that another program reads from its own kinds of jobs.
struct ForeignKey {
  std::string_view prefix;
  bool is_kept;
  const char* message;  // null if the converter reads the key
};
constexpr ForeignKey kForeignKeys[] = {
    {"trainer.kubeflow.org/trainjob-ancestor-step", false, nullptr},
    {"alpha.jobset.sigs.k8s.io/", false,
     "has no effect on a TrainingJob; nodeSelector, affinity and topologySpreadConstraints in spec.template do "
     "placement"},
    {"jobset.sigs.k8s.io/", false, "is set by JobSet, and has no effect on a TrainingJob"},
    {"kueue.x-k8s.io/", true,
     "has no effect: Kueue does not queue TrainingJobs, so the job starts without its quota, and nothing resumes a "
     "suspended one"},
    {"scheduling.volcano.sh/", true, "has no effect on a TrainingJob: there are no queues and no gang scheduling yet"},
    {"volcano.sh/", true, "has no effect on a TrainingJob: there are no queues and no gang scheduling yet"},
    {"scheduling.k8s.io/group-name", true, "has no effect on a TrainingJob: there is no gang scheduling yet"},
    {"scheduling.x-k8s.io/", true, "has no effect on a TrainingJob: there is no gang scheduling yet"},
    {"pod-group.scheduling.sigs.k8s.io", true, "has no effect on a TrainingJob: there is no gang scheduling yet"},
    {"yunikorn.apache.org/", true, "has no effect on a TrainingJob: there are no queues and no gang scheduling yet"},
    {"kai.scheduler/", true, "has no effect on a TrainingJob: there are no queues and no gang scheduling yet"},
    {"runai/", true, "has no effect on a TrainingJob: there are no queues and no gang scheduling yet"},
    {"training.kubeflow.org/", true, "is read by the training-operator only"},
    {"trainer.kubeflow.org/", true, "is read by Kubeflow Trainer only"},
};

const ForeignKey* foreign_key(const std::string& key) {
  const auto* row =
      std::ranges::find_if(kForeignKeys, [&](const ForeignKey& one) { return key.starts_with(one.prefix); });
  return row == std::end(kForeignKeys) ? nullptr : row;
}

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

// Removes the positions after `prefix` from each line of problems, because they are those of a text that is not
// printed.
std::string without_positions(const std::string& lines, const std::string& prefix) {
  std::istringstream in(lines);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    size_t end = prefix.size();
    if (line.starts_with(prefix)) {
      while (end < line.size() && line.find_first_of(":0123456789", end) == end) ++end;
      line = prefix + ":" + line.substr(end);
    }
    out += (out.empty() ? "" : "\n") + line;
  }
  return out;
}

// Returns the values of --nnodes in a shell script: numbers and MIN:MAX; values that the shell computes are empty.
std::vector<std::string> nnodes_in_script(const std::vector<std::string>& words) {
  static constexpr std::string_view kOption = "--nnodes";
  std::vector<std::string> values;
  const std::string script = fmt::format("{}", fmt::join(words, " "));
  for (size_t at = 0; (at = script.find(kOption, at)) != std::string::npos;) {
    at += kOption.size();
    const size_t begin = script.find_first_not_of("= \t'\"", at);
    if (begin == std::string::npos) break;
    const size_t end = std::min(script.find_first_not_of("0123456789:", begin), script.size());
    values.push_back(script.substr(begin, end - begin));
  }
  return values;
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

Json& object_member(Json& parent, const char* key) {
  Json& member = parent[key];
  if (!member.is_object()) member = Json::object();
  return member;
}

std::string object_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool is_plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (is_plain) name += lower;
    if (!is_plain && !name.empty() && !name.ends_with('-')) name += '-';
  }
  name.resize(std::min<size_t>(name.size(), 50));
  while (name.ends_with('-')) name.pop_back();
  if (name.empty() || name.front() < 'a') name.insert(0, "job-");
  while (name.ends_with('-')) name.pop_back();
  return name;
}

std::string stem_of(const std::string& path) {
  const std::string file = path.substr(path.rfind('/') + 1);
  return file.substr(0, file.find('.'));
}

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
  constexpr double kMost = 1000;  // more than a node has
  for (const auto& [name, quantity] : limits.items()) {
    const double number = api::quantity_value(nlohmann::json(quantity));
    if (is_other_accelerator(name) && number >= 1) return static_cast<int64_t>(std::min(number, kMost));
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

Json own_entries(const Json& map, const std::string& path, Report& report) {
  Json out = Json::object();
  if (!map.is_object()) {
    if (!map.is_null()) report.note(path, "is not a map; not carried over");
    return out;
  }
  for (const auto& [key, value] : map.items()) {
    if (key == kLastApplied || value.is_null()) continue;
    const std::string entry = fmt::format("{}.{}", path, key);
    if (!value.is_string()) {
      report.note(entry, "is not a string; not carried over");
      continue;
    }
    const ForeignKey* foreign = foreign_key(key);
    if (foreign != nullptr && foreign->message != nullptr) report.note(entry, foreign->message);
    if (foreign == nullptr || foreign->is_kept) out[key] = value;
  }
  return out;
}

Json convert_metadata(ObjectReader metadata, const ConvertOptions& options) {
  Json out = Json::object();
  std::string name = metadata.text("name");
  const std::string prefix = metadata.text("generateName");
  if (name.empty()) name = prefix;
  while (name.ends_with('-')) name.pop_back();
  out["name"] = options.name.empty() ? name : options.name;
  if (name != metadata.text("name") && !prefix.empty() && options.name.empty())
    metadata.note("generateName", fmt::format("the name is '{}', the same each time; give each further job its own "
                                              "with --name",
                                              name));
  for (const char* key : {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"})
    metadata.take(key);  // of the stored object
  metadata.drop("finalizers", "not carried over: the program that set them handles only the source");
  metadata.drop("ownerReferences", "not carried over: deleting the owner does not delete the TrainingJob");
  if (const std::string name_space = metadata.text("namespace"); !name_space.empty()) out["namespace"] = name_space;
  for (const char* key : {"labels", "annotations"}) {
    const Json* map = metadata.take(key);
    Json kept = map == nullptr ? Json::object() : own_entries(*map, metadata.path_of(key), metadata.report());
    if (!kept.empty()) out[key] = std::move(kept);
  }
  return out;
}

void drop_metadata(ObjectReader metadata, const std::string& owner) {
  metadata.take("creationTimestamp");
  metadata.take("name");
  for (const char* key : {"labels", "annotations"}) {
    const Json* map = metadata.take(key);
    if (map == nullptr || !map->is_object()) continue;
    for (const auto& [name, value] : map->items()) {
      const ForeignKey* foreign = foreign_key(name);
      if (foreign != nullptr && foreign->message == nullptr) continue;
      metadata.note(
          fmt::format("{}.{}", key, name),
          foreign == nullptr || foreign->is_kept
              ? fmt::format("of the {}; not carried over. Those of the pods are in spec.template.metadata", owner)
              : foreign->message);
    }
  }
}

void set_once(std::optional<int64_t>& target, std::optional<int64_t> value, const std::string& path, Report& report) {
  if (value && target && *value != *target)
    report.note(path, fmt::format("{} is not carried over, because {} is given elsewhere", *value, *target));
  if (!target) target = value;
}

void convert_managed_by(ObjectReader& spec, const std::string& own_domain, JobDraft& draft) {
  const std::string name = spec.text("managedBy");
  if (!name.starts_with(own_domain + "/")) draft.managed_by = name;
}

void convert_run_policy(ObjectReader policy, JobDraft& draft) {
  draft.clean_pod_policy = policy.text("cleanPodPolicy");
  draft.ttl_seconds_after_finished = policy.integer("ttlSecondsAfterFinished");
  draft.active_deadline_seconds = policy.integer("activeDeadlineSeconds");
  draft.max_restarts = policy.integer("backoffLimit");
  draft.suspend = policy.boolean("suspend");
  convert_managed_by(policy, "kubeflow.org", draft);
  policy.drop("schedulingPolicy", "gang scheduling has no counterpart yet; not carried over");
}

void set_node_bounds(int64_t least, std::optional<int64_t> most, const std::string& path, Report& report,
                     JobDraft& draft) {
  if (most && least > *most) return report.problem(path, "the minimum is above the maximum");
  const int64_t before = draft.nodes;
  draft.nodes = std::max(draft.nodes, least);
  if (most) draft.nodes = std::min(draft.nodes, *most);
  if (draft.nodes != before)
    report.note(
        path, fmt::format("the job has {}, because {} is outside of the bounds", counted(draft.nodes, "node"), before));
  if (least == most) return;
  draft.min_nodes = least;
  draft.max_nodes = most;
}

std::string take_node_bounds(const LaunchCommand& command, JobDraft& draft) {
  if (!command.nodes) return "";
  const int64_t least = command.min_nodes.value_or(*command.nodes);
  const bool has_other_bounds = draft.min_nodes && (least != *draft.min_nodes || command.nodes != draft.max_nodes);
  if (draft.nodes < least || draft.nodes > *command.nodes || has_other_bounds) {
    return least == *command.nodes ? counted(*command.nodes, "node")
                                   : fmt::format("{} to {} nodes", least, *command.nodes);
  }
  if (command.min_nodes && !draft.min_nodes) {
    draft.min_nodes = least;
    draft.max_nodes = command.nodes;
  }
  return "";
}

std::string convert_pod(const Json& pod, const std::string& path, const std::vector<std::string>& main_names,
                        const ConvertOptions& options, Report& report, JobDraft& draft) {
  draft.pod = Json::object();
  Json metadata = Json::object();
  const Json& given = member(pod, "metadata");
  note_other_members(pod, {"metadata", "spec"}, path, report);
  note_other_members(given, {"labels", "annotations", "creationTimestamp"}, path + ".metadata", report);
  for (const char* key : {"labels", "annotations"}) {
    Json kept = own_entries(member(given, key), fmt::format("{}.metadata.{}", path, key), report);
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
    if (!command->processes.empty()) draft.processes = command->processes;
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

Result<Json> finish_job(const JobDraft& draft, const std::string& file) {
  Json spec = {{"nodes", draft.nodes}};
  if (draft.min_nodes) spec["elastic"]["minNodes"] = *draft.min_nodes;
  if (draft.min_nodes && draft.max_nodes) spec["elastic"]["maxNodes"] = *draft.max_nodes;
  if (draft.processes == "auto") {
    spec["processesPerNode"] = draft.processes;
  } else if (!draft.processes.empty()) {
    spec["processesPerNode"] = Json::parse(draft.processes);
  }
  if (draft.max_restarts) spec["failurePolicy"]["maxRestarts"] = std::min<int64_t>(*draft.max_restarts, 1000);
  if (!draft.failure_rules.empty()) spec["failurePolicy"]["rules"] = draft.failure_rules;
  if (draft.port && *draft.port != kDefaultMasterPort) spec["rendezvous"]["port"] = *draft.port;
  if (!draft.success_policy.empty()) spec["successPolicy"] = draft.success_policy;
  if (!draft.clean_pod_policy.empty() && draft.clean_pod_policy != "Running")
    spec["cleanPodPolicy"] = draft.clean_pod_policy;
  if (draft.active_deadline_seconds) spec["activeDeadlineSeconds"] = *draft.active_deadline_seconds;
  if (draft.ttl_seconds_after_finished) spec["ttlSecondsAfterFinished"] = *draft.ttl_seconds_after_finished;
  if (draft.suspend.value_or(false)) spec["suspend"] = true;
  if (!draft.managed_by.empty()) spec["managedBy"] = draft.managed_by;
  spec["template"] = draft.pod;
  Json job = {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", draft.metadata}, {"spec", std::move(spec)}};

  // The same checks as those of `oarlock validate`, so that no converter prints an invalid job.
  const std::string result = file + ": the converted job is not valid";
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> documents, yaml::parse_all(yaml::to_yaml(job), result));
  yaml::Problems problems(result);
  const api::TrainingJob checked = api::training_job_from_yaml(documents.front(), problems);
  cli::check_pods(documents.front(), problems.empty() ? &checked : nullptr, problems);
  if (!problems.empty()) return fail(ExitCode::kConfig, without_positions(problems.to_error().message, result));
  return job;
}

}  // namespace oarlock::convert
