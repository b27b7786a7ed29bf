// oarlock list, status and why: the jobs of a namespace or of the cluster; one job, its pods and events; and the root
// cause of a failure.
#include <fmt/format.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>

#include "api/codec.h"
#include "cli/cluster/commands.h"
#include "cli/cluster/diagnosis.h"
#include "cli/cluster/job_view.h"
#include "cli/cluster/output.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

constexpr char kListFooter[] = R"(
examples:
  oarlock list
  oarlock list -A -o wide
  oarlock list -l team=vision -o name
)";

struct ListFlags {
  ClusterFlags cluster;
  std::string selector;
  OutputFormat format = OutputFormat::kTable;
};

Result<int> list_jobs(const ListFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  const bool is_document = flags.format == OutputFormat::kJson || flags.format == OutputFormat::kYaml;
  std::vector<api::TrainingJob> jobs;
  nlohmann::json items = nlohmann::json::array();
  std::atomic<size_t> received = 0;
  std::optional<WaitingLine> line(std::in_place, [&] {
    return fmt::format("waiting for {}: {} so far", cluster.config().server, counted(received.load(), "job"));
  });
  RETURN_IF_ERROR(
      cluster.list(training_jobs(),
                   {.namespace_name = cluster.namespace_name(), .label_selector = flags.selector, .field_selector = ""},
                   [&](nlohmann::json object) {
                     ++received;
                     if (is_document) {
                       object["metadata"].erase("managedFields");
                       items.push_back(std::move(object));
                       return true;
                     }
                     // The template and the configuration of the trainer are not shown.
                     if (object["spec"].is_object()) {
                       object["spec"].erase("template");
                       object["spec"].erase("trainer");
                     }
                     jobs.push_back(api::read_training_job(object));
                     return true;
                   }));
  line.reset();
  if (is_document) {
    const nlohmann::json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", std::move(items)}};
    return write_standard_output(document_text(list, flags.format)).map([] { return 0; });
  }
  std::string text;
  if (flags.format == OutputFormat::kName) {
    for (const api::TrainingJob& job : jobs) text += qualified_name(job.metadata.name) + "\n";
  } else if (jobs.empty()) {
    print_error(cluster.namespace_name().empty()
                    ? "there are no TrainingJobs in this cluster\n"
                    : fmt::format("there are no TrainingJobs in namespace {}; -A lists those of all namespaces\n",
                                  cluster.namespace_name()));
  } else {
    text = job_table(jobs, flags.format == OutputFormat::kWide, cluster.namespace_name().empty(), RealClock().now())
               .to_text(detect_style());
  }
  return write_standard_output(text).map([] { return 0; });
}

}  // namespace

void add_list(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<ListFlags>();
  CLI::App* list_app = app.add_subcommand("list", "List TrainingJobs of a cluster, with their state and progress.");
  set_usage(*list_app, "oarlock list [-A] [-l SELECTOR] [-o FORMAT] [OPTIONS]");
  list_app->footer(kListFooter);
  list_app->add_option("-l,--selector", flags->selector, "labels of the jobs, such as team=vision")
      ->type_name("SELECTOR");
  add_output_option(*list_app, flags->format, {"table", "wide", "json", "yaml", "name"});
  add_cluster_options(*list_app, flags->cluster, /*all_namespaces=*/true);
  list_app->callback([flags, &chosen] { chosen = [flags] { return list_jobs(*flags); }; });
}

// ---- oarlock status and oarlock why ------------------------------------------------------------------------------

namespace {

constexpr char kStatusFooter[] = R"(
examples:
  oarlock status bert
  oarlock status bert -n team -o wide
  oarlock status bert -o json | jq .status.progress
)";

constexpr char kWhyFooter[] = R"(
The cause is that of the last failure, or what keeps the job from starting. Events and nodes are used where the
user may read them.

examples:
  oarlock why bert
  oarlock why bert -o json | jq -r .cause
)";

struct JobFlags {
  ClusterFlags cluster;
  std::string name;
  OutputFormat format = OutputFormat::kTable;
};

Result<int> show_status(const JobFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  ASSIGN_OR_RETURN(LoadedJob loaded, load_job(cluster, flags.name));
  if (flags.format == OutputFormat::kName)
    return write_standard_output(qualified_name(flags.name) + "\n").map([] { return 0; });
  if (flags.format == OutputFormat::kJson || flags.format == OutputFormat::kYaml) {
    loaded.object["metadata"].erase("managedFields");
    return write_standard_output(document_text(loaded.object, flags.format)).map([] { return 0; });
  }
  StatusInput input{
      .job = loaded.job, .pods = {}, .events = {}, .notes = {}, .finalizers = holding_finalizers(loaded.object)};
  if (Result<std::vector<PodView>> pods = list_pods(cluster, input.job)) {
    for (PodView& pod : *pods) {
      if (pod.attempt == input.job.status.attempt) input.pods.push_back(std::move(pod));
    }
  } else {
    input.notes.push_back(pods.error().message);
  }
  ListedEvents listed =
      list_events(cluster, input.job.metadata.namespace_name, kKind, flags.name, input.job.metadata.uid);
  input.events = std::move(listed.events);
  if (!listed.note.empty()) input.notes.push_back(listed.note);
  input.queue_position = read_queue_position(cluster, input.job);
  input.topology = read_topology(cluster, input.job, input.pods);
  const std::string text = status_text(input, flags.format == OutputFormat::kWide, detect_style(), RealClock().now());
  return write_standard_output(text).map([] { return 0; });
}

// Reads a node. Returns nullopt and adds a note if the user may not.
std::optional<NodeView> read_node(const Cluster& cluster, const std::string& name, std::vector<std::string>& notes) {
  const kube::ApiResult<nlohmann::json> node = cluster.try_get(nodes(), {.namespace_name = "", .name = name});
  if (node) return node_view(*node);
  if (node.error().kind == kube::ApiErrorKind::kNotFound) {
    NodeView gone;
    gone.name = name;
    gone.exists = false;
    return gone;
  }
  notes.push_back(
      to_user_error(
          node.error(),
          {.verb = "get", .resource = nodes(), .key = {.namespace_name = "", .name = name}, .subresource = ""},
          cluster.config())
          .message);
  return std::nullopt;
}

DiagnosisInput read_diagnosis_input(const Cluster& cluster, const LoadedJob& loaded, std::vector<std::string>& notes) {
  const api::TrainingJob& job = loaded.job;
  DiagnosisInput input;
  input.job = job;
  input.finalizers = holding_finalizers(loaded.object);
  input.now = RealClock().now();
  if (Result<std::vector<PodView>> pods = list_pods(cluster, job)) {
    input.pods = std::move(*pods);
  } else {
    notes.push_back(pods.error().message);
  }
  const auto add_events = [&](const std::string& namespace_name, const std::string& kind, const std::string& name,
                              const std::string& uid) {
    ListedEvents listed = list_events(cluster, namespace_name, kind, name, uid);
    input.events.insert(input.events.end(), listed.events.begin(), listed.events.end());
    if (!listed.note.empty()) notes.push_back(listed.note);
    return listed.note.empty();
  };
  input.queue_position = read_queue_position(cluster, job);
  const std::string& namespace_name = job.metadata.namespace_name;
  // After the first refusal, the others would be refused as well.
  if (add_events(namespace_name, kKind, job.metadata.name, job.metadata.uid)) {
    for (const std::string& pod : pods_of_interest(job, input.pods)) add_events(namespace_name, "Pod", pod, "");
  }
  for (const std::string& node : nodes_of_interest(job, input.pods)) {
    std::optional<NodeView> view = read_node(cluster, node, notes);
    if (!view) break;
    input.nodes.push_back(std::move(*view));
    // Events about nodes are in this namespace.
    ListedEvents listed = list_events(cluster, "default", "Node", node, "");
    input.events.insert(input.events.end(), listed.events.begin(), listed.events.end());
  }
  return input;
}

Result<int> explain_failure(const JobFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  ASSIGN_OR_RETURN(const LoadedJob loaded, load_job(cluster, flags.name));
  std::vector<std::string> notes;
  const DiagnosisInput input = read_diagnosis_input(cluster, loaded, notes);
  const Diagnosis found = diagnose(input);
  if (flags.format == OutputFormat::kJson || flags.format == OutputFormat::kYaml) {
    nlohmann::json document = diagnosis_document(flags.name, found);
    if (!notes.empty()) document["notes"] = notes;
    return write_standard_output(document_text(document, flags.format)).map([] { return 0; });
  }
  for (const std::string& text : notes) print_error(fmt::format("oarlock why: note: {}\n", text));
  return write_standard_output(diagnosis_text(found, detect_style(), input.now)).map([] { return 0; });
}

}  // namespace

void add_status(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<JobFlags>();
  CLI::App* status_app = app.add_subcommand(
      "status", "Show the state, the progress, the checkpoints, the pods and the events of a TrainingJob.");
  set_usage(*status_app, "oarlock status NAME [-o FORMAT] [OPTIONS]");
  status_app->footer(kStatusFooter);
  add_name_argument(*status_app, flags->name);
  add_output_option(*status_app, flags->format, {"table", "wide", "json", "yaml", "name"});
  add_cluster_options(*status_app, flags->cluster);
  status_app->callback([flags, &chosen] { chosen = [flags] { return show_status(*flags); }; });
}

void add_why(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<JobFlags>();
  CLI::App* why_app = app.add_subcommand(
      "why",
      "Explain why a TrainingJob failed, restarted or does not start: the root cause, its place, its cost, and\n"
      "remedies.");
  set_usage(*why_app, "oarlock why NAME [-o FORMAT] [OPTIONS]");
  why_app->footer(kWhyFooter);
  add_name_argument(*why_app, flags->name);
  add_output_option(*why_app, flags->format, {"table", "json", "yaml"});
  add_cluster_options(*why_app, flags->cluster);
  why_app->callback([flags, &chosen] { chosen = [flags] { return explain_failure(*flags); }; });
}

}  // namespace oarlock::cli
