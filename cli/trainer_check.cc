#include "cli/trainer_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cli/launch/group.h"
#include "cli/run/local_job.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/text.h"
#include "operator/core/desired.h"
#include "operator/core/pod_template.h"

namespace oarlock::cli {

TrainerCheck::TrainerCheck(const Clock& clock, launch::Console& console, const std::string& program)
    : clock_(clock), console_(console), environment_(launch::environment_of(environ)) {
  const auto path = environment_.find("PATH");
  const std::string places = path == environment_.end() ? "" : path->second;
  program_ = run::find_program({program.empty() ? "oarlock-trainer" : program}, run::own_directory(), places);
  if (program.empty()) return;
  if (const Result<void> found = launch::find_executable(program, places); !found)
    program_ = tl::make_unexpected(found.error());
}

std::string TrainerCheck::obstacle(const api::TrainingJob& job) {
  const nlohmann::json pod = control::make_pod_template(job, {});
  nlohmann::json trainer;
  for (const nlohmann::json& container : elements(member(pod, "spec"), "containers")) {
    if (text_at(container, "name") == kTrainerContainer) trainer = container;
  }
  std::vector<std::string> words;
  for (const char* key : {"command", "args"}) {
    for (const nlohmann::json& item : elements(trainer, key))
      words.push_back(item.is_string() ? item.get<std::string>() : "");
  }
  if (!run::runs_trainer(job)) {
    return fmt::format("the container runs '{}'; check it with oarlock validate --trainer PROGRAM",
                       shortened(fmt::format("{}", fmt::join(words, " "))));
  }
  for (const std::string& word : words) {
    if (word.find('=') != std::string::npos)
      return fmt::format("the command of the container may change it with '{}'", shortened(word));
  }
  const std::string image = text_at(trainer, "image");
  return control::is_trainer_image(image) ? "" : fmt::format("the image {} is not oarlock/trainer", shortened(image));
}

Result<launch::GroupResult> TrainerCheck::run(const InputFile& file, const api::TrainingJob& job,
                                              const std::vector<std::string>& settings,
                                              const launch::SignalSource& signals) {
  constexpr auto kGrace = std::chrono::seconds(5);
  launch::Command command{*program_, environment_};
  command.environment.erase(kEnvConfig);  // the ranks do not receive it
  command.argv.emplace_back("--check");
  const bool has_file = !job.spec.trainer.empty();
  if (has_file) {
    const std::string name = job.metadata.namespace_name + "/" + job.metadata.name;
    command.argv.insert(command.argv.end(), {"--config", file.path(), "--job", name});
  }
  const auto add = [&](const char* option, int value) {
    command.argv.insert(command.argv.end(), {option, std::to_string(value)});
  };
  add("--nodes", job.spec.nodes);
  if (job.spec.elastic) add("--min-nodes", job.spec.elastic->min_nodes);
  add("--nproc", job.spec.processes_per_node);
  if (has_file && file.name() != file.path()) command.argv.insert(command.argv.end(), {"--config-name", file.name()});
  command.argv.insert(command.argv.end(), settings.begin(), settings.end());
  return launch::run_group({{std::move(command), "oarlock-trainer", ""}}, {kGrace, launch::Stdio::kErrorPipe}, signals,
                           clock_, console_);
}

}  // namespace oarlock::cli
