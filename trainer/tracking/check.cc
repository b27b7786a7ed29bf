#include "trainer/tracking/check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <system_error>

#include "common/clock.h"
#include "common/http/client/credentials.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/tracking/mlflow_sink.h"
#include "trainer/tracking/wandb_settings.h"

namespace oarlock {
namespace {

// Fails if the folder neither exists as a writable folder nor can be created.
Result<void> check_folder(const std::string& key, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path existing = fs::absolute(folder, error);
  while (!fs::exists(existing, error) && existing != existing.root_path()) existing = existing.parent_path();
  const auto problem = [&](const char* what) {
    return fail(ExitCode::kConfig, fmt::format("{}: {}: the folder cannot be used: {} {}", key,
                                               shortened(folder.string(), 200), existing.string(), what));
  };
  if (!fs::is_directory(existing, error)) return problem("is not a folder");
  if (::access(existing.c_str(), W_OK | X_OK) != 0) return problem("is not writable for this user");
  return {};
}

Result<void> check_credentials(const MlflowConfig& config, const TrackingVariables& variables) {
  const auto is_set = [&](const char* name) { return !variables(name).value_or("").empty(); };
  if (!config.token_file.empty()) {
    kube::FileToken file(config.token_file, std::make_shared<RealClock>());
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

Result<void> check_tracking(const TrackingConfig& config, const std::filesystem::path& checkpoint_dir,
                            const TrackingVariables& variables, bool runs_in_pods) {
  const TrackingVariables none = [](std::string_view) { return std::nullopt; };
  const TrackingVariables& known = runs_in_pods ? none : variables;
  const RealClock clock;
  const SinkContext context{.folder = checkpoint_dir.empty() ? std::filesystem::path() : checkpoint_dir / "tracking",
                            .logger = Logger::silent(),
                            .clock = clock};
  if (config.tensorboard.enabled && !config.tensorboard.dir.empty() && !runs_in_pods)
    RETURN_IF_ERROR(check_folder("tracking.tensorboard.dir", config.tensorboard.dir));
  if (config.wandb.enabled) {
    ASSIGN_OR_RETURN(const WandbSettings settings, resolve_wandb_settings(config.wandb, known));
    if (is_wandb_enabled(config.wandb, settings) && !settings.dir.empty() && !runs_in_pods)
      RETURN_IF_ERROR(check_folder(config.wandb.dir.empty() ? "WANDB_DIR" : "tracking.wandb.dir", settings.dir));
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
