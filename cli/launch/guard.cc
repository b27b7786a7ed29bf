#include "cli/launch/guard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

namespace oarlock::launch {
namespace {

// Sends SIGKILL to all processes that have this variable in their initial environment, and returns whether there were
// any. Descendants that have left their process group (setsid) cannot be found in another way when their parents have
// ended.
bool kill_processes_with(const std::string& variable) {
  bool any = false;
  visit_directory("/proc", [&](const std::filesystem::path& path) {
    const pid_t pid = std::atoi(path.filename().c_str());
    if (pid <= 1 || pid == ::getpid()) return;
    const Result<std::string> environment = read_file(path / "environ");  // empty for a zombie
    if (!environment) return;
    const size_t at = environment->find(variable + '\0');
    if (at == std::string::npos || (at > 0 && (*environment)[at - 1] != '\0')) return;
    any = ::kill(pid, SIGKILL) == 0 || any;
  });
  return any;
}

// The main loop of the helper. Positive messages add a group, negative ones remove it. The end of the pipe means that
// the launcher has ended.
void watch(int pipe, const std::string& launch) {
  std::set<pid_t> groups;
  pid_t message = 0;
  for (;;) {
    const ssize_t got = ::read(pipe, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;
    if (message > 0) {
      groups.insert(message);
    } else {
      groups.erase(-message);
    }
  }
  if (groups.empty()) return;
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  constexpr int kRounds = 200;  // of 10 ms, as processes that are being started are found in the next one
  for (int round = 0; round < kRounds && kill_processes_with(launch); ++round) ::poll(nullptr, 0, 10);
}

}  // namespace

Result<Guard> Guard::start(const std::string& launch) {
  Guard guard;
  if (::getpid() == 1) return guard;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "a pipe cannot be created");
  FileDescriptor reader(ends[0]);
  guard.pipe_ = FileDescriptor(ends[1]);
  guard.pid_ = ::fork();
  if (guard.pid_ < 0) return fail_errno(errno, "a process cannot be created");
  if (guard.pid_ == 0) {
    // Detach from the signals of the terminal, and close all descriptors whose readers wait for the end of this
    // program.
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::setpgid(0, 0);
    ::prctl(PR_SET_NAME, "oarlock-guard");
    const int pipe = ::dup3(reader.get(), 3, O_CLOEXEC) == 3 ? 3 : reader.get();
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
    if (pipe == 3) {
      ::close_range(4, ~0U, 0);
    } else {
      guard.pipe_.close();
    }
    watch(pipe, fmt::format("{}={}", kEnvLaunch, launch));
    ::_exit(0);
  }
  return guard;
}

Guard::~Guard() {
  if (!pipe_.open()) return;
  pipe_.close();
  ::waitpid(pid_, nullptr, 0);
}

void Guard::send(pid_t message) {
  if (pipe_.open()) static_cast<void>(::write(pipe_.get(), &message, sizeof message) == sizeof message);
}

void Guard::add(pid_t group) { send(group); }
void Guard::remove(pid_t group) { send(-group); }

}  // namespace oarlock::launch
