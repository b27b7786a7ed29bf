#include "cli/run/local_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/launch/early_failure.h"
#include "cli/launch/group.h"
#include "cli/launch/termination.h"
#include "cli/run/local_job.h"
#include "common/contract.h"
#include "common/port_reservation.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "operator/core/desired.h"

namespace oarlock::run {
namespace {

namespace fs = std::filesystem;
using launch::Console;
using launch::GroupResult;
using launch::SignalSource;

std::string duration_text(std::chrono::steady_clock::duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  return seconds < 60 ? fmt::format("{} s", seconds) : fmt::format("{}:{:02} min", seconds / 60, seconds % 60);
}

// Returns the seconds between SIGTERM and SIGKILL in the pod template.
double grace_of(const api::TrainingJob& job) {
  const auto pod = control::make_pod_template(job, {});
  const auto& spec = pod["spec"];
  const auto it = spec.find("terminationGracePeriodSeconds");
  return it != spec.end() && it->is_number() ? it->get<double>() : 30;
}

// Whether the user has chosen to restart after this exit code.
bool has_restart_rule(const api::TrainingJob& job, int exit_code) {
  return std::ranges::any_of(job.spec.failure_policy.rules, [&](const api::FailureRule& rule) {
    const bool is_restart =
        rule.action == api::FailureAction::kRestart || rule.action == api::FailureAction::kRestartFree;
    if (!is_restart || !rule.on_exit_codes) return false;
    const bool is_listed = std::ranges::count(rule.on_exit_codes->values, exit_code) > 0;
    return is_listed == (rule.on_exit_codes->operation == api::ExitCodeOperator::kIn);
  });
}

Environment own_environment() {
  Environment out = launch::environment_of(environ);
  out.erase(kEnvProgressLines);  // of a launcher that this program runs in
  return out;
}

class LocalRun {
 public:
  LocalRun(api::TrainingJob job, const LocalRunOptions& options, RunDirectory directory, std::string config,
           const SignalSource& signals, const Clock& clock, Console& console)
      : job_(std::move(job)),
        options_(options),
        directory_(std::move(directory)),
        config_(std::move(config)),
        environment_(own_environment()),
        descriptor_limit_(launch::raise_descriptor_limit()),
        grace_(std::chrono::duration_cast<launch::Supervisor::Duration>(
            std::chrono::duration<double>(options.grace.value_or(grace_of(job_))))),
        signals_(signals),
        clock_(clock),
        console_(console) {}

  Result<int> run() {
    const SteadyTime begin = clock_.steady();
    for (const std::string& note : describe_differences(job_, environment_, options_.volumes))
      console_.print_line("note: " + note);
    if (!directory_.is_first_attempt()) {
      console_.print_line(
          fmt::format("{} has earlier runs; this one resumes from their checkpoints (--fresh starts over)",
                      directory_.path().string()));
    }
    if (const auto saved = directory_.newest_checkpoint())
      status_.restarts.after_progress = api::AfterProgress{.checkpoint_step = saved};
    for (int restarts = 0;; ++restarts) {
      const SteadyTime attempt_begin = clock_.steady();
      ASSIGN_OR_RETURN(const Ended ended, run_attempt());
      durations_.push_back(clock_.steady() - attempt_begin);
      if (const Result<void> written = console_.written(); !written) {  // a restart would lose its output as well
        console_.print_line(written.error().message);
        Ended lost = ended;
        if (lost.result.exit_code == 0 || lost.result.exit_code == kExitOfBrokenPipe)
          lost.result.exit_code = to_int(written.error().code);
        return finish("Failed", lost, restarts, begin);
      }
      if (ended.result.exit_code == 0) return finish("Complete", ended, restarts, begin);
      if (ended.result.interrupted_by != 0) return finish("Interrupted", ended, restarts, begin);
      // A process that was killed has left no message.
      status_.highest_progress = api::HighestProgress{.checkpoint_step = directory_.newest_checkpoint()};
      const control::GroupFailure failure =
          decide_after_exit(job_, status_, ended.node, ended.result.exit_code, ended.message);
      const std::string what = describe_end(ended);
      const std::optional<launch::RankEnd> earlier = std::exchange(last_end_, ended.rank_end());
      if (failure.decision == control::GroupFailure::Decision::kRestart && earlier &&
          launch::is_repeated(*earlier, *last_end_) && !has_restart_rule(job_, ended.result.exit_code)) {
        console_.print_line(launch::describe_repeated(ended.who, *last_end_));
        return finish("Failed", ended, restarts, begin);
      }
      if (failure.decision != control::GroupFailure::Decision::kRestart) {
        console_.print_line(fmt::format("{}: {}", what, why_not_restarted(failure)));
        return finish("Failed", ended, restarts, begin);
      }
      if (failure.charge) control::charge_restart(*failure.charge, status_);
      const std::chrono::seconds delay = delay_after(job_, durations_);
      console_.print_line(fmt::format("{}; all ranks start again{}, {}", what,
                                      delay.count() > 0 ? fmt::format(" in {} s", delay.count()) : "",
                                      describe_cost(failure)));
      if (!wait(delay)) return finish("Interrupted", ended, restarts, begin);
    }
  }

 private:
  struct Ended {
    GroupResult result;
    std::string who;           // the decisive process, such as "rank 1"
    int node = 0;              // the node of that process
    std::string message;       // the termination message, created from the exit status if there was none
    bool has_message = false;  // the process wrote a message
    bool has_saved = false;    // the directory of checkpoints has changed during the attempt

    launch::RankEnd rank_end() const {
      return {.rank = result.member,
              .exit_code = result.exit_code,
              .lifetime = result.lifetime,
              .has_progress = has_saved || launch::reports_progress(message),
              .last_line = result.last_line};
    }
  };

  static std::string why_not_restarted(const control::GroupFailure& failure) {
    // The other ranks have already been stopped at this point.
    if (failure.decision == control::GroupFailure::Decision::kNone)
      return "failurePolicy.rules ignore this exit; on a cluster the other ranks continue, here they end with it";
    if (failure.reason == "PermanentFailure") return "a restart would fail again";
    if (failure.reason == "FailurePolicy") return "failurePolicy.rules fail the job";
    return failure.charge ? failure.charge->message : failure.message;
  }

  std::string describe_cost(const control::GroupFailure& failure) const {
    if (failure.is_charged())
      return fmt::format("restart {} of {}", status_.restarts.charged, job_.spec.failure_policy.max_restarts);
    return failure.charge ? "not counted after progress" : "not counted";
  }

  // Returns false if a signal to end arrives meanwhile.
  bool wait(std::chrono::seconds delay) {
    const SteadyTime end = clock_.steady() + delay;
    while (clock_.steady() < end) {
      if (const auto arrived = console_.flush(signals_, clock_, end)) return *arrived == SIGUSR1 || *arrived == SIGUSR2;
      pollfd signal{signals_.fd(), POLLIN, 0};
      if (::poll(&signal, 1, launch::poll_timeout(end, clock_.steady())) <= 0) continue;
      for (const int arrived : signals_.read_and_suspend()) {
        if (arrived != SIGUSR1 && arrived != SIGUSR2) return false;
      }
    }
    return true;
  }

  Result<Ended> run_attempt() {
    ASSIGN_OR_RETURN(const int attempt, directory_.begin_attempt());
    std::vector<PortReservation> reserved;  // for the duration of the attempt
    ASSIGN_OR_RETURN(HostSettings settings, reserve_ports(reserved));
    settings.attempt = attempt;
    settings.config_file = config_;
    settings.checkpoint_dir = directory_.checkpoints().string();
    settings.base = environment_;
    settings.volumes = options_.volumes;
    job_.metadata.uid = directory_.uid();
    ASSIGN_OR_RETURN(launch::MessageFiles messages, launch::MessageFiles::make(environment_));

    const std::vector<LocalProcess> processes = local_processes(job_, settings);
    const auto cores = share_cores(launch::usable_cores(), job_.spec.nodes);
    const std::string path = environment_.contains("PATH") ? environment_["PATH"] : "";
    const bool uses_pipes = processes.size() > 1 || !options_.log_directory.empty();
    // Progress lines would fill the files.
    const bool shows_progress = uses_pipes && options_.log_directory.empty() && console_.err().columns() > 0;
    std::vector<launch::Member> members;
    std::vector<int> ranks;
    for (const LocalProcess& process : processes) {
      ASSIGN_OR_RETURN(std::vector<std::string> argv, find_program(process.argv, own_directory(), path));
      Environment environment = process.environment;
      environment[kEnvTerminationLog] = messages.path(static_cast<int>(members.size())).string();
      const bool is_rank = process.rank >= 0;
      const int number = is_rank ? process.rank : process.node;
      argv.insert(argv.end(), options_.settings.begin(), options_.settings.end());
      const std::string prefix =
          options_.has_prefixes ? fmt::format("[{} {}] ", is_rank ? "RANK" : "NODE", number) : "";
      const auto set = [&environment](const char* name) { environment.insert_or_assign(name, std::string(1, '1')); };
      if (uses_pipes && is_rank && options_.has_prefixes) set(kEnvLinesPrefixed);
      if (shows_progress && is_rank) set(kEnvProgressLines);
      if (text_logs() && runs_default_command(job_)) argv.insert(argv.end(), {"--log-format", "text"});
      ranks.push_back(is_rank ? number : number * job_.spec.processes_per_node);
      members.push_back(
          {{std::move(argv), std::move(environment), cores[static_cast<size_t>(process.node)], descriptor_limit_},
           fmt::format("{} {}", is_rank ? "rank" : "node", number),
           prefix});
      members.back().log_directory = options_.log_directory;
    }
    announce(settings);
    const auto saved_before = launch::newest_change(directory_.checkpoints());
    launch::GroupOptions group{.grace = grace_};
    group.stdio = uses_pipes ? launch::Stdio::kPipes : launch::Stdio::kOutput;
    group.attempt = attempt;
    ASSIGN_OR_RETURN(const GroupResult group_result, launch::run_group(members, group, signals_, clock_, console_));

    std::vector<std::string> texts;
    for (size_t i = 0; i < members.size(); ++i) texts.push_back(messages.text(static_cast<int>(i)));
    const GroupResult result = launch::resolve_interruption(group_result, texts);
    const auto decisive = static_cast<size_t>(std::max(result.member, 0));
    return Ended{result,
                 members[decisive].name,
                 processes[decisive].node,
                 launch::pod_message(texts, ranks, result),
                 !texts[decisive].empty(),
                 launch::newest_change(directory_.checkpoints()) != saved_before};
  }

  // Reserves the rendezvous port, and for each node a range of metrics ports, since the nodes share this host.
  Result<HostSettings> reserve_ports(std::vector<PortReservation>& reserved) const {
    HostSettings settings;
    for (int node = 0; node < job_.spec.nodes; ++node) {
      ASSIGN_OR_RETURN(PortReservation range, PortReservation::make(job_.spec.processes_per_node));
      settings.metrics_ports.push_back(range.first());
      reserved.push_back(std::move(range));
    }
    if (options_.master_port) {
      settings.master_port = *options_.master_port;
      return settings;
    }
    ASSIGN_OR_RETURN(PortReservation rendezvous, PortReservation::make(1));
    settings.master_port = rendezvous.first();
    reserved.push_back(std::move(rendezvous));
    return settings;
  }

  // With auto, the trainer would see a pipe and write JSON.
  bool text_logs() {
    return options_.log_format == "text" || (options_.log_format == "auto" && console_.err().is_terminal());
  }

  void announce(const HostSettings& settings) {
    const int per_node = job_.spec.processes_per_node;
    std::string urls;
    if (!runs_trainer(job_)) {  // its program may serve none
      console_.print_line(fmt::format("{}: attempt {}, {} of {}", job_.metadata.name, settings.attempt,
                                      counted(job_.spec.nodes, "node"), counted(per_node, "rank")));
      return;
    }
    for (int rank = 0; rank < job_.world_size(); ++rank) {
      const int port = settings.metrics_ports[static_cast<size_t>(rank / per_node)] + rank % per_node;
      if (rank == kMaxUrls) {
        urls += " ...";
        break;
      }
      urls += fmt::format(" http://127.0.0.1:{}{}", port, kMetricsPath);
    }
    console_.print_line(fmt::format("{}: attempt {}, {} of {}; metrics of each rank:{}", job_.metadata.name,
                                    settings.attempt, counted(job_.spec.nodes, "node"), counted(per_node, "rank"),
                                    urls));
  }

  std::string describe_end(const Ended& ended) const {
    std::string text = fmt::format("{} ended with {}", ended.who, launch::describe(ended.result.status));
    if (const auto message = termination_message_from_json(ended.message);
        ended.has_message && message && !message->message.empty()) {
      text += fmt::format(" ({}: {})", message->reason, message->message);
    }
    return text;
  }

  Result<int> finish(const std::string& state, const Ended& ended, int restarts, SteadyTime begin) {
    const std::string indent(std::string_view("oarlock run: ").size(), ' ');
    console_.print_line(fmt::format("{}: {} after {}, {}", job_.metadata.name, state,
                                    duration_text(clock_.steady() - begin), counted(restarts, "restart")));
    if (const auto message = termination_message_from_json(ended.message); message && message->step > 0) {
      std::string line = fmt::format("{}step {}", indent, message->step);
      if (message->checkpoint_step >= 0)
        line += fmt::format(", newest checkpoint at step {}", message->checkpoint_step);
      console_.err().push(line + "\n");
    }
    std::error_code ignored;
    const bool some = saves_checkpoints(job_) && fs::is_directory(directory_.checkpoints(), ignored) &&
                      !fs::is_empty(directory_.checkpoints(), ignored);
    if (saves_checkpoints(job_)) {
      console_.err().push(
          fmt::format("{}checkpoints: {}{}\n", indent, directory_.checkpoints().string(), some ? "" : " (none)"));
    }
    if (const std::string next = next_command(state, some); !next.empty())
      console_.err().push(fmt::format("{}{}\n", indent, next));
    console_.flush(signals_, clock_, clock_.steady() + grace_);
    return ended.result.exit_code;
  }

  // Returns what a user may do next, with the command; empty if there is nothing to suggest.
  std::string next_command(const std::string& state, bool has_checkpoints) const {
    if (state == "Complete") {
      const auto longer = runs_default_command(job_) && has_checkpoints
                              ? longer_command(options_.command, job_.spec.trainer)
                              : std::nullopt;
      return longer ? fmt::format("to train longer: {}", *longer) : "";
    }
    const char* purpose = has_checkpoints ? "to resume from there" : "to start again";
    return fmt::format("{}{}: {}", purpose, state == "Failed" ? ", after the error is fixed" : "",
                       command_line(options_.command));
  }

  static constexpr int kMaxUrls = 8;
  static constexpr int kExitOfBrokenPipe = 128 + SIGPIPE;

  api::TrainingJob job_;
  const LocalRunOptions& options_;
  RunDirectory directory_;
  std::string config_;
  Environment environment_;
  std::optional<rlim_t> descriptor_limit_;  // of the ranks
  launch::Supervisor::Duration grace_;
  const SignalSource& signals_;
  const Clock& clock_;
  Console& console_;
  std::vector<SteadyTime::duration> durations_;  // of the attempts
  api::Status status_;                           // only the restarts that are not free are set
  std::optional<launch::RankEnd> last_end_;      // of the last attempt that failed
};

}  // namespace

Result<int> run_locally(api::TrainingJob job, const LocalRunOptions& options, RunDirectory directory,
                        std::string config, const SignalSource& signals, const Clock& clock, Console& console) {
  return LocalRun(std::move(job), options, std::move(directory), std::move(config), signals, clock, console).run();
}

std::chrono::seconds delay_after(const api::TrainingJob& job, const std::vector<SteadyTime::duration>& attempts) {
  api::Status status;
  for (const SteadyTime::duration duration : attempts) {
    api::AttemptRecord record;
    record.start_time = SystemTime{};
    record.end_time = SystemTime{} + std::chrono::duration_cast<SystemTime::duration>(duration);
    status.attempts.push_back(std::move(record));
  }
  return control::restart_delay(job, status);
}

control::GroupFailure decide_after_exit(const api::TrainingJob& job, const api::Status& status, int node, int exit_code,
                                        const std::string& message) {
  control::Observed observed;
  observed.job = job;
  observed.job.status = {};
  observed.job.status.restarts = status.restarts;
  observed.job.status.highest_progress = status.highest_progress;
  control::Pod pod;
  pod.name = control::pod_name(job, 0, node);
  pod.phase = control::PodPhase::kFailed;
  pod.trainer.emplace();
  pod.trainer->exit_code = exit_code;
  pod.trainer->message = message;
  // The supervisor has already selected the decisive exit. The other nodes have started, too: an attempt whose pods
  // have not all started is free, and here they all start together.
  control::Pod other;
  other.phase = control::PodPhase::kSucceeded;
  control::Membership members;
  members.current.resize(static_cast<size_t>(job.spec.nodes), &other);
  members.current[static_cast<size_t>(node)] = &pod;
  return control::evaluate_failure_policy(observed, members);
}

}  // namespace oarlock::run
