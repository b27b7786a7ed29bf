// oarlock launch: supervises the ranks of one node.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>

#include "cli/command.h"
#include "cli/launch/console.h"
#include "cli/launch/cpu_binding.h"
#include "cli/launch/group.h"
#include "cli/launch/recovery.h"
#include "cli/launch/restart_report.h"
#include "cli/launch/termination.h"
#include "cli/launch/topology.h"
#include "common/contract.h"
#include "common/cpu.h"
#include "common/files.h"
#include "common/number.h"
#include "common/port_reservation.h"
#include "common/random.h"
#include "common/recovery/standby.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using namespace launch;

constexpr char kOmpThreads[] = "OMP_NUM_THREADS";
// torchrun's variables, which torch.distributed.elastic and many scripts read.
constexpr char kElasticRunId[] = "TORCHELASTIC_RUN_ID";
constexpr char kElasticMaxRestarts[] = "TORCHELASTIC_MAX_RESTARTS";
constexpr char kElasticErrorFile[] = "TORCHELASTIC_ERROR_FILE";
constexpr int kMaxPort = 65535;
constexpr int kMaxRestarts = 1'000'000;

constexpr char kLaunchDescription[] =
    "Start and supervise the ranks of one node. Missing options default to the environment (LOCAL_WORLD_SIZE,\n"
    "NODE_RANK, MASTER_ADDR, MASTER_PORT and torchrun's PET_ names), else to one rank on one node.";

constexpr char kLaunchFooter[] = R"(
Each rank receives RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR, MASTER_PORT and the PET_ names;
with several ranks also OMP_NUM_THREADS=1, unless it is set; and torchrun's TORCHELASTIC_RESTART_COUNT,
TORCHELASTIC_MAX_RESTARTS, TORCHELASTIC_RUN_ID and TORCHELASTIC_ERROR_FILE.
Without --max-restarts, the first failure stops all ranks: SIGTERM, and SIGKILL after the grace.
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
  oarlock launch --nnodes 2 --node-rank 1 --master-addr node0 --nproc 8 -- python3 train.py
)";

struct LaunchFlags {
  TopologyFlags topology;  // except nproc
  std::string nproc;       // a number, or a word for one
  double grace = 20;
  bool no_prefix = false;
  bool no_standby = false;
  bool standalone = false;
  std::string module;
  int max_restarts = 0;
  std::string restart_policy = "group";
  bool has_restart_options = false;  // one of --max-restarts, --restart-policy and --restart-backoff was given
  double regroup_timeout = 60;
  double rejoin_timeout = 300;
  std::optional<int> min_nodes;
  double shrink_after = 240;
  bool has_rejoin_timeout = false;  // the option was given, as for the next one
  bool has_shrink_after = false;
  double backoff = 0;
  std::string log_dir;
  std::string redirects;
  std::string tee;
  std::string shown;  // local ranks
  std::string cpu_binding;
  std::string rdzv_backend;
  std::string rdzv_endpoint;
  std::string rdzv_id;
};

// Applies torchrun's --standalone and --rdzv-endpoint to the flags of the topology.
Result<TopologyFlags> with_rendezvous(TopologyFlags topology, const LaunchFlags& flags) {
  if (flags.standalone) {
    if (topology.nnodes.value_or(1) != 1)
      return fail(ExitCode::kUsage, "--standalone is for one node; remove it, or --nnodes");
    topology.nnodes = 1;
    topology.node_rank = 0;
    topology.master_addr.clear();  // this host, on a free port unless one is given
    return topology;
  }
  if (flags.rdzv_endpoint.empty()) return topology;
  const size_t colon = flags.rdzv_endpoint.rfind(':');
  const bool has_port = colon != std::string::npos && flags.rdzv_endpoint.find(']', colon) == std::string::npos;
  const std::string host = flags.rdzv_endpoint.substr(0, has_port ? colon : std::string::npos);
  if (topology.master_addr.empty()) topology.master_addr = std::string(trim(host, "[]"));
  if (has_port && !topology.master_port) {
    const std::string port = flags.rdzv_endpoint.substr(colon + 1);
    const std::optional<int> value = parse_integer<int>(port);
    if (!value)
      return fail(ExitCode::kUsage, fmt::format("--rdzv-endpoint={} is not HOST or HOST:PORT", flags.rdzv_endpoint));
    if (*value != 0) topology.master_port = value;
  }
  return topology;
}

// The lease ends this much earlier than the time after which the group may continue without a node.
constexpr double kLeaseShare = 0.9;

// Seconds by which the default of --rejoin-timeout exceeds the value of OARLOCK_SHRINK_AFTER.
constexpr double kRejoinTime = 60;

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

uint64_t random_id() { return random_number() % ((uint64_t{1} << 40) - 1) + 1; }

// Variables of a launcher that this one runs in do not describe its ranks.
bool is_of_launcher(const std::string& name) {
  return name.starts_with("TORCHELASTIC_") || name == kEnvProgressLines || name == kEnvCpuSharers;
}

// Where the output of the ranks goes, by local rank.
struct RankOutput {
  std::vector<int> redirects;
  std::vector<int> tee;
  std::vector<bool> shown;

  LogMode mode(int rank, int stream) const {
    const auto i = static_cast<size_t>(rank);
    return (redirects[i] & stream) != 0 && (tee[i] & stream) == 0 ? LogMode::kFiles : LogMode::kConsoleAndFiles;
  }
};

Result<RankOutput> output_of_ranks(const LaunchFlags& flags, int ranks) {
  RankOutput out;
  ASSIGN_OR_RETURN(out.redirects, streams_by_rank("--redirects", flags.redirects, ranks));
  ASSIGN_OR_RETURN(out.tee, streams_by_rank("--tee", flags.tee, ranks));
  ASSIGN_OR_RETURN(out.shown, shown_ranks(flags.shown, ranks));
  return out;
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
  const auto job = environment.find(kEnvJob);
  return job == environment.end() || job->second.empty() ? "none" : job->second;
}

// Reads a number of at least 0 that the operator set. Nothing if the variable is not set, or empty.
Result<std::optional<int>> read_count(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  if (it == environment.end() || it->second.empty()) return std::nullopt;
  const std::string& text = it->second;
  const std::optional<int> value = parse_integer<int>(text);
  if (!value || *value < 0 || *value > kMaxRestarts) {
    return fail(ExitCode::kConfig,
                fmt::format("environment variable {}='{}' is not a number from 0 to {}", name, text, kMaxRestarts));
  }
  return value;
}

// Applies the variables with which the operator sets restarts. Options on the command line replace all of them.
Result<void> apply_restart_variables(const Environment& environment, LaunchFlags& flags) {
  if (flags.has_restart_options || flags.standalone) return {};
  ASSIGN_OR_RETURN(const std::optional<int> count, read_count(environment, kEnvMaxRestarts));
  ASSIGN_OR_RETURN(const std::optional<int> backoff, read_count(environment, kEnvRestartBackoff));
  if (const auto it = environment.find(kEnvRestartPolicy); it != environment.end() && !it->second.empty()) {
    if (it->second != "rank" && it->second != "group") {
      return fail(ExitCode::kConfig,
                  fmt::format("environment variable {}='{}' is neither rank nor group", kEnvRestartPolicy, it->second));
    }
    flags.restart_policy = it->second;
  }
  flags.max_restarts = count.value_or(0);
  flags.backoff = backoff.value_or(0);
  return {};
}

// Applies the variables with which the operator lets a group continue with fewer nodes. They have no effect on a group
// that cannot, so that a command line that sets restarts in another way remains valid.
Result<void> apply_shrink_variables(const Environment& environment, const Topology& topology, LaunchFlags& flags) {
  if (flags.standalone || flags.restart_policy != "rank" || flags.max_restarts == 0 || topology.nnodes == 1) return {};
  ASSIGN_OR_RETURN(const std::optional<int> min_nodes, read_count(environment, kEnvMinNodes));
  ASSIGN_OR_RETURN(const std::optional<int> shrink_after, read_count(environment, kEnvShrinkAfter));
  if (!min_nodes && !shrink_after) return {};
  if (!flags.has_shrink_after && shrink_after) flags.shrink_after = std::max(*shrink_after, 1);
  if (!flags.has_rejoin_timeout)
    flags.rejoin_timeout = std::max(flags.rejoin_timeout, flags.shrink_after + kRejoinTime);
  // With an earlier --rejoin-timeout, an incomplete group ends before it could continue.
  if (!flags.min_nodes && min_nodes.value_or(0) > 0 && flags.shrink_after < flags.rejoin_timeout)
    flags.min_nodes = min_nodes;
  return {};
}

// Sets the smallest number of nodes with which the group continues. A launcher without a connection gives up before
// the others can continue without its node.
Result<void> apply_min_nodes(const LaunchFlags& flags, const Topology& topology, RecoveryOptions& options) {
  if (!flags.min_nodes) return {};
  if (options.agent.policy != recovery::RestartPolicy::kRank)
    return fail(ExitCode::kUsage, "--min-nodes needs --restart-policy rank, and more than one rank");
  if (*flags.min_nodes > topology.nnodes) {
    return fail(ExitCode::kUsage,
                fmt::format("--min-nodes {} is more than --nnodes {}", *flags.min_nodes, topology.nnodes));
  }
  if (flags.shrink_after >= flags.rejoin_timeout) {
    return fail(
        ExitCode::kUsage,
        fmt::format("--shrink-after {} must be less than --rejoin-timeout {}, after which an incomplete group ends",
                    flags.shrink_after, flags.rejoin_timeout));
  }
  if (*flags.min_nodes == topology.nnodes) return {};
  options.coordinator.min_nodes = flags.min_nodes;
  options.coordinator.shrink_after = to_milliseconds(flags.shrink_after);
  options.lease = to_milliseconds(flags.shrink_after * kLeaseShare);
  return {};
}

// Returns the recovery of this node; null without --max-restarts.
Result<std::unique_ptr<Recovery>> make_recovery(const LaunchFlags& flags, const Topology& topology,
                                                const Environment& environment) {
  if (flags.max_restarts == 0) {
    if (flags.min_nodes) return fail(ExitCode::kUsage, "--min-nodes needs --max-restarts");
    return nullptr;
  }
  const auto variable = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? std::string() : it->second;
  };
  // A single rank has no survivors, and does not join: it needs no group.
  const bool by_rank = flags.restart_policy == "rank" && topology.world_size() > 1;
  RecoveryOptions options;
  options.agent.node = topology.node_rank;
  options.agent.first_rank = topology.rank(0);
  options.agent.ranks = topology.nproc;
  options.agent.policy = by_rank ? recovery::RestartPolicy::kRank : recovery::RestartPolicy::kGroup;
  options.agent.launcher = random_id();
  options.agent.store_host = topology.master_addr;
  options.agent.store_port = topology.master_port;
  options.coordinator.nodes = topology.nnodes;
  options.coordinator.ranks_per_node = topology.nproc;
  options.coordinator.max_restarts = flags.max_restarts;
  options.coordinator.is_replacement = !variable(kEnvReplacement).empty();
  options.coordinator.restarts_finished = options.agent.policy == recovery::RestartPolicy::kGroup;
  options.coordinator.replaces_nodes = !variable(kEnvJob).empty();  // the operator decides about the pod
  options.coordinator.leave_timeout = to_milliseconds(flags.regroup_timeout);
  options.coordinator.form_timeout = to_milliseconds(flags.rejoin_timeout);
  options.coordinator.backoff = to_milliseconds(flags.backoff);
  // Members that are stopped for a restart have the grace period.
  if (options.agent.policy == recovery::RestartPolicy::kGroup)
    options.coordinator.leave_timeout += to_milliseconds(flags.grace);
  // The node of the coordinator may be replaced, which takes as long as the return of any other rank.
  if (by_rank) options.reconnect_timeout = options.coordinator.form_timeout;
  options.coordinator_host = topology.master_addr;
  options.coordinator_port = topology.master_port + kRegroupPortOffset;
  if (topology.nnodes > 1 && options.coordinator_port > kMaxPort) {
    return fail(ExitCode::kUsage,
                fmt::format("--max-restarts with several nodes needs the port after --master-port, too: {} is above {}",
                            options.coordinator_port, kMaxPort));
  }
  options.token = variable(kEnvRegroupToken);
  if (topology.nnodes > 1 && options.token.empty()) {
    return fail(
        ExitCode::kConfig,
        fmt::format("--max-restarts with several nodes needs a secret that all nodes share: set {}, for example "
                    "to the output of 'openssl rand -hex 16'",
                    kEnvRegroupToken));
  }
  RETURN_IF_ERROR(apply_min_nodes(flags, topology, options));
  return Recovery::make(std::move(options));
}

// Returns the report of in-pod restarts of the launcher of node rank 0 in a pod of a job; nothing otherwise.
std::optional<RestartReport> make_report(const Recovery* recovery, const Topology& topology,
                                         const Environment& environment) {
  // The ranks report values that they cannot use.
  const std::optional<int> port = read_count(environment, kEnvMetricsPort).value_or(std::nullopt);
  const std::optional<int> attempt = read_count(environment, kEnvAttempt).value_or(std::nullopt);
  const auto uid = environment.find(kEnvUid);
  const bool is_reported = recovery != nullptr && recovery->restarts_all_ranks() && topology.node_rank == 0;
  if (!is_reported || port.value_or(0) == 0 || uid == environment.end()) return std::nullopt;
  return RestartReport(*port, uid->second, attempt.value_or(0));
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

std::string log_text(const std::optional<std::string>& path) { return path ? launch::message_in(*path) : ""; }

Result<int> launch_ranks(LaunchFlags flags, const std::vector<std::string>& argv) {
  Environment environment = environment_of(environ);
  RETURN_IF_ERROR(apply_restart_variables(environment, flags));
  if (flags.standalone) {
    for (const char* name : {kEnvWorldSize, kEnvNodeRank, kEnvMasterAddr, kEnvMasterPort, kEnvPetNnodes,
                             kEnvPetNodeRank, kEnvPetMasterAddr, kEnvPetMasterPort}) {
      environment.erase(name);
    }
  }
  ASSIGN_OR_RETURN(TopologyFlags given, with_rendezvous(flags.topology, flags));
  if (!flags.nproc.empty()) {
    ASSIGN_OR_RETURN(const int count, rank_count(flags.nproc, count_processors(environment)));
    given.nproc = count;
  }
  std::optional<PortReservation> rendezvous_port;  // for the lifetime of the ranks
  const auto reserve_port = [&]() -> Result<int> {
    ASSIGN_OR_RETURN(PortReservation reserved, PortReservation::make(1));
    return rendezvous_port.emplace(std::move(reserved)).first();
  };
  ASSIGN_OR_RETURN(const Topology topology, resolve_topology(given, environment, reserve_port));
  RETURN_IF_ERROR(apply_shrink_variables(environment, topology, flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<Recovery> recovery, make_recovery(flags, topology, environment));
  // The ranks do not need these variables, and a launcher that one of them runs must not use them.
  for (const char* name :
       {kEnvRegroupToken, kEnvRegroupFd, kEnvReplacement, kEnvMaxRestarts, kEnvRestartPolicy, kEnvRestartBackoff,
        kEnvMinNodes, kEnvShrinkAfter, kEnvInPodRestarts, recovery::kEnvStandbyFd})
    environment.erase(name);
  ASSIGN_OR_RETURN(const SignalSource signals, SignalSource::take());

  const int count = topology.nproc;
  const std::optional<std::string> pod_log = termination_log(environment);
  if (!log_text(pod_log).empty()) {  // a message of an earlier run of this container
    RETURN_IF_ERROR(write_message(*pod_log, ""));
  }
  std::optional<MessageFiles> files;
  if (count > 1) {
    ASSIGN_OR_RETURN(MessageFiles made, MessageFiles::make(environment));
    files.emplace(std::move(made));
  }
  std::optional<MessageFiles> error_files;  // of Python programs; without a writable folder, none
  if (Result<MessageFiles> made = MessageFiles::make(environment)) error_files.emplace(std::move(*made));
  const std::optional<rlim_t> descriptor_limit = raise_descriptor_limit();
  Console console("oarlock launch");
  ASSIGN_OR_RETURN(const RankOutput output, output_of_ranks(flags, count));
  ASSIGN_OR_RETURN(const auto cpus, cpus_of_ranks(flags, environment, count, console));
  const bool uses_pipes = count > 1 || !flags.log_dir.empty() || !flags.shown.empty();
  // Progress lines would fill the files.
  const bool shows_progress = uses_pipes && flags.log_dir.empty() && console.err().columns() > 0;
  const bool limit_threads = count > 1 && !environment.contains(kOmpThreads);
  std::vector<Member> members;
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) {
    Environment of_rank = rank_environment(topology, i);
    if (limit_threads) of_rank[kOmpThreads] = "1";  // otherwise every rank would use all cores
    if (files) of_rank[kEnvTerminationLog] = files->path(i).string();
    if (count > 1 && !flags.no_prefix) of_rank[kEnvLinesPrefixed] = "1";
    if (shows_progress) of_rank[kEnvProgressLines] = "1";
    if (const auto& bound = cpus[static_cast<size_t>(i)]; !bound.empty())
      of_rank[kEnvCpuSharers] = std::to_string(std::ranges::count(cpus, bound));
    of_rank[kElasticRunId] = run_id(flags, environment);
    of_rank[kElasticMaxRestarts] = std::to_string(flags.max_restarts);
    of_rank.merge(restart_environment(0));
    if (error_files) of_rank[kElasticErrorFile] = error_files->path(i).string();
    for (const auto& [name, value] : environment) {  // keeps existing entries
      if (!is_of_launcher(name)) of_rank.emplace(name, value);
    }
    const int rank = topology.rank(i);
    ranks.push_back(rank);
    members.push_back(
        {{count > 1 ? with_text_log(argv) : argv, std::move(of_rank), cpus[static_cast<size_t>(i)], descriptor_limit},
         fmt::format("rank {}", rank),
         flags.no_prefix ? "" : fmt::format("[RANK {}] ", rank)});
    if (files) members.back().stale_files.push_back(files->path(i));
    if (!files && pod_log) members.back().pod_message = *pod_log;
    if (error_files) members.back().stale_files.push_back(error_files->path(i));
    members.back().log_folder = flags.log_dir;
    members.back().out = output.mode(i, kStdoutStream);
    members.back().err = output.mode(i, kStderrStream);
    members.back().on_console = output.shown[static_cast<size_t>(i)];
  }

  std::optional<RestartReport> report = make_report(recovery.get(), topology, environment);
  const RealClock clock;
  if (limit_threads) console.print_line("OMP_NUM_THREADS is not set: 1 for each rank, as torchrun does");
  const auto grace = std::chrono::duration_cast<Supervisor::Duration>(std::chrono::duration<double>(flags.grace));
  GroupOptions options{.grace = grace};
  options.stdio = uses_pipes ? Stdio::kPipes : Stdio::kForeground;
  options.recovery = recovery.get();
  if (report) options.report = &*report;
  options.has_standby = !flags.no_standby;
  ASSIGN_OR_RETURN(const GroupResult ended, run_group(members, options, signals, clock, console));

  std::vector<std::string> texts;
  std::vector<std::string> reasons;
  for (int i = 0; i < count; ++i) {
    texts.push_back(files ? files->text(i) : log_text(pod_log));
    reasons.push_back(error_files ? reason_of_error_file(error_files->text(i)) : "");
  }
  const GroupResult result = resolve_interruption(ended, texts);
  const std::string message = pod_message(texts, ranks, result, reasons);
  // Ranks without support for the contract may have written the file of the pod themselves; keep their message.
  const std::string present = log_text(pod_log);
  const bool is_created = !texts.empty() && texts[static_cast<size_t>(std::max(result.member, 0))].empty();
  if (pod_log && !message.empty() && message != present && (present.empty() || !is_created)) {
    if (Result<void> written = write_message(*pod_log, message); !written) {
      console.print_line(written.error().message);
      console.flush(signals, clock, clock.steady() + kFlushPatience);
    }
  }
  if (const Result<void> written = console.written(); !written) {
    // SIGPIPE ended the rank because its output could not be written.
    if (result.exit_code == 0 || result.exit_code == 128 + SIGPIPE) return tl::make_unexpected(written.error());
    console.print_line(written.error().message);
    console.flush(signals, clock, clock.steady() + kFlushPatience);
  }
  if (result.exit_code == 0 && !result.lost_output.empty())
    return fail(ExitCode::kIoErr, fmt::format("{}: output that goes only to this file is lost", result.lost_output));
  return result.exit_code;
}

}  // namespace

void add_launch(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* launch = app.add_subcommand("launch", kLaunchDescription);
  launch->footer(kLaunchFooter);
  set_usage(*launch, "oarlock launch [OPTIONS] [--] COMMAND [ARGUMENTS...]");
  launch
      ->add_option("--nproc,--nproc-per-node,--nproc_per_node", flags->nproc,
                   "ranks on this node; gpu: one for each GPU, cpu: for each core, auto: GPUs if there are any")
      ->type_name("N|auto|gpu|cpu");
  launch->add_option("--nnodes", flags->topology.nnodes, "nodes in the job")
      ->type_name("N")
      ->check([](const std::string& value) -> std::string {
        if (value.find(':') == std::string::npos) return "";
        return fmt::format(
            "'{}' is a range, but the launcher has a fixed number of nodes; give one number, or use "
            "spec.elastic of a TrainingJob",
            shortened(value));
      });
  launch->add_option("--node-rank,--node_rank", flags->topology.node_rank, "index of this node, from 0")
      ->type_name("N");
  launch->add_option("--master-addr,--master_addr", flags->topology.master_addr, "host of rank 0")->type_name("HOST");
  launch->add_option("--master-port,--master_port", flags->topology.master_port, "rendezvous port of rank 0")
      ->type_name("PORT");
  launch
      ->add_option("--grace", flags->grace,
                   "seconds between SIGTERM and SIGKILL; in a pod, less than its terminationGracePeriodSeconds")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  launch->add_flag("--no-prefix", flags->no_prefix, "do not prefix lines with [RANK r]");
  launch->add_option("--max-restarts,--max_restarts", flags->max_restarts, "restarts after failures of ranks")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxRestarts));
  launch
      ->add_option("--restart-policy", flags->restart_policy,
                   "group: all ranks start again; rank: failed ranks only, for programs that regroup "
                   "(docs/recovery.md)")
      ->type_name("POLICY")
      ->capture_default_str()
      ->check(CLI::IsMember({"group", "rank"}));
  launch
      ->add_option("--regroup-timeout", flags->regroup_timeout,
                   "seconds until a rank that does not leave a failed group is killed")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  launch
      ->add_option("--rejoin-timeout", flags->rejoin_timeout, "seconds until a group that is not complete ends the job")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  launch
      ->add_option(
          "--min-nodes", flags->min_nodes,
          "with --restart-policy rank: continue with so many nodes while others are missing (docs/recovery.md)")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxRestarts));
  launch
      ->add_option("--shrink-after", flags->shrink_after,
                   "with --min-nodes: seconds until a group continues without the nodes that it misses")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  launch
      ->add_option("--restart-backoff", flags->backoff,
                   "seconds before the second of several quick restarts; then doubled, up to 5 minutes")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  launch->add_flag(
      "--no-standby", flags->no_standby,
      "with --restart-policy rank: hold no process that has loaded its libraries and replaces a lost rank");
  launch->add_flag("--standalone", flags->standalone, "one node on a free port; ignores the job of the environment");
  launch->add_option("-m,--module", flags->module, "run a Python module: python3 -u -m MODULE ARGUMENTS")
      ->type_name("MODULE");
  launch
      ->add_option("--log-dir,--log_dir", flags->log_dir,
                   "also write the output to DIR/attempt_N/rank_R/stdout.log and stderr.log")
      ->type_name("DIR");
  launch
      ->add_option(
          "-r,--redirects", flags->redirects,
          "with --log-dir: streams that go to files only; 1: stdout, 2: stderr, 3: both; also by rank: 0:3,1:1")
      ->type_name("N");
  launch->add_option("-t,--tee", flags->tee, "with --log-dir: streams that go to files and the console, as by default")
      ->type_name("N");
  launch
      ->add_option("--local-ranks-filter,--local_ranks_filter", flags->shown,
                   "local ranks whose output the console shows, such as 0,1; default: all")
      ->type_name("LIST");
  launch
      ->add_option("--numa-binding,--numa_binding", flags->cpu_binding,
                   "bind each rank to CPUs near its GPU: those of its NUMA node or socket, an exclusive part of the "
                   "node's cores, or cores with a common cache")
      ->type_name("MODE")
      ->check(CLI::IsMember({"node", "socket", "exclusive", "core-complex"}));
  launch
      ->add_option("--rdzv-backend,--rdzv_backend", flags->rdzv_backend,
                   "accepted for compatibility with torchrun; ignored")
      ->type_name("NAME")
      ->check(CLI::IsMember({"static", "c10d"}));
  launch
      ->add_option("--rdzv-endpoint,--rdzv_endpoint", flags->rdzv_endpoint,
                   "instead of --master-addr and --master-port")
      ->type_name("HOST[:PORT]");
  launch->add_option("--rdzv-id,--rdzv_id", flags->rdzv_id, "the value of TORCHELASTIC_RUN_ID")->type_name("ID");
  launch->prefix_command();
  launch->callback([launch, flags, &after_marker, &chosen] {
    chosen = [launch, flags, &after_marker]() -> Result<int> {
      std::vector<std::string> words = launch->remaining();
      if (!flags->module.empty()) words.insert(words.begin(), {"python3", "-u", "-m", flags->module});
      ASSIGN_OR_RETURN(const std::vector<std::string> argv, command_of(std::move(words), after_marker, *launch));
      for (const char* name : {"--max-restarts", "--restart-policy", "--restart-backoff"})
        flags->has_restart_options = flags->has_restart_options || launch->count(name) > 0;
      flags->has_rejoin_timeout = launch->count("--rejoin-timeout") > 0;
      flags->has_shrink_after = launch->count("--shrink-after") > 0;
      return launch_ranks(*flags, argv);
    };
  });
}

}  // namespace oarlock::cli
