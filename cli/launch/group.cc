#include "cli/launch/group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <set>
#include <sstream>
#include <utility>

#include "cli/launch/console.h"
#include "cli/launch/early_failure.h"
#include "cli/launch/guard.h"
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

constexpr size_t kMarkerBytes = 16;  // of random numbers, in the value of kEnvLaunch

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
  std::optional<size_t> member = {};  // whose standard error this is

  void close() {
    std::string rest;
    prefixer.finish(rest);
    to->push(rest);
    from.close();
  }
};

constexpr size_t kTailBytes = 2048;
constexpr int kMaxTailReads = 16;  // of what a member has written before its end; others may still write
constexpr size_t kLastLineLength = 300;

// Returns the last line that is not empty, for messages.
std::string last_line_of(std::string_view text) {
  text = trim(text);
  const size_t end = text.rfind('\n');
  return shortened(text.substr(end == std::string_view::npos ? 0 : end + 1), kLastLineLength);
}

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

std::vector<const Command*> commands_of(const std::vector<Member>& members) {
  std::vector<const Command*> commands;
  for (const Member& member : members) commands.push_back(&member.command);
  return commands;
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
        supervisor_(static_cast<int>(members.size()), options.grace,
                    options.recovery != nullptr && !options.recovery->restarts_all_ranks()),
        processes_(members.size()),
        tails_(members.size()),
        failures_(members.size()),
        standby_(commands_of(members), clock, signals) {}

  Result<GroupResult> run() {
    if (options_.recovery == nullptr) {
      for (size_t i = 0; i < members_.size(); ++i) {
        if (Result<void> started = start(i); !started) return give_up(started.error());
      }
    } else {
      perform(options_.recovery->start(clock_.steady()));
    }
    std::optional<SteadyTime> stopping_since;
    while (!supervisor_.finished()) {
      if (start_error_) return give_up(*start_error_);
      wait_and_act();
      if (supervisor_.stopping() && !stopping_since) stopping_since = clock_.steady();
    }
    end_strays();
    drain();
    if (options_.stdio == Stdio::kForeground) take_back_terminal();
    GroupResult result = supervisor_.result();
    if (options_.recovery != nullptr) {
      options_.recovery->finish(clock_, clock_.steady() + kFlushPatience);
      if (failed_elsewhere_ && result.interrupted_by == 0)
        result.exit_code = to_int(options_.recovery->has_unjoined_rank() ? ExitCode::kUsage : ExitCode::kPeerLost);
      if (result.exit_code == to_int(ExitCode::kPeerLost)) result.disconnected = disconnected_;
      if (finished_elsewhere_ && result.interrupted_by == 0) result.exit_code = 0;
    }
    result.lost_output = lost_output_;
    if (result.member >= 0) {
      const auto member = static_cast<size_t>(result.member);
      const Processes& processes = processes_[member];
      if (processes.started_at && processes.ended_at) result.lifetime = *processes.ended_at - *processes.started_at;
      result.last_line = last_line_of(tails_[member]);
    }
    const bool stopped = result.interrupted_by != 0;
    // The pod is killed soon after the grace period, and the caller has yet to write its termination message.
    std::optional<SteadyTime> deadline;
    if (stopped) deadline = clock_.steady() + kFlushPatience;
    if (stopped && stopping_since) deadline = std::max(*deadline, *stopping_since + options_.grace);
    const auto signal = console_.flush(signals_, clock_, deadline);
    if (signal && !stopped) result.interrupted_by = *signal;
    return result;
  }

 private:
  Result<void> start(size_t index) {
    const Member& member = members_[index];
    Command command = member.command;
    FileDescriptor inherited;
    std::error_code ignored;
    const bool is_restart = processes_[index].group > 0;
    if (is_restart) {
      for (const std::filesystem::path& file : member.stale_files) std::filesystem::remove(file, ignored);
      // Otherwise the pod ends with the message of a failure from which it has recovered, which does not matter as much
      // as the restart.
      if (std::filesystem::exists(member.pod_message, ignored))
        static_cast<void>(write_message(member.pod_message, ""));
      // The terminal still belongs to the earlier process, and spawn() gives it to a child only if it is this one's.
      if (options_.stdio == Stdio::kForeground && ::tcgetpgrp(STDIN_FILENO) == processes_[index].group)
        take_back_terminal();
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
    std::optional<Child> process = standby_.become(command, index);
    if (!process) {
      ASSIGN_OR_RETURN(process, spawn(command, options_.stdio, signals_));
      guard_.add(process->pid);
    }
    tails_[index].clear();
    Child& child = *process;
    processes_[index] = {.group = child.pid, .started_at = clock_.steady()};
    if (options_.stdio == Stdio::kErrorPipe)
      add_stream(std::move(child.err), console_.err(), index, LogFile(), LogMode::kConsoleAndFiles);
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

  void schedule_standby(const RecoveryRequests::StandbySupport& support) {
    if (!options_.has_standby || options_.stdio != Stdio::kPipes) return;
    const auto i = static_cast<size_t>(support.member);
    // The process of the member, and not one that a script has started.
    if (support.process == processes_[i].group && executes(support.process, members_[i].command)) standby_.schedule();
  }

  void start_standby() {
    if (const std::optional<pid_t> group = standby_.start_if_due()) guard_.add(*group);
  }

  void kill_unconfirmed(const std::vector<pollfd>& ready) {
    for (const size_t member : standby_.end_hand_overs(ready)) {
      console_.print_line(
          fmt::format("the standby process that replaces {} does not respond: sent SIGKILL", members_[member].name));
      options_.recovery->abandon_start(static_cast<int>(member));
      signal_member(static_cast<int>(member), SIGKILL);
    }
  }

  // ---- start of a member that cannot be started now ----

  // A restart fails for reasons that pass, such as a lack of processes or memory, while the other members hold the
  // state of the training. The first start is not repeated.
  void start_or_retry(size_t index) {
    const bool is_restart = processes_[index].group > 0;
    Result<void> started = start(index);
    if (started) return;
    if (!is_restart) {
      start_error_ = started.error();
      return;
    }
    const SteadyTime now = clock_.steady();
    std::optional<StartRetry>& retry = processes_[index].start_retry;
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
    for (size_t i = 0; i < processes_.size(); ++i) {
      const std::optional<StartRetry>& retry = processes_[i].start_retry;
      if (retry && retry->at <= clock_.steady() && !start_error_) start_or_retry(i);
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
      if (std::exchange(processes_[static_cast<size_t>(member)].start_retry, std::nullopt))
        unstarted.push_back(static_cast<size_t>(member));
    }
    for (const int member : requests.stop) {
      if (std::exchange(processes_[static_cast<size_t>(member)].start_retry, std::nullopt)) {
        unstarted.push_back(static_cast<size_t>(member));
        continue;
      }
      signal_member(member, SIGTERM);
      processes_[static_cast<size_t>(member)].kill_at = clock_.steady() + options_.grace;
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
    const Processes& processes = processes_[static_cast<size_t>(member)];
    if (processes.group > 0 && !processes.is_gone) ::kill(-processes.group, signal);
  }

  // From here on, the group ends as one without recovery.
  void end_recovery(const recovery::Order& order) {
    has_ended_ = true;
    if (!order.success) console_.print_line(fmt::format("no further restart: {}", order.reason));
    const bool has_failure =
        std::ranges::any_of(processes_, [](const Processes& one) { return one.exit && !one.exit->ok(); });
    failed_elsewhere_ = !order.success && !has_failure;
    // The ranks of a node that is not in the group wait to join it.
    for (size_t i = 0; i < members_.size(); ++i)
      finished_elsewhere_ = finished_elsewhere_ || (order.success && processes_[i].group > 0 && !processes_[i].exit);
    if (finished_elsewhere_) console_.print_line("the group has finished without this node");
    hand_over_exits({});
    if (failed_elsewhere_ || finished_elsewhere_) supervisor_.expect_failure(clock_.steady());
  }

  // ---- Ctrl-Z ----

  // A member with the terminal receives the signals of its keys instead of this process.
  bool was_stopped_by_terminal(pid_t pid, int signal) const {
    const bool is_of_terminal = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
    return options_.stdio == Stdio::kForeground && is_of_terminal && ::isatty(STDIN_FILENO) == 1 &&
           pid == processes_.front().group;
  }

  // Stops all members and this process, until the shell continues it. The members are in process groups that the
  // terminal does not stop. They continue immediately if nothing could continue this process.
  void suspend(bool by_terminal) {
    for (size_t i = 0; i < members_.size(); ++i) signal_member(static_cast<int>(i), SIGSTOP);
    signals_.suspend(/*of_group=*/by_terminal);
    if (options_.stdio == Stdio::kForeground && !processes_.front().is_gone) give_terminal_to(processes_.front().group);
    for (size_t i = 0; i < members_.size(); ++i) signal_member(static_cast<int>(i), SIGCONT);
  }

  // Reports the exits that the recovery has handled to the supervisor. `missing` is the status of a member that has not
  // started.
  void hand_over_exits(ExitStatus missing) {
    std::vector<MemberExit> exits;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (processes_[i].group > 0 && !processes_[i].exit) continue;  // it still runs
      exits.push_back({.member = static_cast<int>(i),
                       .status = processes_[i].exit.value_or(missing),
                       .leftovers = processes_[i].is_lingering,
                       .is_earlier = processes_[i].exit.has_value()});
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
    if (&to == &console_.err()) streams_.back().member = member;
  }

  // When something is due that no descriptor reports; nullopt: nothing is.
  std::optional<SteadyTime> wake_time(SteadyTime now) const {
    std::optional<SteadyTime> out = supervisor_.deadline();
    const auto no_later_than = [&out](const std::optional<SteadyTime>& at) {
      if (at) out = std::min(out.value_or(*at), *at);
    };
    if (recovers()) {
      for (const Processes& one : processes_) {
        no_later_than(one.kill_at);
        if (one.start_retry) no_later_than(one.start_retry->at);
      }
      no_later_than(options_.recovery->deadline());
      no_later_than(standby_.deadline());
      if (options_.report != nullptr) no_later_than(options_.report->deadline());
    }
    // No signal reports the end of a leftover process whose parent is not this process, so poll for it.
    if (std::ranges::any_of(processes_, &Processes::is_lingering))
      no_later_than(clock_.steady() + std::chrono::milliseconds(100));
    for (const OutputQueue* queue : console_.queues()) {
      if (queue->full() && queue->waiting_since() && !discards(*queue, now))
        no_later_than(*queue->waiting_since() + reader_patience());
    }
    return out;
  }

  std::chrono::milliseconds reader_patience() const {
    return supervisor_.stopping() ? kReaderPatienceWhileStopping : std::chrono::milliseconds(kReaderPatience);
  }

  // Whether output of members is discarded, because a member that waits for the reader can neither continue nor react
  // to a signal.
  bool discards(const OutputQueue& queue, SteadyTime now) const {
    return queue.full() && queue.waiting_since() && *queue.waiting_since() + reader_patience() <= now;
  }

  void wait_and_act() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    const SteadyTime now = clock_.steady();  // one time for the descriptors and the deadline, which belong together
    const std::vector<OutputQueue*> queues = console_.queues();
    for (OutputQueue* queue : queues) {
      queue->observe(now);
      fds.push_back({queue->empty() ? -1 : queue->fd(), POLLOUT, 0});
    }
    const size_t first_stream = fds.size();
    for (const Stream& stream : streams_) {
      const bool waits = stream.to->full() && !discards(*stream.to, now);
      fds.push_back({waits ? -1 : stream.from.get(), POLLIN, 0});
    }

    const size_t first_recovery = fds.size();
    if (recovers()) {
      for (const pollfd& fd : options_.recovery->descriptors()) fds.push_back(fd);
      standby_.add_descriptors(fds);
    }

    if (::poll(fds.data(), fds.size(), poll_timeout(wake_time(now), clock_.steady())) < 0) return;

    // Once for each descriptor: a second write could block, see OutputQueue.
    for (size_t i = 0; i < queues.size(); ++i) {
      if (fds[1 + i].revents != 0) queues[i]->write_some(clock_.steady());
    }
    for (size_t i = first_stream; i < first_recovery; ++i) {
      if (fds[i].revents != 0) read_some(streams_[i - first_stream]);
    }
    std::erase_if(streams_, [](const Stream& stream) { return !stream.from.open(); });
    for (const int signal : signals_.read()) {
      if (signal == SIGTSTP) {
        suspend(/*by_terminal=*/false);
        continue;
      }
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
    if (recovers()) kill_unconfirmed(ready);
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
      if (const auto problem = stream.file.write({buffer.data(), static_cast<size_t>(got)})) {
        console_.print_line(*problem);
        if (!stream.on_console) lost_output_ = stream.file.path().string();
      }
    }
    if (got > 0 && stream.member) {
      std::string& tail = tails_[*stream.member];
      tail.append(buffer.data(), static_cast<size_t>(got));
      tail.erase(0, tail.size() - std::min(tail.size(), kTailBytes));
    }
    if (got > 0 && !stream.on_console) return true;
    if (got > 0 && !stream.to->closed()) {
      std::string lines;
      stream.prefixer.feed({buffer.data(), static_cast<size_t>(got)}, lines);
      if (discards(*stream.to, clock_.steady())) {
        stream.to->discard(lines);
      } else {
        stream.to->push(lines);
      }
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
      if (!processes_[i].kill_at || *processes_[i].kill_at > clock_.steady()) continue;
      processes_[i].kill_at.reset();
      signal_member(static_cast<int>(i), SIGKILL);
    }
  }

  // A member has ended, and the recovery decides how to continue. Its descendants receive SIGKILL: a new process must
  // not share the device or the ports with them.
  void recover_member(size_t index, const ExitStatus& status) {
    processes_[index].exit = status;
    processes_[index].kill_at.reset();
    if (processes_[index].is_lingering) {
      ::kill(-processes_[index].group, SIGKILL);
      return;  // until its process group is empty
    }
    perform(options_.recovery->exited(static_cast<int>(index), status.exit_code(), clock_.steady()));
  }

  // Records a failure of a member. Returns whether it repeats the one before it, so that all members must not start
  // again. A group that regroups has its own limit (kMaxStartFailures).
  bool fails_early_again(size_t index, const ExitStatus& status) {
    const bool is_stopped = processes_[index].kill_at.has_value();  // for the restart
    if (status.ok() || is_stopped || !options_.recovery->restarts_all_ranks()) return false;
    for (Stream& stream : streams_) {
      for (int i = 0; i < kMaxTailReads && stream.member == index && stream.from.open() && read_some(stream); ++i) {
      }
    }
    const Member& member = members_[index];
    const auto log = member.command.environment.find(kEnvTerminationLog);
    const bool has_log = log != member.command.environment.end();
    const RankEnd end{.rank = static_cast<int>(index),
                      .exit_code = status.exit_code(),
                      .lifetime = *processes_[index].ended_at - *processes_[index].started_at,
                      .has_progress = has_log && reports_progress(message_in(log->second)),
                      .last_line = last_line_of(tails_[index])};
    const std::optional<RankEnd> earlier = std::exchange(failures_[index], end);
    if (!earlier || !is_repeated(*earlier, end)) return false;
    console_.print_line(fmt::format("no further restart: {}", describe_repeated(member.name, end)));
    return true;
  }

  // Ends the group because of a member that must not start again, as after a signal that stops it: the member has
  // failed early again, or it has saved its state because of a signal that was forwarded.
  void end_without_restart(const MemberExit& exit) {
    options_.recovery->stop(clock_.steady());
    send(supervisor_.exited(std::span(&exit, 1), clock_.steady()));
    report_failure();
    hand_over_exits({.code = 0, .signal = SIGTERM});
  }

  void reap() {
    std::vector<MemberExit> exits;
    int wait_status = 0;
    bool is_suspended = false;
    for (pid_t pid; (pid = ::waitpid(-1, &wait_status, WNOHANG | WUNTRACED)) > 0;) {
      if (WIFSTOPPED(wait_status)) {
        is_suspended = is_suspended || was_stopped_by_terminal(pid, WSTOPSIG(wait_status));
        continue;
      }
      if (standby_.remove(pid)) guard_.remove(pid);
      for (size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].group == pid && !gone(i))
          exits.push_back({static_cast<int>(i), ExitStatus::from_wait(wait_status), false});
      }
    }
    if (is_suspended && exits.empty()) suspend(/*by_terminal=*/true);
    // This follows the loop, because zombies belong to their process group until they are reaped.
    for (MemberExit& exit : exits) {
      const auto i = static_cast<size_t>(exit.member);
      exit.leftovers = group_exists(processes_[i].group);
      processes_[i].is_lingering = exit.leftovers;
      processes_[i].ended_at = clock_.steady();
      if (!exit.leftovers) forget(i);
    }
    if (recovers()) {
      for (const MemberExit& exit : exits) {
        const auto i = static_cast<size_t>(exit.member);
        if (recovers() && exit.status.code == to_int(ExitCode::kTempFail) &&
            supervisor_.is_reaction(exit.status, clock_.steady())) {
          end_without_restart(exit);
        } else if (recovers() && fails_early_again(i, exit.status)) {
          end_without_restart(exit);
        } else if (recovers()) {
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
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (!processes_[i].is_lingering || group_exists(processes_[i].group)) continue;
      processes_[i].is_lingering = false;
      forget(i);
      if (recovers() && processes_[i].exit) {
        perform(options_.recovery->exited(static_cast<int>(i), processes_[i].exit->exit_code(), clock_.steady()));
      } else {
        supervisor_.group_emptied(static_cast<int>(i));
      }
    }
  }

  bool gone(size_t member) const { return processes_[member].is_gone || processes_[member].is_lingering; }

  void forget(size_t member) {
    guard_.remove(processes_[member].group);
    processes_[member].is_gone = true;
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
    // The reader may have waited for this process meanwhile.
    for (OutputQueue* queue : console_.queues()) {
      pollfd fd{queue->empty() ? -1 : queue->fd(), POLLOUT, 0};
      if (::poll(&fd, 1, 0) > 0) queue->write_some(clock_.steady());
    }
    for (Stream& stream : streams_) {
      while (read_some(stream)) {
      }
      if (stream.from.open()) stream.close();
    }
    streams_.clear();
  }

  struct StartRetry {
    SteadyTime at;     // of the next attempt
    SteadyTime until;  // when its failure ends the group
  };
  struct Processes {  // of a member, since its last start
    pid_t group = 0;  // 0: not started
    std::optional<SteadyTime> started_at = {};
    std::optional<SteadyTime> ended_at = {};
    bool is_lingering = false;               // the leader has ended, others of the group have not
    bool is_gone = false;                    // the id of the group may be reused
    std::optional<ExitStatus> exit = {};     // of the leader, with recovery only
    std::optional<SteadyTime> kill_at = {};  // when the recovery's stop becomes SIGKILL
    std::optional<StartRetry> start_retry = {};
  };

  const std::vector<Member>& members_;
  const GroupOptions& options_;
  const SignalSource& signals_;
  const Clock& clock_;
  Console& console_;
  Guard guard_;
  const std::set<pid_t> earlier_children_;  // of a shell that exec'ed this program with background jobs
  Supervisor supervisor_;
  std::vector<Processes> processes_;              // by member
  std::vector<std::string> tails_;                // of the standard error, by member, if that is a pipe
  std::vector<std::optional<RankEnd>> failures_;  // the last one of each member, with recovery only
  std::optional<Error> start_error_;              // of a member that could not be started again
  bool has_ended_ = false;                        // the recovery
  bool failed_elsewhere_ = false;                 // it ended because of another node
  bool finished_elsewhere_ = false;               // the other nodes have finished without this one
  std::string disconnected_;                      // why this node has left the group by itself; empty: it has not
  std::string lost_output_;                       // see GroupResult
  StandbySlot standby_;
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
