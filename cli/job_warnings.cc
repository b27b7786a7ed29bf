#include "cli/job_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "cli/run/local_job.h"
#include "common/contract.h"
#include "common/json_access.h"
#include "common/text.h"
#include "operator/core/desired.h"

namespace oarlock::cli {
namespace {

using Json = nlohmann::json;

// Parts of the commands that start several ranks.
constexpr std::string_view kLaunchers[] = {"oarlock", "torchrun", "torch.distributed", "accelerate", "deepspeed",
                                           "mpirun",  "mpiexec",  "horovodrun",        "srun",       "fabric"};

Json trainer_container(const api::TrainingJob& job) {
  const Json pod = control::make_pod_template(job, {});
  for (const Json& container : elements(member(pod, "spec"), "containers")) {
    if (text_at(container, "name") == kTrainerContainer) return container;
  }
  return Json::object();
}

// Returns the words of the container's command and arguments. Those of a script after `sh -c` are separate words.
std::vector<std::string> command_words(const Json& container) {
  std::vector<std::string> out;
  for (const char* key : {"command", "args"}) {
    for (const Json& item : elements(container, key)) {
      std::istringstream words(item.is_string() ? item.get<std::string>() : "");
      for (std::string word; words >> word;) out.push_back(word);
    }
  }
  return out;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_python(const std::string& word) {
  const std::string name = file_name(word);
  return name == "python" || name.starts_with("python2") || name.starts_with("python3") || name.ends_with(".py");
}

// Returns why the operator puts no launcher into the pods, although spec.launcher permits it.
std::optional<std::string> launcher_warning(const api::TrainingJob& job) {
  if (!job.status.launcher) return std::nullopt;
  const std::string text = control::explain_missing_launcher(job.status.launcher->reason);
  return text.empty() ? std::nullopt : std::optional(text);
}

std::optional<std::string> rank_warning(const api::TrainingJob& job, const Json& container) {
  if (job.spec.processes_per_node == 1 || elements(container, "command").empty()) return std::nullopt;
  if (!control::launcher_image(job).empty() || launcher_warning(job)) return std::nullopt;
  const std::vector<std::string> words = command_words(container);
  const bool has_launcher = std::ranges::any_of(words, [](const std::string& word) {
    const std::string name = file_name(word);
    return std::ranges::any_of(kLaunchers,
                               [&](std::string_view launcher) { return name.find(launcher) != std::string::npos; });
  });
  const auto python = std::ranges::find_if(words, is_python);
  if (has_launcher || python == words.end()) return std::nullopt;
  return fmt::format(
      "processesPerNode is {}, but the command '{}' starts one process, which receives no RANK and no LOCAL_RANK; "
      "unless it starts the ranks itself, remove spec.launcher: Never, or begin it with torchrun, or with oarlock, "
      "launch, --",
      job.spec.processes_per_node, shortened(*python));
}

std::optional<std::string> checkpoint_warning(const api::TrainingJob& job, const Json& container) {
  if (job.spec.trainer.empty() || !run::runs_trainer(job)) return std::nullopt;
  const Json trainer = Json::parse(job.spec.trainer, nullptr, false);
  const std::string given = text_at(member(trainer, "checkpoint"), "dir");
  if (given.empty()) return std::nullopt;  // the operator sets one on the volume `checkpoints`
  const std::filesystem::path base = text_at(container, "workingDir");
  const std::string path = (base / given).lexically_normal().string();
  for (const Json& mount : elements(container, "volumeMounts")) {
    std::string place = std::filesystem::path(text_at(mount, "mountPath")).lexically_normal().string();
    while (place.size() > 1 && place.ends_with('/')) place.pop_back();
    if (path == place || place == "/" || path.starts_with(place + "/")) return std::nullopt;
  }
  return fmt::format(
      "spec.trainer.checkpoint.dir '{}' is on no volume of the container, so that the checkpoints are lost with the "
      "pod; remove the key to save them on the volume 'checkpoints', or mount a volume there",
      shortened(given));
}

}  // namespace

std::vector<std::string> job_warnings(const api::TrainingJob& given) {
  const Json container = trainer_container(given);
  const api::TrainingJob job = control::with_launcher_decision(given, control::default_launcher_image());
  std::vector<std::string> out;
  for (std::optional<std::string> warning :
       {launcher_warning(job), rank_warning(job, container), checkpoint_warning(job, container)}) {
    if (warning) out.push_back(*std::move(warning));
  }
  return out;
}

}  // namespace oarlock::cli
