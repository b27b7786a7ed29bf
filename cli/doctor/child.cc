#include "cli/doctor/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "common/files.h"

namespace oarlock::doctor {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Kills a child and gives it a moment to end; a child in uninterruptible sleep is left to init.
void stop_child(pid_t pid) {
  ::kill(pid, SIGKILL);
  for (int i = 0; i < 20; ++i) {
    if (::waitpid(pid, nullptr, WNOHANG) != 0) return;
    ::usleep(5000);
  }
}

// Returns a descriptor that is readable while a signal that ends this process is pending: its caller has blocked it.
FileDescriptor pending_stop() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) ::sigaddset(&signals, signal);
  return FileDescriptor(::signalfd(-1, &signals, SFD_CLOEXEC));
}

// Reads a pipe until its end, the deadline or such a signal. Returns whether the end was reached.
bool read_until_end(int fd, std::string& text, std::chrono::steady_clock::time_point deadline) {
  const FileDescriptor stop = pending_stop();
  constexpr size_t kMaxBytes = size_t{1} << 20;
  char buffer[4096];
  while (true) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting[] = {{fd, POLLIN, 0}, {stop.get(), POLLIN, 0}};
    const int ready = ::poll(waiting, 2, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || waiting[1].revents != 0) return false;
    const ssize_t size = ::read(fd, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size == 0;
    if (text.size() < kMaxBytes) text.append(buffer, static_cast<size_t>(size));
  }
}

// Waits for a child that has closed its pipe. Returns its status, or an empty value after the deadline.
std::optional<int> wait_until(pid_t pid, std::chrono::steady_clock::time_point deadline) {
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    if ((ended < 0 && errno != EINTR) || std::chrono::steady_clock::now() > deadline) return std::nullopt;
    ::usleep(1000);
  }
}

// Runs `child` in a new process whose pipe it may write to.
template <typename Child>
std::optional<std::string> run_child(Child child, Milliseconds limit, int& status) {
  int pipe_ends[2];
  status = -1;
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return std::nullopt;
  FileDescriptor reader(pipe_ends[0]);
  FileDescriptor writer(pipe_ends[1]);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const pid_t pid = ::fork();
  if (pid < 0) return std::nullopt;
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    child(writer.get());
    ::_exit(0);
  }
  writer.close();
  std::string text;
  const bool ended = read_until_end(reader.get(), text, deadline);
  const std::optional<int> result = ended ? wait_until(pid, deadline) : std::nullopt;
  if (!result) {
    stop_child(pid);
    return std::nullopt;
  }
  status = *result;
  return text;
}

}  // namespace

std::optional<std::string> run_with_limit(const std::function<std::string()>& function, Milliseconds limit) {
  int status = 0;
  std::optional<std::string> text =
      run_child([&](int fd) { static_cast<void>(write_all(fd, function())); }, limit, status);
  return status == 0 ? text : std::nullopt;
}

std::string program_output(const std::vector<std::string>& argv, Milliseconds limit, int& exit_code) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));  // execvp() changes nothing
  words.push_back(nullptr);
  int status = 0;
  const std::optional<std::string> text = run_child(
      [&](int fd) {
        ::dup2(fd, STDOUT_FILENO);
        ::dup2(fd, STDERR_FILENO);
        ::execvp(words.front(), words.data());
        ::_exit(127);
      },
      limit, status);
  exit_code = !text ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return text.value_or("");
}

}  // namespace oarlock::doctor
