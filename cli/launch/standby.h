// A standby process of a node (recovery/standby.h): a program of a rank that was started ahead of time, so that
// the replacement of a lost rank does not wait until its libraries are loaded.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "cli/launch/process.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// Delay of the start of a standby process after a request to join, because its load would slow down the start of the
// ranks. Doubled, up to the second value, for each standby process that ends by itself or cannot be started, until one
// becomes a rank.
inline constexpr auto kStandbyDelay = std::chrono::seconds(2);
inline constexpr auto kMaxStandbyDelay = std::chrono::minutes(5);

// Time for a standby process to confirm that it has received the data of its rank, which takes milliseconds once its
// libraries are loaded. A process that started less than kLoadPatience ago may still load them, as one that replaced it
// would have to; its time ends no earlier than then, unless a signal has stopped it.
inline constexpr auto kHandOverPatience = std::chrono::seconds(1);
inline constexpr auto kLoadPatience = std::chrono::seconds(10);

// Whether `pid` executes the program that `argv[0]` names, so that a second process of the same command is the same
// program, and no script with further effects. Returns false if that cannot be determined.
bool executes(pid_t pid, const Command& command);

// Not thread-safe.
class Standby {
 public:
  // The process of a rank that was a standby process.
  struct HandOver {
    Child child;
    // Becomes readable when the process has received the data of its rank, or has ended. A process that is stopped, or
    // that waits for a file server, does neither; the caller kills it after a while and starts another process.
    FileDescriptor confirmation;
  };

  // Starts the command of a rank as a standby process, without the variables that `others`, the commands of the ranks
  // of this node, do not have in common, and without those of its position. Fails as spawn() does.
  static Result<Standby> start(const Command& command, const std::vector<const Command*>& others,
                               const SignalSource& signals);

  // Also the id of its process group. The caller kills and reaps it.
  pid_t pid() const { return pid_; }

  // Makes it the process of `command`, as spawn() with Stdio::kPipes starts one. The object must not be used again.
  // Fails if the command has other arguments or another limit of descriptors, or if the process has ended; the caller
  // then kills it and starts another process.
  Result<HandOver> become(const Command& command);

 private:
  Standby(pid_t pid, FileDescriptor socket, Command command);

  pid_t pid_;
  FileDescriptor socket_;
  Command command_;
};

// The standby process of a launcher, if it has one: when the next one starts, and whether processes that have become
// ranks have confirmed it. Members are numbers from 0. Not thread-safe.
class StandbySlot {
 public:
  // `commands` are those of all members; not empty. They, `clock` and `signals` must outlive it.
  StandbySlot(std::vector<const Command*> commands, const Clock& clock, const SignalSource& signals)
      : commands_(std::move(commands)), clock_(clock), signals_(signals), members_(commands_.size()) {}

  // A member has requested to join. The next standby process starts a while after the last request, unless there is
  // one.
  void schedule();

  // Starts a standby process if it is time to. Returns its process group, which the caller kills in the end; nullopt if
  // none was started.
  std::optional<pid_t> start_if_due();

  // Makes the standby process the process of a member. Returns nullopt if there is none that can become it, or if the
  // last process of the member was one that did not confirm it; the caller then starts a new process.
  std::optional<Child> become(const Command& command, size_t member);

  // A child of this process has ended. Returns whether it was a standby process.
  bool remove(pid_t pid);

  // Adds the descriptors to wait for.
  void add_descriptors(std::vector<pollfd>& out) const;

  // Ends the hand-overs that are confirmed in `ready`, the result of poll(), and those that are late. Returns the
  // members of the latter, which the caller kills; a new process then replaces each.
  std::vector<size_t> end_hand_overs(const std::vector<pollfd>& ready);

  // When to call start_if_due() and end_hand_overs() without an event; nullopt: never.
  std::optional<SteadyTime> deadline() const;

 private:
  using Duration = std::chrono::steady_clock::duration;

  struct Pending {  // a hand-over that the process has not confirmed
    FileDescriptor confirmation;
    pid_t pid;
    SteadyTime deadline;          // kHandOverPatience, and then that of loading
    SteadyTime deadline_to_load;  // not before `deadline`
  };
  struct Member {
    std::optional<Pending> hand_over;
    bool must_be_new = false;  // the last hand-over was late
  };

  void postpone();

  std::vector<const Command*> commands_;
  const Clock& clock_;
  const SignalSource& signals_;
  std::optional<Standby> standby_;
  SteadyTime started_at_;  // of the last standby process
  std::optional<SteadyTime> start_at_;
  Duration delay_ = kStandbyDelay;
  std::vector<pid_t> killed_;  // standby processes that could not become a member, until they end
  std::vector<Member> members_;
};

}  // namespace oarlock::launch
