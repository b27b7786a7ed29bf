#include "cli/launch/group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>

#include "cli/launch/console.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::launch {
namespace {

// A helper process that kills the process groups of the ranks if the launcher itself is killed. PR_SET_PDEATHSIG kills
// only the ranks: a python process behind `bash -c` would continue to run and keep its GPU.
class Guard {
 public:
  // Starts the helper process, except if this process is PID 1: the kernel then kills the whole container with it.
  static Result<Guard> start();
  ~Guard();  // kills the groups that were not removed
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) noexcept = delete;

  void add(pid_t group);
  void remove(pid_t group);
  pid_t pid() const { return pid_; }  // -1 if not started

 private:
  Guard() = default;
  void send(pid_t message);

  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

// The main loop of the helper. Positive messages add a group, negative ones remove it. The end of the pipe means that
// the launcher has ended.
void watch(int pipe) {
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
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
}

Result<Guard> Guard::start() {
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
    watch(pipe);
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

// A pipe from a member to the console.
struct Stream {
  FileDescriptor from;
  OutputQueue* to;
  LinePrefixer prefixer;

  void close() {
    prefixer.finish(to->tail());
    from.close();
  }
};

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

class Group {
 public:
  Group(const std::vector<Member>& members, const GroupOptions& options, const SignalSource& signals,
        const Clock& clock, Console& console, Guard guard)
      : members_(members),
        options_(options),
        signals_(signals),
        clock_(clock),
        console_(console),
        guard_(std::move(guard)),
        earlier_children_(children()),
        supervisor_(static_cast<int>(members.size()), options.grace) {}

  Result<GroupResult> run() {
    for (const Member& member : members_) {
      if (Result<void> started = start(member); !started) {
        for (const pid_t group : groups_) ::kill(-group, SIGKILL);
        end_strays();
        return tl::make_unexpected(started.error());
      }
    }
    while (!supervisor_.finished()) wait_and_act();
    end_strays();
    drain();
    if (options_.stdio == Stdio::kForeground) take_back_terminal();
    GroupResult result = supervisor_.result();
    const bool stopped = result.interrupted_by != 0;
    const auto signal =
        console_.flush(signals_, clock_, stopped ? std::optional(clock_.steady() + options_.grace) : std::nullopt);
    if (signal && !stopped) result.interrupted_by = *signal;
    return result;
  }

 private:
  Result<void> start(const Member& member) {
    ASSIGN_OR_RETURN(Child child, spawn(member.command, options_.stdio, signals_));
    guard_.add(child.pid);
    groups_.push_back(child.pid);
    lingering_.push_back(false);
    if (options_.stdio == Stdio::kPipes) {
      add_stream(std::move(child.out), console_.out(), member.prefix);
      add_stream(std::move(child.err), console_.err(), member.prefix);
    }
    return {};
  }

  void add_stream(FileDescriptor from, OutputQueue& to, const std::string& prefix) {
    // Of the ranks of a node, the first one shows its progress.
    const auto progress_lines =
        groups_.size() == 1 ? LinePrefixer::ProgressLines::kShow : LinePrefixer::ProgressLines::kLeaveOut;
    streams_.push_back({std::move(from), &to, LinePrefixer(prefix, to.columns(), progress_lines)});
  }

  void wait_and_act() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    for (OutputQueue* queue : {&console_.out(), &console_.err()}) {
      if (!queue->empty()) fds.push_back({queue->fd(), POLLOUT, 0});
    }
    const size_t first_stream = fds.size();
    for (const Stream& stream : streams_) fds.push_back({stream.to->full() ? -1 : stream.from.get(), POLLIN, 0});

    std::optional<SteadyTime> wake = supervisor_.deadline();
    // No signal reports the end of a leftover process whose parent is not this process, so poll for it.
    for (const bool lingering : lingering_) {
      if (lingering)
        wake = std::min(wake.value_or(SteadyTime::max()), clock_.steady() + std::chrono::milliseconds(100));
    }
    if (::poll(fds.data(), fds.size(), poll_timeout(wake, clock_.steady())) < 0) return;

    for (size_t i = 1; i < first_stream; ++i) {
      if (fds[i].revents != 0) (fds[i].fd == console_.out().fd() ? console_.out() : console_.err()).write_some();
    }
    for (size_t i = first_stream; i < fds.size(); ++i) {
      if (fds[i].revents != 0) read_some(streams_[i - first_stream]);
    }
    std::erase_if(streams_, [](const Stream& stream) { return !stream.from.open(); });
    for (const int signal : signals_.read()) {
      const bool was_stopping = supervisor_.stopping();
      send(supervisor_.signalled(signal, clock_.steady()));
      if (supervisor_.stopping() && (!was_stopping || members_.size() > 1)) {
        console_.print_line(fmt::format("{}: {} of {} still running, they have {} s to end", signal_name(signal),
                                        supervisor_.running(), members_.size(),
                                        std::chrono::duration_cast<std::chrono::seconds>(options_.grace).count()));
      }
    }
    reap();
    if (const auto deadline = supervisor_.deadline(); deadline && *deadline <= clock_.steady()) {
      const bool was_stopping = supervisor_.stopping();
      for (const GroupSignal& signal : send(supervisor_.time_passed(clock_.steady()))) {
        if (signal.signal != SIGKILL) continue;
        console_.print_line(
            fmt::format("{} did not end in time: sent SIGKILL", members_[static_cast<size_t>(signal.member)].name));
      }
      if (!was_stopping && supervisor_.stopping()) report_failure();
    }
  }

  // Returns true if there may be more data.
  bool read_some(Stream& stream) {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(stream.from.get(), buffer.data(), buffer.size());
    if (got > 0 && !stream.to->closed()) {
      stream.prefixer.feed({buffer.data(), static_cast<size_t>(got)}, stream.to->tail());
      return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    stream.close();  // end of file, or our output was closed; the rank then receives SIGPIPE
    return false;
  }

  Supervisor::Signals send(Supervisor::Signals signals) {
    for (const GroupSignal& signal : signals) ::kill(-groups_[static_cast<size_t>(signal.member)], signal.signal);
    return signals;
  }

  void reap() {
    std::vector<MemberExit> exits;
    int wait_status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      for (size_t i = 0; i < groups_.size(); ++i) {
        if (groups_[i] == pid && !gone(i))
          exits.push_back({static_cast<int>(i), ExitStatus::from_wait(wait_status), false});
      }
    }
    // This follows the loop, because zombies belong to their process group until they are reaped.
    for (MemberExit& exit : exits) {
      const auto i = static_cast<size_t>(exit.member);
      exit.leftovers = group_exists(groups_[i]);
      lingering_[i] = exit.leftovers;
      if (!exit.leftovers) forget(i);
    }
    if (!exits.empty()) {
      const bool was_stopping = supervisor_.stopping();
      send(supervisor_.exited(exits, clock_.steady()));
      if (!was_stopping && supervisor_.stopping()) report_failure();
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (!lingering_[i] || group_exists(groups_[i])) continue;
      lingering_[i] = false;
      forget(i);
      supervisor_.group_emptied(static_cast<int>(i));
    }
  }

  bool gone(size_t member) const { return forgotten_.contains(member) || lingering_[member]; }

  void forget(size_t member) {
    guard_.remove(groups_[member]);
    forgotten_.insert(member);
  }

  void report_failure() {
    const GroupResult result = supervisor_.result();
    if (members_.size() == 1 && result.status.signal == 0) return;  // its own message suffices
    std::string line =
        fmt::format("{} ended with {}", members_[static_cast<size_t>(result.member)].name, describe(result.status));
    if (supervisor_.running() > 0) line += fmt::format("; stopping the {} still running", supervisor_.running());
    console_.print_line(line);
  }

  // Kills processes that left their process group (setsid). They were reparented to this process when their parent
  // ended.
  void end_strays() {
    const SteadyTime give_up = clock_.steady() + std::chrono::seconds(2);
    while (clock_.steady() < give_up) {
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

  // Reads the remaining output. All writers have ended.
  void drain() {
    for (Stream& stream : streams_) {
      while (read_some(stream)) {
      }
      if (stream.from.open()) stream.close();
    }
    streams_.clear();
  }

  const std::vector<Member>& members_;
  const GroupOptions& options_;
  const SignalSource& signals_;
  const Clock& clock_;
  Console& console_;
  Guard guard_;
  const std::set<pid_t> earlier_children_;  // of a shell that exec'ed this program with background jobs
  Supervisor supervisor_;
  std::vector<pid_t> groups_;  // by member
  std::vector<bool> lingering_;
  std::set<size_t> forgotten_;  // members without processes; the id of their group may be reused
  std::vector<Stream> streams_;
};

}  // namespace

Result<GroupResult> run_group(const std::vector<Member>& members, const GroupOptions& options,
                              const SignalSource& signals, const Clock& clock, Console& console) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ASSIGN_OR_RETURN(Guard guard, Guard::start());
  return Group(members, options, signals, clock, console, std::move(guard)).run();
}

}  // namespace oarlock::launch
