#include "cli/trainer_check.h"

#include <unistd.h>

#include <chrono>

#include "cli/launch/group.h"
#include "cli/run/local_job.h"

namespace oarlock::cli {

TrainerCheck::TrainerCheck(const launch::SignalSource& signals, const Clock& clock, launch::Console& console)
    : signals_(signals), clock_(clock), console_(console), environment_(launch::environment_of(environ)) {
  const auto path = environment_.find("PATH");
  program_ = run::find_program({"oarlock-trainer"}, run::own_folder(), path == environment_.end() ? "" : path->second);
}

bool TrainerCheck::applies_to(const api::TrainingJob& job) {
  return !job.spec.trainer.empty() && run::runs_default_command(job);
}

Result<launch::GroupResult> TrainerCheck::run(const std::string& file, const api::TrainingJob& job, bool is_only_job,
                                              const std::vector<std::string>& settings, launch::Stdio stdio) {
  constexpr auto kGrace = std::chrono::seconds(5);
  launch::Command command{*program_, environment_};
  command.argv.insert(command.argv.end(), {"--check", "--config", file});
  if (!is_only_job)
    command.argv.insert(command.argv.end(), {"--job", job.metadata.name_space + "/" + job.metadata.name});
  command.argv.insert(command.argv.end(), settings.begin(), settings.end());
  return launch::run_group({{std::move(command), "oarlock-trainer", ""}}, {kGrace, stdio}, signals_, clock_, console_);
}

}  // namespace oarlock::cli
