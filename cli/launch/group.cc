#include "cli/launch/group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>

#include "cli/launch/console.h"
#include "cli/launch/log_file.h"
#include "cli/launch/restart_report.h"
#include "cli/launch/standby.h"
#include "cli/launch/termination.h"
#include "common/contract.h"
#include "common/files.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

// A variable of the members and their descendants, whose value only this launcher's have.
constexpr char kEnvLaunch[] = "OARLOCK_LAUNCH";
constexpr size_t kMarkerBytes = 16;  // of random numbers, in its value

// A helper process that kills the process groups of the ranks, and their descendants in other sessions, if the launcher
// itself is killed. PR_SET_PDEATHSIG kills only the ranks: a python process behind `bash -c` would continue to run and
// keep its GPU.
class Guard {
 public:
  // Starts the helper process, except if this process is PID 1: the kernel then kills the whole container with it.
  // `launch` is the value of kEnvLaunch.
  static Result<Guard> start(const std::string& launch);
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

// Sends SIGKILL to all processes that have this variable in their initial environment, and returns whether there were
// any. Descendants that have left their process group (setsid) cannot be found in another way when their parents have
// ended.
bool kill_processes_with(const std::string& variable) {
  namespace fs = std::filesystem;
  bool any = false;
  std::error_code error;
  for (fs::directory_iterator entries("/proc", error); !error && entries != fs::directory_iterator();
       entries.increment(error)) {
    const pid_t pid = std::atoi(entries->path().filename().c_str());
    if (pid <= 1 || pid == ::getpid()) continue;
    const Result<std::string> environment = read_file(entries->path() / "environ");  // empty for a zombie
    if (!environment) continue;
    const size_t at = environment->find(variable + '\0');
    if (at == std::string::npos || (at > 0 && (*environment)[at - 1] != '\0')) continue;
    any = ::kill(pid, SIGKILL) == 0 || any;
  }
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

// Time limit for sending the last messages to the other nodes.
constexpr auto kFlushPatience = std::chrono::seconds(2);

// Delay of the start of a standby process after a request to join, because its load would slow down the start of the
// ranks. Doubled, up to the second value, for each standby process that ends by itself or cannot be started, until one
// becomes a rank.
constexpr auto kStandbyDelay = std::chrono::seconds(2);
constexpr auto kMaxStandbyDelay = std::chrono::minutes(5);

// Time for a standby process to confirm that it has received the data of its rank, which takes milliseconds.
constexpr auto kHandOverPatience = std::chrono::seconds(1);

// Interval and duration of the attempts to start a member again, while the system lacks processes, memory or
// descriptors.
constexpr auto kStartRetryInterval = std::chrono::seconds(1);
constexpr auto kStartPatience = std::chrono::minutes(1);

// A pipe from a member to the console.
struct Stream {
  FileDescriptor from;
  OutputQueue* to;
  LinePrefixer prefixer;
  LogFile file;  // receives a copy, if open
  bool on_console = true;

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
        supervisor_(static_cast<int>(members.size()), options.grace),
        groups_(members.size(), 0),
        lingering_(members.size(), false),
        exits_(members.size()),
        kill_at_(members.size()),
        hand_overs_(members.size()),
        start_retries_(members.size()) {}

  Result<GroupResult> run() {
    if (options_.recovery == nullptr) {
      for (size_t i = 0; i < members_.size(); ++i) {
        if (Result<void> started = start(i); !started) return give_up(started.error());
      }
    } else {
      perform(options_.recovery->start(clock_.steady()));
    }
    while (!supervisor_.finished()) {
      if (start_error_) return give_up(*start_error_);
      wait_and_act();
    }
    end_strays();
    drain();
    if (options_.stdio == Stdio::kForeground) take_back_terminal();
    GroupResult result = supervisor_.result();
    if (options_.recovery != nullptr) {
      options_.recovery->finish(clock_, clock_.steady() + kFlushPatience);
      if (failed_elsewhere_ && result.interrupted_by == 0) result.exit_code = to_int(ExitCode::kPeerLost);
      if (result.exit_code == to_int(ExitCode::kPeerLost)) result.disconnected = disconnected_;
      if (finished_elsewhere_ && result.interrupted_by == 0) result.exit_code = 0;
    }
    const bool stopped = result.interrupted_by != 0;
    const auto signal =
        console_.flush(signals_, clock_, stopped ? std::optional(clock_.steady() + options_.grace) : std::nullopt);
    if (signal && !stopped) result.interrupted_by = *signal;
    return result;
  }

 private:
  Result<void> start(size_t index) {
    const Member& member = members_[index];
    Command command = member.command;
    FileDescriptor inherited;
    std::error_code ignored;
    const bool is_restart = groups_[index] > 0;
    if (is_restart) {
      for (const std::filesystem::path& file : member.stale_files) std::filesystem::remove(file, ignored);
      // Otherwise the pod ends with the message of a failure from which it has recovered, which does not matter as much
      // as the restart.
      if (std::filesystem::exists(member.pod_message, ignored))
        static_cast<void>(write_message(member.pod_message, ""));
      // The terminal still belongs to the earlier process, and spawn() gives it to a child only if it is this one's.
      if (options_.stdio == Stdio::kForeground && ::tcgetpgrp(STDIN_FILENO) == groups_[index]) take_back_terminal();
    }
    if (options_.recovery != nullptr) {
      ASSIGN_OR_RETURN(const Environment variables, options_.recovery->prepare(static_cast<int>(index), inherited));
      for (const auto& [name, value] : restart_environment(options_.recovery->restarts()))
        command.environment[name] = value;
      for (const auto& [name, value] : variables) command.environment[name] = value;
      if (const InPodRestarts& restarts = options_.recovery->in_pod_restarts(); restarts.total > 0)
        command.environment[kEnvInPodRestarts] = to_json(restarts);
      if (options_.report != nullptr) options_.report->ranks_start(clock_.steady());
      command.inherited = inherited.get();
    }
    hand_overs_[index].reset();
    std::optional<Child> of_standby = use_standby(command, index);
    if (!of_standby) {
      ASSIGN_OR_RETURN(of_standby, spawn(command, options_.stdio, signals_));
      guard_.add(of_standby->pid);
    }
    Child& child = *of_standby;
    groups_[index] = child.pid;
    start_retries_[index].reset();
    lingering_[index] = false;
    forgotten_.erase(index);
    exits_[index].reset();
    kill_at_[index].reset();
    if (options_.stdio == Stdio::kPipes) {
      Result<LogFile> out = open_log(member, "stdout.log");
      Result<LogFile> err = open_log(member, "stderr.log");
      for (Result<LogFile>* file : {&out, &err}) {
        if (*file) continue;
        if (!is_restart) return tl::make_unexpected(file->error());
        // A full disk must not stop the training, which has begun.
        console_.print_line(
            fmt::format("{}; {} has no such file after this restart", file->error().message, member.name));
        *file = LogFile();
      }
      add_stream(std::move(child.out), console_.out(), index, *std::move(out), member.out);
      add_stream(std::move(child.err), console_.err(), index, *std::move(err), member.err);
    }
    return {};
  }

  // ---- standby process ----

  // Makes the standby process the process of a member. Returns nullopt if no standby process can become it.
  std::optional<Child> use_standby(const Command& command, size_t index) {
    if (!standby_) return std::nullopt;
    Result<Standby::HandOver> made = standby_->become(command);
    if (!made) {
      ::kill(-standby_->pid(), SIGKILL);  // reaped later
      return std::nullopt;
    }
    standby_.reset();
    standby_delay_ = kStandbyDelay;
    hand_overs_[index] = HandOver{std::move(made->confirmation), clock_.steady() + kHandOverPatience};
    return std::move(made->child);
  }

  // Kills standby processes that have not become ranks in time. A new process then replaces each.
  void end_hand_overs(const std::vector<pollfd>& ready) {
    for (size_t i = 0; i < hand_overs_.size(); ++i) {
      std::optional<HandOver>& one = hand_overs_[i];
      if (!one) continue;
      const bool is_confirmed = std::ranges::any_of(
          ready, [&one](const pollfd& fd) { return fd.fd == one->confirmation.get() && fd.revents != 0; });
      const bool is_late = !is_confirmed && one->deadline <= clock_.steady();
      if (is_confirmed || is_late) one.reset();
      if (!is_late) continue;
      console_.print_line(
          fmt::format("the standby process that replaces {} does not respond: sent SIGKILL", members_[i].name));
      signal_member(static_cast<int>(i), SIGKILL);
    }
  }

  // A member has requested to join. The next standby process starts a while after the last request.
  void schedule_standby(const RecoveryRequests::StandbySupport& support) {
    if (!options_.has_standby || options_.stdio != Stdio::kPipes || standby_) return;
    const auto i = static_cast<size_t>(support.member);
    // The process of the member, and not one that a script has started.
    if (support.process != groups_[i] || !executes(support.process, members_[i].command)) return;
    standby_at_ = clock_.steady() + standby_delay_;
  }

  // Without a standby process, members start as they do without support for one.
  void start_standby() {
    if (!standby_at_ || *standby_at_ > clock_.steady()) return;
    standby_at_.reset();
    std::vector<const Command*> commands;
    for (const Member& member : members_) commands.push_back(&member.command);
    Result<Standby> started = Standby::start(members_.front().command, commands, signals_);
    if (!started) return postpone_standby();
    standby_.emplace(*std::move(started));
    guard_.add(standby_->pid());
  }

  // The standby process has ended without becoming a rank.
  void end_standby(pid_t pid) {
    guard_.remove(pid);
    standby_.reset();
    postpone_standby();
  }

  void postpone_standby() {
    standby_at_ = clock_.steady() + standby_delay_;
    standby_delay_ = std::min<Supervisor::Duration>(standby_delay_ * 2, kMaxStandbyDelay);
  }

  // ---- start of a member that cannot be started now ----

  // A restart fails for reasons that pass, such as a lack of processes or memory, while the other members hold the
  // state of the training. The first start is not repeated.
  void start_or_retry(size_t index) {
    const bool is_restart = groups_[index] > 0;
    Result<void> started = start(index);
    if (started) return;
    if (!is_restart) {
      start_error_ = started.error();
      return;
    }
    const SteadyTime now = clock_.steady();
    std::optional<StartRetry>& retry = start_retries_[index];
    if (!retry) {
      retry = StartRetry{.at = now, .until = now + kStartPatience};
      console_.print_line(fmt::format("{} cannot be started again: {}; further attempts follow for {} s",
                                      members_[index].name, started.error().message,
                                      std::chrono::duration_cast<std::chrono::seconds>(kStartPatience).count()));
    }
    retry->at = now + kStartRetryInterval;
    if (retry->at > retry->until) start_error_ = started.error();
  }

  void retry_starts() {
    for (size_t i = 0; i < start_retries_.size(); ++i) {
      if (start_retries_[i] && start_retries_[i]->at <= clock_.steady() && !start_error_) start_or_retry(i);
    }
  }

  // Opens a file for the output of the next start of a member; not open if the member has no folder.
  Result<LogFile> open_log(const Member& member, const char* name) const {
    if (member.log_folder.empty()) return LogFile();
    std::string folder = member.name;
    std::ranges::replace(folder, ' ', '_');
    const int64_t restarts = options_.recovery == nullptr ? options_.attempt : options_.recovery->restarts();
    return LogFile::open(member.log_folder / fmt::format("attempt_{}", restarts) / folder / name);
  }

  // Kills the members that have started, after another member could not be started. The other launchers must not wait
  // for this one.
  tl::unexpected<Error> give_up(const Error& error) {
    for (size_t i = 0; i < members_.size(); ++i) signal_member(static_cast<int>(i), SIGKILL);
    end_strays();
    if (options_.recovery != nullptr) {
      options_.recovery->stop(clock_.steady());
      options_.recovery->finish(clock_, clock_.steady() + kFlushPatience);
    }
    return tl::make_unexpected(error);
  }

  bool recovers() const { return options_.recovery != nullptr && !supervisor_.stopping() && !has_ended_; }

  // Carries out the requests of the recovery.
  void perform(const RecoveryRequests& requests) {
    for (const std::string& message : requests.messages) console_.print_line(message);
    for (const auto& support : requests.standby) schedule_standby(support);
    std::vector<size_t> unstarted;  // members that end before they have started
    for (const int member : requests.kill) {
      signal_member(member, SIGKILL);
      if (std::exchange(start_retries_[static_cast<size_t>(member)], std::nullopt))
        unstarted.push_back(static_cast<size_t>(member));
    }
    for (const int member : requests.stop) {
      if (std::exchange(start_retries_[static_cast<size_t>(member)], std::nullopt)) {
        unstarted.push_back(static_cast<size_t>(member));
        continue;
      }
      signal_member(member, SIGTERM);
      kill_at_[static_cast<size_t>(member)] = clock_.steady() + options_.grace;
    }
    for (const int member : requests.spawn) {
      if (requests.ended || start_error_) break;
      start_or_retry(static_cast<size_t>(member));
    }
    if (requests.ended) {
      if (requests.is_disconnected) disconnected_ = requests.ended->reason;
      end_recovery(*requests.ended);
    }
    for (const size_t member : unstarted) {
      if (recovers()) perform(options_.recovery->exited(static_cast<int>(member), 128 + SIGKILL, clock_.steady()));
    }
  }

  void signal_member(int member, int signal) const {
    const pid_t group = groups_[static_cast<size_t>(member)];
    if (group > 0 && !forgotten_.contains(static_cast<size_t>(member))) ::kill(-group, signal);
  }

  // From here on, the group ends as one without recovery.
  void end_recovery(const recovery::Order& order) {
    has_ended_ = true;
    if (!order.success) console_.print_line(fmt::format("no further restart: {}", order.reason));
    const bool has_failure = std::ranges::any_of(exits_, [](const auto& exit) { return exit && !exit->ok(); });
    failed_elsewhere_ = !order.success && !has_failure;
    // The ranks of a node that is not in the group wait to join it.
    for (size_t i = 0; i < members_.size(); ++i)
      finished_elsewhere_ = finished_elsewhere_ || (order.success && groups_[i] > 0 && !exits_[i]);
    if (finished_elsewhere_) console_.print_line("the group has finished without this node");
    hand_over_exits({});
    if (failed_elsewhere_ || finished_elsewhere_) supervisor_.expect_failure(clock_.steady());
  }

  // Reports the exits that the recovery has handled to the supervisor. `missing` is the status of a member that has not
  // started.
  void hand_over_exits(ExitStatus missing) {
    std::vector<MemberExit> exits;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (groups_[i] > 0 && !exits_[i]) continue;  // it still runs
      exits.push_back({static_cast<int>(i), exits_[i].value_or(missing), lingering_[i]});
    }
    const bool was_stopping = supervisor_.stopping();
    send(supervisor_.exited(exits, clock_.steady()));
    if (!was_stopping && supervisor_.stopping()) report_failure();
  }

  void add_stream(FileDescriptor from, OutputQueue& to, size_t member, LogFile file, LogMode mode) {
    // Only the first rank of a node shows its progress.
    const auto progress_lines =
        member == 0 ? LinePrefixer::ProgressLines::kShow : LinePrefixer::ProgressLines::kLeaveOut;
    const bool on_console = members_[member].on_console && (!file.is_open() || mode == LogMode::kConsoleAndFiles);
    streams_.push_back({std::move(from), &to, LinePrefixer(members_[member].prefix, to.columns(), progress_lines),
                        std::move(file), on_console});
  }

  void wait_and_act() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    for (OutputQueue* queue : {&console_.out(), &console_.err()}) {
      if (!queue->empty()) fds.push_back({queue->fd(), POLLOUT, 0});
    }
    const size_t first_stream = fds.size();
    for (const Stream& stream : streams_) fds.push_back({stream.to->full() ? -1 : stream.from.get(), POLLIN, 0});

    const size_t first_recovery = fds.size();
    if (recovers()) {
      for (const pollfd& fd : options_.recovery->descriptors()) fds.push_back(fd);
      for (const auto& one : hand_overs_) {
        if (one) fds.push_back({one->confirmation.get(), POLLIN, 0});
      }
    }

    std::optional<SteadyTime> wake = supervisor_.deadline();
    if (recovers()) {
      for (const auto& at : kill_at_) {
        if (at) wake = std::min(wake.value_or(SteadyTime::max()), *at);
      }
      if (const auto at = options_.recovery->deadline()) wake = std::min(wake.value_or(SteadyTime::max()), *at);
      if (standby_at_) wake = std::min(wake.value_or(SteadyTime::max()), *standby_at_);
      if (options_.report != nullptr && options_.report->deadline())
        wake = std::min(wake.value_or(SteadyTime::max()), *options_.report->deadline());
      for (const auto& one : hand_overs_) {
        if (one) wake = std::min(wake.value_or(SteadyTime::max()), one->deadline);
      }
      for (const auto& one : start_retries_) {
        if (one) wake = std::min(wake.value_or(SteadyTime::max()), one->at);
      }
    }
    // No signal reports the end of a leftover process whose parent is not this process, so poll for it.
    for (const bool lingering : lingering_) {
      if (lingering)
        wake = std::min(wake.value_or(SteadyTime::max()), clock_.steady() + std::chrono::milliseconds(100));
    }
    if (::poll(fds.data(), fds.size(), poll_timeout(wake, clock_.steady())) < 0) return;

    for (size_t i = 1; i < first_stream; ++i) {
      if (fds[i].revents != 0) (fds[i].fd == console_.out().fd() ? console_.out() : console_.err()).write_some();
    }
    for (size_t i = first_stream; i < first_recovery; ++i) {
      if (fds[i].revents != 0) read_some(streams_[i - first_stream]);
    }
    std::erase_if(streams_, [](const Stream& stream) { return !stream.from.open(); });
    for (const int signal : signals_.read()) {
      const bool was_stopping = supervisor_.stopping();
      const bool recovered = recovers();
      send(supervisor_.signalled(signal, clock_.steady()));
      if (recovered && supervisor_.stopping()) {
        options_.recovery->stop(clock_.steady());
        hand_over_exits({.code = 0, .signal = signal});
      }
      if (supervisor_.stopping() && (!was_stopping || members_.size() > 1)) {
        console_.print_line(fmt::format("{}: {} of {} still running, they have {} s to end", signal_name(signal),
                                        supervisor_.running(), members_.size(),
                                        std::chrono::duration_cast<std::chrono::seconds>(options_.grace).count()));
      }
    }
    // Before a descriptor can be closed, and its number used again.
    const std::vector<pollfd> ready(fds.begin() + static_cast<std::ptrdiff_t>(first_recovery), fds.end());
    if (recovers()) end_hand_overs(ready);
    reap();
    if (recovers()) {
      perform(options_.recovery->handle(ready, clock_.steady()));
      perform(options_.recovery->time_passed(clock_.steady()));
      kill_late_members();
      if (recovers()) retry_starts();
      start_standby();
      if (options_.report != nullptr)
        options_.report->time_passed(clock_.steady(), options_.recovery->in_pod_restarts());
    }
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
    if (got > 0 && stream.file.is_open()) {
      if (const auto problem = stream.file.write({buffer.data(), static_cast<size_t>(got)}))
        console_.print_line(*problem);
    }
    if (got > 0 && !stream.on_console) return true;
    if (got > 0 && !stream.to->closed()) {
      stream.prefixer.feed({buffer.data(), static_cast<size_t>(got)}, stream.to->tail());
      return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    stream.close();  // end of file, or our output was closed; the rank then receives SIGPIPE
    return false;
  }

  Supervisor::Signals send(Supervisor::Signals signals) {
    for (const GroupSignal& signal : signals) signal_member(signal.member, signal.signal);
    return signals;
  }

  // Members that the recovery has stopped, and that did not end within the grace period.
  void kill_late_members() {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!kill_at_[i] || *kill_at_[i] > clock_.steady()) continue;
      kill_at_[i].reset();
      signal_member(static_cast<int>(i), SIGKILL);
    }
  }

  // A member has ended, and the recovery decides how to continue. Its descendants receive SIGKILL: a new process must
  // not share the device or the ports with them.
  void recover_member(size_t index, const ExitStatus& status) {
    exits_[index] = status;
    kill_at_[index].reset();
    if (lingering_[index]) {
      ::kill(-groups_[index], SIGKILL);
      return;  // until its process group is empty
    }
    perform(options_.recovery->exited(static_cast<int>(index), status.exit_code(), clock_.steady()));
  }

  void reap() {
    std::vector<MemberExit> exits;
    int wait_status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &wait_status, WNOHANG)) > 0;) {
      if (standby_ && standby_->pid() == pid) end_standby(pid);
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
    if (recovers()) {
      for (const MemberExit& exit : exits) {
        const auto i = static_cast<size_t>(exit.member);
        if (recovers()) {
          recover_member(i, exit.status);
        } else {  // the exit before this one has ended the recovery, without this one
          send(supervisor_.exited(std::span(&exit, 1), clock_.steady()));
        }
      }
    } else if (!exits.empty()) {
      const bool was_stopping = supervisor_.stopping();
      send(supervisor_.exited(exits, clock_.steady()));
      if (!was_stopping && supervisor_.stopping()) report_failure();
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (!lingering_[i] || group_exists(groups_[i])) continue;
      lingering_[i] = false;
      forget(i);
      if (recovers() && exits_[i]) {
        perform(options_.recovery->exited(static_cast<int>(i), exits_[i]->exit_code(), clock_.steady()));
      } else {
        supervisor_.group_emptied(static_cast<int>(i));
      }
    }
  }

  bool gone(size_t member) const { return forgotten_.contains(member) || lingering_[member]; }

  void forget(size_t member) {
    guard_.remove(groups_[member]);
    forgotten_.insert(member);
  }

  void report_failure() {
    const GroupResult result = supervisor_.result();
    if (result.member < 0) return;                                  // the failure was on another node
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

  struct HandOver {  // to a standby process that has not confirmed it
    FileDescriptor confirmation;
    SteadyTime deadline;
  };
  struct StartRetry {
    SteadyTime at;     // of the next attempt
    SteadyTime until;  // when its failure ends the group
  };

  const std::vector<Member>& members_;
  const GroupOptions& options_;
  const SignalSource& signals_;
  const Clock& clock_;
  Console& console_;
  Guard guard_;
  const std::set<pid_t> earlier_children_;  // of a shell that exec'ed this program with background jobs
  Supervisor supervisor_;
  std::vector<pid_t> groups_;  // by member; 0: not started
  std::vector<bool> lingering_;
  std::vector<std::optional<ExitStatus>> exits_;    // by member: of its last process, with recovery only
  std::vector<std::optional<SteadyTime>> kill_at_;  // by member: when the recovery's stop becomes SIGKILL
  std::optional<Error> start_error_;                // of a member that could not be started again
  bool has_ended_ = false;                          // the recovery
  bool failed_elsewhere_ = false;                   // it ended because of another node
  bool finished_elsewhere_ = false;                 // the other nodes have finished without this one
  std::string disconnected_;                        // why this node has left the group by itself; empty: it has not
  std::optional<Standby> standby_;
  std::optional<SteadyTime> standby_at_;  // when to start it
  Supervisor::Duration standby_delay_ = kStandbyDelay;
  std::vector<std::optional<HandOver>> hand_overs_;       // by member
  std::vector<std::optional<StartRetry>> start_retries_;  // by member that waits for its start
  std::set<size_t> forgotten_;  // members without processes; the id of their group may be reused
  std::vector<Stream> streams_;
};

}  // namespace

Environment restart_environment(int64_t restarts) { return {{"TORCHELASTIC_RESTART_COUNT", std::to_string(restarts)}}; }

Result<GroupResult> run_group(const std::vector<Member>& members, const GroupOptions& options,
                              const SignalSource& signals, const Clock& clock, Console& console) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string launch = random_hex(kMarkerBytes);
  std::vector<Member> marked = members;
  for (Member& member : marked) member.command.environment[kEnvLaunch] = launch;
  ASSIGN_OR_RETURN(Guard guard, Guard::start(launch));
  return Group(marked, options, signals, clock, console, std::move(guard)).run();
}

}  // namespace oarlock::launch
