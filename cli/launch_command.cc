// oarlock launch: supervises the ranks of one node.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <algorithm>
#include <csignal>
#include <memory>

#include "cli/command.h"
#include "cli/launch/console.h"
#include "cli/launch/group.h"
#include "cli/launch/termination.h"
#include "cli/launch/topology.h"
#include "common/contract.h"
#include "common/files.h"
#include "common/port_reservation.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using namespace launch;

constexpr char kOmpThreads[] = "OMP_NUM_THREADS";

constexpr char kDescription[] =
    "Start and supervise the ranks of one node. Missing options default to the environment (LOCAL_WORLD_SIZE,\n"
    "NODE_RANK, MASTER_ADDR, MASTER_PORT and torchrun's PET_ names), else to one rank on one node.";

constexpr char kFooter[] = R"(
Each rank receives RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR, MASTER_PORT and the PET_ names;
with several ranks also OMP_NUM_THREADS=1, unless it is set.
The first failure stops all ranks: SIGTERM, and SIGKILL after the grace. The exit code is that of the rank that failed
first, 128+n after signal n. 66: the command does not exist; 77: it is not executable; 78: the environment is invalid.
SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded; a second SIGINT kills the ranks.
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
};

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

std::string log_text(const std::optional<std::string>& path) { return path ? read_file(*path).value_or("") : ""; }

Result<int> launch_ranks(const LaunchFlags& flags, const std::vector<std::string>& argv) {
  const Environment environment = environment_of(environ);
  TopologyFlags given = flags.topology;
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
  ASSIGN_OR_RETURN(const SignalSource signals, SignalSource::take());

  const int count = topology.nproc;
  const std::optional<std::string> pod_log = termination_log(environment);
  if (!log_text(pod_log).empty()) {  // a message of an earlier run of this container
    RETURN_IF_ERROR(write_in_place(*pod_log, ""));
  }
  std::optional<MessageFiles> files;
  if (count > 1) {
    ASSIGN_OR_RETURN(MessageFiles made, MessageFiles::make(environment));
    files.emplace(std::move(made));
  }
  const std::optional<rlim_t> descriptor_limit = raise_descriptor_limit();
  const bool limit_threads = count > 1 && !environment.contains(kOmpThreads);
  std::vector<Member> members;
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) {
    Environment of_rank = rank_environment(topology, i);
    if (limit_threads) of_rank[kOmpThreads] = "1";  // otherwise every rank would use all cores
    if (files) of_rank[kEnvTerminationLog] = files->path(i).string();
    if (count > 1 && !flags.no_prefix) of_rank[kEnvLinesPrefixed] = "1";
    of_rank.insert(environment.begin(), environment.end());  // keeps existing entries
    const int rank = topology.rank(i);
    ranks.push_back(rank);
    members.push_back({{count > 1 ? with_text_log(argv) : argv, std::move(of_rank), {}, descriptor_limit},
                       fmt::format("rank {}", rank),
                       flags.no_prefix ? "" : fmt::format("[RANK {}] ", rank)});
  }

  const RealClock clock;
  Console console("oarlock launch");
  if (limit_threads) console.print_line("OMP_NUM_THREADS is not set: 1 for each rank, as torchrun does");
  const auto grace = std::chrono::duration_cast<Supervisor::Duration>(std::chrono::duration<double>(flags.grace));
  const Stdio stdio = count > 1 ? Stdio::kPipes : Stdio::kForeground;
  ASSIGN_OR_RETURN(const GroupResult result, run_group(members, {grace, stdio}, signals, clock, console));

  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) texts.push_back(files ? files->text(i) : log_text(pod_log));
  const std::string message = pod_message(texts, ranks, result);
  // Ranks without support for the contract may have written the file of the pod themselves; keep their message.
  const std::string present = log_text(pod_log);
  const bool is_created = !texts.empty() && texts[static_cast<size_t>(std::max(result.member, 0))].empty();
  if (pod_log && !message.empty() && message != present && (present.empty() || !is_created)) {
    if (Result<void> written = write_in_place(*pod_log, message); !written) {
      console.print_line(written.error().message);
      console.flush(signals, clock, clock.steady() + grace);
    }
  }
  if (const Result<void> written = console.written(); !written) {
    // SIGPIPE ended the rank because its output could not be written.
    if (result.exit_code == 0 || result.exit_code == 128 + SIGPIPE) return tl::make_unexpected(written.error());
    console.print_line(written.error().message);
    console.flush(signals, clock, clock.steady() + grace);
  }
  return result.exit_code;
}

}  // namespace

void add_launch(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen) {
  auto flags = std::make_shared<LaunchFlags>();
  CLI::App* launch = app.add_subcommand("launch", kDescription);
  launch->footer(kFooter);
  set_usage(*launch, "oarlock launch [OPTIONS] [--] COMMAND [ARGUMENTS...]");
  launch
      ->add_option("--nproc,--nproc-per-node,--nproc_per_node", flags->nproc,
                   "ranks on this node; gpu: one for each GPU, cpu: for each core, auto: GPUs if there are any")
      ->type_name("N|auto|gpu|cpu");
  launch->add_option("--nnodes", flags->topology.nnodes, "nodes in the job")->type_name("N");
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
  launch->prefix_command();
  launch->callback([launch, flags, &after_marker, &chosen] {
    chosen = [launch, flags, &after_marker]() -> Result<int> {
      ASSIGN_OR_RETURN(const std::vector<std::string> argv, command_of(launch->remaining(), after_marker, *launch));
      return launch_ranks(*flags, argv);
    };
  });
}

}  // namespace oarlock::cli
