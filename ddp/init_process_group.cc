#include "ddp/init_process_group.h"

#include <fmt/format.h>

#include <csignal>
#include <iostream>
#include <memory>
#include <utility>

#include "common/contract.h"
#include "ddp/library_errors.h"
#include "recovery/launcher_channel.h"

namespace oarlock {
namespace {

template <typename T>
T value_of(Result<T> result) {
  if (!result) throw ErrorException(std::move(result).error());
  return std::move(*result);
}

// Writes one line to standard error: "oarlock: rendezvous: waiting for ranks: missing 1, seconds_left 295".
void report_to_standard_error(std::string_view message, LogFields details) {
  std::string line = fmt::format("oarlock: {}", message);
  const char* separator = ": ";
  for (const LogField& detail : details) {
    line += separator + std::string(detail.key) + ' ';
    line += std::visit([](const auto& value) { return fmt::format("{}", value); }, detail.value);
    separator = ", ";
  }
  std::cerr << line + '\n';
}

// Exist as long as the process, because an abandoned call may use them.
std::shared_ptr<const StopFlag> never_raised() {
  static const auto& flag = *new std::shared_ptr<const StopFlag>(std::make_shared<StopFlag>());
  return flag;
}
const Clock& real_clock() {
  static const Clock& clock = *new RealClock;
  return clock;
}

bool uses_nccl(const InitProcessGroupOptions& options) {
  if (options.backend == Backend::kAuto) return options.device.is_cuda() && is_nccl_in_build();
  return options.backend == Backend::kNccl;
}

Result<void> check_ranks(const RankEnvironment& ranks) {
  if (ranks.world_size < 1 || ranks.rank < 0 || ranks.rank >= ranks.world_size) {
    return fail(ExitCode::kConfig,
                fmt::format("init_process_group: rank {} is not in [0, world_size) for world_size {}", ranks.rank,
                            ranks.world_size));
  }
  if (ranks.world_size > 1 && (ranks.master_addr.empty() || ranks.master_port < 1)) {
    return fail(ExitCode::kConfig,
                fmt::format("init_process_group: '{}' and port {} are not the address of rank 0; set "
                            "master_addr and master_port",
                            ranks.master_addr, ranks.master_port));
  }
  return {};
}

// Gloo writes to connections that another rank may have closed.
void ignore_sigpipe_by_default() {
  struct sigaction current{};
  if (::sigaction(SIGPIPE, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
      current.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

PeerActivity activity() { return {"training", /*step=*/-1, 0}; }

// Prepares the process, and returns the options of its first group.
DistributedOptions prepare(const RankEnvironment& ranks, const InitProcessGroupOptions& options) {
  if (const Result<void> valid = check_ranks(ranks); !valid) throw ErrorException(valid.error());
  ignore_sigpipe_by_default();
  DistributedOptions all;
  all.rendezvous.rank = ranks.rank;
  all.rendezvous.world_size = ranks.world_size;
  all.rendezvous.master_addr = ranks.master_addr;
  all.rendezvous.master_port = ranks.master_port;
  all.rendezvous.master_fallback = ranks.master_fallback;
  all.rendezvous.uid = ranks.uid;
  all.rendezvous.attempt = ranks.attempt;
  all.rendezvous.timeout = options.connect_timeout;
  all.device = options.device;
  all.nccl = uses_nccl(options);
  all.timeout = options.timeout;
  if (all.nccl) disable_nccl_watchdog_exit();
  return all;
}

// A program divides its data by these numbers once.
Result<void> accept_same_position(const RankEnvironment& ranks, const Assignment& assignment) {
  if (assignment.rank == ranks.rank && assignment.world_size == ranks.world_size) return {};
  return fail(ExitCode::kPeerLost, fmt::format("this process was started as rank {} of {}, and cannot be rank {} of {}",
                                               ranks.rank, ranks.world_size, assignment.rank, assignment.world_size));
}

}  // namespace

DistributedContext init_process_group(const InitProcessGroupOptions& options) {
  return init_process_group(value_of(read_rank_environment(process_environment())), options);
}

DistributedContext init_process_group(const RankEnvironment& ranks, const InitProcessGroupOptions& options) {
  DistributedOptions all = prepare(ranks, options);
  all.rendezvous_stop = never_raised();  // connects so that a failure is an error, and no watchdog ends the process
  return value_of(catch_errors(
      [&] { return init_distributed(all, activity, *never_raised(), real_clock(), report_to_standard_error); }));
}

std::unique_ptr<GroupMembership> init_recoverable_process_group(const InitProcessGroupOptions& options) {
  const RankEnvironment ranks = value_of(read_rank_environment(process_environment()));
  const DistributedOptions all = prepare(ranks, options);
  std::unique_ptr<RegroupChannel> channel;
  if (ranks.world_size > 1)
    channel = value_of(LauncherChannel::open(process_environment()(kEnvRegroupFd), StandbyProcess::kNo));
  MembershipOptions membership;
  membership.rank = ranks.rank;
  membership.world_size = ranks.world_size;
  membership.connect_options = [all] { return all; };
  membership.accept = [ranks](const Assignment& assignment) { return accept_same_position(ranks, assignment); };
  membership.activity = activity;
  membership.report = report_to_standard_error;
  auto out = std::make_unique<GroupMembership>(std::move(membership), *never_raised(), real_clock());
  if (const Result<void> connected = out->connect(std::move(channel)); !connected)
    throw ErrorException(connected.error());
  return out;
}

}  // namespace oarlock
