#include "cli/cluster/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "api/codec.h"
#include "cli/cluster/job_view.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/address.h"
#include "operator/core/text.h"
#include "operator/core/workload.h"

namespace oarlock::cli {
namespace {

constexpr size_t kMaxListedPods = 20'000;
constexpr size_t kMaxListedEvents = 2000;

std::string without_kind(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return text;
  const std::string kind = text.substr(0, slash);
  constexpr std::string_view kKinds[] = {"tj", "trainingjob", "trainingjobs", "trainingjob.oarlock.dev",
                                         "trainingjobs.oarlock.dev"};
  const bool is_ours = std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
  return is_ours ? text.substr(slash + 1) : text;
}

std::string checked_name(const std::string& text) {
  std::string name = without_kind(text);
  const bool is_name = !name.empty() && name.size() <= 253 &&
                       name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
  if (!is_name)
    throw CLI::ValidationError("NAME", fmt::format("'{}' is not the name of a TrainingJob", shortened(text)));
  return name;
}

bool is_owned_by(const nlohmann::json& pod, const std::string& uid) {
  const nlohmann::json& owners = elements(member(pod, "metadata"), "ownerReferences");
  return std::any_of(owners.begin(), owners.end(), [&](const auto& owner) { return text_at(owner, "uid") == uid; });
}

}  // namespace

void add_cluster_commands(CLI::App& app, Chosen& chosen) {
  add_submit(app, chosen);
  add_list(app, chosen);
  add_status(app, chosen);
  add_why(app, chosen);
  add_top(app, chosen);
  add_logs(app, chosen);
  add_wait(app, chosen);
  add_suspend(app, chosen);
  add_resume(app, chosen);
  add_delete(app, chosen);
}

void add_output_option(CLI::App& app, OutputFormat& format, const std::vector<std::string>& names) {
  app.add_option_function<std::string>(
         "-o,--output",
         [&format, names](const std::string& text) {
           const auto parsed = parse_output_format(text);
           if (!parsed || std::find(names.begin(), names.end(), text) == names.end())
             throw CLI::ValidationError("--output",
                                        fmt::format("'{}' is not one of {}", shortened(text), fmt::join(names, ", ")));
           format = *parsed;
         },
         fmt::format("{} (default: {})", fmt::join(names, ", "), names.front()))
      ->type_name("FORMAT");
}

void add_name_argument(CLI::App& app, std::string& name) {
  app.add_option_function<std::string>(
         "NAME", [&name](const std::string& text) { name = checked_name(text); }, "name of the TrainingJob")
      ->type_name("")
      ->required();
}

void add_names_argument(CLI::App& app, std::vector<std::string>& names) {
  app.add_option_function<std::vector<std::string>>(
         "NAME",
         [&names](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) names.push_back(checked_name(text));
         },
         "names of TrainingJobs")
      ->type_name("")
      ->required();
}

void add_timeout_option(CLI::App& app, std::optional<std::chrono::milliseconds>& timeout, const std::string& help) {
  app.add_option_function<std::string>(
         "--timeout",
         [&timeout](const std::string& text) {
           timeout = parse_duration(text);
           if (!timeout)
             throw CLI::ValidationError("--timeout",
                                        fmt::format("'{}' is not a duration such as 30s or 2h", shortened(text)));
         },
         help)
      ->type_name("DURATION");
}

std::string qualified_name(const std::string& name) {
  return fmt::format("trainingjob.{}/{}", kGroup, printable(name));
}

Result<LoadedJob> load_job(const Cluster& cluster, const std::string& name) {
  ASSIGN_OR_RETURN(nlohmann::json object, cluster.training_job(name));
  api::TrainingJob job = api::read_training_job(object);
  return LoadedJob{std::move(object), std::move(job)};
}

Result<std::vector<PodView>> list_pods(const Cluster& cluster, const api::TrainingJob& job) {
  std::vector<PodView> pods;
  RETURN_IF_ERROR(cluster.list(kube::pods(),
                               {.namespace_name = job.metadata.namespace_name,
                                .label_selector = fmt::format("{}={}", kLabelJobName, job.metadata.name),
                                .field_selector = ""},
                               [&](const nlohmann::json& object) {
                                 if (!is_owned_by(object, job.metadata.uid)) return true;
                                 if (auto pod = pod_view(object)) pods.push_back(std::move(*pod));
                                 return pods.size() < kMaxListedPods;
                               }));
  std::sort(pods.begin(), pods.end(), [](const PodView& a, const PodView& b) {
    return std::tie(a.attempt, a.node_rank) < std::tie(b.attempt, b.node_rank);
  });
  return pods;
}

ListedEvents list_events(const Cluster& cluster, const std::string& namespace_name, const std::string& kind,
                         const std::string& name, const std::string& uid) {
  ListedEvents out;
  std::string selector = fmt::format("involvedObject.kind={},involvedObject.name={}", kind, name);
  if (!uid.empty()) selector += ",involvedObject.uid=" + uid;
  const Result<void> listed =
      cluster.list(core_events(), {.namespace_name = namespace_name, .label_selector = "", .field_selector = selector},
                   [&](const nlohmann::json& event) {
                     out.events.push_back(event_view(event));
                     return out.events.size() < kMaxListedEvents;
                   });
  if (!listed) out.note = listed.error().message;
  return out;
}

std::optional<int> read_queue_position(const Cluster& cluster, const api::TrainingJob& job) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  constexpr std::chrono::milliseconds kTimeout{5000};
  if (!is_waiting_in_queue(job.status)) return std::nullopt;
  const kube::ApiResult<std::string> text = cluster.read_limited(
      fmt::format("/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues/{}/pendingworkloads?limit=1000",
                  http::percent_encode(job.metadata.namespace_name), http::percent_encode(job.status.queue->name)),
      kMaxBytes, std::min(cluster.timeout(), kTimeout));
  if (!text) return std::nullopt;
  const Result<nlohmann::json> summary = parse_response(*text);
  if (!summary) return std::nullopt;
  for (const nlohmann::json& item : elements(*summary, "items")) {
    if (text_at(member(item, "metadata"), "name") != control::workload_name(job)) continue;
    const auto position = integer_at<int64_t>(item, "positionInClusterQueue", -1);
    return position >= 0 && position < INT_MAX ? std::optional(static_cast<int>(position) + 1) : std::nullopt;
  }
  return std::nullopt;
}

namespace {

struct RequestedTopology {
  std::string mode;
  std::string key;  // of a label of nodes
};

// That of spec.scheduling.topology, or of Kueue's annotations of the template.
std::optional<RequestedTopology> requested_topology(const api::TrainingJob& job) {
  if (const auto& topology = job.spec.scheduling.topology) {
    const char* mode = topology->mode == api::TopologyMode::kPreferred   ? "preferred"
                       : topology->mode == api::TopologyMode::kExclusive ? "exclusive"
                                                                         : "required";
    return RequestedTopology{mode, topology->key};
  }
  const nlohmann::json pod = nlohmann::json::parse(job.spec.pod_template, nullptr, false);
  const nlohmann::json& annotations = member(member(pod, "metadata"), "annotations");
  if (std::string key = text_at(annotations, control::kRequiredTopology); !key.empty())
    return RequestedTopology{"required", std::move(key)};
  if (std::string key = text_at(annotations, control::kPreferredTopology); !key.empty())
    return RequestedTopology{"preferred", std::move(key)};
  return std::nullopt;
}

}  // namespace

std::string read_topology(const Cluster& cluster, const api::TrainingJob& job, const std::vector<PodView>& pods) {
  const std::optional<RequestedTopology> requested = requested_topology(job);
  if (!requested) return "";
  const std::string out = fmt::format("{} domain of {}", requested->mode, control::sanitize_line(requested->key));
  const auto placed = std::ranges::find_if(pods, [](const PodView& pod) { return !pod.node.empty(); });
  if (placed == pods.end()) return out;
  const auto node = cluster.try_get(nodes(), {.namespace_name = "", .name = placed->node});
  const std::string domain =
      node ? text_at(member(member(*node, "metadata"), "labels"), requested->key) : std::string();
  return domain.empty() ? out : fmt::format("{}: {}", out, control::sanitize_line(domain));
}

}  // namespace oarlock::cli
