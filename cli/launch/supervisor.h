// The decisions of the launcher: which signals to send when a rank ends, a signal arrives or time passes. It performs
// no I/O. A "member" is a process group: its leader is a rank, the other processes are descendants of that rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/launch/process.h"
#include "common/clock.h"

namespace oarlock::launch {

// The end of a member's leader, as waitpid(2) reported it.
struct MemberExit {
  int member = 0;
  ExitStatus status = {};
  bool leftovers = false;   // other processes of its process group still run
  bool is_earlier = false;  // it ended before the signal that stops the group, and is reported after it
};

// A signal to send to the process group of a member.
struct GroupSignal {
  int member = 0;
  int signal = 0;

  bool operator==(const GroupSignal&) const = default;
};

// The result of the whole group.
struct GroupResult {
  int exit_code = 0;
  int member = -1;         // the decisive member, whose failure is reported; -1 if all succeeded
  ExitStatus status = {};  // of the decisive member
  int interrupted_by = 0;  // the signal that stopped the group before any failure; 0 if none did
  // The members that ended with exit code 0 after that signal. Whether they are complete is known from their
  // termination messages only (resolve_interruption()).
  std::vector<int> stopped = {};
  SteadyTime::duration lifetime{0};  // of the process of the decisive member
  std::string last_line = {};        // why it failed, as its standard error states it, if that is a pipe
  int64_t step = -1;             // the highest step that a member has reported in another way than a message; -1: none
  int64_t checkpoint_step = -1;  // the same for the newest checkpoint
  // Why this node has left a group that may continue without it, with exit code 76; empty if it has not.
  std::string disconnected = {};
  // A file of --log-dir that lacks output of which it would be the only copy; empty if no such output was lost.
  std::string lost_output = {};
};

// Rules:
// - The first failure stops the group: all members receive SIGTERM, and SIGKILL after the grace period. After a
//   collateral failure (exit code 76), the other members have two seconds to end first, so that the cause is known.
// - SIGTERM, SIGINT, SIGHUP and SIGQUIT are forwarded and start the same grace period; a second SIGINT sends SIGKILL
//   immediately. Other signals are only forwarded. A batch system warns with them of the end of its time limit: if a
//   member ends with exit code 0 or 75 within the grace period after such a signal, the signal has stopped the group.
// - Processes that a leader leaves behind are stopped in the same way.
// - The first failure whose cause is in the member itself is decisive. Exit code 76, and exits that the stop itself
// caused, count
//   only if there is no other failure. A group that a signal stopped ends with 75 if a member reports that its state is
//   saved, unless another member exceeded the grace period. If the members recover from the loss of others, that also
//   applies if a member was lost at the same time, in a way after which it could have been replaced.
// Not thread-safe.
class Supervisor {
 public:
  using Duration = std::chrono::steady_clock::duration;
  using Signals = std::vector<GroupSignal>;

  // `recovers_losses`: the members that remain keep their state when one is lost, and may save it alone.
  Supervisor(int members, Duration grace, bool recovers_losses = false);

  // Events. Each returns the signals to send.
  // Leaders ended since the last call; the order within one call is unknown.
  Signals exited(std::span<const MemberExit> exits, SteadyTime now);
  void group_emptied(int member);                 // all processes of a member have ended
  Signals signalled(int signal, SteadyTime now);  // the launcher received a signal
  Signals time_passed(SteadyTime now);
  Signals stop_group(SteadyTime now);   // the group ends for a reason outside of its members
  void expect_failure(SteadyTime now);  // like stop_group(), after two seconds in which members may end by themselves

  // Whether an end with this status is the reaction to a signal that was only forwarded.
  bool is_reaction(const ExitStatus& status, SteadyTime now) const;

  std::optional<SteadyTime> deadline() const;  // when to call time_passed()
  bool finished() const;                       // all processes of all members have ended
  bool stopping() const { return stopping_; }
  int running() const;  // number of leaders that still run
  GroupResult result() const;

 private:
  enum class State { kRunning, kLingering, kGone };
  // Kinds of failure, in ascending order of precedence.
  enum class FailureKind { kOk, kStopped, kPeerLost, kLost, kSaved, kOutOfGrace, kOwn };

  struct Member {
    State state = State::kRunning;
    bool stop_requested = false;  // received a signal that should end it
    bool killed = false;          // received SIGKILL
    std::optional<SteadyTime> kill_at;
  };
  struct MemberFailure {
    int member;
    ExitStatus status;
    FailureKind kind;
  };

  int precedence(FailureKind kind) const;
  FailureKind classify(const Member& member, const ExitStatus& status) const;
  void request_stop(int member, int signal, SteadyTime now, Signals& signals);
  void kill(int member, SteadyTime now, Signals& signals);
  void stop(SteadyTime now, Signals& signals);

  Duration grace_;
  bool recovers_losses_;
  std::vector<Member> members_;
  std::vector<MemberFailure> failures_;  // in chronological order
  bool stopping_ = false;
  std::optional<SteadyTime> stop_at_;  // when to stop the group after a collateral failure
  int interrupted_by_ = 0;
  int forwarded_ = 0;                          // the last signal that was only forwarded
  std::optional<SteadyTime> forwarded_until_;  // when the time to react to it ends
  std::vector<int> stopped_;                   // see GroupResult
  bool saw_interrupt_key_ = false;
};

}  // namespace oarlock::launch
