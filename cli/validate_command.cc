// oarlock validate: everything that is wrong with TrainingJobs in files, without a cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/job_file.h"
#include "cli/launch/console.h"
#include "cli/launch/group.h"
#include "cli/run/local_job.h"
#include "cli/run/programs.h"
#include "cli/usage.h"

namespace oarlock::cli {
namespace {

constexpr char kDescription[] =
    "Check TrainingJobs by the rules of the API server, and spec.trainer by oarlock-trainer where that is\n"
    "beside this program or in PATH. Every problem is one line: file:line:column: path: what is wrong.";

constexpr char kFooter[] = R"(
exit codes: 0: all are valid; 66: a file cannot be read; 78: there are problems.

examples:
  oarlock validate -f trainingjob.yaml
  oarlock validate -f manifests/examples/fashion-mnist.yaml -f other.yaml
)";

struct ValidateFlags {
  std::vector<std::string> files;
};

// Only the trainer knows its tasks and their options. It judges the file as a whole, so that its lines are the user's.
class TrainerCheck {
 public:
  TrainerCheck(const launch::SignalSource& signals, const Clock& clock)
      : signals_(signals), clock_(clock), console_("oarlock validate") {
    const auto it = environment_.find("PATH");
    program_ = run::find_program({"oarlock-trainer"}, run::own_folder(), it == environment_.end() ? "" : it->second);
  }

  // 0: the configuration is valid, or is not the trainer's to judge.
  Result<int> check(const std::string& file, const std::vector<api::TrainingJob>& jobs) {
    if (jobs.size() != 1) {
      note(file, "spec.trainer is checked in files with one TrainingJob only");
      return 0;
    }
    if (jobs.front().spec.trainer.empty() || !run::runs_default_command(jobs.front())) return 0;
    if (!program_) {
      note(file, "spec.trainer is not checked: " + program_.error().message);
      return 0;
    }
    launch::Command command{*program_, environment_};
    command.argv.insert(command.argv.end(), {"--check", "--config", file});
    const Result<launch::Verdict> verdict =
        launch::run_group({{std::move(command), "oarlock-trainer", ""}},
                          {std::chrono::seconds(5), launch::Stdio::kOutput}, signals_, clock_, console_);
    if (!verdict) return tl::make_unexpected(verdict.error());
    return verdict->exit_code;
  }

 private:
  static void note(const std::string& file, const std::string& text) {
    fmt::print(stderr, "{}: note: {}\n", file, text);
  }

  const launch::SignalSource& signals_;
  const Clock& clock_;
  launch::Console console_;
  launch::Environment environment_ = launch::environment_of(environ);
  Result<std::vector<std::string>> program_;
};

Result<int> validate(const ValidateFlags& flags) {
  const Result<launch::SignalSource> signals = launch::SignalSource::take();
  if (!signals) return tl::make_unexpected(signals.error());
  const RealClock clock;
  TrainerCheck trainer(*signals, clock);
  int exit_code = 0;
  for (const std::string& file : flags.files) {
    const Result<std::vector<api::TrainingJob>> jobs = load_jobs(file);
    if (!jobs) {
      fmt::print(stderr, "{}\n", jobs.error().message);
      exit_code = std::max(exit_code, to_int(jobs.error().code));
      continue;
    }
    const Result<int> checked = trainer.check(file, *jobs);
    if (!checked) return checked;
    exit_code = std::max(exit_code, *checked);
    if (*checked != 0) continue;
    for (const api::TrainingJob& job : *jobs) {
      fmt::print("{}: TrainingJob {} is valid: {} x {} ranks\n", file, job.metadata.name, job.spec.nodes,
                 job.spec.processes_per_node);
    }
  }
  return exit_code;
}

}  // namespace

void add_validate(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<ValidateFlags>();
  CLI::App* validate_app = app.add_subcommand("validate", kDescription);
  set_usage(*validate_app, "oarlock validate -f FILE...");
  validate_app->footer(kFooter);
  validate_app->add_option("-f,--file", flags->files, "files with TrainingJobs, YAML or JSON")
      ->type_name("FILE")
      ->required();
  validate_app->callback([flags, &chosen] { chosen = [flags] { return validate(*flags); }; });
}

}  // namespace oarlock::cli
