#include "ddp/init_distributed.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/status_macros.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;

// How long to wait for a rank that does not answer. The process must exit within two seconds of a collective's timeout.
constexpr milliseconds kDiagnosisTimeout{800};
// Gloo fails at its own deadline, and its error has more detail, so the watchdog waits longer.
constexpr milliseconds kConnectSlack{5000};

Result<ProcessGroup> make_process_group(bool nccl, const c10::intrusive_ptr<c10d::Store>& store,
                                        const ProcessGroupOptions& options, const StopFlag& stop, const Clock& clock) {
  const SteadyTime begin = clock.steady();
  const Watchdog watchdog([&, begin] {
    const auto elapsed = std::chrono::duration_cast<milliseconds>(clock.steady() - begin);
    return connect_error(elapsed, options.connect_timeout + kConnectSlack, stop.is_raised() ? stop.signal_number() : 0);
  });
  if (nccl) return make_nccl_group(store, options);
  return make_gloo_group(store, options);
}

// Connects a Gloo group on a separate thread, which is abandoned when `abandon` is raised: Gloo waits for a rank that
// was lost meanwhile until the time-out of the connection, and cannot be interrupted.
Result<ProcessGroup> make_interruptible_gloo_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                   const ProcessGroupOptions& options, const StopFlag& stop,
                                                   const StopFlag& abandon) {
  // No watchdog: a signal after the thread was abandoned must not end the process. And a separate client: the thread
  // must not keep rank 0's server, and with it the port. When that server ends, the thread ends, too.
  const auto body = [store = store, options]() mutable -> Result<ProcessGroup> {
    const c10::intrusive_ptr<c10d::Store> client = store->clone();
    store.reset();
    return make_gloo_group(client, options);
  };
  std::optional<Result<ProcessGroup>> group = run_interruptibly<Result<ProcessGroup>>(
      body, abandon, kRegroupStopGrace, options.connect_timeout + 2 * kConnectSlack);
  if (group) return std::move(*group);
  if (stop.is_raised())
    return fail(ExitCode::kTempFail,
                fmt::format("interrupted by signal {} while the ranks were connecting", stop.signal_number()));
  return fail(ExitCode::kPeerLost, "another rank was lost while the ranks connected");
}

// Starts the peer monitor and exchanges the addresses of all ranks.
Result<std::unique_ptr<PeerMonitor>> start_peer_monitor(const ProcessGroup& group, const std::string& address,
                                                        PeerMonitor::ActivitySource activity) {
  const auto activity_with_collective = [group, activity = std::move(activity)] {
    PeerActivity now = activity();
    now.collective = group.sequence_number();
    return now;
  };
  Result<std::unique_ptr<PeerMonitor>> monitor = PeerMonitor::start(group.rank(), activity_with_collective);
  // All ranks agree, because the others would otherwise wait for this rank's address.
  RETURN_IF_ERROR(group.agree(monitor ? Result<void>() : tl::make_unexpected(monitor.error())));
  std::vector<PeerAddress> addresses;
  for (const std::string& host_and_port : group.all_gather(fmt::format("{} {}", address, (*monitor)->port()))) {
    const size_t space = host_and_port.find(' ');
    addresses.push_back({host_and_port.substr(0, space), std::stoi(host_and_port.substr(space + 1))});
  }
  (*monitor)->set_peers(std::move(addresses));
  return monitor;
}

Watchdog::Check leave_when_peer_lost(Watchdog::Check check, std::function<bool()> should_leave,
                                     const ProcessGroup& group) {
  return [check = std::move(check), should_leave = std::move(should_leave), group]() -> std::optional<Error> {
    if (group.has_left()) return std::nullopt;
    const std::optional<Error> error = check ? check() : std::nullopt;
    if (error && error->code != ExitCode::kPeerLost) return error;
    if (error || should_leave()) group.leave();
    return std::nullopt;
  };
}

}  // namespace

Result<DistributedContext> init_distributed(const DistributedOptions& options, PeerMonitor::ActivitySource activity,
                                            const StopFlag& stop, const Clock& clock, const ConnectReport& report) {
  DistributedContext out;
  if (options.rendezvous.world_size == 1) {
    out.group = ProcessGroup(nullptr, options.device);
    return out;
  }
  RendezvousOptions rendezvous_options = options.rendezvous;
  rendezvous_options.device = options.device.is_cuda() ? "cuda" : "cpu";
  std::shared_ptr<const StopFlag> rendezvous_stop = options.rendezvous_stop;
  if (!rendezvous_stop) rendezvous_stop = {std::shared_ptr<void>(), &stop};  // owned by the process
  ASSIGN_OR_RETURN(const RendezvousResult met, rendezvous(rendezvous_options, rendezvous_stop, clock, report));
  out.store = met.store;

  const ProcessGroupOptions group_options = {.rank = rendezvous_options.rank,
                                             .world_size = rendezvous_options.world_size,
                                             .device = options.device,
                                             .timeout = options.timeout,
                                             .connect_timeout = rendezvous_options.timeout,
                                             .address = met.address};
  if (!options.rendezvous_stop || options.nccl) {  // NCCL connects on the thread of its device
    ASSIGN_OR_RETURN(out.group, make_process_group(options.nccl, out.store, group_options, stop, clock));
  } else {
    ASSIGN_OR_RETURN(out.group,
                     make_interruptible_gloo_group(out.store, group_options, stop, *options.rendezvous_stop));
  }
  Watchdog::Check check;
  if (options.nccl) {
    check =
        collective_check([group = out.group] { return nccl_group_state(group); }, group_options.timeout, device_error);
  }
  // From here on, since a rank that has not connected all others may leave while this one waits for it.
  if (options.should_leave) check = leave_when_peer_lost(std::move(check), options.should_leave, out.group);
  if (check) out.collective_watchdog = std::make_unique<Watchdog>(std::move(check));
  try {
    ASSIGN_OR_RETURN(out.peers, start_peer_monitor(out.group, met.address, std::move(activity)));
  } catch (...) {
    out.group.leave();  // its threads may still wait for the rank that was lost
    throw;
  }
  return out;
}

Error with_peer_diagnosis(const Error& error, PeerMonitor* peers) {
  if (peers == nullptr) return error;
  if (error.code == ExitCode::kPeerLost) {
    return {error.code, fmt::format("{}: {}", peers->diagnose_peers(kDiagnosisTimeout), error.message)};
  }
  if (error.code != ExitCode::kTempFail) peers->report_exit("failed: " + error.message, kDiagnosisTimeout / 4);
  return error;
}

}  // namespace oarlock
