// oarlock wait: waits for a state of a TrainingJob.
#include <fmt/format.h>

#include "cli/cluster/commands.h"
#include "cli/cluster/wait_for_phase.h"
#include "common/standard_streams.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

constexpr char kWaitFooter[] = R"(
exit codes: 0: the state is reached; 1: the job ended in another way; 66: there is no such job; 75: the time is over.

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
  wait_app
      ->add_option_function<std::string>(
          "--timeout",
          [flags](const std::string& text) {
            flags->timeout = parse_duration(text);
            if (!flags->timeout)
              throw CLI::ValidationError("--timeout",
                                         fmt::format("'{}' is not a duration such as 30s or 2h", shortened(text)));
          },
          "longest wait (default: unlimited)")
      ->type_name("DURATION");
  add_cluster_options(*wait_app, flags->cluster);
  wait_app->callback([flags, &chosen] { chosen = [flags] { return wait_command(*flags); }; });
}

}  // namespace oarlock::cli
