// oarlock run: a TrainingJob on this machine, without a cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "api/validate.h"
#include "cli/command.h"
#include "cli/job_file.h"
#include "cli/launch/console.h"
#include "cli/launch/group.h"
#include "cli/run/config_maps.h"
#include "cli/run/local_job.h"
#include "cli/run/local_run.h"
#include "cli/run/run_directory.h"
#include "cli/trainer_check.h"
#include "common/contract.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

namespace fs = std::filesystem;
using launch::Console;
using launch::Environment;
using launch::GroupResult;

constexpr char kRunDescription[] =
    "Run a TrainingJob as processes on this machine: the same file, the same environment of the ranks,\n"
    "group restarts by the same rules, no cluster.";

constexpr char kRunFooter[] = R"(
Every rank of every node is a process here; MASTER_ADDR is 127.0.0.1. Checkpoints go to WORKDIR/NAME/checkpoints, and a
second run resumes from them. A volume of a ConfigMap in the same file is written to WORKDIR/NAME/volumes, and paths on it
are replaced. Container images and other volumes are not used: the command of the container 'trainer' is run from this
machine's PATH, by default oarlock-trainer. Ctrl-C stops the ranks gracefully; a second Ctrl-C kills them.
A program that fails twice in the same way within seconds, before a step or a checkpoint, is not restarted again.

exit codes: 0: the job is complete; 75: a signal has stopped it; 78: the file is invalid; otherwise that of the rank
that failed first (128+n: signal n).

examples:
  oarlock run -f trainingjob.yaml
  oarlock run -f trainingjob.yaml --nodes 1 --nproc 4
  oarlock run trainingjob.yaml epochs=3 optimizer.lr=4e-3
  oarlock convert -f pytorchjob.yaml | oarlock run -f -
  oarlock run -f trainingjob.yaml --fresh --workdir /data/runs
)";

struct RunFlags {
  std::string file;
  std::string name;
  std::string workdir = "oarlock-runs";
  std::optional<int> nodes;
  std::optional<int> nproc;
  bool fresh = false;
  bool no_prefix = false;
  run::LocalRunOptions options;
};

// Returns the configuration file of the trainer: the user's file, so that messages have its line numbers, or if that
// holds several jobs, a separate file with spec.trainer.
Result<std::string> config_file(const api::TrainingJob& job, size_t jobs_in_file, const std::string& file,
                                const fs::path& directory) {
  std::error_code error;
  if (jobs_in_file == 1) return fs::absolute(file, error).string();
  const fs::path own = directory / kConfigFile;
  RETURN_IF_ERROR(write_file_atomically(own, job.spec.trainer));
  return own.string();
}

// Replaces fields of the job by flags, and validates the result.
Result<api::TrainingJob> with_flags(api::TrainingJob job, const RunFlags& flags) {
  if (flags.nodes) job.spec.nodes = *flags.nodes;
  if (flags.nproc) job.spec.processes_per_node = *flags.nproc;
  if (!flags.options.settings.empty() && !run::runs_default_command(job)) {
    return fail(ExitCode::kUsage,
                fmt::format("'{}' is a setting for oarlock-trainer, but this job has its own command; change its "
                            "arguments in the file",
                            flags.options.settings.front()));
  }
  const std::vector<api::FieldProblem> problems = api::validate(job);
  if (problems.empty()) return job;
  return fail(ExitCode::kUsage, fmt::format("with --nodes and --nproc as given, {}: {}", problems.front().path,
                                            problems.front().message));
}

// Checks that the program exists, and that oarlock-trainer accepts spec.trainer with the settings, or the settings
// alone without spec.trainer. Returns 0, or the exit code of the trainer, which reports its problems on standard error.
Result<int> check_before_run(const api::TrainingJob& job, const InputFile& file, const RunFlags& flags,
                             const launch::SignalSource& signals, const Clock& clock, Console& console) {
  const Environment environment = launch::environment_of(environ);
  const auto variable = environment.find("PATH");
  const std::string path = variable == environment.end() ? "" : variable->second;
  run::HostSettings settings;
  settings.metrics_ports.assign(static_cast<size_t>(job.spec.nodes), 0);
  settings.base = environment;
  const run::LocalProcess process = run::local_processes(job, settings).front();
  const Result<void> found =
      run::find_program(process.argv, run::own_directory(), path).and_then([&](const auto& argv) {
        return launch::find_executable(argv.front(), path);
      });
  RETURN_IF_ERROR(found);
  if (!run::runs_default_command(job)) return 0;
  if (job.spec.trainer.empty()) {
    if (process.environment.contains(kEnvConfig)) return 0;  // a file of the template, such as one of a ConfigMap
    if (flags.options.settings.empty()) {
      return fail(ExitCode::kConfig,
                  fmt::format("{}: {} has no spec.trainer, so oarlock-trainer has no configuration; add it, or give "
                              "settings such as task=image_classification",
                              printable(file.name()), job.metadata.name));
    }
  }
  TrainerCheck trainer(clock, console);
  if (!trainer.program()) return tl::make_unexpected(trainer.program().error());
  api::TrainingJob fixed = job;
  fixed.spec.elastic.reset();  // a local run has all nodes
  const Result<GroupResult> result = trainer.run(file, fixed, flags.options.settings, signals);
  return result.map([](const GroupResult& ended) {
    const bool is_interrupted = ended.interrupted_by != 0 && ended.exit_code == 0;
    return is_interrupted ? 128 + ended.interrupted_by : ended.exit_code;
  });
}

// Takes the file from the arguments if it was not given with -f: the one that is not KEY=VALUE.
Result<RunFlags> with_file(RunFlags flags) {
  std::vector<std::string> settings;
  for (const std::string& word : flags.options.settings) {
    if (word.find('=') != std::string::npos) {
      settings.push_back(word);
    } else if (flags.file.empty()) {
      flags.file = word;
    } else {
      return fail(ExitCode::kUsage,
                  fmt::format("'{}' is not KEY=VALUE, such as optimizer.lr=4e-3, and the file is already '{}'",
                              shortened(word), shortened(flags.file)));
    }
  }
  if (flags.file.empty())
    return fail(ExitCode::kUsage, "missing file; give it as oarlock run FILE (- for standard input), or with -f FILE");
  flags.options.settings = std::move(settings);
  flags.options.has_prefixes = !flags.no_prefix;
  flags.options.command = {.file = flags.file,
                           .name = flags.name,
                           .workdir = flags.workdir == RunFlags().workdir ? "" : flags.workdir,
                           .nodes = flags.nodes,
                           .nproc = flags.nproc,
                           .settings = flags.options.settings};
  return flags;
}

Result<int> run_job(const RunFlags& given) {
  ASSIGN_OR_RETURN(RunFlags flags, with_file(given));
  ASSIGN_OR_RETURN(const InputFile input, InputFile::open(flags.file));
  flags.file = input.path();
  // The file is read before signals are blocked.
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> documents, read_documents(input));
  ASSIGN_OR_RETURN(std::vector<api::TrainingJob> jobs, jobs_of(documents, input.name()));
  note_template_problems(documents, input.name(), "run");
  const run::ConfigMaps config_maps = run::config_maps_of(documents);
  const size_t jobs_in_file = jobs.size();
  ASSIGN_OR_RETURN(api::TrainingJob chosen, choose_job(std::move(jobs), flags.name, input.name()));
  ASSIGN_OR_RETURN(api::TrainingJob job, with_flags(std::move(chosen), flags));

  ASSIGN_OR_RETURN(const launch::SignalSource signals, launch::SignalSource::take());
  const RealClock clock;
  Console console("oarlock run");
  // This precedes RunDirectory::open(), which renames the directory of an earlier run with --fresh.
  const Result<int> refused = check_before_run(job, input, flags, signals, clock, console);
  if (!refused || *refused != 0) return refused;
  ASSIGN_OR_RETURN(run::RunDirectory directory,
                   run::RunDirectory::open(flags.workdir, job.metadata.name, flags.fresh, clock));
  ASSIGN_OR_RETURN(const std::string config, config_file(job, jobs_in_file, flags.file, directory.path()));
  flags.options.volumes = run::local_volumes(job, config_maps, directory.path() / "volumes");
  RETURN_IF_ERROR(run::write_volumes(flags.options.volumes));
  if (directory.moved_to())
    console.print_line(fmt::format("the earlier run is now in {}", directory.moved_to()->string()));
  Result<int> exit_code =
      run::run_locally(std::move(job), flags.options, std::move(directory), config, signals, clock, console);
  if (!exit_code) console.flush(signals, clock, std::nullopt);
  return exit_code;
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", kRunDescription);
  set_usage(*run, "oarlock run FILE [OPTIONS] [KEY=VALUE...]");
  run->footer(kRunFooter);
  run->add_option("-f,--file", flags->file, "the TrainingJob, YAML or JSON; - is standard input")->type_name("FILE");
  run->add_option("arguments", flags->options.settings,
                  "the file, unless -f gives it, and overrides of spec.trainer for oarlock-trainer, such as "
                  "optimizer.lr=4e-3")
      ->type_name("FILE|KEY=VALUE");
  run->add_option("--name", flags->name, "which TrainingJob, if the file holds several")->type_name("NAME");
  run->add_option("--workdir", flags->workdir, "parent directory of the runs; each job has its own directory in it")
      ->type_name("DIR")
      ->capture_default_str();
  run->add_option("--nodes", flags->nodes, "instead of spec.nodes")->type_name("N");
  run->add_option("--nproc", flags->nproc, "instead of spec.processesPerNode")->type_name("N");
  run->add_option("--master-port", flags->options.master_port, "rendezvous port; default: a free one")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  run->add_option(
         "--grace", flags->options.grace,
         "seconds between SIGTERM and SIGKILL; default: terminationGracePeriodSeconds of the template, else 30")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6));
  run->add_option("--log-format", flags->options.log_format,
                  "of oarlock-trainer: text, json, or auto: text on a terminal")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json", "auto"}));
  run->add_flag("--no-prefix", flags->no_prefix, "do not prefix lines with [RANK r]");
  run->add_option("--log-dir", flags->options.log_directory,
                  "also write the output to DIR/attempt_N/rank_R/stdout.log and stderr.log")
      ->type_name("DIR");
  run->add_flag("--fresh", flags->fresh, "start over; the directory of an earlier run is renamed, not deleted");
  run->callback([flags, &chosen] { chosen = [flags] { return run_job(*flags); }; });
}

}  // namespace oarlock::cli
