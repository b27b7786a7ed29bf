// The membership of a process in the groups that the ranks of a job form one after the other (docs/recovery.md): it
// connects the first group and, when a rank is lost, leaves it and connects the next one, whose ranks receive the state
// of one of them. The trainer and RecoverableLoop (ddp/recoverable_loop.h) have this in common.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/error.h"
#include "common/log_field.h"
#include "common/stop_flag.h"
#include "ddp/init_distributed.h"
#include "ddp/process_group.h"
#include "recovery/regroup.h"

namespace oarlock {

struct LostRank {
  SteadyTime detected;
  std::string reason;  // empty for a process that joins its first group
};

// What a membership calls, on the thread of recover() and join().
class GroupMember {
 public:
  virtual ~GroupMember() = default;

  // Undoes the step that did not complete, and releases everything that uses the group. Also called after join_group()
  // has failed.
  virtual void leave_group() = 0;

  // The state in memory. Called after leave_group().
  virtual RecoveryState recovery_state() const = 0;

  // Called by all ranks of a group that is connected: transfers the state of the rank assignment().donor to them. A
  // failure with kPeerLost or kTempFail is the loss of another rank, so that the next group follows; any other one is
  // the result of recover().
  virtual Result<void> join_group(const LostRank& lost) = 0;

  // Whether this failure of join_group() is none of another rank, although its code is kTempFail.
  virtual bool is_final(const Error&) const { return false; }
};

struct MembershipOptions {
  // Of the process, as it was started. A group may have fewer ranks.
  int rank = 0;
  int world_size = 1;
  // Returns the options for a group of rank() and world_size(). Rank, size and, unless it is the first one without a
  // channel, the address are filled in.
  std::function<Result<DistributedOptions>()> connect_options;
  // Whether the process can have this position in a group. Its failure is that of connect() or recover().
  std::function<Result<void>(const Assignment&)> accept;
  PeerMonitor::ActivitySource activity;  // as of init_distributed()
  ConnectReport report{};                // messages to people
};

// Not thread-safe, except for peers().
class GroupMembership {
 public:
  // `stop` and `clock` must exist as long as the process.
  GroupMembership(MembershipOptions options, const StopFlag& stop, const Clock& clock)
      : options_(std::move(options)),
        stop_(stop),
        clock_(clock),
        group_(ProcessGroup::unconnected(options_.rank, options_.world_size, at::kCPU)) {}
  // Leaves the group if an exception is the reason, so that no thread of it waits for the other ranks.
  ~GroupMembership();
  GroupMembership(const GroupMembership&) = delete;
  GroupMembership& operator=(const GroupMembership&) = delete;

  // Connects the first group, over `channel` unless it is null; the loss of a rank is then the failure of a collective.
  // `newcomer` is reported to the channel. Fails as init_distributed() and RegroupChannel::regroup() do. A
  // replacement is then connected to the other ranks, which wait while it prepares its data and its model: until
  // join(), group() is unconnected, so that its collectives are those of a group of one rank.
  Result<void> connect(std::unique_ptr<RegroupChannel> channel, const RecoveryState& newcomer = {});

  // Whether this process has replaced a lost one, or joins a group that grows: join() must follow.
  bool is_replacement() const { return channel_ && assignment_.donor >= 0; }

  // Called by a replacement: joins its group. If that fails because another rank was lost, recover() may follow.
  Result<void> join(GroupMember& member);

  // Called after a collective has failed with `error`, a kPeerLost: leaves the group and joins the next one, until all
  // its ranks have the state of the donor. Afterwards group() is the new group. Fails with the diagnosis of the lost
  // rank if the group cannot recover, with kTempFail if `stop` was raised, and as join_group() does; the group was left
  // then. Needs a channel.
  Result<void> recover(Error error, GroupMember& member);

  // The object stays the same, whatever group it is.
  const ProcessGroup& group() const { return group_; }
  // Of the current group, or of the job before the first one.
  int rank() const { return assignment_.generation >= 0 ? assignment_.rank : options_.rank; }
  int world_size() const { return assignment_.generation >= 0 ? assignment_.world_size : options_.world_size; }
  // With a channel: of the current group; before the first one, its generation is -1.
  const Assignment& assignment() const { return assignment_; }
  RegroupChannel* channel() const { return channel_.get(); }
  // "nccl" or "gloo", also of a replacement that has not joined its group; "" in a group of one rank.
  std::string backend_name() const { return (joining_ ? joining_->group : group_).backend_name(); }
  void report(std::string_view message, LogFields details) const {
    if (options_.report) options_.report(message, details);
  }
  // Null in a group of one rank. Any thread may call this while it trains.
  PeerMonitor* peers() const { return peers_.get(); }

 private:
  Result<void> regroup(const RecoveryState& state, const std::string& reason);
  Result<DistributedContext> connect_ranks();
  Result<DistributedContext> connect_assigned(DistributedOptions options);
  void adopt(DistributedContext connection);
  void leave(GroupMember& member);
  Result<void> join_next(const LostRank& lost, GroupMember& member);

  MembershipOptions options_;
  const StopFlag& stop_;
  const Clock& clock_;
  at::Device device_ = at::kCPU;  // of the current group
  // In the order of creation; destroyed in reverse.
  std::unique_ptr<RegroupChannel> channel_;
  Assignment assignment_{.generation = -1, .store_host = {}, .store_prefix = {}};
  c10::intrusive_ptr<c10d::Store> store_;
  ProcessGroup group_;
  std::unique_ptr<PeerMonitor> peers_;
  std::unique_ptr<Watchdog> collective_watchdog_;  // DistributedContext
  std::optional<DistributedContext> joining_;      // of a replacement, until join()
};

}  // namespace oarlock
