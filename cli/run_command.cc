// oarlock run: a TrainingJob on this machine, without a cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/job_file.h"
#include "cli/launch/console.h"
#include "cli/launch/group.h"
#include "cli/launch/termination.h"
#include "cli/run/local_job.h"
#include "cli/run/programs.h"
#include "cli/run/restart.h"
#include "cli/run/run_folder.h"
#include "cli/trainer_check.h"
#include "cli/usage.h"
#include "common/contract.h"
#include "common/files.h"
#include "common/line_prefix.h"
#include "common/port_reservation.h"
#include "operator/api/validate.h"

namespace oarlock::cli {
namespace {

namespace fs = std::filesystem;
using launch::Console;
using launch::Environment;
using launch::Verdict;

constexpr char kDescription[] =
    "Run a TrainingJob as processes of this machine: the same file, the same environment of the ranks,\n"
    "whole-group restarts by the same rules, no cluster.";

constexpr char kFooter[] = R"(
Every rank of every node is a process here; MASTER_ADDR is 127.0.0.1. Checkpoints go to WORKDIR/NAME/checkpoints, and a
second run resumes from them. Container images and volumes are not used: the command of the container 'trainer' is
run from this machine's PATH, by default oarlock-trainer. Ctrl-C stops the ranks gracefully, twice: at once.

exit codes: 0 the job is complete; else that of the rank that failed first (128+n: signal n); 78: the file is wrong.

examples:
  oarlock run -f trainingjob.yaml
  oarlock run -f trainingjob.yaml --nodes 1 --nproc 4
  oarlock run -f trainingjob.yaml epochs=3 optimizer.lr=4e-3
  oarlock run -f trainingjob.yaml --fresh --workdir /data/runs
)";

struct RunFlags {
  std::string file;
  std::string name;
  std::string workdir = "oarlock-runs";
  std::optional<int> nodes;
  std::optional<int> nproc;
  std::optional<int> master_port;
  std::optional<double> grace;
  std::string log_format = "auto";
  std::vector<std::string> settings;  // key=value, for oarlock-trainer
  bool fresh = false;
};

std::string plural(int count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string duration_text(std::chrono::steady_clock::duration duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  return seconds < 60 ? fmt::format("{} s", seconds) : fmt::format("{}:{:02} min", seconds / 60, seconds % 60);
}

// The seconds between SIGTERM and SIGKILL that the template gives its pods.
double grace_of(const api::TrainingJob& job) {
  const auto pod = nlohmann::json::parse(job.spec.pod_template);
  const auto& spec = pod["spec"];
  const auto it = spec.find("terminationGracePeriodSeconds");
  return it != spec.end() && it->is_number() ? it->get<double>() : 30;
}

// The trainer reads the user's own file, so that its messages have the user's line numbers. It takes files with one
// TrainingJob only; else it gets spec.trainer in a file of its own.
Result<std::string> config_file(const api::TrainingJob& job, size_t jobs_in_file, const std::string& file,
                                const fs::path& folder) {
  std::error_code error;
  if (jobs_in_file == 1) return fs::absolute(file, error).string();
  const fs::path own = folder / kConfigFile;
  if (Result<void> written = write_file_atomically(own, job.spec.trainer); !written)
    return tl::make_unexpected(written.error());
  return own.string();
}

class LocalRun {
 public:
  LocalRun(api::TrainingJob job, const RunFlags& flags, run::RunFolder folder, std::string config,
           const launch::SignalSource& signals, const Clock& clock, Console& console)
      : job_(std::move(job)),
        flags_(flags),
        folder_(std::move(folder)),
        config_(std::move(config)),
        environment_(launch::environment_of(environ)),
        descriptor_limit_(launch::raise_descriptor_limit()),
        grace_(std::chrono::duration_cast<launch::Supervisor::Duration>(
            std::chrono::duration<double>(flags.grace.value_or(grace_of(job_))))),
        signals_(signals),
        clock_(clock),
        console_(console) {}

  Result<int> run() {
    const SteadyTime begin = clock_.steady();
    for (const std::string& note : run::differences(job_, environment_)) console_.say("note: " + note);
    if (!folder_.is_first_attempt()) {
      console_.say(fmt::format("{} has earlier runs; this one goes on from their checkpoints (--fresh starts over)",
                               folder_.path().string()));
    }
    int charged = 0;
    for (int restarts = 0;; ++restarts) {
      const Result<Ended> ended = run_attempt();
      if (!ended) return tl::make_unexpected(ended.error());
      if (const Result<void> written = console_.written(); !written) {  // a restart would lose its output, too
        console_.say(written.error().message);
        Ended lost = *ended;
        if (lost.verdict.exit_code == 0 || lost.verdict.exit_code == kExitOfBrokenPipe)
          lost.verdict.exit_code = to_int(written.error().code);
        return finish("Failed", lost, restarts, begin);
      }
      if (ended->verdict.exit_code == 0) return finish("Complete", *ended, restarts, begin);
      if (ended->verdict.interrupted_by != 0) return finish("Interrupted", *ended, restarts, begin);
      const control::Failure failure =
          run::judge_exit(job_, charged, ended->node, ended->verdict.exit_code, ended->message);
      const std::string what = describe_end(*ended);
      if (failure.decision != control::Failure::Decision::kRestart) {
        console_.say(fmt::format("{}: {}", what, why_not_again(failure, charged)));
        return finish("Failed", *ended, restarts, begin);
      }
      if (failure.is_charged) ++charged;
      console_.say(fmt::format("{}; all ranks start again, {}", what,
                               failure.is_charged
                                   ? fmt::format("restart {} of {}", charged, job_.spec.failure_policy.max_restarts)
                                   : "which does not count"));
    }
  }

 private:
  struct Ended {
    Verdict verdict;
    std::string who;      // "rank 1": whose end decided
    int node = 0;         // where that ran
    std::string message;  // the termination message, made from what is known where there was none
    bool spoke = false;   // there was one
  };

  static std::string why_not_again(const control::Failure& failure, int charged) {
    // By the time that the judgement is made the other ranks were stopped.
    if (failure.decision == control::Failure::Decision::kNone)
      return "failurePolicy.rules ignore this exit; on a cluster the others go on, here they end with it";
    if (failure.reason == "PermanentFailure") return "a restart would fail again";
    if (failure.reason == "FailurePolicy") return "failurePolicy.rules fail the job";
    return fmt::format("the restarts ({}) are used up", plural(charged, "restart"));
  }

  Result<Ended> run_attempt() {
    const Result<int> attempt = folder_.begin_attempt();
    if (!attempt) return tl::make_unexpected(attempt.error());
    std::vector<PortReservation> reserved;  // until the attempt has ended
    Result<run::Place> reserved_place = reserve_ports(reserved);
    if (!reserved_place) return tl::make_unexpected(reserved_place.error());
    run::Place place = std::move(*reserved_place);
    place.attempt = *attempt;
    place.config_file = config_;
    place.checkpoint_dir = folder_.checkpoints().string();
    place.base = environment_;
    job_.metadata.uid = folder_.uid();
    Result<launch::MessageFiles> messages = launch::MessageFiles::make(environment_);
    if (!messages) return tl::make_unexpected(messages.error());

    const std::vector<run::LocalProcess> processes = run::local_processes(job_, place);
    const auto cores = run::share_cores(launch::usable_cores(), job_.spec.nodes);
    const std::string path = environment_.contains("PATH") ? environment_["PATH"] : "";
    std::vector<launch::Member> members;
    std::vector<int> ranks;
    for (const run::LocalProcess& process : processes) {
      Result<std::vector<std::string>> argv = run::find_program(process.argv, run::own_folder(), path);
      if (!argv) return tl::make_unexpected(argv.error());
      Environment environment = process.environment;
      environment[kEnvTerminationLog] = messages->path(static_cast<int>(members.size())).string();
      const bool is_rank = process.rank >= 0;
      const int number = is_rank ? process.rank : process.node;
      argv->insert(argv->end(), flags_.settings.begin(), flags_.settings.end());
      const std::string prefix = fmt::format("[{} {}] ", is_rank ? "RANK" : "NODE", number);
      if (processes.size() > 1 && is_rank) environment[kEnvLinesPrefixed] = "1";
      if (text_logs() && run::runs_default_command(job_)) argv->insert(argv->end(), {"--log-format", "text"});
      ranks.push_back(is_rank ? number : number * job_.spec.processes_per_node);
      members.push_back(
          {{std::move(*argv), std::move(environment), cores[static_cast<size_t>(process.node)], descriptor_limit_},
           fmt::format("{} {}", is_rank ? "rank" : "node", number),
           prefix});
    }
    announce(place);
    const launch::Stdio stdio = members.size() > 1 ? launch::Stdio::kPipes : launch::Stdio::kOutput;
    const Result<Verdict> verdict = launch::run_group(members, {grace_, stdio}, signals_, clock_, console_);
    if (!verdict) return tl::make_unexpected(verdict.error());

    std::vector<std::string> texts;
    for (size_t i = 0; i < members.size(); ++i) texts.push_back(messages->text(static_cast<int>(i)));
    const auto decisive = static_cast<size_t>(std::max(verdict->member, 0));
    return Ended{*verdict, members[decisive].name, processes[decisive].node,
                 launch::pod_message(texts, ranks, *verdict), !texts[decisive].empty()};
  }

  // A place with the rendezvous port and each node's range of metrics ports, since the nodes share this host.
  Result<run::Place> reserve_ports(std::vector<PortReservation>& reserved) const {
    run::Place place;
    for (int node = 0; node < job_.spec.nodes; ++node) {
      Result<PortReservation> range = PortReservation::make(job_.spec.processes_per_node);
      if (!range) return tl::make_unexpected(range.error());
      place.metrics_ports.push_back(range->first());
      reserved.push_back(std::move(*range));
    }
    if (flags_.master_port) {
      place.master_port = *flags_.master_port;
      return place;
    }
    Result<PortReservation> rendezvous = PortReservation::make(1);
    if (!rendezvous) return tl::make_unexpected(rendezvous.error());
    place.master_port = rendezvous->first();
    reserved.push_back(std::move(*rendezvous));
    return place;
  }

  // The trainer itself sees a pipe and would write JSON.
  bool text_logs() {
    return flags_.log_format == "text" || (flags_.log_format == "auto" && console_.err().is_terminal());
  }

  void announce(const run::Place& place) {
    const int per_node = job_.spec.processes_per_node;
    std::string urls;
    for (int rank = 0; rank < job_.spec.world_size(); ++rank) {
      const int port = place.metrics_ports[static_cast<size_t>(rank / per_node)] + rank % per_node;
      if (rank == kMostUrls) {
        urls += " ...";
        break;
      }
      urls += fmt::format(" http://127.0.0.1:{}{}", port, kMetricsPath);
    }
    console_.say(fmt::format("{}: attempt {}, {} of {}; metrics of each rank:{}", job_.metadata.name, place.attempt,
                             plural(job_.spec.nodes, "node"), plural(per_node, "rank"), urls));
  }

  std::string describe_end(const Ended& ended) const {
    std::string text = fmt::format("{} ended with {}", ended.who, launch::describe(ended.verdict.status));
    if (const auto message = termination_message_from_json(ended.message);
        ended.spoke && message && !message->message.empty()) {
      text += fmt::format(" ({}: {})", message->reason, message->message);
    }
    return text;
  }

  Result<int> finish(const std::string& state, const Ended& ended, int restarts, SteadyTime begin) {
    const std::string indent(std::string_view("oarlock run: ").size(), ' ');
    console_.say(fmt::format("{}: {} after {}, {}", job_.metadata.name, state, duration_text(clock_.steady() - begin),
                             plural(restarts, "restart")));
    if (const auto message = termination_message_from_json(ended.message); message && message->step > 0) {
      std::string line = fmt::format("{}step {}", indent, message->step);
      if (message->checkpoint_step >= 0)
        line += fmt::format(", newest checkpoint at step {}", message->checkpoint_step);
      console_.err().push(line + "\n");
    }
    if (run::saves_checkpoints(job_)) {
      std::error_code ignored;
      const bool some =
          fs::is_directory(folder_.checkpoints(), ignored) && !fs::is_empty(folder_.checkpoints(), ignored);
      console_.err().push(
          fmt::format("{}checkpoints: {}{}\n", indent, folder_.checkpoints().string(), some ? "" : " (none)"));
    }
    if (state == "Interrupted") console_.err().push(indent + "the same command goes on from there\n");
    console_.flush(signals_, clock_, clock_.steady() + grace_);
    return ended.verdict.exit_code;
  }

  static constexpr int kMostUrls = 8;
  static constexpr int kExitOfBrokenPipe = 128 + SIGPIPE;

  api::TrainingJob job_;
  const RunFlags& flags_;
  run::RunFolder folder_;
  std::string config_;
  Environment environment_;
  std::optional<rlim_t> descriptor_limit_;  // of the ranks
  launch::Supervisor::Duration grace_;
  const launch::SignalSource& signals_;
  const Clock& clock_;
  Console& console_;
};

// The flags in place of the file's fields; the rules hold for the result too.
Result<api::TrainingJob> with_flags(api::TrainingJob job, const RunFlags& flags) {
  if (flags.nodes) job.spec.nodes = *flags.nodes;
  if (flags.nproc) job.spec.processes_per_node = *flags.nproc;
  if (!flags.settings.empty() && !run::runs_default_command(job)) {
    return fail(ExitCode::kUsage,
                fmt::format("'{}' is a setting for oarlock-trainer, but this job has a command of its own; change its "
                            "arguments in the file",
                            flags.settings.front()));
  }
  const std::vector<api::FieldProblem> problems = api::check(job);
  if (problems.empty()) return job;
  return fail(ExitCode::kUsage, fmt::format("with --nodes and --nproc as given, {}: {}", problems.front().path,
                                            problems.front().message));
}

// Everything that can be found wrong before the first rank starts: the program exists, and oarlock-trainer accepts
// spec.trainer with the settings. 0: nothing is; else the exit code, with the reason on standard error.
Result<int> check_before_run(const api::TrainingJob& job, size_t jobs_in_file, const RunFlags& flags,
                             const launch::SignalSource& signals, const Clock& clock, Console& console) {
  const Environment environment = launch::environment_of(environ);
  const auto variable = environment.find("PATH");
  const std::string path = variable == environment.end() ? "" : variable->second;
  run::Place place;
  place.metrics_ports.assign(static_cast<size_t>(job.spec.nodes), 0);
  place.base = environment;
  const Result<void> there =
      run::find_program(run::local_processes(job, place).front().argv, run::own_folder(), path)
          .and_then([&](const auto& argv) { return launch::find_executable(argv.front(), path); });
  if (!there) return tl::make_unexpected(there.error());
  if (!TrainerCheck::applies_to(job)) return 0;
  TrainerCheck trainer(signals, clock, console);
  if (!trainer.program()) return tl::make_unexpected(trainer.program().error());
  const Result<Verdict> verdict =
      trainer.run(flags.file, job, jobs_in_file == 1, flags.settings, launch::Stdio::kErrors);
  return verdict.map([](const Verdict& ended) { return ended.exit_code; });
}

Result<int> run_job(const RunFlags& flags) {
  Result<std::vector<api::TrainingJob>> jobs = load_jobs(flags.file);
  if (!jobs) return tl::make_unexpected(jobs.error());
  const size_t jobs_in_file = jobs->size();
  Result<api::TrainingJob> chosen = choose_job(std::move(*jobs), flags.name, flags.file);
  if (!chosen) return tl::make_unexpected(chosen.error());
  Result<api::TrainingJob> job = with_flags(std::move(*chosen), flags);
  if (!job) return tl::make_unexpected(job.error());

  const Result<launch::SignalSource> signals = launch::SignalSource::take();
  if (!signals) return tl::make_unexpected(signals.error());
  const RealClock clock;
  Console console("oarlock run");
  // Before --fresh moves the folder of an earlier run.
  const Result<int> refused = check_before_run(*job, jobs_in_file, flags, *signals, clock, console);
  if (!refused || *refused != 0) return refused;
  Result<run::RunFolder> folder = run::RunFolder::open(flags.workdir, job->metadata.name, flags.fresh, clock);
  if (!folder) return tl::make_unexpected(folder.error());
  const Result<std::string> config = config_file(*job, jobs_in_file, flags.file, folder->path());
  if (!config) return tl::make_unexpected(config.error());
  if (folder->moved_to()) console.say(fmt::format("the earlier run is now in {}", folder->moved_to()->string()));
  Result<int> exit_code = LocalRun(std::move(*job), flags, std::move(*folder), *config, *signals, clock, console).run();
  if (!exit_code) console.flush(*signals, clock, std::nullopt);
  return exit_code;
}

}  // namespace

void add_run(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* run = app.add_subcommand("run", kDescription);
  set_usage(*run, "oarlock run -f FILE [OPTIONS] [KEY=VALUE...]");
  run->footer(kFooter);
  run->add_option("-f,--file", flags->file, "the TrainingJob, YAML or JSON")->type_name("FILE")->required();
  run->add_option("settings", flags->settings,
                  "settings of oarlock-trainer in place of spec.trainer's: optimizer.lr=4e-3")
      ->type_name("KEY=VALUE");
  run->add_option("--name", flags->name, "which TrainingJob, if the file holds several")->type_name("NAME");
  run->add_option("--workdir", flags->workdir, "folder of the runs, a folder for each job")
      ->type_name("DIR")
      ->capture_default_str();
  run->add_option("--nodes", flags->nodes, "instead of spec.nodes")->type_name("N");
  run->add_option("--nproc", flags->nproc, "instead of spec.processesPerNode")->type_name("N");
  run->add_option("--master-port", flags->master_port, "rendezvous port; default: a free one")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  run->add_option(
         "--grace", flags->grace,
         "seconds between SIGTERM and SIGKILL; default: terminationGracePeriodSeconds of the template, else 30")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6));
  run->add_option("--log-format", flags->log_format, "of oarlock-trainer: text, json, or auto: text on a terminal")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json", "auto"}));
  run->add_flag("--fresh", flags->fresh, "start over; an earlier run's folder is moved aside, not deleted");
  run->callback([flags, &chosen] { chosen = [flags] { return run_job(*flags); }; });
}

}  // namespace oarlock::cli
