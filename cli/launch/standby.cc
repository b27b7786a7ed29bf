#include "cli/launch/standby.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <utility>

#include "cli/launch/polling.h"
#include "common/contract.h"
#include "common/status_macros.h"
#include "recovery/standby.h"

namespace oarlock::launch {
namespace {

// Returns the variables that all ranks of a node have in common.
Environment common_environment(const Command& command, const std::vector<const Command*>& others) {
  Environment out = command.environment;
  for (const char* name : {kEnvRank, kEnvLocalRank, kEnvRegroupFd}) out.erase(name);
  std::erase_if(out, [&others](const auto& variable) {
    return std::ranges::any_of(others, [&variable](const Command* other) {
      const auto found = other->environment.find(variable.first);
      return found == other->environment.end() || found->second != variable.second;
    });
  });
  return out;
}

bool is_same_file(const std::string& path, const struct stat& file) {
  struct stat other{};
  return ::stat(path.c_str(), &other) == 0 && other.st_dev == file.st_dev && other.st_ino == file.st_ino;
}

}  // namespace

bool executes(pid_t pid, const Command& command) {
  struct stat running{};
  if (::stat(fmt::format("/proc/{}/exe", pid).c_str(), &running) != 0) return false;
  const std::string& program = command.argv.front();
  if (program.find('/') != std::string::npos) return is_same_file(program, running);
  std::istringstream directories(environment_variable("PATH"));
  for (std::string directory; std::getline(directories, directory, ':');) {
    if (is_same_file((directory.empty() ? "." : directory) + "/" + program, running)) return true;
  }
  return false;
}

Standby::Standby(pid_t pid, FileDescriptor socket, Command command)
    : pid_(pid), socket_(std::move(socket)), command_(std::move(command)) {}

Result<Standby> Standby::start(const Command& command, const std::vector<const Command*>& others,
                               const SignalSource& signals) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, "a socket pair cannot be created");
  FileDescriptor own(ends[0]);
  const FileDescriptor inherited(ends[1]);
  Command standby = command;
  standby.environment = common_environment(command, others);
  standby.environment[recovery::kEnvStandbyFd] = std::to_string(inherited.get());
  standby.cpus = {};
  standby.inherited = inherited.get();
  ASSIGN_OR_RETURN(const Child child, spawn(standby, Stdio::kErrors, signals));
  return Standby(child.pid, std::move(own), command);
}

Result<Standby::HandOver> Standby::become(const Command& command) {
  if (command.argv != command_.argv || command.descriptors != command_.descriptors)
    return fail(ExitCode::kUnavailable, "the standby process has another command");
  if (!command.cpus.empty()) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (const int core : command.cpus) CPU_SET(static_cast<size_t>(core), &cores);
    if (::sched_setaffinity(pid_, sizeof cores, &cores) != 0)
      return fail_errno(errno, "the standby process cannot be bound to CPUs");
  }
  ASSIGN_OR_RETURN(Pipe out, make_pipe());
  ASSIGN_OR_RETURN(Pipe err, make_pipe());
  for (const Pipe* pipe : {&out, &err}) ::fcntl(pipe->reader.get(), F_SETFL, O_NONBLOCK);
  RETURN_IF_ERROR(recovery::send_start(socket_.get(), {.environment = command.environment,
                                                       .out = out.writer.get(),
                                                       .err = err.writer.get(),
                                                       .regroup = command.inherited}));
  return HandOver{{pid_, std::move(out.reader), std::move(err.reader)}, std::move(socket_)};
}

void StandbySlot::schedule() {
  if (!standby_) start_at_ = clock_.steady() + delay_;
}

std::optional<pid_t> StandbySlot::start_if_due() {
  if (!start_at_ || *start_at_ > clock_.steady()) return std::nullopt;
  start_at_.reset();
  Result<Standby> started = Standby::start(*commands_.front(), commands_, signals_);
  if (!started) {  // members start as they do without support for standby processes
    postpone();
    return std::nullopt;
  }
  standby_.emplace(*std::move(started));
  started_at_ = clock_.steady();
  return standby_->pid();
}

std::optional<Child> StandbySlot::become(const Command& command, size_t member) {
  members_[member].hand_over.reset();
  const bool must_be_new = std::exchange(members_[member].must_be_new, false);
  if (must_be_new || !standby_) return std::nullopt;
  Result<Standby::HandOver> made = standby_->become(command);
  const pid_t pid = standby_->pid();
  standby_.reset();
  if (!made) {
    ::kill(-pid, SIGKILL);
    killed_.push_back(pid);  // remove() follows
    return std::nullopt;
  }
  const SteadyTime deadline = clock_.steady() + kHandOverPatience;
  members_[member].hand_over =
      Pending{std::move(made->confirmation), pid, deadline, std::max(deadline, started_at_ + kLoadPatience)};
  return std::move(made->child);
}

bool StandbySlot::remove(pid_t pid) {
  const bool is_standby = standby_ && standby_->pid() == pid;
  const bool is_killed = std::erase(killed_, pid) > 0;
  if (is_standby) standby_.reset();
  if (!is_standby && !is_killed) return false;
  if (!standby_) postpone();
  return true;
}

void StandbySlot::postpone() {
  start_at_ = clock_.steady() + delay_;
  delay_ = std::min<Duration>(delay_ * 2, kMaxStandbyDelay);
}

void StandbySlot::add_descriptors(std::vector<pollfd>& out) const {
  for (const Member& member : members_) {
    if (member.hand_over) out.push_back({member.hand_over->confirmation.get(), POLLIN, 0});
  }
}

std::vector<size_t> StandbySlot::end_hand_overs(const std::vector<pollfd>& ready) {
  std::vector<size_t> late;
  for (size_t i = 0; i < members_.size(); ++i) {
    std::optional<Pending>& one = members_[i].hand_over;
    if (!one) continue;
    const bool is_confirmed = is_ready(one->confirmation.get(), ready);
    bool is_late = !is_confirmed && one->deadline <= clock_.steady();
    if (is_late && one->deadline_to_load > clock_.steady() && !is_stopped(one->pid)) {
      one->deadline = one->deadline_to_load;
      is_late = false;
    }
    if (is_confirmed) delay_ = kStandbyDelay;
    if (is_confirmed || is_late) one.reset();
    if (!is_late) continue;
    late.push_back(i);
    members_[i].must_be_new = true;
    if (!standby_) postpone();
  }
  return late;
}

std::optional<SteadyTime> StandbySlot::deadline() const {
  std::optional<SteadyTime> out = start_at_;
  for (const Member& member : members_) {
    if (member.hand_over) out = earlier(out, member.hand_over->deadline);
  }
  return out;
}

}  // namespace oarlock::launch
