#include "cli/convert/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "api/validate.h"
#include "cli/job_file.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "operator/core/gang.h"
#include "operator/core/workload.h"
#include "yaml/writer.h"

namespace oarlock::convert {
namespace {

constexpr char kLastApplied[] = "kubectl.kubernetes.io/last-applied-configuration";  // a copy of the source

// Labels and annotations that another program reads from its own kinds of jobs.
struct ForeignKey {
  std::string_view prefix;
  bool is_kept;
  const char* message;  // null if the converter reads the key
};
constexpr char kExclusiveTopology[] = "alpha.jobset.sigs.k8s.io/exclusive-topology";
constexpr char kOfGangs[] =
    "has no effect on a TrainingJob; docs/guides/queues.md has the gang schedulers that work, and their keys";
constexpr ForeignKey kForeignKeys[] = {
    {"trainer.kubeflow.org/trainjob-ancestor-step", false, nullptr},
    {kExclusiveTopology, false,
     "becomes spec.scheduling.topology with the mode Exclusive; a domain for each of several Jobs has no counterpart"},
    {"alpha.jobset.sigs.k8s.io/", false,
     "has no effect on a TrainingJob; nodeSelector, affinity and topologySpreadConstraints in spec.template do "
     "placement"},
    {"jobset.sigs.k8s.io/", false, "is set by JobSet, and has no effect on a TrainingJob"},
    {"kueue.x-k8s.io/", true, "has no effect on a TrainingJob; docs/guides/queues.md has the keys of Kueue that work"},
    {"scheduling.volcano.sh/", true, kOfGangs},
    {"volcano.sh/", true, kOfGangs},
    {"scheduling.k8s.io/group-name", true, kOfGangs},
    {"scheduling.x-k8s.io/", true, kOfGangs},
    {"pod-group.scheduling.sigs.k8s.io", true, kOfGangs},
    {"yunikorn.apache.org/", true, kOfGangs},
    {"kai.scheduler/", true, kOfGangs},
    {"runai/", true, kOfGangs},
    {"training.kubeflow.org/", true, "is read by the training-operator only"},
    {"trainer.kubeflow.org/", true, "is read by Kubeflow Trainer only"},
};

// Keys of Kueue that have the same effect on a TrainingJob: labels of the job, and annotations of its pods.
constexpr std::string_view kQueueLabels[] = {kLabelQueue, kLabelPriorityClass};
constexpr std::string_view kTopologyAnnotations[] = {control::kRequiredTopology, control::kPreferredTopology,
                                                     control::kUnconstrainedTopology};
// Keys of pods by which gang schedulers find the group and the queue.
constexpr std::string_view kGangKeys[] = {control::kVolcanoQueue, control::kPodGroupLabel,
                                          control::kGroupNameAnnotation};

const ForeignKey* foreign_key(const std::string& key) {
  const auto* row =
      std::ranges::find_if(kForeignKeys, [&](const ForeignKey& one) { return key.starts_with(one.prefix); });
  return row == std::end(kForeignKeys) ? nullptr : row;
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

Json own_entries(const Json& map, const std::string& path, EntriesOf object, Report& report) {
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
    const bool is_label = path.ends_with("labels");
    const bool is_queue_label = is_label && std::ranges::find(kQueueLabels, key) != std::end(kQueueLabels);
    if (is_queue_label && object == EntriesOf::kPod) {
      report.note(entry,
                  "not carried over: Kueue would queue each pod for itself; the label of the job queues all of them");
      continue;
    }
    const bool is_topology = !is_label && object == EntriesOf::kPod &&
                             std::ranges::find(kTopologyAnnotations, key) != std::end(kTopologyAnnotations);
    const bool is_of_gang = object == EntriesOf::kPod && std::ranges::find(kGangKeys, key) != std::end(kGangKeys);
    if (is_of_gang && key != control::kVolcanoQueue)
      report.note(entry, "names a PodGroup, which must exist; the operator creates none then");
    const ForeignKey* foreign = is_queue_label || is_topology || is_of_gang ? nullptr : foreign_key(key);
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
  if (const std::string namespace_name = metadata.text("namespace"); !namespace_name.empty())
    out["namespace"] = namespace_name;
  for (const char* key : {"labels", "annotations"}) {
    const Json* map = metadata.take(key);
    Json kept =
        map == nullptr ? Json::object() : own_entries(*map, metadata.path_of(key), EntriesOf::kJob, metadata.report());
    if (!kept.empty()) out[key] = std::move(kept);
  }
  return out;
}

void read_topology(const Json& metadata, JobDraft& draft) {
  const std::string key = text_at(member(metadata, "annotations"), kExclusiveTopology);
  if (!key.empty()) draft.exclusive_topology = key;
}

void drop_metadata(ObjectReader metadata, const std::string& owner, JobDraft& draft) {
  read_topology(metadata.json(), draft);
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

std::string read_processes(ObjectReader& object, const std::string& key) {
  const Json* value = object.take(key);
  if (value == nullptr) return "";
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  if (text == "auto" || text == "gpu") return "auto";
  if (text == "cpu") {
    object.note(key, "'cpu' has no counterpart; set spec.processesPerNode to the number of ranks on each node");
    return "";
  }
  if (!text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos && text[0] != '0')
    return text;
  object.problem(key, "expected a number from 1, auto, gpu or cpu");
  return "";
}

void convert_suspend(ObjectReader& spec, JobDraft& draft) {
  draft.suspend = spec.boolean("suspend");
  if (!draft.suspend.value_or(false) || !member(draft.metadata, "labels").contains(kLabelQueue)) return;
  spec.note("suspend", "not carried over, because the job waits in its queue; set spec.suspend to keep it suspended");
  draft.suspend.reset();
}

void convert_run_policy(ObjectReader policy, JobDraft& draft) {
  draft.clean_pod_policy = policy.text("cleanPodPolicy");
  draft.ttl_seconds_after_finished = policy.integer("ttlSecondsAfterFinished");
  draft.active_deadline_seconds = policy.integer("activeDeadlineSeconds");
  draft.max_restarts = policy.integer("backoffLimit");
  convert_suspend(policy, draft);
  convert_managed_by(policy, "kubeflow.org", draft);
  ObjectReader scheduling = policy.object("schedulingPolicy");
  draft.pending_timeout_seconds = scheduling.integer("scheduleTimeoutSeconds");
  for (const char* key : {"minAvailable", "queue", "minResources", "priorityClass"})
    scheduling.drop(key, kGangsNeedNoField);
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
  if (!draft.exclusive_topology.empty())
    spec["scheduling"]["topology"] = {{"key", draft.exclusive_topology}, {"mode", "Exclusive"}};
  if (draft.pending_timeout_seconds) spec["scheduling"]["pendingTimeoutSeconds"] = *draft.pending_timeout_seconds;
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
