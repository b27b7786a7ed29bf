#include "cli/launch/member_processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>

#include "common/files.h"

namespace oarlock::launch {
namespace {

constexpr auto kStrayPatience = std::chrono::seconds(2);
constexpr auto kLingeringInterval = std::chrono::milliseconds(100);

bool group_exists(pid_t group) { return ::kill(-group, 0) == 0 || errno != ESRCH; }

// Returns the children of this process, including reparented ones.
std::set<pid_t> children() {
  const pid_t self = ::getpid();
  const auto text = read_file(fmt::format("/proc/{}/task/{}/children", self, self));
  std::set<pid_t> pids;
  if (!text) return pids;  // a kernel without CONFIG_PROC_CHILDREN
  std::istringstream words(*text);
  for (pid_t pid; words >> pid;) pids.insert(pid);
  return pids;
}

}  // namespace

MemberProcesses::MemberProcesses(size_t members, Guard guard)
    : guard_(std::move(guard)), earlier_children_(children()), processes_(members) {}

void MemberProcesses::forget(Process& process) {
  guard_.remove(process.group);
  process.is_gone = true;
}

void MemberProcesses::signal(size_t member, int signal) {
  Process& process = processes_[member];
  if (process.group <= 0 || process.is_gone) return;
  if (signal != SIGTERM) {
    ::kill(-process.group, signal);
    return;
  }
  process.is_stopping = true;
  if (process.is_lingering) {
    stop_orphans(process);
  } else {
    ::kill(process.group, SIGTERM);
  }
}

// Orphans are reparented to this process. Their own children receive SIGTERM when they have become orphans, too.
void MemberProcesses::stop_orphans(Process& process) const {
  for (const pid_t pid : children()) {
    if (::getpgid(pid) == process.group && process.stopped_orphans.insert(pid).second) ::kill(pid, SIGTERM);
  }
  if (process.stopped_orphans.empty() && ::kill(-process.group, SIGTERM) == 0)  // a kernel that does not list children
    process.stopped_orphans.insert(process.group);
}

void MemberProcesses::signal_all(int signal) {
  for (size_t i = 0; i < processes_.size(); ++i) this->signal(i, signal);
}

MemberProcesses::Reaped MemberProcesses::reap(SteadyTime now) {
  Reaped reaped;
  int wait_status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &wait_status, WNOHANG | WUNTRACED)) > 0;) {
    if (WIFSTOPPED(wait_status)) {
      reaped.stopped.emplace_back(pid, WSTOPSIG(wait_status));
      continue;
    }
    const auto leader = std::ranges::find_if(
        processes_, [pid](const Process& one) { return one.group == pid && !one.is_gone && !one.is_lingering; });
    if (leader == processes_.end()) {
      reaped.others.push_back(pid);
    } else {
      reaped.exits.push_back(
          {static_cast<int>(leader - processes_.begin()), ExitStatus::from_wait(wait_status), false});
    }
  }
  // This follows the loop, because zombies belong to their process group until they are reaped.
  for (MemberExit& exit : reaped.exits) {
    Process& process = processes_[static_cast<size_t>(exit.member)];
    exit.leftovers = group_exists(process.group);
    process.is_lingering = exit.leftovers;
    process.ended_at = now;
    if (!exit.leftovers) forget(process);
  }
  return reaped;
}

std::vector<size_t> MemberProcesses::take_emptied() {
  std::vector<size_t> emptied;
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = processes_[i];
    if (!process.is_lingering) continue;
    if (group_exists(process.group)) {
      if (process.is_stopping) stop_orphans(process);
      continue;
    }
    process.is_lingering = false;
    forget(process);
    emptied.push_back(i);
  }
  return emptied;
}

std::optional<SteadyTime> MemberProcesses::deadline(SteadyTime now) const {
  if (std::ranges::none_of(processes_, &Process::is_lingering)) return std::nullopt;
  return now + kLingeringInterval;
}

void MemberProcesses::end_strays(const Clock& clock) const {
  const SteadyTime give_up = clock.steady() + kStrayPatience;
  while (clock.steady() < give_up) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    std::set<pid_t> strays = children();
    strays.erase(guard_.pid());
    for (const pid_t pid : earlier_children_) strays.erase(pid);
    if (strays.empty()) return;
    for (const pid_t pid : strays) ::kill(pid, SIGKILL);
    ::poll(nullptr, 0, 5);
  }
}

void MemberProcesses::end_strays_between_runs(const Clock& clock) const {
  if (std::ranges::all_of(processes_, &Process::is_gone)) end_strays(clock);
}

}  // namespace oarlock::launch
