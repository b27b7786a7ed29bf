#include "trainer/engine/command_line.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/contract.h"
#include "common/cpu.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "ddp/library_errors.h"
#include "ddp/process_group.h"
#include "recovery/launcher_channel.h"
#include "recovery/standby.h"
#include "trainer/config/load.h"
#include "trainer/engine/rank_process.h"
#include "trainer/engine/task_setup.h"
#include "trainer/process/termination.h"
#include "trainer/tracking/settings.h"

namespace oarlock {
namespace {

constexpr int kMaxNodes = 4096;  // as in a TrainingJob
constexpr int kMaxRanksPerNode = 128;

constexpr char kOwnName[] = "oarlock-trainer";

constexpr char kExamples[] = R"(
Rank, world size and master come from the environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT. Without them it trains as a single process.

examples:
  oarlock-trainer --config trainer.yaml
  oarlock-trainer --config trainingjob.yaml --checkpoint-dir /tmp/run --metrics-port 9400
  oarlock-trainer --config trainer.yaml optimizer.lr=4e-3 epochs=3
  oarlock-trainer --config trainer.yaml --print-config
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 oarlock-trainer --config trainer.yaml

exit codes: 0 done, 64..78 permanent failures (sysexits.h), but 75 interrupted with everything saved and 76 another rank was lost)";

struct CommandLine {
  ConfigSource config;
  std::string checkpoint_dir;
  std::string metrics_port;
  std::string log_format = "auto";
  GroupSizes sizes{.nodes = 0};  // for --check; 0: unknown
  bool print_config = false;
  bool print_reference = false;
};

// The name under which this program was started: that of a user's own program with other tasks is not oarlock-trainer.
std::string program_name() { return printable(program_invocation_short_name); }

std::string version_line() {
  const std::string version = OARLOCK_VERSION " (" OARLOCK_REVISION ")";
  const std::string name = program_name();
  return name == kOwnName ? fmt::format("{} {}", name, version) : fmt::format("{}, with Oarlock {}", name, version);
}

// The examples with the name of this program.
std::string examples() {
  std::string text = kExamples;
  const std::string name = program_name();
  const std::string_view own = kOwnName;
  for (size_t at = 0; (at = text.find(own, at)) != std::string::npos; at += name.size())
    text.replace(at, own.size(), name);
  return text;
}

int complain(const Error& error) {
  print_error(fmt::format("{}: error: {}\n", program_name(), error.message));
  return to_int(error.code);
}

// Reports the failure of a process that has not become a rank, also to the kubelet. Returns the exit code.
int fail_before_training(const Error& error) {
  if (const auto path = termination_log_path(process_environment()(kEnvTerminationLog)))
    (void)write_termination_message(*path, {0, 0, -1, exit_reason(error.code), error.message});
  return complain(error);
}

// Empty if the launcher writes a prefix before each line.
std::string line_prefix(int rank) {
  return process_environment()(kEnvLinesPrefixed).value_or("").empty() ? fmt::format("RANK {}", rank) : "";
}

Logger make_logger(const std::string& format, int rank) {
  const bool is_watched = ::isatty(STDERR_FILENO) != 0 || shows_progress_lines();
  const bool text = format == "text" || (format == "auto" && is_watched);
  const LogLevel level = rank == 0 ? LogLevel::kInfo : LogLevel::kWarn;
  if (text) return Logger(LogFormat::kText, level, line_prefix(rank));
  return Logger(LogFormat::kJson, level).with({{"rank", rank}});
}

// The base port is that of the flag or of the environment; local rank n serves on base + n.
Result<void> choose_metrics_port(const std::string& flag, const JobEnvironment& environment, RunOptions& out) {
  if (flag == "auto") {
    out.any_metrics_port = true;
    return {};
  }
  const int base = flag.empty() ? environment.metrics_port.value_or(0) : std::atoi(flag.c_str());
  out.metrics_port = base == 0 ? 0 : base + environment.local_rank;
  if (out.metrics_port > 65535) {
    return fail(ExitCode::kConfig, "metrics port " + std::to_string(base) + " plus LOCAL_RANK " +
                                       std::to_string(environment.local_rank) + " is above 65535; choose a lower one");
  }
  return {};
}

// A graceful end is not an error. If it is the same on all ranks, only rank 0 logs it, as a line for information.
void log_outcome(const Logger& logger, const Outcome& outcome) {
  if (outcome.code == ExitCode::kOk) return;
  const LogLevel of_graceful = outcome.is_alone ? LogLevel::kWarn : LogLevel::kInfo;
  logger.write(outcome.is_graceful ? of_graceful : LogLevel::kError, outcome.message,
               {{"exit_code", to_int(outcome.code)}, {"reason", outcome.reason}});
}

int train(const CommandLine& command, const JobEnvironment& environment, const TaskTable& tasks,
          const RegroupChannelFactory& open_channel) {
  static StopFlag stop;  // signal handlers use it until the process ends
  static const RealClock kClock;
  raise_on_termination_signals(stop);
  silence_libtorch_log();
  disable_nccl_watchdog_exit();
  const std::optional<std::string> termination_log = termination_log_path(environment.termination_log);
  const Logger logger = make_logger(command.log_format, environment.rank);

  RunOptions options;
  options.config = command.config;
  options.version = OARLOCK_VERSION;
  options.revision = OARLOCK_REVISION;
  options.cpu_sharers = std::atoi(process_environment()(kEnvCpuSharers).value_or("0").c_str());
  options.in_pod_restarts = in_pod_restarts_from_json(process_environment()(kEnvInPodRestarts).value_or(""));
  if (!command.checkpoint_dir.empty()) options.checkpoint_dir = command.checkpoint_dir;
  if (open_channel) options.open_channel = [open_channel, environment] { return open_channel(environment); };
  const Result<void> port = choose_metrics_port(command.metrics_port, environment, options);
  const auto process = std::make_unique<RankProcess>(options, environment, tasks, stop, kClock, logger);
  // The watch over NCCL's collectives throws on its own thread.
  install_terminate_handler({termination_log, environment.rank, line_prefix(environment.rank)},
                            [&process](const std::exception_ptr& exception) { return process->explain(exception); });
  const Outcome outcome =
      port ? process->run() : Outcome{port.error().code, exit_reason(port.error().code), port.error().message};
  log_outcome(logger, outcome);
  if (termination_log) {
    const Result<void> written = write_termination_message(*termination_log, process->termination_message(outcome));
    if (!written) logger.warn(written.error().message);
  }
  if (outcome.code != ExitCode::kOk) {
    std::fflush(nullptr);
    std::_Exit(to_int(outcome.code));  // a destructor would wait for the threads of a broken group
  }
  return 0;
}

// The modes that need neither ranks nor data.
int print(const CommandLine& command, const TaskTable& tasks) {
  if (command.print_reference) {
    std::fputs(reference_page(task_names(tasks)).c_str(), stdout);
    return 0;
  }
  const Result<std::string> printed = print_config(command.config, task_names(tasks));
  if (!printed) return complain(printed.error());
  const Result<ConfiguredTask> whole = load_task(command.config, tasks);
  if (!whole) return complain(whole.error());
  if (command.print_config) {
    std::fputs(printed->c_str(), stdout);
  } else {
    const TrainerConfig& config = whole->config;
    const GroupSizes& sizes = command.sizes;
    const Result<void> fits = sizes.nodes > 0 ? check_group_sizes(config, sizes) : Result<void>();
    if (!fits) return complain(fits.error());
    const std::string& directory = command.checkpoint_dir.empty() ? config.checkpoint.dir : command.checkpoint_dir;
    const Result<void> tracking = check_tracking(config.tracking, directory, process_environment(), whole->is_of_job);
    if (!tracking) return complain(tracking.error());
    const std::string& path = command.config.name();
    std::puts(fmt::format("{}: the configuration is valid", path.empty() ? "command line" : printable(path)).c_str());
  }
  return 0;
}

void add_options(CLI::App& app, CommandLine& command) {
  app.footer(examples());
  app.set_version_flag("--version", version_line());
  app.add_option("settings", command.config.overrides,
                 "Overrides of the configuration, with YAML values: optimizer.lr=4e-3")
      ->type_name("KEY=VALUE");
  app.add_option("-c,--config", command.config.path,
                 "Trainer configuration or TrainingJob, YAML or JSON (default: $OARLOCK_CONFIG)");
  app.add_option("--config-name", command.config.shown_path,
                 "Name of the configuration file in messages (default: its path)");
  app.add_option("--job", command.config.job, "Name of the TrainingJob if the file contains several")
      ->type_name("NAME|NAMESPACE/NAME");
  app.add_option(
      "--checkpoint-dir", command.checkpoint_dir,
      "Directory of the checkpoints (default: checkpoint.dir of the configuration, or $OARLOCK_CHECKPOINT_DIR)");
  app.add_option(
         "--metrics-port", command.metrics_port,
         "Port of /metrics and /statusz of local rank 0; local rank n serves on port + n. 0: none, auto: a free port "
         "(default: $OARLOCK_METRICS_PORT, or none)")
      ->check(CLI::IsMember({"auto"}) | CLI::Range(0, 65535));
  app.add_option("--log-format", command.log_format, "text, json, or auto: text on a terminal")
      ->check(CLI::IsMember({"text", "json", "auto"}));
  auto* check = app.add_flag("--check")->description("Check the configuration and exit");
  auto* nodes = app.add_option("--nodes", command.sizes.nodes,
                               "Number of nodes for which --check computes the batches (default: not computed)")
                    ->check(CLI::Range(1, kMaxNodes))
                    ->needs(check);
  app.add_option("--min-nodes", command.sizes.min_nodes,
                 "Minimum number of nodes of an elastic job (default: that of --nodes)")
      ->check(CLI::Range(1, kMaxNodes))
      ->needs(nodes);
  app.add_option("--nproc", command.sizes.ranks_per_node, "Number of ranks on each node (default: 1)")
      ->check(CLI::Range(1, kMaxRanksPerNode))
      ->needs(nodes);
  app.add_flag("--print-config", command.print_config, "Print the complete configuration with all defaults and exit");
  app.add_flag("--print-reference", command.print_reference, "Print the reference of all keys in Markdown and exit");
}

int run(int argc, char** argv, const TaskTable& tasks, const RegroupChannelFactory& open_channel) {
  CommandLine command;
  CLI::App app{"Trains one rank of a TrainingJob.", program_name()};
  add_options(app, command);
  // Such a command may run in the pod of a rank, and must not replace its termination message.
  const bool only_prints = std::any_of(argv, argv + argc, [](const std::string_view word) {
    return word == "--check" || word == "--print-config" || word == "--print-reference";
  });
  const auto report = [&](const std::string& message) {
    const Error error{ExitCode::kUsage, fmt::format("{}; see {} --help", message, program_name())};
    return only_prints ? complain(error) : fail_before_training(error);
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return report(error.what());
  }
  const EnvironmentLookup lookup = process_environment();
  const Result<JobEnvironment> environment = read_job_environment(lookup);
  if (command.config.path.empty()) command.config.path = lookup(kEnvConfig).value_or("");
  if (command.config.path.empty() && command.config.overrides.empty() && (environment || only_prints) &&
      !command.print_reference) {
    return report("no configuration: give --config FILE or set OARLOCK_CONFIG");
  }
  if (app.count("--min-nodes") == 0) command.sizes.min_nodes = command.sizes.nodes;
  if (only_prints) return print(command, tasks);
  if (!environment) return fail_before_training(environment.error());
  return train(command, *environment, tasks, open_channel);
}

}  // namespace

int trainer_main(int argc, char** argv, const TaskTable& tasks) {
  return trainer_main(argc, argv, tasks, [](const JobEnvironment&) -> Result<std::unique_ptr<RegroupChannel>> {
    return LauncherChannel::open(process_environment()(kEnvRegroupFd), StandbyProcess::kYes);
  });
}

int trainer_main(int argc, char** argv, const TaskTable& tasks, const RegroupChannelFactory& open_channel) {
  recovery::wait_for_start();  // before anything reads the environment
  if (const Result<void> opened = open_standard_streams(); !opened) return to_int(opened.error().code);
  try {
    return exit_code_after_flush(program_name(), run(argc, argv, tasks, open_channel));
  } catch (const std::exception& error) {  // a bug: no code should throw here
    return complain({ExitCode::kSoftware, error.what()});
  }
}

}  // namespace oarlock
