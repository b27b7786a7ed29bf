#include "cli/cluster/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "api/codec.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"

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

}  // namespace oarlock::cli
