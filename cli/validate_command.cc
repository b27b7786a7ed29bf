// oarlock validate and render: the problems of TrainingJobs in files, and the objects that the operator would create
// for them, without a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "api/profile.h"
#include "api/validate.h"
#include "cli/command.h"
#include "cli/job_check.h"
#include "cli/job_file.h"
#include "cli/pod_schema/pod_schema.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "operator/core/desired.h"
#include "yaml/object_list.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

namespace oarlock::cli {
namespace {

std::string description() {
  return fmt::format(
      "Check TrainingJobs by the rules of the API server, spec.template by the fields of a pod in Kubernetes {},\n"
      "and spec.trainer by oarlock-trainer if that is next to this program or in PATH and the image is\n"
      "oarlock/trainer. Prints one line per problem, file:line:column: path: message, for about 20 problems of each\n"
      "file. If a file has more than {} different values of spec.trainer, the others are not checked.",
      pod_schema_version(), kMaxTrainerChecks);
}

constexpr char kValidateFooter[] = R"(
exit codes: 0: all are valid; 64: a file has too many values of spec.trainer; 66: a file cannot be read; 78: there are
problems; 128 + N: signal N ended oarlock-trainer.

examples:
  oarlock validate trainingjob.yaml
  oarlock validate -f manifests/examples/fashion-mnist.yaml -f other.yaml
  oarlock convert -f pytorchjob.yaml | oarlock validate -f -
)";

struct ValidateFlags {
  std::vector<std::string> files;
  std::vector<std::string> arguments;  // likewise files
  bool any_pod_fields = false;
  bool any_trainer_keys = false;
  std::string trainer;
};

Result<int> validate(const ValidateFlags& flags) {
  std::vector<std::string> files = flags.files;
  files.insert(files.end(), flags.arguments.begin(), flags.arguments.end());
  const JobCheckOptions options{.command = "validate",
                                .any_pod_fields = flags.any_pod_fields,
                                .any_trainer_keys = flags.any_trainer_keys,
                                .trainer = flags.trainer};
  const auto print = [](const InputFile& file, const api::TrainingJob& job) {
    return write_standard_output(fmt::format("{}: TrainingJob {} is valid: {} x {}\n", printable(file.name()),
                                             job.metadata.name, counted(job.spec.nodes, "node"),
                                             counted(job.spec.processes_per_node, "rank")));
  };
  const auto print_profile = [](const InputFile& file, const api::AppliedProfile& profile) {
    return write_standard_output(
        fmt::format("{}: {} {} is valid\n", printable(file.name()), api::kProfileKind, profile.name));
  };
  ASSIGN_OR_RETURN(const JobCheckResult checked, check_jobs(files, options, print, print_profile));
  return std::max(checked.exit_code, checked.no_result);
}

}  // namespace

void add_validate(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<ValidateFlags>();
  CLI::App* validate_app = app.add_subcommand("validate", description());
  set_usage(*validate_app, "oarlock validate FILE... [OPTIONS]");
  validate_app->footer(kValidateFooter);
  validate_app->add_option("-f,--file", flags->files, "files with TrainingJobs, YAML or JSON; - is standard input")
      ->type_name("FILE");
  validate_app->add_option("arguments", flags->arguments, "more files")->type_name("FILE");
  validate_app->add_flag("--any-pod-fields", flags->any_pod_fields,
                         "do not check the fields and values of pods: for a cluster that is newer than Kubernetes " +
                             pod_schema_version());
  validate_app->add_flag("--any-trainer-keys", flags->any_trainer_keys,
                         "do not check spec.trainer: for an oarlock-trainer with other tasks or of another version");
  validate_app
      ->add_option("--trainer", flags->trainer,
                   "check spec.trainer with this program in the place of oarlock-trainer: one with other tasks")
      ->type_name("PROGRAM");
  validate_app->callback([flags, &chosen] { chosen = [flags] { return validate(*flags); }; });
}

// ---- oarlock render ----------------------------------------------------------------------------------------------

namespace {

using Json = nlohmann::json;

constexpr char kRenderDescription[] =
    "Print the Service, the PersistentVolumeClaim (for spec.checkpoints.size) and the pods that the operator would\n"
    "create for a TrainingJob. The uid is shown as zeros unless the file has one, since the API server assigns it.";

constexpr char kRenderFooter[] = R"(
exit codes: 0; 66: the file cannot be read; 78: the file is invalid.

examples:
  oarlock render trainingjob.yaml
  oarlock render trainingjob.yaml --profile profile.yaml
  oarlock render -f trainingjob.yaml -o json | jq '.items[1].spec.containers[0].env'
)";

struct RenderFlags {
  std::string file;
  std::string profile_file;
  std::string argument;  // likewise a file
  std::string name;
  std::string output = "yaml";
  int attempt = 0;
  control::PodDefaults defaults;
  std::string launcher_image = control::default_launcher_image();
};

// Returns the profile of the job: that of its namespace, or otherwise one of another namespace, such as the operator's.
const api::AppliedProfile* find_profile(const api::TrainingJob& job, const std::vector<api::AppliedProfile>& profiles) {
  const api::AppliedProfile* out = nullptr;
  for (const api::AppliedProfile& profile : profiles) {
    if (profile.name != api::profile_name(job.spec)) continue;
    if (profile.namespace_name == job.metadata.namespace_name) return &profile;
    if (out == nullptr) out = &profile;
  }
  return out;
}

bool is_document_of(const Json& object, const api::TrainingJob& job) {
  const Json& metadata = member(object, "metadata");
  return text_at(object, "kind") == kKind && text_at(metadata, "name") == job.metadata.name &&
         text_at(metadata, "namespace") == job.metadata.namespace_name;
}

// Returns the job of the documents, merged with the profile of its status, or as it is if it has none.
Result<api::TrainingJob> with_own_profile(const api::TrainingJob& job, const std::vector<yaml::Node>& documents) {
  for (const auto& [document, path] : yaml::list_objects(documents)) {
    const Json object = document.to_json();
    if (!is_document_of(object, job)) continue;
    if (!text_at(member(member(object, "status"), "profile"), "spec").empty())
      return api::training_job_from_json(object);
  }
  if (job.spec.profile && !job.spec.profile->empty())
    print_error(fmt::format("oarlock render: note: {}: without the values of its profile '{}'; add --profile FILE\n",
                            job.metadata.name, shortened(*job.spec.profile)));
  return job;
}

void note_problems_of_merge(const api::TrainingJob& merged, const api::AppliedProfile& profile) {
  const auto note = [&](const std::string& text) {
    print_error(fmt::format("oarlock render: note: {}: {}\n", merged.metadata.name, printable(text)));
  };
  const std::string& own = merged.metadata.namespace_name;
  if (!own.empty() && !profile.namespace_name.empty() && own != profile.namespace_name)
    note(fmt::format("with the {} {} of namespace {}, which applies only if the operator runs there", api::kProfileKind,
                     profile.name, profile.namespace_name));
  const std::string file = fmt::format("merged {}", merged.metadata.name);
  const Result<std::vector<yaml::Node>> documents = yaml::parse_all(yaml::to_yaml(api::to_json(merged)), file);
  if (!documents) return note(documents.error().message);
  yaml::Problems problems(file);
  check_pods(documents->front(), &merged, problems);
  if (!problems.empty())
    print_error(fmt::format("oarlock render: note: {}: Kubernetes rejects the pods after the merge with {} {}:\n{}\n",
                            merged.metadata.name, api::kProfileKind, profile.name, problems.to_error().message));
}

// Returns the job of the documents, merged with that of the profiles that the operator would choose.
Result<api::TrainingJob> with_profile(const api::TrainingJob& job, const std::vector<yaml::Node>& documents,
                                      const std::vector<api::AppliedProfile>& profiles, const std::string& file) {
  const std::string name = api::profile_name(job.spec);
  const api::AppliedProfile* profile = find_profile(job, profiles);
  if (profile == nullptr) {
    if (!job.spec.profile || name.empty()) return job;
    return fail(ExitCode::kConfig, fmt::format("{}: there is no {} '{}', which spec.profile of {} names", file,
                                               api::kProfileKind, shortened(name), job.metadata.name));
  }
  for (const auto& [document, path] : yaml::list_objects(documents)) {
    Json object = document.to_json();
    if (!is_document_of(object, job)) continue;
    object["status"] = {{"profile", {{"name", name}, {"spec", profile->spec}}}};
    ASSIGN_OR_RETURN(api::TrainingJob merged, api::training_job_from_json(object));
    if (const auto problems = api::validate(merged); !problems.empty())
      return fail(ExitCode::kConfig,
                  fmt::format("{}: {}: {}, after the merge with {} {}", job.metadata.name, problems.front().path,
                              problems.front().message, api::kProfileKind, name));
    note_problems_of_merge(merged, *profile);
    return merged;
  }
  return job;
}

// Merges the jobs with the profiles of the file that --profile names, or otherwise with those of their status.
Result<void> apply_profiles(const RenderFlags& flags, const std::vector<yaml::Node>& documents,
                            std::vector<api::TrainingJob>& jobs) {
  if (flags.profile_file.empty()) {
    for (api::TrainingJob& job : jobs) {
      ASSIGN_OR_RETURN(job, with_own_profile(job, documents));
    }
    return {};
  }
  ASSIGN_OR_RETURN(const InputFile input, InputFile::open(flags.profile_file));
  ASSIGN_OR_RETURN(JobFile read, read_jobs(input, TemplateCheck::kNone));
  if (read.problems) return tl::make_unexpected(*std::move(read.problems));
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> profiles, read_documents(input));
  note_template_problems(profiles, input.name(), "render");
  for (api::TrainingJob& job : jobs) {
    ASSIGN_OR_RETURN(job, with_profile(job, documents, read.profiles, input.name()));
  }
  return {};
}

Result<int> render(const RenderFlags& flags) {
  if (flags.file.empty() == flags.argument.empty())
    return fail(ExitCode::kUsage, "give one file, as oarlock render FILE, or with -f FILE (- for standard input)");
  ASSIGN_OR_RETURN(const InputFile input, InputFile::open(flags.file.empty() ? flags.argument : flags.file));
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> documents, read_documents(input));
  ASSIGN_OR_RETURN(std::vector<api::TrainingJob> jobs, jobs_of(documents, input.name()));
  if (!flags.name.empty()) {
    ASSIGN_OR_RETURN(api::TrainingJob job, choose_job(std::move(jobs), flags.name, input.name()));
    jobs = {std::move(job)};
  }
  note_template_problems(documents, input.name(), "render");
  RETURN_IF_ERROR(apply_profiles(flags, documents, jobs));
  Json items = Json::array();
  for (api::TrainingJob& job : jobs) {
    if (job.metadata.uid.empty()) job.metadata.uid = "00000000-0000-0000-0000-000000000000";
    items.push_back(control::desired_service(job));
    if (control::needs_new_claim(job)) items.push_back(control::desired_claim(job));
    job = control::with_launcher_decision(job, flags.launcher_image);
    const control::PodFactory factory(job, flags.attempt, flags.defaults, control::placeholder_secret());
    for (int node = 0; node < job.spec.nodes; ++node) items.push_back(factory.pod(node));
    for (const std::string& name : control::overridden_variables(job)) {
      print_error(fmt::format("oarlock render: note: {}: the template's value of {} is replaced by the operator's\n",
                              job.metadata.name, name));
    }
  }
  std::string text;
  if (flags.output == "json") {
    const Json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}};
    text = list.dump(2) + "\n";
    if (!is_printable(list.dump())) text = list.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
  } else {
    for (const Json& item : items) text += (text.empty() ? "" : "---\n") + yaml::to_yaml(item);
  }
  return write_standard_output(text).map([] { return 0; });
}

}  // namespace

void add_render(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<RenderFlags>();
  CLI::App* render_app = app.add_subcommand("render", kRenderDescription);
  set_usage(*render_app, "oarlock render FILE [OPTIONS]");
  render_app->footer(kRenderFooter);
  render_app->add_option("-f,--file", flags->file, "the TrainingJobs, YAML or JSON; - is standard input")
      ->type_name("FILE");
  render_app->add_option("argument", flags->argument, "the same")->type_name("FILE");
  render_app->add_option("--name", flags->name, "only this TrainingJob")->type_name("NAME");
  render_app
      ->add_option("--profile", flags->profile_file,
                   "merge the TrainingProfiles of this file into the jobs: the one that spec.profile names, or default")
      ->type_name("FILE");
  render_app->add_option("-o,--output", flags->output, "yaml or json")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"yaml", "json"}));
  render_app->add_option("--attempt", flags->attempt, "number of the attempt: the restarts before it")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, 9999));
  render_app
      ->add_option(
          "--trainer-image", flags->defaults.image,
          "the operator's --trainer-image: for jobs that set neither spec.image nor an image in their template")
      ->type_name("IMAGE")
      ->capture_default_str();
  render_app
      ->add_option("--launcher-image", flags->launcher_image,
                   "the operator's --launcher-image: for the launcher in the pods of jobs with spec.launcher Auto")
      ->type_name("IMAGE")
      ->capture_default_str();
  render_app->callback([flags, &chosen] { chosen = [flags] { return render(*flags); }; });
}

}  // namespace oarlock::cli
