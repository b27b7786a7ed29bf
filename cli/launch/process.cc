#include "cli/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::launch {

Result<SignalSource> SignalSource::take() {
  SignalSource source;
  sigset_t taken;
  ::sigemptyset(&taken);
  ::sigaddset(&taken, SIGCHLD);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU, SIGTSTP}) {
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&taken, signal);
  }
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &source.old_pipe_action_);
  ::sigaction(SIGXFSZ, &ignore, &source.old_size_action_);  // write(2) then fails with EFBIG
  if (::sigprocmask(SIG_BLOCK, &taken, &source.old_mask_) != 0) return fail_errno(errno, "signals cannot be blocked");
  source.fd_ = FileDescriptor(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!source.fd_.open()) return fail_errno(errno, "signalfd cannot be opened");
  return source;
}

std::vector<int> SignalSource::read() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

std::vector<int> SignalSource::read_and_suspend() const {
  std::vector<int> signals = read();
  if (std::erase(signals, SIGTSTP) > 0) suspend();
  return signals;
}

void SignalSource::suspend(bool of_group) const {
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  ::kill(of_group ? 0 : ::getpid(), SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // the process stops here
  ::sigprocmask(SIG_BLOCK, &stop, nullptr);
}

void SignalSource::restore() const {
  ::sigaction(SIGXFSZ, &old_size_action_, nullptr);
  ::sigaction(SIGPIPE, &old_pipe_action_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

namespace {

constexpr char kDefaultPath[] = "/bin:/usr/bin";  // of execvp(3)

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

void make_foreground(pid_t group) {
  const auto old = ::signal(SIGTTOU, SIG_IGN);  // the terminal would stop this process, which is in the background
  ::tcsetpgrp(STDIN_FILENO, group);
  ::signal(SIGTTOU, old);
}

void set_soft_descriptor_limit(rlim_t limit) {
  rlimit limits{};
  if (::getrlimit(RLIMIT_NOFILE, &limits) != 0) return;
  limits.rlim_cur = std::min(limit, limits.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limits);
}

// Executes the program in the child process. Returns only if exec failed.
void become(char* const* argv, char* const* environment, const cpu_set_t* cores, std::optional<rlim_t> descriptors,
            int inherited, pid_t parent, Stdio stdio, int out, int err, const SignalSource& signals) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);  // the parent died before the line above
  if (CPU_COUNT(cores) > 0) ::sched_setaffinity(0, sizeof *cores, cores);
  if (descriptors) set_soft_descriptor_limit(*descriptors);
  if (is_foreground(stdio)) {
    if (::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgid(parent)) make_foreground(::getpid());
  } else {
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) ::dup2(null, STDIN_FILENO);
    const bool is_quiet = stdio == Stdio::kErrors || stdio == Stdio::kErrorPipe;
    if (null >= 0 && is_quiet) ::dup2(null, STDOUT_FILENO);
  }
  if (out >= 0) ::dup2(out, STDOUT_FILENO);
  if (err >= 0) ::dup2(err, STDERR_FILENO);
  if (inherited >= 0) ::fcntl(inherited, F_SETFD, 0);
  signals.restore();
  ::execvpe(argv[0], argv, environment);
}

// Users of torchrun give a script without python3, and -m.
std::string missing_command(const std::string& program) {
  if (program.find('/') != std::string::npos)
    return fmt::format("command '{}' does not exist, or the interpreter in its first line does not", program);
  if (program.ends_with(".py"))
    return fmt::format("'{}' is a script, not a command; write python3 {}", program, program);
  if (program == "-m") return "'-m' is an option of this program; write it before the --, or write python3 -m";
  return fmt::format("command '{}' is not in PATH; give its path, or install it", program);
}

tl::unexpected<Error> exec_error(int error_number, const std::string& program) {
  switch (error_number) {
    case ENOENT:
      return fail(ExitCode::kNoInput, missing_command(program));
    case EACCES:
      return fail(
          ExitCode::kNoPermission,
          fmt::format("command '{}' may not be executed; is it a program, and is its x permission set?", program));
    case ENOEXEC:
      return fail(
          ExitCode::kDataErr,
          fmt::format(
              "command '{}' is not a program for this machine: wrong architecture, or a script without a '#!' line",
              program));
    default:
      return fail_errno(error_number, fmt::format("command '{}' cannot be executed", program));
  }
}

}  // namespace

Environment environment_of(const char* const* entries) {
  Environment environment;
  for (; *entries != nullptr; ++entries) {
    const std::string_view entry = *entries;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

std::vector<std::string> to_entries(const Environment& environment) {
  std::vector<std::string> entries;
  entries.reserve(environment.size());
  for (const auto& [name, value] : environment) entries.push_back(name + "=" + value);
  return entries;
}

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

ExitStatus ExitStatus::from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.code = 0, .signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status), .signal = 0};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("SIG{}", signal);
}

std::string describe(const ExitStatus& status) {
  if (status.signal != 0) return fmt::format("signal {} ({})", status.signal, signal_name(status.signal));
  return fmt::format("exit code {}", status.code);
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "a pipe cannot be created");
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Result<Child> spawn(const Command& command, Stdio stdio, const SignalSource& signals) {
  std::vector<std::string> arguments = command.argv;
  std::vector<std::string> entries = to_entries(command.environment);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> environment = pointers_to(entries);

  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : command.cpus) CPU_SET(static_cast<size_t>(core), &cores);

  Pipe out;
  Pipe err;
  for (Pipe* pipe : {&out, &err}) {
    const bool is_error_pipe = stdio == Stdio::kErrorPipe || stdio == Stdio::kForegroundErrorPipe;
    const bool has_pipes = stdio == Stdio::kPipes || stdio == Stdio::kForegroundPipes;
    if (!has_pipes && (!is_error_pipe || pipe == &out)) continue;
    ASSIGN_OR_RETURN(*pipe, make_pipe());
    ::fcntl(pipe->reader.get(), F_SETFL, O_NONBLOCK);
  }
  ASSIGN_OR_RETURN(Pipe report, make_pipe());  // carries errno if exec fails; a successful exec closes it

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, fmt::format("a process for '{}' cannot be created", command.argv[0]));
  if (pid == 0) {
    become(argv.data(), environment.data(), &cores, command.descriptors, command.inherited, parent, stdio,
           out.writer.get(), err.writer.get(), signals);
    const int error = errno;
    if (::write(report.writer.get(), &error, sizeof error) != sizeof error) ::_exit(125);
    ::_exit(126);
  }
  ::setpgid(pid, pid);  // in both processes, to avoid a race; fails once the child has exec'ed
  report.writer.close();
  int error = 0;
  ssize_t got;
  do {
    got = ::read(report.reader.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return exec_error(error, command.argv[0]);
  }
  return Child{pid, std::move(out.reader), std::move(err.reader)};
}

bool is_stopped(pid_t pid) {
  const Result<std::string> stat = read_file(fmt::format("/proc/{}/stat", pid));
  if (!stat) return false;
  const size_t name_end = stat->rfind(')');  // the name may contain any character
  return name_end != std::string::npos && stat->substr(name_end).starts_with(") T");
}

Result<void> find_executable(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos) {
    if (::access(program.c_str(), X_OK) == 0) return {};
    return exec_error(errno, program);
  }
  int error = ENOENT;
  std::istringstream directories(path.empty() ? kDefaultPath : path);
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return {};
    if (errno == EACCES) error = EACCES;
  }
  return exec_error(error, program);
}

std::optional<rlim_t> raise_descriptor_limit() {
  rlimit limits{};
  if (::getrlimit(RLIMIT_NOFILE, &limits) != 0) return std::nullopt;
  set_soft_descriptor_limit(limits.rlim_max);
  return limits.rlim_cur;
}

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

void take_back_terminal() {
  if (::isatty(STDIN_FILENO) == 1) make_foreground(::getpgrp());
}

void give_terminal_to(pid_t group) {
  if (::isatty(STDIN_FILENO) == 1 && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) make_foreground(group);
}

}  // namespace oarlock::launch
