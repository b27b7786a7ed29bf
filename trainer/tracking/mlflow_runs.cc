#include "trainer/tracking/mlflow_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr size_t kMaxMlflowRunName = 250;
constexpr size_t kMaxServerIdBytes = 256;  // MLflow's have 32
constexpr size_t kMaxDropWarnings = 20;

constexpr char kRunTag[] = "oarlock.run";          // the same for all runs of a job
constexpr char kAttemptTag[] = "oarlock.attempt";  // of nested runs; "job" of their parent (kMlflowAttemptOfJob)

}  // namespace

bool is_mlflow_id(std::string_view id) { return !id.empty() && id.size() <= kMaxServerIdBytes && is_printable(id); }

MlflowResult<std::string> MlflowRuns::ensure_experiment(const std::string& name) {
  const auto find = [&]() { return client_.get("experiments/get-by-name", "experiment_name", name, "experiment"); };
  MlflowResult<json> found = find();
  if (!found && found.error().kind == MlflowErrorKind::kMissing) {
    const MlflowResult<json> created = client_.post("experiments/create", {{"name", name}}, "experiment_id");
    if (!created && created.error().kind != MlflowErrorKind::kAlreadyExists)  // created meanwhile by another run
      return tl::make_unexpected(created.error());
    if (created) return id_at(*created, "experiment_id");
    found = find();
  }
  RETURN_IF_ERROR(found);
  const json& experiment = member(*found, "experiment");
  if (text_at(experiment, "lifecycle_stage") == "deleted")
    return mlflow_failure(MlflowErrorKind::kDeleted,
                          fmt::format("MLflow: {}: the experiment '{}' is deleted; restore it or choose another one",
                                      client_.server(), shortened(name)));
  return id_at(experiment, "experiment_id");
}

MlflowResult<std::string> MlflowRuns::experiment_name(const std::string& id) {
  ASSIGN_OR_RETURN(const json found, client_.get("experiments/get", "experiment_id", id, "experiment"));
  return text_at(member(found, "experiment"), "name");
}

MlflowResult<std::string> MlflowRuns::find_run(const std::string& experiment_id, const std::string& key,
                                               const std::string& attempt, const char* view) {
  const json body = {
      {"experiment_ids", {experiment_id}},
      {"filter", fmt::format("tags.`{}` = '{}' and tags.`{}` = '{}'", kRunTag, key, kAttemptTag, attempt)},
      {"run_view_type", view},
      {"order_by", {"attributes.start_time ASC"}},
      {"max_results", 1}};
  ASSIGN_OR_RETURN(const json response, client_.post("runs/search", body, "runs"));
  const json& runs = elements(response, "runs");
  if (runs.empty()) return std::string();
  return id_at(member(runs[0], "info"), "run_id");
}

MlflowResult<std::string> MlflowRuns::create_run(const NewRun& run) {
  json tags = json::array({mlflow_tag(kRunTag, run.key), mlflow_tag(kAttemptTag, run.attempt)});
  if (!run.parent_id.empty()) tags.push_back(mlflow_tag("mlflow.parentRunId", run.parent_id));
  ASSIGN_OR_RETURN(const json response, client_.post("runs/create",
                                                     {{"experiment_id", run.experiment_id},
                                                      {"run_name", mlflow_text(run.name, kMaxMlflowRunName)},
                                                      {"start_time", mlflow_milliseconds(run.start)},
                                                      {"tags", tags}},
                                                     "run"));
  return id_at(member(member(response, "run"), "info"), "run_id");
}

MlflowResult<json> MlflowRuns::read_active(const std::string& id) {
  ASSIGN_OR_RETURN(const json response, client_.get("runs/get", "run_id", id, "run"));
  const json& run = member(response, "run");
  if (text_at(member(run, "info"), "run_id") != id)
    return unexpected_response("is not that of the run " + shortened(id));
  if (text_at(member(run, "info"), "lifecycle_stage") == "deleted") return deleted_run(id);
  return run;
}

tl::unexpected<MlflowError> MlflowRuns::unexpected_response(const std::string& why) const {
  return mlflow_failure(MlflowErrorKind::kUnavailable,
                        fmt::format("MLflow: {}: the response {}", client_.server(), why));
}

MlflowResult<std::string> MlflowRuns::id_at(const json& object, const char* key) const {
  std::string id = text_at(object, key);
  if (id.empty()) return unexpected_response(fmt::format("has no {}", key));
  if (!is_mlflow_id(id))
    return unexpected_response(fmt::format("has the {} '{}', which is not one of MLflow", key, shortened(id)));
  return id;
}

tl::unexpected<MlflowError> MlflowRuns::deleted_run(const std::string& id) const {
  return mlflow_failure(
      MlflowErrorKind::kDeleted,
      fmt::format("MLflow: {}: the run {} is deleted; restore it{}", client_.server(), shortened(id),
                  is_configured_ ? " or configure another one"
                                 : ", or delete it permanently with 'mlflow gc' to continue in a new one"));
}

// MLflow rejects a request as a whole, so a rejected one is divided until the rejected items are alone.
MlflowResult<void> MlflowRuns::log_items(const std::string& id, const char* kind, std::span<const MlflowItem> items,
                                         const std::function<void(std::span<const MlflowItem>)>& sent) {
  if (items.empty()) return {};
  std::string body = fmt::format(R"({{"run_id":{},"{}":[)", dump_json(id), kind);
  for (const MlflowItem& item : items) body.append(&item == items.data() ? "" : ",").append(item.text);
  const MlflowResult<json> response = client_.post_text("runs/log-batch", body.append("]}"), "");
  if (response) {
    sent(items);
    return {};
  }
  if (items.size() == 1) return drop_rejected(id, fmt::format("{}: {}", kind, items[0].key), response.error());
  if (!response.error().may_concern_content()) return tl::make_unexpected(response.error());
  RETURN_IF_ERROR(log_items(id, kind, items.first(items.size() / 2), sent));
  return log_items(id, kind, items.subspan(items.size() / 2), sent);
}

// Returns success if the error is final for `content`, which was the only one in its request. Otherwise returns the
// error that the state of the run explains, or the given one. A proxy that finds a single item too large does not
// work at all.
MlflowResult<void> MlflowRuns::drop_rejected(const std::string& id, const std::string& content,
                                             const MlflowError& error) {
  if (error.kind != MlflowErrorKind::kRejected) return tl::make_unexpected(error);
  RETURN_IF_ERROR(read_active(id));
  warn_of_drop(content, error);
  return {};
}

void MlflowRuns::warn_of_drop(const std::string& content, const MlflowError& error) {
  if (dropped_.size() == kMaxDropWarnings || !dropped_.insert(content).second) return;
  logger_.warn("MLflow: rejected content is dropped; the rest is reported",
               {{"content", content}, {"reason", error.message}});
}

MlflowResult<void> MlflowRuns::log(const std::string& id, const char* kind, std::span<const MlflowItem> items,
                                   size_t max, const std::function<void(std::span<const MlflowItem>)>& sent) {
  for (; !items.empty(); items = items.subspan(std::min(max, items.size())))
    RETURN_IF_ERROR(log_items(id, kind, items.first(std::min(max, items.size())), sent));
  return {};
}

MlflowResult<void> MlflowRuns::log_params(const std::string& id, const std::map<std::string, std::string>& params) {
  std::vector<MlflowItem> items;
  for (const auto& [key, value] : params) items.push_back(param_item(key, value));
  return log(id, "params", items, kMaxMlflowParams);
}

MlflowResult<void> MlflowRuns::update(const std::string& id, const char* status, std::optional<SystemTime> end) {
  json body = {{"run_id", id}, {"status", status}};
  if (end) body["end_time"] = mlflow_milliseconds(*end);
  const MlflowResult<json> sent = client_.post("runs/update", body, "run_info");
  if (!sent) return drop_rejected(id, fmt::format("status: {}", status), sent.error());
  return {};
}

}  // namespace oarlock
