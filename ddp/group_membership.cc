#include "ddp/group_membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <thread>
#include <utility>

#include "common/status_macros.h"
#include "ddp/library_errors.h"

namespace oarlock {
namespace {

constexpr std::chrono::milliseconds kRegroupConnectTimeout{20'000};  // until ranks that regroup are connected
constexpr std::chrono::milliseconds kRegroupPollInterval{20};

// Whether another rank was lost while the group formed.
bool is_rank_failure(const Error& error) {
  return error.code == ExitCode::kPeerLost || error.code == ExitCode::kTempFail;
}

}  // namespace

GroupMembership::~GroupMembership() {
  if (std::uncaught_exceptions() > 0) group_.leave();
}

Result<void> GroupMembership::connect(std::unique_ptr<RegroupChannel> channel, const RecoveryState& newcomer) {
  channel_ = std::move(channel);
  if (channel_) RETURN_IF_ERROR(regroup(newcomer, "started"));
  Result<DistributedContext> connection = catch_errors([&] { return connect_ranks(); });
  while (!connection) {  // another rank may be lost meanwhile
    if (!channel_ || !is_rank_failure(connection.error()) || stop_.is_raised())
      return tl::make_unexpected(std::move(connection.error()));
    RETURN_IF_ERROR(regroup({}, connection.error().message));
    connection = catch_errors([&] { return connect_ranks(); });
  }
  if (is_replacement()) {
    joining_ = std::move(*connection);
    group_ = ProcessGroup::unconnected(rank(), world_size(), device_);
  } else {
    adopt(std::move(*connection));
  }
  return {};
}

Result<void> GroupMembership::regroup(const RecoveryState& state, const std::string& reason) {
  ASSIGN_OR_RETURN(assignment_, channel_->regroup(assignment_.generation, state, reason, stop_));
  return options_.accept(assignment_);
}

Result<DistributedContext> GroupMembership::connect_ranks() {
  ASSIGN_OR_RETURN(DistributedOptions options, options_.connect_options());
  device_ = options.device;
  options.rendezvous.rank = rank();
  options.rendezvous.world_size = world_size();
  if (channel_) return connect_assigned(std::move(options));
  return init_distributed(options, options_.activity, stop_, clock_, options_.report);
}

Result<DistributedContext> GroupMembership::connect_assigned(DistributedOptions options) {
  options.rendezvous.master_addr = assignment_.store_host;
  options.rendezvous.master_port = assignment_.store_port;
  options.rendezvous.master_fallback.clear();
  options.rendezvous.uid += "/" + assignment_.store_prefix;  // a store of an older generation is another job's
  options.rendezvous.is_repeatable = true;
  options.should_leave = [this, generation = assignment_.generation] {
    return channel_->regroup_requested(generation);
  };
  // All ranks of the assignment were alive a moment ago. If one is lost meanwhile, the others regroup again.
  if (assignment_.donor >= 0) {
    options.rendezvous.timeout = std::min(options.rendezvous.timeout, kRegroupConnectTimeout);
  }
  const auto abandon = std::make_shared<StopFlag>();
  options.rendezvous_stop = abandon;
  const std::jthread watch([&](const std::stop_token& done) {
    while (!done.stop_requested() && !abandon->is_raised()) {
      if (stop_.is_raised()) abandon->raise(stop_.signal_number());
      if (channel_->regroup_requested(assignment_.generation)) abandon->raise(SIGTERM);
      std::this_thread::sleep_for(kRegroupPollInterval);
    }
  });
  return init_distributed(options, options_.activity, stop_, clock_, options_.report);
}

void GroupMembership::adopt(DistributedContext connection) {
  store_ = std::move(connection.store);
  group_ = std::move(connection.group);
  peers_ = std::move(connection.peers);
  collective_watchdog_ = std::move(connection.collective_watchdog);
}

Result<void> GroupMembership::recover(Error error, GroupMember& member) {
  const SteadyTime begin = clock_.steady();
  for (;;) {
    group_.leave();  // first, so that no other rank waits for this one
    const Error diagnosed = with_peer_diagnosis(error, peers_.get());
    leave(member);
    Result<void> assigned = regroup(member.recovery_state(), diagnosed.message);
    if (assigned && assignment_.donor < 0)
      assigned = fail(ExitCode::kPeerLost, "no rank has a consistent state; restarting from the newest checkpoint");
    peers_.reset();  // it answered the other ranks until they had left, too
    store_.reset();
    if (!assigned) {
      if (assigned.error().code != ExitCode::kPeerLost) return assigned;
      return fail(diagnosed.code, fmt::format("{}; {}", diagnosed.message, assigned.error().message));
    }
    const Result<void> joined = catch_errors([&] { return join_next({begin, diagnosed.message}, member); });
    if (joined || !is_rank_failure(joined.error()) || member.is_final(joined.error())) return joined;
    error = joined.error();
  }
}

// Afterwards no thread of this rank uses the group.
void GroupMembership::leave(GroupMember& member) {
  member.leave_group();
  collective_watchdog_.reset();
  joining_.reset();
  group_ = ProcessGroup::unconnected(rank(), world_size(), device_);
}

Result<void> GroupMembership::join(GroupMember& member) { return join_next({clock_.steady(), ""}, member); }

// A replacement is connected already and was not informed of the loss.
Result<void> GroupMembership::join_next(const LostRank& lost, GroupMember& member) {
  if (!joining_) {
    ASSIGN_OR_RETURN(joining_, connect_ranks());
  }
  adopt(*std::exchange(joining_, std::nullopt));
  return member.join_group(lost);
}

}  // namespace oarlock
