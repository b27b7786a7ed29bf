#include "cli/launch/group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/types.h>

#include <algorithm>
#include <csignal>
#include <span>
#include <utility>

#include "cli/launch/early_failure.h"
#include "cli/launch/guard.h"
#include "cli/launch/member_output.h"
#include "cli/launch/member_processes.h"
#include "cli/launch/polling.h"
#include "cli/launch/progress.h"
#include "cli/launch/standby.h"
#include "cli/launch/termination.h"
#include "common/contract.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace oarlock::launch {
namespace {

constexpr size_t kMarkerBytes = 16;  // of random numbers, in the value of kEnvLaunch

// How often, and for how long, a member is started again while the system lacks processes, memory or descriptors.
constexpr auto kStartRetryInterval = std::chrono::seconds(1);
constexpr auto kStartTimeout = std::chrono::minutes(1);

class Group {
 public:
  Group(const std::vector<Member>& members, const GroupOptions& options, const SignalSource& signals,
        const Clock& clock, Console& console, Guard guard)
      : members_(members),
        options_(options),
        signals_(signals),
        clock_(clock),
        console_(console),
        processes_(members.size(), std::move(guard)),
        output_(members, clock, console, options.progress),
        supervisor_(static_cast<int>(members.size()), options.grace,
                    options.recovery != nullptr && !options.recovery->restarts_all_ranks()),
        restarts_(members.size()),
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
    return finish(stopping_since);
  }

 private:
  // All members have ended.
  GroupResult finish(std::optional<SteadyTime> stopping_since) {
    processes_.end_strays(clock_);
    output_.drain(reader_timeout());
    if (is_foreground(options_.stdio)) take_back_terminal();
    GroupResult result = supervisor_.result();
    if (options_.recovery != nullptr) {
      options_.recovery->finish(clock_, clock_.steady() + kFlushTimeout);
      if (recovery_end_ == RecoveryEnd::kFailedElsewhere && result.interrupted_by == 0)
        result.exit_code = to_int(options_.recovery->has_unjoined_rank() ? ExitCode::kUsage : ExitCode::kPeerLost);
      if (result.exit_code == to_int(ExitCode::kPeerLost)) result.disconnected = disconnected_;
      if (recovery_end_ == RecoveryEnd::kFinishedElsewhere && result.interrupted_by == 0) result.exit_code = 0;
    }
    result.lost_output = output_.lost_output();
    if (result.member >= 0) {
      const auto member = static_cast<size_t>(result.member);
      result.lifetime = processes_[member].lifetime();
      result.last_line = output_.failure_reason(member);
    }
    if (options_.progress != nullptr) options_.progress->finish(result);
    const bool stopped = result.interrupted_by != 0;
    // The pod is killed soon after the grace period, and the caller has yet to write its termination message.
    std::optional<SteadyTime> deadline;
    if (stopped)
      deadline = std::max(clock_.steady() + kFlushTimeout, stopping_since.value_or(SteadyTime{}) + options_.grace);
    const auto signal = console_.flush(signals_, clock_, deadline);
    if (signal && !stopped) result.interrupted_by = *signal;
    return result;
  }

  Result<void> start(size_t index) {
    const Member& member = members_[index];
    Command command = member.command;
    FileDescriptor inherited;
    const bool is_restart = processes_[index].is_started();
    if (is_restart) {
      if (options_.recovery->restarts_all_ranks()) processes_.end_strays_between_runs(clock_);
      remove_messages(member.stale_files, member.pod_message);
      // The terminal still belongs to the earlier process, and spawn() gives it to a child only if it is this one's.
      if (is_foreground(options_.stdio) && ::tcgetpgrp(STDIN_FILENO) == processes_[index].group) take_back_terminal();
    }
    if (options_.recovery != nullptr) {
      ASSIGN_OR_RETURN(Environment variables, options_.recovery->prepare(static_cast<int>(index), inherited));
      variables.merge(restart_environment(options_.recovery->restarts()));
      for (const auto& [name, value] : variables) command.environment[name] = value;
      if (const InPodRestarts& restarts = options_.recovery->in_pod_restarts(); restarts.total > 0)
        command.environment[kEnvInPodRestarts] = to_json(restarts);
      command.inherited = inherited.get();
    }
    if (options_.progress != nullptr) options_.progress->before_start(index, in_pod_restarts());
    std::optional<Child> process = standby_.become(command, index);
    if (!process) {
      ASSIGN_OR_RETURN(process, spawn(command, options_.stdio, signals_));
      processes_.guard(process->pid);
    }
    processes_.add(index, process->pid, clock_.steady());
    if (options_.progress != nullptr) options_.progress->add_process(index, process->pid);
    restarts_[index] = {};
    const int64_t attempt = options_.recovery == nullptr ? options_.attempt : options_.recovery->restarts();
    return output_.add(index, *std::move(process), attempt, is_restart);
  }

  // ---- standby process ----

  void schedule_standby(const RecoveryRequests::StandbySupport& support) {
    if (!options_.has_standby || options_.stdio != Stdio::kPipes) return;
    const auto i = static_cast<size_t>(support.member);
    // The process of the member, and not one that a script has started.
    if (support.process == processes_[i].group && executes(support.process, members_[i].command)) standby_.schedule();
  }

  void kill_unconfirmed(const std::vector<pollfd>& ready) {
    for (const size_t member : standby_.end_hand_overs(ready)) {
      console_.print_line(
          fmt::format("the standby process that replaces {} does not respond: sent SIGKILL", members_[member].name));
      options_.recovery->abandon_start(static_cast<int>(member));
      processes_.signal(member, SIGKILL);
    }
  }

  // A restart fails for reasons that pass, such as a lack of processes or memory, while the other members hold the
  // state of the training. The first start is not repeated.
  void start_or_retry(size_t index) {
    const bool is_restart = processes_[index].is_started();
    Result<void> started = start(index);
    if (started) return;
    if (!is_restart) {
      start_error_ = started.error();
      return;
    }
    const SteadyTime now = clock_.steady();
    std::optional<StartRetry>& retry = restarts_[index].retry;
    if (!retry) {
      retry = StartRetry{.at = now, .until = now + kStartTimeout};
      console_.print_line(fmt::format("{} cannot be started again: {}; further attempts follow for {} s",
                                      members_[index].name, started.error().message,
                                      std::chrono::duration_cast<std::chrono::seconds>(kStartTimeout).count()));
    }
    retry->at = now + kStartRetryInterval;
    if (retry->at > retry->until) start_error_ = started.error();
  }

  void retry_starts() {
    for (size_t i = 0; i < restarts_.size(); ++i) {
      const std::optional<StartRetry>& retry = restarts_[i].retry;
      if (retry && retry->at <= clock_.steady() && !start_error_) start_or_retry(i);
    }
  }

  // Kills the members that have started, after another could not be. Other launchers must not wait for this one.
  tl::unexpected<Error> give_up(const Error& error) {
    processes_.signal_all(SIGKILL);
    processes_.end_strays(clock_);
    if (options_.recovery != nullptr) {
      options_.recovery->stop(clock_.steady());
      options_.recovery->finish(clock_, clock_.steady() + kFlushTimeout);
    }
    return tl::make_unexpected(error);
  }

  InPodRestarts in_pod_restarts() const {
    return options_.recovery == nullptr ? InPodRestarts() : options_.recovery->in_pod_restarts();
  }

  bool recovers() const { return options_.recovery != nullptr && !supervisor_.stopping() && !recovery_end_; }

  // Carries out the requests of the recovery.
  void perform(const RecoveryRequests& requests) {
    for (const std::string& message : requests.messages) console_.print_line(message);
    for (const auto& support : requests.standby) schedule_standby(support);
    std::vector<int> unstarted;  // members that end before they have started
    for (const int member : requests.kill) {
      signal_member(member, SIGKILL);
      if (std::exchange(restart_of(member).retry, std::nullopt)) unstarted.push_back(member);
    }
    for (const int member : requests.stop) {
      if (std::exchange(restart_of(member).retry, std::nullopt)) {
        unstarted.push_back(member);
        continue;
      }
      signal_member(member, SIGTERM);
      restart_of(member).kill_at = clock_.steady() + options_.grace;
    }
    for (const int member : requests.spawn) {
      if (requests.ended || start_error_) break;
      start_or_retry(static_cast<size_t>(member));
    }
    if (requests.ended) {
      if (requests.is_disconnected) disconnected_ = requests.ended->reason;
      end_recovery(*requests.ended);
    }
    for (const int member : unstarted) {
      if (recovers()) perform(options_.recovery->exited(member, 128 + SIGKILL, clock_.steady()));
    }
  }

  void signal_member(int member, int signal) { processes_.signal(static_cast<size_t>(member), signal); }

  // From here on, the group ends as one without recovery.
  void end_recovery(const recovery::Order& order) {
    if (!order.success) console_.print_line(fmt::format("no further restart: {}", order.reason));
    recovery_end_ = RecoveryEnd::kHere;
    for (size_t i = 0; i < members_.size(); ++i) {
      // The ranks of a node that is not in the group wait to join it.
      const bool is_running = processes_[i].is_started() && !restarts_[i].exit;
      if (order.success && is_running) recovery_end_ = RecoveryEnd::kFinishedElsewhere;
    }
    const auto has_failed = [](const Restart& one) { return one.exit && !one.exit->ok(); };
    if (!order.success && std::ranges::none_of(restarts_, has_failed)) recovery_end_ = RecoveryEnd::kFailedElsewhere;
    if (recovery_end_ == RecoveryEnd::kFinishedElsewhere)
      console_.print_line("the group has finished without this node");
    hand_over_exits({});
    if (recovery_end_ != RecoveryEnd::kHere) supervisor_.expect_failure(clock_.steady());
  }

  // ---- Ctrl-Z ----

  // A member with the terminal receives the signals of its keys instead of this process.
  bool was_stopped_by_terminal(pid_t pid, int signal) const {
    const bool is_of_terminal = signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
    return is_foreground(options_.stdio) && is_of_terminal && ::isatty(STDIN_FILENO) == 1 && pid == processes_[0].group;
  }

  // Stops all members and this process, until the shell continues it. The members are in process groups that the
  // terminal does not stop. They continue immediately if nothing could continue this process.
  void suspend(bool by_terminal) {
    processes_.signal_all(SIGSTOP);
    signals_.suspend(/*of_group=*/by_terminal);
    if (is_foreground(options_.stdio) && !processes_[0].is_gone) give_terminal_to(processes_[0].group);
    processes_.signal_all(SIGCONT);
  }

  // Reports the exits that the recovery has handled to the supervisor. `missing`: the status of a member not started.
  void hand_over_exits(ExitStatus missing) {
    std::vector<MemberExit> exits;
    for (size_t i = 0; i < members_.size(); ++i) {
      const std::optional<ExitStatus>& exit = restarts_[i].exit;
      if (processes_[i].is_started() && !exit) continue;  // it still runs
      exits.push_back({.member = static_cast<int>(i),
                       .status = exit.value_or(missing),
                       .leftovers = processes_[i].is_lingering,
                       .is_earlier = exit.has_value()});
    }
    supervise(exits);
  }

  void supervise(std::span<const MemberExit> exits) {
    const bool was_stopping = supervisor_.stopping();
    send(supervisor_.exited(exits, clock_.steady()));
    if (!was_stopping && supervisor_.stopping()) report_failure();
  }

  // When something is due that no descriptor reports; nullopt: nothing is.
  std::optional<SteadyTime> wake_time(SteadyTime now) const {
    std::optional<SteadyTime> out = earlier(supervisor_.deadline(), output_.deadline(now));
    out = earlier(out, processes_.deadline(clock_.steady()));
    if (recovers()) {
      for (const Restart& one : restarts_) {
        out = earlier(out, one.kill_at);
        if (one.retry) out = earlier(out, one.retry->at);
      }
      out = earlier(earlier(out, options_.recovery->deadline()), standby_.deadline());
    }
    if (options_.progress != nullptr) out = earlier(out, options_.progress->deadline());
    return out;
  }

  std::chrono::milliseconds reader_timeout() const {
    return supervisor_.stopping() ? kReaderTimeoutWhileStopping : std::chrono::milliseconds(kReaderTimeout);
  }

  void wait_and_act() {
    std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
    const SteadyTime now = clock_.steady();  // one time for the descriptors and the deadline, which belong together
    output_.add_descriptors(now, reader_timeout(), fds);
    const size_t first_recovery = fds.size();
    if (recovers()) {
      for (const pollfd& fd : options_.recovery->descriptors()) fds.push_back(fd);
      standby_.add_descriptors(fds);
    }
    if (options_.progress != nullptr) options_.progress->add_descriptors(now, fds);
    if (::poll(fds.data(), fds.size(), poll_timeout(wake_time(now), clock_.steady())) < 0) return;
    output_.handle(std::span(fds).subspan(1, first_recovery - 1));
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
      if (const std::optional<pid_t> standby = standby_.start_if_due()) processes_.guard(*standby);
    }
    if (options_.progress != nullptr) {
      options_.progress->read_due();
      options_.progress->time_passed(in_pod_restarts());
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

  Supervisor::Signals send(Supervisor::Signals signals) {
    for (const GroupSignal& signal : signals) signal_member(signal.member, signal.signal);
    return signals;
  }

  // Members that the recovery has stopped, and that did not end within the grace period.
  void kill_late_members() {
    for (size_t i = 0; i < restarts_.size(); ++i) {
      if (!restarts_[i].kill_at || *restarts_[i].kill_at > clock_.steady()) continue;
      restarts_[i].kill_at.reset();
      processes_.signal(i, SIGKILL);
    }
  }

  // A member has ended, and the recovery decides how to continue. Its descendants receive SIGKILL: a new process must
  // not share the device or the ports with them.
  void recover_member(size_t index, const ExitStatus& status) {
    restarts_[index].exit = status;
    restarts_[index].kill_at.reset();
    if (processes_[index].is_lingering) return processes_.signal(index, SIGKILL);  // until its process group is empty
    perform(options_.recovery->exited(static_cast<int>(index), status.exit_code(), clock_.steady()));
  }

  // Records a failure of a member. Returns whether it repeats the one before it, so that all members must not start
  // again. A group that regroups has its own limit (kMaxStartFailures).
  bool fails_early_again(size_t index, const ExitStatus& status) {
    const bool is_stopped = restarts_[index].kill_at.has_value();  // for the restart
    if (status.ok() || is_stopped || !options_.recovery->restarts_all_ranks()) return false;
    output_.read_errors(index);
    const Member& member = members_[index];
    const auto log = member.command.environment.find(kEnvTerminationLog);
    const bool has_log = log != member.command.environment.end();
    const bool has_progress = options_.progress != nullptr && options_.progress->read(index);
    const RankEnd end{.rank = static_cast<int>(index),
                      .exit_code = status.exit_code(),
                      .lifetime = processes_[index].lifetime(),
                      .has_progress = has_progress || (has_log && reports_progress(message_in(log->second))),
                      .last_line = output_.failure_reason(index)};
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
    const auto [exits, others, stopped] = processes_.reap(clock_.steady());
    for (const pid_t pid : others) {
      if (standby_.remove(pid)) processes_.release(pid);
    }
    const auto is_suspended = [this](const auto& one) { return was_stopped_by_terminal(one.first, one.second); };
    if (exits.empty() && std::ranges::any_of(stopped, is_suspended)) suspend(/*by_terminal=*/true);
    if (recovers()) {
      for (const MemberExit& exit : exits) {
        const auto i = static_cast<size_t>(exit.member);
        const bool is_saved = exit.status.code == to_int(ExitCode::kTempFail);
        if (!recovers()) {  // the exit before this one has ended the recovery, without this one
          send(supervisor_.exited(std::span(&exit, 1), clock_.steady()));
        } else if ((is_saved && supervisor_.is_reaction(exit.status, clock_.steady())) ||
                   fails_early_again(i, exit.status)) {
          end_without_restart(exit);
        } else {
          recover_member(i, exit.status);
        }
      }
    } else if (!exits.empty()) {
      supervise(exits);
    }
    for (const size_t i : processes_.take_emptied()) {
      if (const std::optional<ExitStatus>& exit = restarts_[i].exit; recovers() && exit) {
        perform(options_.recovery->exited(static_cast<int>(i), exit->exit_code(), clock_.steady()));
      } else {
        supervisor_.group_emptied(static_cast<int>(i));
      }
    }
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

  struct StartRetry {
    SteadyTime at;     // of the next attempt
    SteadyTime until;  // when its failure ends the group
  };
  struct Restart {                           // of a member by the recovery, since its last start
    std::optional<SteadyTime> kill_at = {};  // when the recovery's stop becomes SIGKILL
    std::optional<ExitStatus> exit = {};     // of the leader, which the recovery has handled
    std::optional<StartRetry> retry = {};
  };
  enum class RecoveryEnd {
    kHere,              // because of a member, or all have finished
    kFailedElsewhere,   // because of another node
    kFinishedElsewhere  // the other nodes have finished without this one
  };
  Restart& restart_of(int member) { return restarts_[static_cast<size_t>(member)]; }

  const std::vector<Member>& members_;
  const GroupOptions& options_;
  const SignalSource& signals_;
  const Clock& clock_;
  Console& console_;
  MemberProcesses processes_;
  MemberOutput output_;
  Supervisor supervisor_;
  std::vector<Restart> restarts_;                 // by member
  std::vector<std::optional<RankEnd>> failures_;  // the last one of each member, with recovery only
  std::optional<Error> start_error_;              // of a member that could not be started again
  std::optional<RecoveryEnd> recovery_end_;
  std::string disconnected_;  // why this node has left the group by itself; empty: it has not
  StandbySlot standby_;
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
