#include "cli/cluster/wait_for_phase.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "api/codec.h"
#include "cli/cluster/commands.h"
#include "cli/cluster/job_view.h"
#include "cli/cluster/output.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

using api::Phase;

constexpr std::pair<WaitGoal, std::string_view> kGoals[] = {{WaitGoal::kRunning, "running"},
                                                            {WaitGoal::kComplete, "complete"},
                                                            {WaitGoal::kFailed, "failed"},
                                                            {WaitGoal::kSuspended, "suspended"},
                                                            {WaitGoal::kDeleted, "deleted"}};
constexpr std::chrono::milliseconds kPollInterval{1000};

std::string state_text(const api::Status& status) {
  const api::Condition* condition = current_condition(status);
  const std::string phase = api::to_string(status.phase);
  if (condition == nullptr) return phase.empty() ? "not seen by an operator yet" : phase;
  return fmt::format("{}: {}: {}", phase, condition->reason, condition->message);
}

bool is_temporary(const kube::ApiError& error) {
  using Kind = kube::ApiErrorKind;
  if (error.kind == Kind::kTransport) return error.transport != http::TransportErrorKind::kRefused;
  return error.kind == Kind::kTooManyRequests || error.kind == Kind::kServer;
}

// The phase is Suspended as soon as the operator begins to stop the pods, whose ranks then save a checkpoint. Returns
// false if the user may not read pods.
bool has_live_pods(const Cluster& cluster, const api::TrainingJob& job) {
  const Result<std::vector<PodView>> pods = list_pods(cluster, job);
  if (!pods) return pods.error().code != ExitCode::kNoPermission;
  return std::any_of(pods->begin(), pods->end(),
                     [](const PodView& pod) { return pod.phase != "Succeeded" && pod.phase != "Failed"; });
}

// Whether a status with the phase Suspended is about an earlier suspension, or about one whose pods still end.
bool is_suspending(const Cluster& cluster, const api::TrainingJob& job) {
  const bool is_outdated =
      job.status.observed_generation != 0 && job.status.observed_generation < job.metadata.generation;
  return is_outdated || has_live_pods(cluster, job);
}

}  // namespace

std::optional<WaitGoal> parse_wait_goal(std::string_view name) {
  for (const auto& [goal, known] : kGoals) {
    if (known == name) return goal;
  }
  return std::nullopt;
}

std::string_view to_string(WaitGoal goal) {
  for (const auto& [known, name] : kGoals) {
    if (known == goal) return name;
  }
  return "";
}

WaitOutcome judge_wait(WaitGoal goal, const api::Status& status) {
  const auto reached_if = [](bool condition) { return condition ? WaitOutcome::kReached : WaitOutcome::kContinue; };
  const Phase phase = status.phase;
  switch (goal) {
    case WaitGoal::kRunning:
      if (phase == Phase::kFailed) return WaitOutcome::kMissed;
      return reached_if(api::is_running(phase) || phase == Phase::kComplete);
    case WaitGoal::kComplete:
      return phase == Phase::kFailed ? WaitOutcome::kMissed : reached_if(phase == Phase::kComplete);
    case WaitGoal::kFailed:
      return phase == Phase::kComplete ? WaitOutcome::kMissed : reached_if(phase == Phase::kFailed);
    case WaitGoal::kSuspended:
      return api::is_terminal(phase) ? WaitOutcome::kMissed : reached_if(phase == Phase::kSuspended);
    case WaitGoal::kDeleted:
      break;
  }
  return WaitOutcome::kContinue;
}

Result<int> wait_for_goal(const Cluster& cluster, const std::string& name, WaitGoal goal,
                          std::optional<std::chrono::milliseconds> timeout, std::string_view program) {
  const RealClock clock;
  const SteadyTime begin = clock.steady();
  const kube::ObjectKey key{.namespace_name = cluster.namespace_name(), .name = name};
  std::string last = "its state could not be read";
  bool has_seen = false;
  std::string first_uid;
  while (true) {
    const kube::ApiResult<nlohmann::json> object = cluster.try_get(training_jobs(), key);
    if (object) {
      const api::TrainingJob job = api::read_training_job(*object);
      if (!has_seen) first_uid = job.metadata.uid;
      has_seen = true;
      // The job was deleted, and another one of its name created.
      if (goal == WaitGoal::kDeleted && job.metadata.uid != first_uid) return 0;
      last = state_text(job.status);
      const WaitOutcome outcome = judge_wait(goal, job.status);
      if (outcome == WaitOutcome::kReached) {
        if (goal != WaitGoal::kSuspended || !is_suspending(cluster, job)) return 0;
        last += "; its pods are still ending";
      }
      if (outcome == WaitOutcome::kMissed) {
        print_error(fmt::format("{}: {} is not {}: {}; see oarlock why {} -n {}\n", program, name, to_string(goal),
                                last, name, cluster.namespace_name()));
        return 1;
      }
    } else if (object.error().kind == kube::ApiErrorKind::kNotFound && (has_seen || goal == WaitGoal::kDeleted)) {
      if (goal == WaitGoal::kDeleted) return 0;
      return fail(ExitCode::kNoInput, fmt::format("{} was deleted", name));
    } else if (object.error().kind == kube::ApiErrorKind::kNotFound) {
      // This reports a missing CRD, and suggests a name.
      if (auto again = cluster.training_job(name); !again) return tl::make_unexpected(again.error());
    } else if (!is_temporary(object.error()) || !has_seen) {
      return tl::make_unexpected(
          to_user_error(object.error(), {.verb = "get", .resource = training_jobs(), .key = key, .subresource = ""},
                        cluster.config()));
    }
    auto pause = kPollInterval;
    if (timeout) {
      const auto left = *timeout - std::chrono::duration_cast<std::chrono::milliseconds>(clock.steady() - begin);
      if (left.count() <= 0) {
        return fail(ExitCode::kTempFail,
                    fmt::format("{} is not {} after {}; it is {}", name, to_string(goal),
                                duration_text(std::chrono::duration_cast<std::chrono::seconds>(*timeout)), last));
      }
      pause = std::min(pause, left);
    }
    std::this_thread::sleep_for(pause);
  }
}

namespace {

constexpr char kWaitFooter[] = R"(
exit codes: 0: the job has reached the state; 1: the job can no longer reach it; 66: the job does not exist; 75: timeout.

examples:
  oarlock wait bert --for complete
  oarlock wait bert --for running --timeout 10m
  oarlock wait bert --for deleted
)";

struct WaitFlags {
  ClusterFlags cluster;
  std::string name;
  WaitGoal goal = WaitGoal::kComplete;
  std::optional<std::chrono::milliseconds> timeout;
};

Result<int> wait_command(const WaitFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  ASSIGN_OR_RETURN(const int exit_code, wait_for_goal(cluster, flags.name, flags.goal, flags.timeout, "oarlock wait"));
  if (exit_code != 0) return exit_code;
  return write_standard_output(fmt::format("{} is {}\n", qualified_name(flags.name), to_string(flags.goal))).map([] {
    return 0;
  });
}

}  // namespace

void add_wait(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<WaitFlags>();
  CLI::App* wait_app =
      app.add_subcommand("wait", "Wait until a TrainingJob is running, complete, failed, suspended or deleted.");
  set_usage(*wait_app, "oarlock wait NAME [--for STATE] [--timeout DURATION] [OPTIONS]");
  wait_app->footer(kWaitFooter);
  add_name_argument(*wait_app, flags->name);
  wait_app
      ->add_option_function<std::string>(
          "--for",
          [flags](const std::string& text) {
            const auto goal = parse_wait_goal(text);
            if (!goal)
              throw CLI::ValidationError(
                  "--for",
                  fmt::format("'{}' is not one of running, complete, failed, suspended, deleted", shortened(text)));
            flags->goal = *goal;
          },
          "running, complete, failed, suspended or deleted (default: complete)")
      ->type_name("STATE");
  add_timeout_option(*wait_app, flags->timeout, "longest wait (default: unlimited)");
  add_cluster_options(*wait_app, flags->cluster);
  wait_app->callback([flags, &chosen] { chosen = [flags] { return wait_command(*flags); }; });
}

}  // namespace oarlock::cli
