// The process groups of members: their signals, their ends, and the processes that they leave behind.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cli/launch/guard.h"
#include "cli/launch/supervisor.h"
#include "common/clock.h"

namespace oarlock::launch {

// Members are numbers from 0. Reaps all children of this process, including reparented ones. Not thread-safe.
class MemberProcesses {
 public:
  struct Process {    // of a member, since its last start
    pid_t group = 0;  // 0: not started. It may be the id of another process group if is_gone
    SteadyTime started_at = {};
    std::optional<SteadyTime> ended_at = {};  // the leader
    bool is_lingering = false;                // the leader has ended, others of the group have not
    bool is_gone = false;                     // all have ended
    bool is_stopping = false;                 // SIGTERM was sent
    std::set<pid_t> stopped_orphans = {};     // that have received SIGTERM; `group` if its processes are not known

    bool is_started() const { return group > 0; }
    SteadyTime::duration lifetime() const { return ended_at ? *ended_at - started_at : SteadyTime::duration(0); }
  };

  MemberProcesses(size_t members, Guard guard);

  // A process of a member was started, whose id is that of its group. It takes the place of the earlier one.
  void add(size_t member, pid_t group, SteadyTime now) { processes_[member] = {.group = group, .started_at = now}; }
  // The guard kills a new process group together with this program. A standby process needs release() at its end.
  void guard(pid_t group) { guard_.add(group); }
  void release(pid_t group) { guard_.remove(group); }

  // Sends a signal to the processes of a member that remain, or to those of all members. SIGTERM is sent to the leader
  // only, as a kubelet does: a program may save its state then with the help of other processes of its group, such as
  // the workers of a DataLoader. Once the leader has ended, take_emptied() sends it to the processes that the leader
  // has left behind, which a shell that does not forward signals has started.
  void signal(size_t member, int signal);
  void signal_all(int signal);

  struct Reaped {  // the children that have ended or stopped since the last call
    std::vector<MemberExit> exits;
    std::vector<pid_t> others;                   // that have ended, and are not leaders of members
    std::vector<std::pair<pid_t, int>> stopped;  // with the signal that stopped each
  };
  Reaped reap(SteadyTime now);
  // Stops the processes that leaders have left behind after SIGTERM. Returns the members all of whose processes have
  // now ended.
  std::vector<size_t> take_emptied();
  // Kills processes that left their process group (setsid). They were reparented to this process when their parent
  // ended.
  void end_strays(const Clock& clock) const;
  // The same before the first member starts again after the processes of all of them have ended: those of a new run
  // must not share devices or ports with descendants of the earlier one. Otherwise does nothing.
  void end_strays_between_runs(const Clock& clock) const;

  const Process& operator[](size_t member) const { return processes_[member]; }
  // When to call take_emptied() without an event: no signal reports the end of a process that is not a child.
  std::optional<SteadyTime> deadline(SteadyTime now) const;

 private:
  void forget(Process& process);
  void stop_orphans(Process& process) const;

  Guard guard_;
  const std::set<pid_t> earlier_children_;  // of a shell that exec'ed this program with background jobs
  std::vector<Process> processes_;          // by member
};

}  // namespace oarlock::launch
