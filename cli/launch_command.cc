// oarlock launch: supervises the ranks of one node.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <span>

#include "cli/command.h"
#include "cli/launch/console.h"
#include "cli/launch/cpu_binding.h"
#include "cli/launch/group.h"
#include "cli/launch/preflight.h"
#include "cli/launch/progress.h"
#include "cli/launch/rank_launchers.h"
#include "cli/launch/recovery.h"
#include "cli/launch/termination.h"
#include "cli/launch/topology.h"
#include "cli/launch_options.h"
#include "common/contract.h"
#include "common/cpu.h"
#include "common/files.h"
#include "common/number.h"
#include "common/port_reservation.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "recovery/standby.h"

namespace oarlock::cli {
namespace {

using namespace launch;

constexpr char kOmpThreads[] = "OMP_NUM_THREADS";
// torchrun's variables, which torch.distributed.elastic and many scripts read.
constexpr char kElasticRunId[] = "TORCHELASTIC_RUN_ID";
constexpr char kElasticMaxRestarts[] = "TORCHELASTIC_MAX_RESTARTS";
constexpr char kElasticErrorFile[] = "TORCHELASTIC_ERROR_FILE";

constexpr char kLaunchDescription[] =
    "Start and supervise the ranks of one node. Missing options default to the environment (LOCAL_WORLD_SIZE,\n"
    "NODE_RANK, MASTER_ADDR, MASTER_PORT and torchrun's PET_ names), else to one rank on one node.";

constexpr char kLaunchFooter[] = R"(
Each rank receives RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR, MASTER_PORT and the PET_ names;
with several ranks also OMP_NUM_THREADS=1, unless it is set; and torchrun's TORCHELASTIC_RESTART_COUNT,
TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_RUN_ID and TORCHELASTIC_ERROR_FILE.
Without --max-restarts, the first failure stops all ranks: SIGTERM, and SIGKILL after the grace.
The ranks report their progress to the FIFO OARLOCK_PROGRESS, with oarlock report, or by --progress-pattern
(OARLOCK_PROGRESS_PATTERN), if OARLOCK_METRICS_PORT is set: the launcher serves it there (docs/guides/progress.md).
A command that starts the ranks itself, such as torchrun or accelerate launch, runs once unless --nproc is given.
--max-restarts, --restart-policy and --restart-backoff default to OARLOCK_MAX_RESTARTS, OARLOCK_RESTART_POLICY and
OARLOCK_RESTART_BACKOFF, which the operator sets for jobs with failurePolicy.restartScope Rank.
With --restart-policy rank, --min-nodes and --shrink-after default to OARLOCK_MIN_NODES and OARLOCK_SHRINK_AFTER, which
the operator sets for such jobs with spec.elastic; --rejoin-timeout is then longer than --shrink-after, unless it is set.
The exit code is that of the rank that failed
first, 128+n after signal n. 66: the command does not exist; 77: it is not executable; 78: the environment is invalid.
SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGXCPU are forwarded; a second SIGINT kills the ranks. SIGTSTP
(Ctrl-Z) stops the ranks, too. 75: a signal has stopped the ranks, and they have saved their state or ended with 0.
With several ranks, each line of output begins with [RANK r]; a single rank inherits stdin and stdout.

examples:
  oarlock launch --nproc 2 oarlock-trainer --config trainer.yaml
  oarlock launch --nproc gpu oarlock-trainer --config trainer.yaml
  oarlock launch --nproc 4 -- python3 train.py --epochs 3
  oarlock launch --progress-pattern 'step (\d+).*loss ([\d.]+)' -- python3 train.py
  oarlock launch --nnodes 2 --node-rank 1 --master-addr node0 --nproc 8 -- python3 train.py
)";

constexpr const char* kTopologyVariables[] = {kEnvWorldSize, kEnvNodeRank,    kEnvMasterAddr,    kEnvMasterPort,
                                              kEnvPetNnodes, kEnvPetNodeRank, kEnvPetMasterAddr, kEnvPetMasterPort};
// The ranks do not need these variables, and a launcher that one of them runs must not use them.
constexpr const char* kLauncherVariables[] = {
    kEnvRegroupToken, kEnvRegroupFd,   kEnvReplacement,   kEnvMaxRestarts, kEnvRestartPolicy,      kEnvRestartBackoff,
    kEnvMinNodes,     kEnvShrinkAfter, kEnvInPodRestarts, kEnvPreflight,   recovery::kEnvStandbyFd};

void erase(Environment& environment, std::span<const char* const> names) {
  for (const char* name : names) environment.erase(name);
}

// Variables of a launcher that this one runs in do not describe its ranks.
bool is_of_launcher(const std::string& name) {
  return name.starts_with("TORCHELASTIC_") || name == kEnvProgressLines || name == kEnvCpuSharers;
}

// Returns the CPUs of each local rank; without --numa-binding, empty lists, which means all.
Result<std::vector<std::vector<int>>> cpus_of_ranks(const LaunchFlags& flags, const Environment& environment, int ranks,
                                                    Console& console) {
  if (flags.cpu_binding.empty()) return std::vector<std::vector<int>>(static_cast<size_t>(ranks));
  ASSIGN_OR_RETURN(const CpuBinding binding, cpu_binding_from(flags.cpu_binding));
  ASSIGN_OR_RETURN(std::vector<std::vector<int>> cpus,
                   bind_ranks(binding, read_cpu_topology(usable_cores(), environment), ranks));
  std::vector<std::string> texts;
  for (int i = 0; i < ranks; ++i) texts.push_back(fmt::format("{}: {}", i, cpu_list(cpus[static_cast<size_t>(i)])));
  console.print_line(fmt::format("CPUs of the local ranks: {}", fmt::join(texts, ", ")));
  return cpus;
}

std::string run_id(const LaunchFlags& flags, const Environment& environment) {
  if (!flags.rdzv_id.empty()) return flags.rdzv_id;
  const std::string job = value_of(environment, kEnvJob);
  return job.empty() ? "none" : job;
}

// Returns the command to run. `words` holds the arguments from the first one on that is not an option of launch.
Result<std::vector<std::string>> command_of(std::vector<std::string> words, const std::optional<Words>& after_marker,
                                            const CLI::App& app) {
  if (!words.empty() && words.front().starts_with('-')) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) known.push_back("--" + option->get_lnames().front());
    const std::string nearest = suggest(words.front().substr(0, words.front().find('=')), known);
    return fail(ExitCode::kUsage, fmt::format("unknown option '{}'{}; see oarlock launch --help", words.front(),
                                              nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest)));
  }
  if (after_marker) {
    if (!words.empty()) words.emplace_back("--");  // it belongs to the command
    words.insert(words.end(), after_marker->begin(), after_marker->end());
  }
  if (words.empty()) {
    return fail(ExitCode::kUsage,
                "missing command; write it after the options: oarlock launch --nproc 2 -- python3 train.py");
  }
  return words;
}

// Makes oarlock-trainer write text if the output of the launcher is a terminal. The ranks write to pipes, in which case
// the trainer would write JSON.
std::vector<std::string> with_text_log(std::vector<std::string> argv) {
  const std::string program = argv.front().substr(argv.front().rfind('/') + 1);
  const bool is_chosen =
      std::ranges::any_of(argv, [](const std::string& word) { return word.starts_with("--log-format"); });
  if (program == "oarlock-trainer" && !is_chosen && ::isatty(STDERR_FILENO) == 1)
    argv.insert(argv.begin() + 1, {"--log-format", "text"});
  return argv;
}

// The files through which the ranks report why they ended.
struct ReportFiles {
  std::optional<std::string> pod;      // the termination message of the pod
  std::optional<MessageFiles> ranks;   // those of several ranks
  std::optional<MessageFiles> errors;  // of Python programs; absent without a writable directory
};

std::string log_text(const std::optional<std::string>& path) { return path ? message_in(*path) : ""; }

Result<ReportFiles> make_report_files(const Environment& environment, int ranks) {
  ReportFiles out;
  out.pod = termination_log(environment);
  if (!log_text(out.pod).empty()) {  // a message of an earlier run of this container
    RETURN_IF_ERROR(write_message(*out.pod, ""));
  }
  if (ranks > 1) {
    ASSIGN_OR_RETURN(MessageFiles made, MessageFiles::make(environment));
    out.ranks.emplace(std::move(made));
  }
  if (Result<MessageFiles> made = MessageFiles::make(environment)) out.errors.emplace(std::move(*made));
  return out;
}

// Returns the progress of this node, with FIFOs in the directory of `files`; null without OARLOCK_METRICS_PORT.
Result<std::unique_ptr<Progress>> make_progress(const LaunchFlags& flags, const Environment& environment,
                                                const ReportFiles& files, ProgressNode node, std::vector<int> ranks,
                                                const Clock& clock, Console& console) {
  // The ranks report values that they cannot use.
  const std::optional<int> port = read_count(environment, kEnvMetricsPort).value_or(std::nullopt);
  const std::string pattern =
      flags.progress_pattern.empty() ? value_of(environment, kEnvProgressPattern) : flags.progress_pattern;
  ProgressOptions options{
      .port = port.value_or(0), .uid = value_of(environment, kEnvUid), .node = node, .ranks = std::move(ranks)};
  if (!pattern.empty()) {
    ASSIGN_OR_RETURN(options.pattern, ProgressPattern::make(pattern));
  }
  if (options.port == 0) return nullptr;
  options.node.attempt = read_count(environment, kEnvAttempt).value_or(std::nullopt).value_or(0);
  if (files.errors) {
    options.directory = files.errors->directory();
  } else {
    console.print_line("the ranks cannot report their progress without a writable directory; set TMPDIR");
  }
  return std::make_unique<Progress>(std::move(options), clock);
}

// The ranks of this node, as they are started.
struct RankSetup {
  const LaunchFlags& flags;
  const Topology& topology;        // of the processes that this launcher starts
  bool starts_ranks;               // each of these processes starts the ranks of its node
  const std::vector<int>& ranks;   // of these processes, each of which may start further ones
  const Environment& environment;  // of the launcher
  const std::vector<std::string>& argv;
  const ReportFiles& files;
  std::optional<rlim_t> descriptor_limit;
  RankOutput output = {};
  std::vector<std::vector<int>> cpus = {};  // by local rank; empty: all
  bool limits_threads = false;
  bool shows_progress = false;
  bool uses_pipes = false;
  const Progress* progress = nullptr;
};

Environment environment_of_rank(const RankSetup& setup, int i) {
  Environment out;
  if (!setup.starts_ranks) {
    out = rank_environment(setup.topology, i);
    out[kElasticRunId] = run_id(setup.flags, setup.environment);
    out[kElasticMaxRestarts] = std::to_string(setup.flags.max_restarts);
    out.merge(restart_environment(0));
  } else if (setup.topology.nnodes > 1) {  // of the node, as flags may have set them
    const Environment all = rank_environment(setup.topology, i);
    for (const char* name : {kEnvNodeRank, kEnvMasterAddr, kEnvMasterPort, kEnvPetNnodes, kEnvPetNodeRank,
                             kEnvPetMasterAddr, kEnvPetMasterPort}) {
      if (const auto found = all.find(name); found != all.end()) out.insert(*found);
    }
  }
  if (setup.limits_threads) out[kOmpThreads] = "1";  // otherwise every rank would use all cores
  if (setup.files.ranks) out[kEnvTerminationLog] = setup.files.ranks->path(i).string();
  if (setup.topology.nproc > 1 && !setup.flags.no_prefix) out[kEnvLinesPrefixed] = "1";
  if (setup.shows_progress) out[kEnvProgressLines] = "1";
  if (const auto& bound = setup.cpus[static_cast<size_t>(i)]; !bound.empty())
    out[kEnvCpuSharers] = std::to_string(std::ranges::count(setup.cpus, bound));
  if (setup.progress != nullptr) out.merge(setup.progress->environment(static_cast<size_t>(i), setup.environment));
  if (setup.files.errors) out[kElasticErrorFile] = setup.files.errors->path(i).string();
  for (const auto& [name, value] : setup.environment) {  // keeps existing entries
    if (!is_of_launcher(name)) out.emplace(name, value);
  }
  return out;
}

Member make_member(const RankSetup& setup, int i) {
  const ReportFiles& files = setup.files;
  const int rank = setup.ranks[static_cast<size_t>(i)];
  Member out{{setup.topology.nproc > 1 ? with_text_log(setup.argv) : setup.argv, environment_of_rank(setup, i),
              setup.cpus[static_cast<size_t>(i)], setup.descriptor_limit},
             fmt::format("rank {}", rank),
             setup.flags.no_prefix || !setup.uses_pipes ? "" : fmt::format("[RANK {}] ", rank)};
  if (files.ranks) out.stale_files.push_back(files.ranks->path(i));
  if (!files.ranks && files.pod) out.pod_message = *files.pod;
  if (files.errors) out.stale_files.push_back(files.errors->path(i));
  out.log_directory = setup.flags.log_dir;
  out.out = setup.output.mode(i, kStdoutStream);
  out.err = setup.output.mode(i, kStderrStream);
  out.on_console = setup.output.shown[static_cast<size_t>(i)];
  return out;
}

// Writes the termination message of the pod, and returns the exit code of the launcher.
Result<int> report_end(const GroupResult& ended, const std::vector<int>& ranks, const ReportFiles& files,
                       const SignalSource& signals, const Clock& clock, Console& console) {
  std::vector<std::string> texts;
  std::vector<std::string> reasons;
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    texts.push_back(files.ranks ? files.ranks->text(i) : log_text(files.pod));
    reasons.push_back(files.errors ? reason_of_error_file(files.errors->text(i)) : "");
  }
  const auto print = [&](const Error& error) {
    console.print_line(error.message);
    console.flush(signals, clock, clock.steady() + kFlushTimeout);
  };
  const GroupResult result = resolve_interruption(ended, texts);
  // The last line of a program that another process has ended does not state a reason.
  constexpr int kCrashes[] = {0, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
  const bool has_reason =
      !result.status.ok() && std::ranges::find(kCrashes, result.status.signal) != std::end(kCrashes);
  if (result.member >= 0 && has_reason) {
    std::string& reason = reasons[static_cast<size_t>(result.member)];
    if (reason.empty()) reason = result.last_line;
  }
  const std::string message = pod_message(texts, ranks, result, reasons);
  // Ranks without support for the contract may have written the file of the pod themselves; keep their message.
  const std::string present = log_text(files.pod);
  const bool is_created = !texts.empty() && texts[static_cast<size_t>(std::max(result.member, 0))].empty();
  if (files.pod && !message.empty() && message != present && (present.empty() || !is_created)) {
    if (const Result<void> written = write_message(*files.pod, message); !written) print(written.error());
  }
  if (const Result<void> written = console.written(); !written) {
    // SIGPIPE ended the rank because its output could not be written.
    if (result.exit_code == 0 || result.exit_code == 128 + SIGPIPE) return tl::make_unexpected(written.error());
    print(written.error());
  }
  if (result.exit_code == 0 && !result.lost_output.empty())
    return fail(ExitCode::kIoErr, fmt::format("{}: output that goes only to this file is lost", result.lost_output));
  return result.exit_code;
}

// Writes the termination message of a preflight that has failed, and returns the exit code of the launcher.
Result<int> end_preflight(const PreflightOutcome& outcome, int ranks_per_node, const ReportFiles& files,
                          const SignalSource& signals, const Clock& clock, Console& console) {
  TerminationMessage message;
  message.rank = outcome.failed_node < 0 ? kUnknownRank : outcome.failed_node * ranks_per_node;
  message.message = outcome.message;
  message.reason = outcome.exit_code == to_int(ExitCode::kPeerLost) ? kReasonPeerLost : kReasonPreflightFailed;
  const bool is_stopped = outcome.exit_code > 128;
  if (files.pod && !is_stopped) {
    if (const Result<void> written = write_message(*files.pod, to_json(message)); !written)
      console.print_line(written.error().message);
  }
  console.flush(signals, clock, clock.steady() + kFlushTimeout);
  return outcome.exit_code;
}

// Returns the topology of the ranks of the job. Reserves a port for the rendezvous if none is given.
Result<Topology> topology_of_ranks(const LaunchFlags& flags, const Environment& environment,
                                   std::optional<PortReservation>& rendezvous_port) {
  ASSIGN_OR_RETURN(TopologyFlags given, with_rendezvous(flags.topology, flags));
  if (!flags.nproc.empty()) {
    ASSIGN_OR_RETURN(const int count, rank_count(flags.nproc, count_processors(environment)));
    given.nproc = count;
  }
  return resolve_topology(given, environment, [&]() -> Result<int> {
    ASSIGN_OR_RETURN(PortReservation reserved, PortReservation::make(1));
    return rendezvous_port.emplace(std::move(reserved)).first();
  });
}

// Returns the ranks of each node as the operator numbers them: by the processes that it has set for each node,
// independent of --nproc.
int ranks_per_node(const Environment& environment, const Topology& ranks_of_job) {
  const auto of_job = environment.find(kEnvLocalWorldSize);
  const auto number = of_job == environment.end() ? std::nullopt : parse_integer<int>(of_job->second);
  return number.value_or(ranks_of_job.nproc);
}

// The termination message states the last error of a single rank, too.
Stdio stdio_of(const RankSetup& setup) {
  if (setup.uses_pipes) return Stdio::kPipes;
  if (setup.progress != nullptr && setup.progress->reads_output()) return Stdio::kForegroundPipes;
  const bool reads_errors = setup.files.pod && ::isatty(STDERR_FILENO) == 0;
  return reads_errors ? Stdio::kForegroundErrorPipe : Stdio::kForeground;
}

// Starts the ranks, and supervises them until they end. Sets the members of `setup` from `output` on.
Result<GroupResult> run_ranks(RankSetup setup, int world_size, Recovery* recovery, const SignalSource& signals,
                              const Clock& clock, Console& console) {
  const LaunchFlags& flags = setup.flags;
  const int count = setup.topology.nproc;
  ASSIGN_OR_RETURN(setup.output, output_of_ranks(flags, count));
  ASSIGN_OR_RETURN(setup.cpus, cpus_of_ranks(flags, setup.environment, count, console));
  const ProgressNode node{.world_size = world_size, .starts_ranks = setup.starts_ranks};
  ASSIGN_OR_RETURN(const std::unique_ptr<Progress> progress,
                   make_progress(flags, setup.environment, setup.files, node, setup.ranks, clock, console));
  setup.progress = progress.get();
  setup.limits_threads = count > 1 && !setup.environment.contains(kOmpThreads);
  setup.uses_pipes = count > 1 || !flags.log_dir.empty() || !flags.shown.empty();
  // Progress lines would fill the files.
  setup.shows_progress = setup.uses_pipes && flags.log_dir.empty() && console.err().columns() > 0;
  std::vector<Member> members;
  for (int i = 0; i < count; ++i) members.push_back(make_member(setup, i));

  if (setup.limits_threads) console.print_line("OMP_NUM_THREADS is not set: 1 for each rank, as torchrun does");
  const auto grace = std::chrono::duration_cast<Supervisor::Duration>(std::chrono::duration<double>(flags.grace));
  GroupOptions options{.grace = grace};
  options.stdio = stdio_of(setup);
  options.recovery = recovery;
  options.progress = progress.get();
  options.has_standby = !flags.no_standby;
  return run_group(members, options, signals, clock, console);
}

Result<int> launch_ranks(LaunchFlags flags, const std::vector<std::string>& argv) {
  Environment environment = environment_of(environ);
  RETURN_IF_ERROR(apply_restart_variables(environment, flags));
  if (flags.standalone) erase(environment, kTopologyVariables);
  std::optional<PortReservation> rendezvous_port;  // for the lifetime of the ranks
  ASSIGN_OR_RETURN(const Topology ranks_of_job, topology_of_ranks(flags, environment, rendezvous_port));
  Topology topology = ranks_of_job;
  const bool has_starter = flags.nproc.empty() && starts_ranks(argv);
  if (has_starter) {
    topology.nproc = 1;
    flags.restart_policy = "group";  // the ranks do not know this launcher
  }
  RETURN_IF_ERROR(apply_shrink_variables(environment, topology, flags));
  ASSIGN_OR_RETURN(const std::optional<PreflightOptions> preflight, make_preflight(flags, topology, environment));
  ASSIGN_OR_RETURN(const std::unique_ptr<Recovery> recovery, make_recovery(flags, topology, environment));
  erase(environment, kLauncherVariables);
  ASSIGN_OR_RETURN(const SignalSource signals, SignalSource::take());

  ASSIGN_OR_RETURN(const ReportFiles files, make_report_files(environment, topology.nproc));
  const std::optional<rlim_t> descriptor_limit = raise_descriptor_limit();
  Console console("oarlock launch");
  const RealClock clock;
  if (preflight) {
    ASSIGN_OR_RETURN(const PreflightOutcome outcome, run_preflight(*preflight, signals, clock));
    const bool has_passed = outcome.exit_code == 0;
    if (!outcome.message.empty())
      console.print_line(fmt::format("preflight {}: {}", has_passed ? "passed" : "failed", outcome.message));
    if (!has_passed)
      return end_preflight(outcome, ranks_per_node(environment, ranks_of_job), files, signals, clock, console);
  }
  const int ranks_per_process = has_starter ? ranks_of_job.nproc : 1;
  std::vector<int> ranks;
  for (int i = 0; i < topology.nproc; ++i) ranks.push_back(topology.rank(i) * ranks_per_process);
  const RankSetup setup{.flags = flags,
                        .topology = topology,
                        .starts_ranks = has_starter,
                        .ranks = ranks,
                        .environment = environment,
                        .argv = argv,
                        .files = files,
                        .descriptor_limit = descriptor_limit};
  ASSIGN_OR_RETURN(const GroupResult ended,
                   run_ranks(setup, ranks_of_job.world_size(), recovery.get(), signals, clock, console));
  if (ranks_per_process > 1) ranks = {kUnknownRank};
  return report_end(ended, ranks, files, signals, clock, console);
}

}  // namespace

void add_launch(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* launch = app.add_subcommand("launch", kLaunchDescription);
  launch->footer(kLaunchFooter);
  set_usage(*launch, "oarlock launch [OPTIONS] [--] COMMAND [ARGUMENTS...]");
  add_launch_options(*launch, *flags);
  launch->prefix_command();
  launch->callback([launch, flags, &after_marker, &chosen] {
    chosen = [launch, flags, &after_marker]() -> Result<int> {
      std::vector<std::string> words = launch->remaining();
      if (!flags->module.empty()) words.insert(words.begin(), {"python3", "-u", "-m", flags->module});
      ASSIGN_OR_RETURN(const std::vector<std::string> argv, command_of(std::move(words), after_marker, *launch));
      record_given_options(*launch, *flags);
      return launch_ranks(*flags, argv);
    };
  });
}

}  // namespace oarlock::cli
