#include "cli/launch_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/contract.h"
#include "common/number.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using namespace launch;

constexpr int kMaxPort = 65535;
constexpr int kMaxRestarts = 1'000'000;

// The lease ends this much earlier than the time after which the group may continue without a node.
constexpr double kLeaseShare = 0.9;

// Seconds by which the default of --rejoin-timeout exceeds the value of OARLOCK_SHRINK_AFTER.
constexpr double kRejoinTime = 60;

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

uint64_t random_id() { return random_number() % ((uint64_t{1} << 40) - 1) + 1; }

void add_group_options(CLI::App& launch, LaunchFlags& flags) {
  launch
      .add_option("--nproc,--nproc-per-node,--nproc_per_node", flags.nproc,
                  "ranks on this node; gpu: one for each GPU, cpu: for each core, auto: GPUs if there are any")
      ->type_name("N|auto|gpu|cpu");
  launch.add_option("--nnodes", flags.topology.nnodes, "nodes in the job")
      ->type_name("N")
      ->check([](const std::string& value) -> std::string {
        if (value.find(':') == std::string::npos) return "";
        return fmt::format(
            "'{}' is a range, but the launcher has a fixed number of nodes; give one number, or use "
            "spec.elastic of a TrainingJob",
            shortened(value));
      });
  launch.add_option("--node-rank,--node_rank", flags.topology.node_rank, "index of this node, from 0")->type_name("N");
  launch.add_option("--master-addr,--master_addr", flags.topology.master_addr, "host of rank 0")->type_name("HOST");
  launch.add_option("--master-port,--master_port", flags.topology.master_port, "rendezvous port of rank 0")
      ->type_name("PORT");
  launch
      .add_option("--grace", flags.grace,
                  "seconds between SIGTERM and SIGKILL; in a pod, less than its terminationGracePeriodSeconds")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  launch.add_flag("--no-prefix", flags.no_prefix, "do not prefix lines with [RANK r]");
}

void add_restart_options(CLI::App& launch, LaunchFlags& flags) {
  launch.add_option("--max-restarts,--max_restarts", flags.max_restarts, "restarts after failures of ranks")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, kMaxRestarts));
  launch
      .add_option("--restart-policy", flags.restart_policy,
                  "group: all ranks start again; rank: failed ranks only, for programs that regroup "
                  "(docs/recovery.md)")
      ->type_name("POLICY")
      ->capture_default_str()
      ->check(CLI::IsMember({"group", "rank"}));
  launch
      .add_option("--regroup-timeout", flags.regroup_timeout,
                  "seconds until a rank that does not leave a failed group is killed")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
  launch
      .add_option("--rejoin-timeout", flags.rejoin_timeout, "seconds until a group that is not complete ends the job")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  launch
      .add_option("--min-nodes", flags.min_nodes,
                  "with --restart-policy rank: continue with so many nodes while others are missing (docs/recovery.md)")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxRestarts));
  launch
      .add_option("--shrink-after", flags.shrink_after,
                  "with --min-nodes: seconds until a group continues without the nodes that it misses")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  launch
      .add_option("--restart-backoff", flags.backoff,
                  "seconds before the second of several quick restarts; then doubled, up to 5 minutes")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  launch.add_flag("--no-standby", flags.no_standby,
                  "with --restart-policy rank: hold no process that has loaded its libraries and replaces a lost rank");
}

void add_rank_options(CLI::App& launch, LaunchFlags& flags) {
  launch.add_flag("--standalone", flags.standalone, "one node on a free port; ignores the job of the environment");
  launch.add_option("-m,--module", flags.module, "run a Python module: python3 -u -m MODULE ARGUMENTS")
      ->type_name("MODULE");
  launch
      .add_option("--log-dir,--log_dir", flags.log_dir,
                  "also write the output to DIR/attempt_N/rank_R/stdout.log and stderr.log")
      ->type_name("DIR");
  launch
      .add_option("-r,--redirects", flags.redirects,
                  "with --log-dir: streams that go to files only; 1: stdout, 2: stderr, 3: both; also by rank: 0:3,1:1")
      ->type_name("N");
  launch.add_option("-t,--tee", flags.tee, "with --log-dir: streams that go to files and the console, as by default")
      ->type_name("N");
  launch
      .add_option("--local-ranks-filter,--local_ranks_filter", flags.shown,
                  "local ranks whose output the console shows, such as 0,1; default: all")
      ->type_name("LIST");
  launch
      .add_option("--numa-binding,--numa_binding", flags.cpu_binding,
                  "bind each rank to CPUs near its GPU: those of its NUMA node or socket, an exclusive part of the "
                  "node's cores, or cores with a common cache")
      ->type_name("MODE")
      ->check(CLI::IsMember({"node", "socket", "exclusive", "core-complex"}));
  launch
      .add_option("--rdzv-backend,--rdzv_backend", flags.rdzv_backend,
                  "accepted for compatibility with torchrun; ignored")
      ->type_name("NAME")
      ->check(CLI::IsMember({"static", "c10d"}));
  launch
      .add_option("--rdzv-endpoint,--rdzv_endpoint", flags.rdzv_endpoint, "instead of --master-addr and --master-port")
      ->type_name("HOST[:PORT]");
  launch
      .add_flag("--preflight{timeout=300}", flags.preflight,
                "first check all nodes, and the network between them; --preflight=bandwidth=1000,latency=5 sets limits "
                "(docs/guides/preflight.md)")
      ->type_name("SETTINGS");
  launch.add_option("--rdzv-id,--rdzv_id", flags.rdzv_id, "the value of TORCHELASTIC_RUN_ID")->type_name("ID");
  launch
      .add_option(
          "--progress-pattern", flags.progress_pattern,
          "regular expression for lines of the output whose first group is the step, and the second one the loss")
      ->type_name("REGEX");
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
  options.link.lease = to_milliseconds(flags.shrink_after * kLeaseShare);
  return {};
}

}  // namespace

void add_launch_options(CLI::App& launch, LaunchFlags& flags) {
  add_group_options(launch, flags);
  add_restart_options(launch, flags);
  add_rank_options(launch, flags);
}

void record_given_options(const CLI::App& launch, LaunchFlags& flags) {
  for (const char* name : {"--max-restarts", "--restart-policy", "--restart-backoff"})
    flags.has_restart_options = flags.has_restart_options || launch.count(name) > 0;
  flags.has_rejoin_timeout = launch.count("--rejoin-timeout") > 0;
  flags.has_shrink_after = launch.count("--shrink-after") > 0;
}

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

Result<std::optional<int>> read_count(const Environment& environment, const char* name) {
  const std::string text = value_of(environment, name);
  if (text.empty()) return std::nullopt;
  const std::optional<int> value = parse_integer<int>(text);
  if (!value || *value < 0 || *value > kMaxRestarts) {
    return fail(ExitCode::kConfig,
                fmt::format("environment variable {}='{}' is not a number from 0 to {}", name, text, kMaxRestarts));
  }
  return value;
}

Result<void> apply_restart_variables(const Environment& environment, LaunchFlags& flags) {
  if (flags.has_restart_options || flags.standalone) return {};
  ASSIGN_OR_RETURN(const std::optional<int> count, read_count(environment, kEnvMaxRestarts));
  ASSIGN_OR_RETURN(const std::optional<int> backoff, read_count(environment, kEnvRestartBackoff));
  if (const std::string policy = value_of(environment, kEnvRestartPolicy); !policy.empty()) {
    if (policy != "rank" && policy != "group") {
      return fail(ExitCode::kConfig,
                  fmt::format("environment variable {}='{}' is neither rank nor group", kEnvRestartPolicy, policy));
    }
    flags.restart_policy = policy;
  }
  flags.max_restarts = count.value_or(0);
  flags.backoff = backoff.value_or(0);
  return {};
}

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

Result<std::unique_ptr<Recovery>> make_recovery(const LaunchFlags& flags, const Topology& topology,
                                                const Environment& environment) {
  if (flags.max_restarts == 0) {
    if (flags.min_nodes) return fail(ExitCode::kUsage, "--min-nodes needs --max-restarts");
    return nullptr;
  }
  const auto variable = [&](const char* name) { return value_of(environment, name); };
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
  if (by_rank || options.coordinator.replaces_nodes) options.link.reconnect_timeout = options.coordinator.form_timeout;
  options.link.host = topology.master_addr;
  options.link.port = topology.master_port + kRegroupPortOffset;
  if (topology.nnodes > 1 && options.link.port > kMaxPort) {
    return fail(ExitCode::kUsage,
                fmt::format("--max-restarts with several nodes needs the port after --master-port, too: {} is above {}",
                            options.link.port, kMaxPort));
  }
  options.link.token = variable(kEnvRegroupToken);
  if (topology.nnodes > 1 && options.link.token.empty()) {
    return fail(
        ExitCode::kConfig,
        fmt::format("--max-restarts with several nodes needs a secret that all nodes share: set {}, for example "
                    "to the output of 'openssl rand -hex 16'",
                    kEnvRegroupToken));
  }
  RETURN_IF_ERROR(apply_min_nodes(flags, topology, options));
  return Recovery::make(std::move(options));
}

Result<std::optional<PreflightOptions>> make_preflight(const LaunchFlags& flags, const Topology& topology,
                                                       const Environment& environment) {
  const auto variable = [&](const char* name) { return value_of(environment, name); };
  const std::string settings = flags.preflight.empty() && !flags.standalone ? variable(kEnvPreflight) : flags.preflight;
  if (settings.empty()) return std::nullopt;
  PreflightOptions out{.nodes = topology.nnodes,
                       .node_rank = topology.node_rank,
                       .master_addr = topology.master_addr,
                       .master_port = topology.master_port,
                       .token = variable(kEnvRegroupToken),
                       .is_local_only = !variable(kEnvReplacement).empty()};
  ASSIGN_OR_RETURN(out.settings, parse_preflight(settings));
  out.checks.storage = variable(kEnvCheckpointDir);
  if (topology.nnodes == 1) return out;
  if (topology.master_port + kPreflightPortOffset > kMaxPort) {
    return fail(ExitCode::kUsage,
                fmt::format("--preflight with several nodes needs the second port after --master-port: {} is above {}",
                            topology.master_port + kPreflightPortOffset, kMaxPort));
  }
  if (out.token.empty()) {
    return fail(
        ExitCode::kConfig,
        fmt::format("--preflight with several nodes needs a secret that all nodes share: set {}, for example to "
                    "the output of 'openssl rand -hex 16'",
                    kEnvRegroupToken));
  }
  return out;
}

Result<RankOutput> output_of_ranks(const LaunchFlags& flags, int ranks) {
  RankOutput out;
  ASSIGN_OR_RETURN(out.redirects, streams_by_rank("--redirects", flags.redirects, ranks));
  ASSIGN_OR_RETURN(out.tee, streams_by_rank("--tee", flags.tee, ranks));
  ASSIGN_OR_RETURN(out.shown, shown_ranks(flags.shown, ranks));
  return out;
}

}  // namespace oarlock::cli
