// What to do when a rank ends, a signal arrives or time passes: the decisions of the launcher, without any I/O.
// A "member" is one process of the group, with a process group of its own: its leader, and whatever that started.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/launch/exit_status.h"
#include "common/clock.h"

namespace oarlock::launch {

// A leader's end as the system reported it.
struct MemberExit {
  int member = 0;
  ExitStatus status;
  bool leftovers = false;  // its process group is not empty yet
};

// A signal to send to a member's whole process group.
struct GroupSignal {
  int member = 0;
  int signal = 0;

  bool operator==(const GroupSignal&) const = default;
};

struct Verdict {
  int exit_code = 0;
  int member = -1;         // the one whose end decided; -1: all of them succeeded
  ExitStatus status;       // of that member
  int interrupted_by = 0;  // the signal that asked the group to stop before anything had failed; 0: none
};

// Rules:
// - The first failure stops the group: SIGTERM to everyone, SIGKILL after the grace. A member that only lost a peer
//   (exit code 76) gives the culprit two seconds to end by itself and say why.
// - SIGTERM, SIGINT, SIGHUP and SIGQUIT from outside are forwarded and start the same grace; a second SIGINT kills at
// once.
// - What a member's leader leaves behind is stopped in the same way.
// - The verdict is the first real failure. Not real, and so only taken when there is nothing better: exit code 76 (a
// peer
//   was lost), and ends that the stop itself brought about. A group that was asked to stop ends with 75 when a member
//   says that everything is saved, unless the grace was too short for another.
class Supervisor {
 public:
  using Duration = std::chrono::steady_clock::duration;
  using Signals = std::vector<GroupSignal>;

  Supervisor(int members, Duration grace);

  // Leaders that ended since the last call; the order within one call is not known and does not matter.
  Signals exited(std::span<const MemberExit> exits, SteadyTime now);
  void group_emptied(int member);                 // nothing is left of a member whose leader ended earlier
  Signals signalled(int signal, SteadyTime now);  // from outside; any signal that is to be forwarded
  Signals time_passed(SteadyTime now);

  std::optional<SteadyTime> deadline() const;  // when to call time_passed() at the latest
  bool finished() const;                       // every member is gone
  bool stopping() const { return stopping_; }
  int running() const;  // leaders that have not ended
  Verdict verdict() const;

 private:
  enum class State { kRunning, kLingering, kGone };
  // Why a member failed, in the order in which the verdict prefers them.
  enum class Blame { kOk, kStopped, kPeerLost, kSaved, kOutOfGrace, kReal };

  struct Member {
    State state = State::kRunning;
    bool asked = false;   // was sent a signal that should end it
    bool killed = false;  // was sent SIGKILL
    std::optional<SteadyTime> kill_at;
  };
  struct Failure {
    int member;
    ExitStatus status;
    Blame blame;
  };

  Blame blame(const Member& member, const ExitStatus& status) const;
  void ask(int member, int signal, SteadyTime now, Signals& signals);
  void kill(int member, SteadyTime now, Signals& signals);
  void stop(SteadyTime now, Signals& signals);

  Duration grace_;
  std::vector<Member> members_;
  std::vector<Failure> failures_;  // in order of time
  bool stopping_ = false;
  std::optional<SteadyTime> stop_at_;  // when a lost peer's group is stopped
  int interrupted_by_ = 0;
  bool saw_interrupt_key_ = false;
};

}  // namespace oarlock::launch
