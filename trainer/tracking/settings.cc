#include "trainer/tracking/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <system_error>

#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/credentials.h"
#include "trainer/tracking/sink.h"

namespace oarlock {
namespace {

constexpr size_t kMaxWandbIdLength = 128;

// Fails if the directory neither exists as a writable directory nor can be created.
Result<void> check_directory(const std::string& key, const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path existing = fs::absolute(directory, error);
  while (!fs::exists(existing, error) && existing != existing.root_path()) existing = existing.parent_path();
  const auto problem = [&](const char* what) {
    return fail(ExitCode::kConfig, fmt::format("{}: {}: the directory cannot be used: {} {}", key,
                                               shortened(directory.string(), 200), existing.string(), what));
  };
  if (!fs::is_directory(existing, error)) return problem("is not a directory");
  if (::access(existing.c_str(), W_OK | X_OK) != 0) return problem("is not writable for this user");
  return {};
}

Result<void> check_credentials(const MlflowConfig& config, const TrackingVariables& variables) {
  const auto is_set = [&](const char* name) { return !variables(name).value_or("").empty(); };
  if (!config.token_file.empty()) {
    http::FileToken file(config.token_file, std::make_shared<RealClock>());
    if (const Result<std::string> token = file.token(); !token)
      return fail(ExitCode::kConfig, "tracking.mlflow.token_file: " + token.error().message);
    return {};
  }
  if (is_set("MLFLOW_TRACKING_TOKEN")) return {};
  if (is_set("MLFLOW_TRACKING_USERNAME") != is_set("MLFLOW_TRACKING_PASSWORD"))
    return fail(ExitCode::kConfig,
                "tracking.mlflow: only one of MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD is set");
  return {};
}

}  // namespace

bool is_wandb_id(const std::string& id) {
  return !id.empty() && id.size() <= kMaxWandbIdLength && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (std::isalnum(c) != 0 && c < 0x80) || c == '_' || c == '-' || c == '.';
  });
}

Result<WandbSettings> resolve_wandb_settings(const WandbConfig& config, const TrackingVariables& variables) {
  const auto choose = [&](const std::string& configured, const char* variable) {
    return configured.empty() ? variables(variable).value_or("") : configured;
  };
  WandbSettings out;
  out.mode = config.mode;
  if (out.mode == WandbMode::kDefault) {
    const std::string mode = variables("WANDB_MODE").value_or("");
    if (mode.empty() || mode == "offline" || mode == "dryrun") {
      out.mode = WandbMode::kOffline;
    } else if (mode == "online" || mode == "run" || mode == "shared") {
      out.mode = WandbMode::kOnline;
    } else if (mode == "disabled") {
      out.mode = WandbMode::kDisabled;
    } else {
      return fail(ExitCode::kConfig,
                  fmt::format("WANDB_MODE={}: must be online, offline or disabled", shortened(mode)));
    }
  }
  out.dir = choose(config.dir, "WANDB_DIR");
  out.project = choose(config.project, "WANDB_PROJECT");
  out.entity = choose(config.entity, "WANDB_ENTITY");
  out.name = choose(config.name, "WANDB_NAME");
  out.run_id = choose(config.run_id, "WANDB_RUN_ID");
  if (!out.run_id.empty() && !is_wandb_id(out.run_id))
    return fail(ExitCode::kConfig, fmt::format("WANDB_RUN_ID={}: must consist of letters, digits, '_', '-' and '.', at "
                                               "most {} of them",
                                               shortened(out.run_id), kMaxWandbIdLength));
  out.group = choose(config.group, "WANDB_RUN_GROUP");
  out.job_type = choose(config.job_type, "WANDB_JOB_TYPE");
  out.notes = choose(config.notes, "WANDB_NOTES");
  out.tags = config.tags;
  if (out.tags.empty()) {
    std::string list = variables("WANDB_TAGS").value_or("");
    for (std::string_view rest = list; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (const std::string_view tag = trim(rest.substr(0, comma)); !tag.empty()) out.tags.emplace_back(tag);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return out;
}

Result<void> check_tracking(const TrackingConfig& config, const std::filesystem::path& checkpoint_dir,
                            const TrackingVariables& variables, bool runs_in_pods) {
  const TrackingVariables none = [](std::string_view) { return std::nullopt; };
  const TrackingVariables& known = runs_in_pods ? none : variables;
  const RealClock clock;
  const SinkContext context{.directory = checkpoint_dir.empty() ? std::filesystem::path() : checkpoint_dir / "tracking",
                            .logger = Logger::silent(),
                            .clock = clock};
  if (config.tensorboard.enabled && !config.tensorboard.dir.empty() && !runs_in_pods)
    RETURN_IF_ERROR(check_directory("tracking.tensorboard.dir", config.tensorboard.dir));
  if (config.wandb.enabled) {
    ASSIGN_OR_RETURN(const WandbSettings settings, resolve_wandb_settings(config.wandb, known));
    if (is_wandb_enabled(config.wandb, settings) && !settings.dir.empty() && !runs_in_pods)
      RETURN_IF_ERROR(check_directory(config.wandb.dir.empty() ? "WANDB_DIR" : "tracking.wandb.dir", settings.dir));
  }
  if (!config.mlflow.enabled) return {};
  MlflowConfig mlflow = config.mlflow;
  if (runs_in_pods) {
    if (mlflow.uri.empty()) return {};
    mlflow.ca_file.clear();
    mlflow.token_file.clear();
  }
  RETURN_IF_ERROR(check_credentials(mlflow, known));
  RETURN_IF_ERROR(make_mlflow_sink(mlflow, known, context));
  return {};
}

}  // namespace oarlock
