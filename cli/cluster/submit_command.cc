// oarlock submit: validates TrainingJobs and creates them in the cluster.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/cluster/commands.h"
#include "cli/cluster/objects.h"
#include "cli/cluster/wait_for_phase.h"
#include "cli/job_check.h"
#include "cli/job_file.h"
#include "cli/pod_schema/pod_schema.h"
#include "common/clock.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "yaml/object_list.h"
#include "yaml/reader.h"

namespace oarlock::cli {
namespace {

constexpr char kSubmitFooter[] = R"(
Nothing is created if a file has a problem. Documents of other kinds are left to kubectl.

exit codes: 0; 1: with --wait, a job failed; 66: a file cannot be read; 73: a job of this name exists; 75: the time of
--timeout is over; 78: a file is invalid, or the API server rejects a job.

examples:
  oarlock submit -f trainingjob.yaml
  oarlock submit trainingjob.yaml --wait --timeout 2h
  oarlock submit -f trainingjob.yaml --dry-run=server
  oarlock submit -f trainingjob.yaml --apply
  oarlock convert -f pytorchjob.yaml | oarlock submit -f -
)";

constexpr char kFieldManager[] = "oarlock-cli";

struct SubmitFlags {
  ClusterFlags cluster;
  std::vector<std::string> files;
  std::vector<std::string> arguments;  // likewise files
  std::string dry_run;
  bool applies = false;
  bool any_pod_fields = false;
  bool any_trainer_keys = false;
  bool waits = false;
  std::optional<std::chrono::milliseconds> timeout;
  OutputFormat format = OutputFormat::kTable;
};

// A TrainingJob as the file has it. The fields of the template that this program does not know are kept.
struct Document {
  std::string file;
  std::string name;
  std::string namespace_name;  // "": that of the connection
  nlohmann::json object;
};

bool is_training_job(const nlohmann::json& object) {
  return text_at(object, "kind") == kKind && text_at(object, "apiVersion") == kApiVersion;
}

// Adds the TrainingJobs of a file, in the namespace of their metadata or of the flag, if any.
// REQUIRES: read_jobs() finds no problem in the file.
Result<void> add_documents(const InputFile& input, const std::string& namespace_flag, std::vector<Document>& out) {
  const std::string& file = input.name();
  ASSIGN_OR_RETURN(const std::string text, read_file(input.path(), yaml::limits::kFileBytes + 1));
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> nodes, yaml::parse_all(text, file));
  for (const auto& [node, path] : yaml::list_objects(nodes)) {
    nlohmann::json object = node.to_json();
    const std::string name = text_at(member(object, "metadata"), "name");
    if (!is_training_job(object)) {
      print_error(fmt::format("oarlock submit: note: {}:{}: {} '{}' is not created; use kubectl apply -f\n", file,
                              node.mark().line, shortened(text_at(object, "kind")), shortened(name)));
      continue;
    }
    std::string namespace_name = text_at(member(object, "metadata"), "namespace");
    if (!namespace_flag.empty() && !namespace_name.empty() && namespace_name != namespace_flag) {
      return fail(ExitCode::kUsage,
                  fmt::format("{}:{}: metadata.namespace is {}, and --namespace is {}; leave one of them out",
                              printable(file), node.mark().line, shortened(namespace_name), shortened(namespace_flag)));
    }
    if (namespace_name.empty()) namespace_name = namespace_flag;
    object = without_server_fields(std::move(object));
    out.push_back({file, name, namespace_name, std::move(object)});
  }
  return {};
}

std::string query_of(const SubmitFlags& flags) {
  std::string query = fmt::format("?fieldManager={}&fieldValidation=Strict", kFieldManager);
  // Without force, a field that `oarlock submit` created belongs to another manager, and could not be changed.
  if (flags.applies) query += "&force=true";
  if (!flags.dry_run.empty()) query += "&dryRun=All";
  return query;
}

http::Request submit_request(const Document& document, const SubmitFlags& flags) {
  const kube::ObjectKey key{.namespace_name = document.namespace_name, .name = document.name};
  http::Request request;
  request.body = document.object.dump();
  if (flags.applies) {
    request.method = "PATCH";
    request.target = kube::get_request(training_jobs(), key).target;
    request.content_type = "application/apply-patch+yaml";  // JSON is YAML
  } else {
    request.method = "POST";
    request.target =
        kube::list_request(training_jobs(),
                           {.namespace_name = document.namespace_name, .label_selector = "", .field_selector = ""}, {})
            .target;
    request.content_type = "application/json";
  }
  request.target += query_of(flags);
  return request;
}

Error with_remedy(Error error, const Document& document) {
  if (error.code == ExitCode::kCantCreate) {
    error.message = fmt::format(
        "{} already exists in namespace {}: delete it first with oarlock delete, give the new job another name, or "
        "change the existing one with --apply",
        qualified_name(document.name), document.namespace_name);
  }
  error.message = fmt::format("{}: {}", printable(document.file), error.message);
  return error;
}

Result<int> submit(const SubmitFlags& flags) {
  if (flags.waits && !flags.dry_run.empty())
    return fail(ExitCode::kUsage, "--wait has no effect with --dry-run; leave one of them out");
  std::vector<std::string> files = flags.files;
  files.insert(files.end(), flags.arguments.begin(), flags.arguments.end());
  const JobCheckOptions options{
      .command = "submit", .any_pod_fields = flags.any_pod_fields, .any_trainer_keys = flags.any_trainer_keys};
  // This precedes the connection, so that a file is checked completely without a cluster.
  ASSIGN_OR_RETURN(const JobCheckResult checked,
                   check_jobs(
                       files, options, [](const auto&, const auto&) { return Result<void>(); },
                       [](const auto&, const auto&) { return Result<void>(); }));
  if (checked.exit_code != 0) return checked.exit_code;
  std::vector<Document> documents;
  for (const InputFile& file : checked.files)
    RETURN_IF_ERROR(add_documents(file, flags.cluster.namespace_name, documents));
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  for (Document& document : documents) {
    if (document.namespace_name.empty()) document.namespace_name = cluster.namespace_name();
    document.object["metadata"]["namespace"] = document.namespace_name;
  }

  nlohmann::json created = nlohmann::json::array();
  for (const Document& document : documents) {
    const Subject subject{.verb = flags.applies ? "patch" : "create",
                          .resource = training_jobs(),
                          .key = {.namespace_name = document.namespace_name, .name = document.name},
                          .subresource = ""};
    Result<nlohmann::json> object = cluster.send(submit_request(document, flags), subject);
    if (!object) return tl::make_unexpected(with_remedy(object.error(), document));
    if (flags.format == OutputFormat::kTable) {
      RETURN_IF_ERROR(write_standard_output(fmt::format("{} {}{}\n", qualified_name(document.name),
                                                        flags.applies ? "applied" : "created",
                                                        flags.dry_run.empty() ? "" : " (server dry run)")));
    } else if (flags.format == OutputFormat::kName) {
      RETURN_IF_ERROR(write_standard_output(qualified_name(document.name) + "\n"));
    } else {
      (*object)["metadata"].erase("managedFields");
      created.push_back(std::move(*object));
    }
  }
  if (!created.empty()) {
    const nlohmann::json shown = created.size() == 1
                                     ? created.front()
                                     : nlohmann::json{{"apiVersion", "v1"}, {"kind", "List"}, {"items", created}};
    RETURN_IF_ERROR(write_standard_output(document_text(shown, flags.format)));
  }
  int exit_code = 0;
  for (const Document& document : documents) {
    if (!flags.waits) break;
    ClusterFlags in_namespace = flags.cluster;
    in_namespace.namespace_name = document.namespace_name;
    ASSIGN_OR_RETURN(const Cluster place, Cluster::connect(in_namespace));
    ASSIGN_OR_RETURN(const int waited,
                     wait_for_goal(place, document.name, WaitGoal::kComplete, flags.timeout, "oarlock submit"));
    if (exit_code == 0) exit_code = waited;
  }
  return exit_code;
}

}  // namespace

void add_submit(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* submit_app =
      app.add_subcommand("submit", "Check TrainingJobs as 'oarlock validate' does, and create them in a cluster.");
  set_usage(*submit_app, "oarlock submit FILE... [OPTIONS]");
  submit_app->footer(kSubmitFooter);
  submit_app->add_option("-f,--file", flags->files, "files with TrainingJobs, YAML or JSON; - is standard input")
      ->type_name("FILE");
  submit_app->add_option("arguments", flags->arguments, "more files")->type_name("FILE");
  submit_app->add_option("--dry-run", flags->dry_run, "server: let the API server check the jobs, but store nothing")
      ->type_name("WHERE")
      ->check(CLI::IsMember({"server"}));
  submit_app->add_flag("--apply", flags->applies, "change a job that exists (server-side apply), instead of failing");
  submit_app->add_flag("--any-pod-fields", flags->any_pod_fields,
                       "do not check the fields and values of pods: for a cluster that is newer than Kubernetes " +
                           pod_schema_version());
  submit_app->add_flag("--any-trainer-keys", flags->any_trainer_keys,
                       "do not check spec.trainer: for an image that is newer than oarlock-trainer on this machine");
  submit_app->add_flag("--wait", flags->waits, "wait until the jobs are complete");
  add_timeout_option(*submit_app, flags->timeout, "longest wait for each job (default: unlimited)");
  add_output_option(*submit_app, flags->format, {"table", "json", "yaml", "name"});
  add_cluster_options(*submit_app, flags->cluster);
  submit_app->callback([flags, &chosen] { chosen = [flags] { return submit(*flags); }; });
}

}  // namespace oarlock::cli
