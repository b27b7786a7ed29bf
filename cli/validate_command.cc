// oarlock validate: reports all problems of TrainingJobs in files, without a cluster.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/job_file.h"
#include "cli/pod_schema/pod_schema.h"
#include "cli/trainer_check.h"
#include "common/standard_streams.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

std::string description() {
  return fmt::format(
      "Check TrainingJobs by the rules of the API server, spec.template by the fields of a pod in Kubernetes {},\n"
      "and spec.trainer by oarlock-trainer if that is next to this program or in PATH. Prints one line per problem,\n"
      "file:line:column: path: message, for the first 20 problems of each file.",
      pod_schema_version());
}

constexpr char kValidateFooter[] = R"(
exit codes: 0: all are valid; 66: a file cannot be read; 78: there are problems.

examples:
  oarlock validate trainingjob.yaml
  oarlock validate -f manifests/examples/fashion-mnist.yaml -f other.yaml
  oarlock convert -f pytorchjob.yaml | oarlock validate -f -
)";

struct ValidateFlags {
  std::vector<std::string> files;
  std::vector<std::string> arguments;  // likewise files
  bool any_pod_fields = false;
};

struct LoadedFile {
  std::string path;
  std::string name;  // in messages
  Result<std::vector<api::TrainingJob>> jobs;
};

void note(const std::string& file, const std::string& text) {
  print_error(fmt::format("{}: note: {}\n", printable(file), text));
}

// Runs oarlock-trainer to check one job. The exit code is 0 if the job does not use oarlock-trainer.
Result<launch::GroupResult> check_trainer(TrainerCheck& trainer, const std::string& path, const std::string& name,
                                          const api::TrainingJob& job, bool is_only_job) {
  if (!TrainerCheck::applies_to(job)) return launch::GroupResult{};
  if (!trainer.program()) {
    note(name, "spec.trainer is not checked: " + trainer.program().error().message);
    return launch::GroupResult{};
  }
  return trainer.run(path, job, is_only_job, {}, launch::Stdio::kOutput);
}

Result<int> validate(const ValidateFlags& flags) {
  // This precedes SignalSource::take(), so that signals end the program while it reads.
  const TemplateCheck check = flags.any_pod_fields ? TemplateCheck::kNone : TemplateCheck::kPodSchema;
  if (flags.files.empty() && flags.arguments.empty())
    return fail(ExitCode::kUsage,
                "missing file; give it as oarlock validate FILE, or with -f FILE (- for standard input)");
  std::vector<std::string> given = flags.files;
  given.insert(given.end(), flags.arguments.begin(), flags.arguments.end());
  if (std::ranges::count(given, "-") > 1) return fail(ExitCode::kUsage, "standard input (-) is given twice");
  std::vector<InputFile> inputs;  // exist while the trainer reads them
  std::vector<LoadedFile> files;
  for (const std::string& file : given) {
    ASSIGN_OR_RETURN(InputFile input, InputFile::open(file));
    files.push_back({input.path(), input.name(), load_jobs(input.path(), check, input.name())});
    inputs.push_back(std::move(input));
  }
  ASSIGN_OR_RETURN(const launch::SignalSource signals, launch::SignalSource::take());
  const RealClock clock;
  launch::Console console("oarlock validate");
  TrainerCheck trainer(signals, clock, console);
  int exit_code = 0;
  for (const auto& [path, name, jobs] : files) {
    if (!jobs) {
      print_error(jobs.error().message + "\n");
      exit_code = std::max(exit_code, to_int(jobs.error().code));
      continue;
    }
    for (const api::TrainingJob& job : *jobs) {
      ASSIGN_OR_RETURN(const launch::GroupResult checked, check_trainer(trainer, path, name, job, jobs->size() == 1));
      exit_code = std::max(exit_code, checked.exit_code);
      if (checked.interrupted_by != 0) return exit_code;
      if (checked.exit_code != 0) continue;
      // Flush before the next child writes to the same file.
      RETURN_IF_ERROR(
          write_standard_output(fmt::format("{}: TrainingJob {} is valid: {} x {} ranks\n", printable(name),
                                            job.metadata.name, job.spec.nodes, job.spec.processes_per_node)));
    }
  }
  return exit_code;
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
  validate_app->add_flag(
      "--any-pod-fields", flags->any_pod_fields,
      "do not check the fields of spec.template: for a cluster that is newer than Kubernetes " + pod_schema_version());
  validate_app->callback([flags, &chosen] { chosen = [flags] { return validate(*flags); }; });
}

}  // namespace oarlock::cli
