#include "trainer/distributed/connection.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace oarlock {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{
    800};  // with a rank that does not answer; the exit is due two seconds after a time-out

constexpr milliseconds kConnectSlack{5000};  // Gloo ends by itself at its deadline, and its error tells more

milliseconds from_seconds(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

Result<void> open_watch(Connection& connection, const std::string& address, PeerWatch::ActivitySource activity) {
  const auto with_collective = [group = connection.group, activity = std::move(activity)] {
    Activity now = activity();
    now.collective = group.sequence();
    return now;
  };
  Result<std::unique_ptr<PeerWatch>> watch = PeerWatch::start(connection.group.rank(), with_collective);
  // Together: else the others would wait for this rank's address.
  const Result<void> started = watch ? Result<void>() : tl::make_unexpected(watch.error());
  if (const Result<void> all = connection.group.agree(started); !all) return all;
  std::vector<PeerAddress> peers;
  for (const std::string& host_and_port : connection.group.gather(fmt::format("{} {}", address, (*watch)->port()))) {
    const size_t space = host_and_port.find(' ');
    peers.push_back({host_and_port.substr(0, space), std::stoi(host_and_port.substr(space + 1))});
  }
  (*watch)->set_peers(std::move(peers));
  connection.watch = std::move(*watch);
  return {};
}

}  // namespace

Result<BackendChoice> choose_backend(const DistributedConfig& config, bool cuda_device, bool nccl_in_build) {
  if (config.backend == BackendKind::kGloo) return BackendChoice{};
  if (cuda_device && nccl_in_build) return BackendChoice{true, ""};
  if (config.backend == BackendKind::kAuto) return BackendChoice{};
  const std::string problem = nccl_in_build
                                  ? "distributed.backend: nccl needs device: cuda; use gloo on the cpu"
                                  : "distributed.backend: nccl is not in this build; use gloo, or a build with "
                                    "-DOARLOCK_CUDA=ON";
  if (config.fallback == Fallback::kCpu) {
    return BackendChoice{false, problem + "; distributed.fallback: cpu: the ranks talk by gloo"};
  }
  return fail(nccl_in_build ? ExitCode::kConfig : ExitCode::kUnavailable, problem);
}

Result<Connection> connect_ranks(const ConnectionOptions& options, PeerWatch::ActivitySource activity,
                                 const StopFlag& stop, const Clock& clock, const Logger& logger) {
  const Result<BackendChoice> backend = choose_backend(options.config, options.device.is_cuda(), nccl_in_build());
  if (!backend) return tl::make_unexpected(backend.error());
  Connection out;
  if (options.rendezvous.world_size == 1) {
    out.group = RankGroup(nullptr, options.device);
    return out;
  }
  if (!backend->warning.empty()) logger.warn(backend->warning);
  RendezvousOptions rendezvous = options.rendezvous;
  rendezvous.device = options.device.is_cuda() ? "cuda" : "cpu";
  rendezvous.timeout = from_seconds(options.config.rendezvous_timeout_seconds);
  Result<Meeting> meeting = meet(rendezvous, stop, clock, logger);
  if (!meeting) return tl::make_unexpected(meeting.error());
  out.store = meeting->store;
  GroupOptions group;
  group.rank = rendezvous.rank;
  group.world_size = rendezvous.world_size;
  group.device = options.device;
  group.timeout = from_seconds(options.config.timeout_seconds);
  group.connect_timeout = rendezvous.timeout;
  group.address = meeting->address;
  const auto begin = clock.steady();
  std::optional<Watchdog> connecting(std::in_place, [&, begin] {
    const auto elapsed = std::chrono::duration_cast<milliseconds>(clock.steady() - begin);
    return connect_verdict(elapsed, group.connect_timeout + kConnectSlack, stop.raised() ? stop.signal_number() : 0);
  });
  Result<RankGroup> made =
      backend->nccl ? make_nccl_group(out.store, group) : Result<RankGroup>(make_gloo_group(out.store, group));
  connecting.reset();
  if (!made) return tl::make_unexpected(made.error());
  out.group = std::move(*made);
  if (const Result<void> watched = open_watch(out, meeting->address, std::move(activity)); !watched)
    return tl::make_unexpected(watched.error());
  if (backend->nccl) {
    out.collectives = std::make_unique<CollectiveWatch>([ranks = out.group] { return nccl_state(ranks); },
                                                        group.timeout, milliseconds(100), device_fault);
  }
  return out;
}

Error explained(const Error& error, PeerWatch* watch) {
  if (watch == nullptr) return error;
  if (error.code == ExitCode::kPeerLost) {
    return {error.code, fmt::format("{}: {}", watch->explain(kPatience), error.message)};
  }
  if (error.code != ExitCode::kTempFail) watch->tell("failed: " + error.message, kPatience / 4);
  return error;
}

}  // namespace oarlock
