#include "trainer/tracking/mlflow_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/http/client/address.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/tracking/mlflow_client.h"

namespace oarlock {
namespace {

using nlohmann::json;

// Limits of log-batch, and of keys and values.
constexpr size_t kMaxMlflowMetrics = 1000;
constexpr size_t kMaxMlflowParams = 100;
constexpr size_t kMaxMlflowTags = 100;
constexpr size_t kMaxMlflowKey = 250;
constexpr size_t kMaxMlflowParamValue = 6000;
constexpr size_t kMaxMlflowTagValue = 5000;

constexpr int kMaxArtifactFailures = 3;

constexpr char kRunTag[] = "oarlock.run";          // the same for all runs of a job
constexpr char kAttemptTag[] = "oarlock.attempt";  // of nested runs; "job" of their parent
constexpr char kAttemptOfJob[] = "job";

int64_t mlflow_milliseconds(SystemTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

// Names may contain letters, digits and "_-. :/".
std::string mlflow_key(const std::string& name) {
  std::string out = name.substr(0, kMaxMlflowKey);
  for (char& c : out) {
    const bool is_valid = (std::isalnum(static_cast<unsigned char>(c)) != 0) ||
                          std::string_view("_-. :/").find(c) != std::string_view::npos;
    if (!is_valid) c = '_';
  }
  return out;
}

// Protocol buffers' JSON has texts for the numbers that JSON lacks.
json mlflow_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

void flatten_params(const json& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) flatten_params(member, path.empty() ? key : path + "." + key, out);
  } else if (!value.is_null() && !path.empty()) {
    const std::string text =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
    out.emplace(mlflow_key(path), shortened(text, kMaxMlflowParamValue));
  }
}

// A relative path of an artifact: components that could leave the folder of the run lose their dots.
std::string artifact_name(const char* folder, const std::string& name, int64_t step, const char* extension) {
  std::string safe = mlflow_key(name);
  std::replace(safe.begin(), safe.end(), ':', '_');
  std::replace(safe.begin(), safe.end(), '.', '_');
  while (safe.starts_with('/')) safe.erase(0, 1);
  return fmt::format("{}/{}/{:08}.{}", folder, safe, step, extension);
}

// The path for the server's proxy of artifacts, from the run's artifact_uri: "mlflow-artifacts:/1/<run>/artifacts", or
// with an authority. Nothing if the run's artifacts are stored elsewhere.
std::optional<std::string> proxied_path(std::string_view uri) {
  constexpr std::string_view kScheme = "mlflow-artifacts:";
  if (!uri.starts_with(kScheme)) return std::nullopt;
  uri.remove_prefix(kScheme.size());
  if (uri.starts_with("//")) uri = uri.substr(std::min(uri.find('/', 2), uri.size()));
  while (uri.starts_with('/')) uri.remove_prefix(1);
  return std::string(uri);
}

std::string random_run_key() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

bool is_run_key(const std::string& key) {
  return !key.empty() && key.size() <= 128 && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return (std::isalnum(c) != 0 && c < 0x80) || c == '-' || c == '_';
  });
}

struct MlflowSettings {
  std::string experiment;
  std::string experiment_id;
  std::string run_name;
  std::string run_id;
};

class MlflowSink final : public Sink {
 public:
  MlflowSink(MlflowSettings settings, std::unique_ptr<MlflowClient> client, const SinkContext& context)
      : settings_(std::move(settings)),
        client_(std::move(client)),
        server_(client_->server()),
        folder_(context.folder),
        logger_(context.logger) {}

  std::string_view name() const override { return "mlflow"; }
  bool is_remote() const override { return true; }
  bool takes(const Event& event) const override { return !std::holds_alternative<Histogram>(event.content); }
  void cancel() override { client_->cancel(); }

  Result<size_t> write(std::span<const Event> events) override {
    if (client_->is_paused())
      return fail(ExitCode::kUnavailable, fmt::format("{}: the server requested a pause", server_));
    const Event& first = events.front();
    Result<size_t> delivered = size_t{1};
    if (std::holds_alternative<Scalars>(first.content)) {
      delivered = log_points(events);
      // The server rejects a request as a whole. Which event is the cause shows the next request, with one event.
      if (!delivered && delivered.error().code == ExitCode::kDataErr) delivered = log_points(events.first(1));
    } else {
      const Result<void> added = std::visit([&](const auto& content) { return add(first, content); }, first.content);
      if (!added) delivered = tl::make_unexpected(added.error());
    }
    return delivered;
  }

 private:
  // ---- experiment and runs -----------------------------------------------------------------------------------------

  Result<void> add(const Event& event, const RunStarted& run) {
    started_ = run;
    start_time_ = event.time;
    attempt_id_.clear();
    return ensure_attempt();
  }

  // Creates what does not exist yet. Repeated until it succeeds, also by the events after the start of an attempt.
  Result<void> ensure_attempt() {
    if (!attempt_id_.empty()) return {};
    if (!started_) return resume_earlier_attempt();
    // The key by which the runs are found is stored before the first of them is created.
    if (key_.empty() && !load_state()) {
      key_ = is_run_key(started_->uid) ? started_->uid : random_run_key();
      save_state();
    }
    RETURN_IF_ERROR(ensure_experiment());
    RETURN_IF_ERROR(ensure_job_run());
    RETURN_IF_ERROR(describe_job_run());
    const std::string name = fmt::format("attempt {}", started_->attempt);
    std::string id;
    ASSIGN_OR_RETURN(id, find_run(fmt::format("{}", started_->attempt)));
    if (id.empty()) {
      json tags = common_tags();
      tags.push_back(tag("mlflow.parentRunId", run_id_));
      tags.push_back(tag(kAttemptTag, fmt::format("{}", started_->attempt)));
      ASSIGN_OR_RETURN(id, create_run(name, tags));
    }
    RETURN_IF_ERROR(describe_attempt(id));
    attempt_id_ = id;
    save_state();
    logger_.info("MLflow: reporting the run",
                 {{"server", server_}, {"experiment_id", experiment_id_}, {"run_id", run_id_}});
    return {};
  }

  // For the last events of an attempt that ended before their delivery: its start was delivered by that attempt.
  Result<void> resume_earlier_attempt() {
    if (!load_state() || run_id_.empty() || saved_attempt_id_.empty())
      return fail(ExitCode::kDataErr, "MLflow: the run of an earlier attempt is not known");
    RETURN_IF_ERROR(read_job_run());
    attempt_id_ = saved_attempt_id_;
    return {};
  }

  Result<void> ensure_experiment() {
    if (!settings_.experiment_id.empty()) experiment_id_ = settings_.experiment_id;
    if (!experiment_id_.empty()) return {};
    const std::string name = settings_.experiment.empty() ? started_->task : settings_.experiment;
    const auto find = [&]() { return client_->get("experiments/get-by-name", "experiment_name", name); };
    Result<json> found = find();
    if (!found && client_->last_code() == "RESOURCE_DOES_NOT_EXIST") {
      const Result<json> created = client_->post("experiments/create", {{"name", name}});
      if (created) {
        experiment_id_ = text_at(*created, "experiment_id");
      } else if (client_->last_code() != "RESOURCE_ALREADY_EXISTS") {  // created meanwhile by another run
        return tl::make_unexpected(created.error());
      }
      if (!experiment_id_.empty()) return {};
      found = find();
    }
    RETURN_IF_ERROR(found);
    const json& experiment = member(*found, "experiment");
    if (text_at(experiment, "lifecycle_stage") == "deleted")
      return fail(
          ExitCode::kUnavailable,
          fmt::format("MLflow: {}: the experiment '{}' is deleted; restore it or choose another one", server_, name));
    experiment_id_ = text_at(experiment, "experiment_id");
    if (experiment_id_.empty())
      return fail(ExitCode::kUnavailable, fmt::format("MLflow: {}: the response has no experiment_id", server_));
    return {};
  }

  // The run of the job: configured, or created by an earlier attempt, or a new one.
  Result<void> ensure_job_run() {
    if (!settings_.run_id.empty()) run_id_ = settings_.run_id;
    if (!run_id_.empty()) return {};
    ASSIGN_OR_RETURN(run_id_, find_run(kAttemptOfJob));
    if (run_id_.empty()) {
      json tags = common_tags();
      tags.push_back(tag(kAttemptTag, kAttemptOfJob));
      ASSIGN_OR_RETURN(run_id_, create_run(settings_.run_name.empty() ? started_->name : settings_.run_name, tags));
    }
    save_state();
    return {};
  }

  // Returns an empty text if there is no such run.
  Result<std::string> find_run(const std::string& attempt) {
    const json body = {
        {"experiment_ids", {experiment_id_}},
        {"filter", fmt::format("tags.`{}` = '{}' and tags.`{}` = '{}'", kRunTag, key_, kAttemptTag, attempt)},
        {"order_by", {"attributes.start_time ASC"}},
        {"max_results", 1}};
    ASSIGN_OR_RETURN(const json response, client_->post("runs/search", body));
    const json& runs = member(response, "runs");
    return runs.is_array() && !runs.empty() ? text_at(member(runs[0], "info"), "run_id") : std::string();
  }

  Result<std::string> create_run(const std::string& name, const json& tags) {
    ASSIGN_OR_RETURN(const json response,
                     client_->post("runs/create", {{"experiment_id", experiment_id_},
                                                   {"run_name", name},
                                                   {"start_time", mlflow_milliseconds(start_time_)},
                                                   {"tags", tags}}));
    std::string id = text_at(member(member(response, "run"), "info"), "run_id");
    if (id.empty()) return fail(ExitCode::kUnavailable, fmt::format("MLflow: {}: the response has no run_id", server_));
    return id;
  }

  static json tag(const std::string& key, const std::string& value) {
    return {{"key", key}, {"value", shortened(value, kMaxMlflowTagValue)}};
  }

  json common_tags() const {
    json tags = json::array({tag(kRunTag, key_), tag("mlflow.source.name", "oarlock-trainer"),
                             tag("mlflow.source.type", "JOB"), tag("oarlock.task", started_->task)});
    for (const auto& [name, value] : started_->versions) {
      if (value.empty()) continue;
      tags.push_back(
          tag(name == "revision" ? "mlflow.source.git.commit" : mlflow_key("oarlock.version." + name), value));
    }
    if (!started_->job.empty()) {
      tags.push_back(tag("oarlock.job", started_->job));
      tags.push_back(tag("oarlock.namespace", started_->job_namespace));
    }
    if (tags.size() > kMaxMlflowTags) tags.erase(tags.begin() + kMaxMlflowTags, tags.end());
    return tags;
  }

  // Parameters cannot change, so the job's run keeps those of its first attempt.
  Result<void> describe_job_run() {
    RETURN_IF_ERROR(read_job_run());
    std::map<std::string, std::string> params;
    flatten_params(started_->config, "", params);
    for (const auto& [name, value] : started_->derived) params[mlflow_key(name)] = fmt::format("{}", value);
    changed_.clear();
    std::map<std::string, std::string> missing;
    for (const auto& [name, value] : params) {
      const auto known = params_.find(name);
      if (known == params_.end()) {
        missing.emplace(name, value);
      } else if (known->second != value) {
        changed_.emplace(name, value);
      }
    }
    RETURN_IF_ERROR(log_params(run_id_, missing));
    params_.insert(missing.begin(), missing.end());
    return update(run_id_, "RUNNING", std::nullopt);
  }

  // A process may continue an attempt: one that replaces a lost rank 0, and each start without an operator, where all
  // have the same number. The server rejects a parameter that changes, so those of the first process remain.
  Result<void> describe_attempt(const std::string& id) {
    std::map<std::string, std::string> params = changed_;
    params["attempt"] = fmt::format("{}", started_->attempt);
    params["restart_step"] = fmt::format("{}", started_->restart_step);
    ASSIGN_OR_RETURN(const json known, client_->get("runs/get", "run_id", id));
    for (const json& param : elements(member(member(known, "run"), "data"), "params"))
      params.erase(text_at(param, "key"));
    RETURN_IF_ERROR(log_params(id, params));
    return update(id, "RUNNING", std::nullopt);
  }

  Result<void> log_params(const std::string& id, const std::map<std::string, std::string>& params) {
    json batch = json::array();
    for (auto param = params.begin(); param != params.end();) {
      batch.push_back({{"key", param->first}, {"value", param->second}});
      if (++param == params.end() || batch.size() == kMaxMlflowParams)
        RETURN_IF_ERROR(
            client_->post("runs/log-batch", {{"run_id", id}, {"params", std::exchange(batch, json::array())}}));
    }
    return {};
  }

  Result<void> update(const std::string& id, const char* status, std::optional<SystemTime> end) {
    json body = {{"run_id", id}, {"status", status}};
    if (end) body["end_time"] = mlflow_milliseconds(*end);
    RETURN_IF_ERROR(client_->post("runs/update", body));
    return {};
  }

  // Reads the parameters, the newest points and the place of the artifacts.
  Result<void> read_job_run() {
    ASSIGN_OR_RETURN(const json response, client_->get("runs/get", "run_id", run_id_));
    const json& run = member(response, "run");
    if (text_at(member(run, "info"), "run_id") != run_id_)
      return fail(ExitCode::kUnavailable, "MLflow: runs/get: the answer is not the run " + run_id_);
    artifact_uri_ = text_at(member(run, "info"), "artifact_uri");
    const json& data = member(run, "data");
    params_.clear();
    for (const json& param : elements(data, "params")) params_[text_at(param, "key")] = text_at(param, "value");
    for (const json& metric : elements(data, "metrics")) {
      const int64_t step = step_of(metric);
      const auto [known, is_new] = newest_steps_.try_emplace(text_at(metric, "key"), step);
      if (!is_new) known->second = std::max(known->second, step);
    }
    client_->forget_uncertain_requests();
    return {};
  }

  // A step is a number or, as protocol buffers' JSON has it, a text.
  static int64_t step_of(const json& metric) {
    const int64_t step = std::strtoll(text_at(metric, "step").c_str(), nullptr, 10);
    return integer_at(metric, "step", step);
  }

  // ---- points ------------------------------------------------------------------------------------------------------

  // Sends the points of the first events that have only points. Returns the number of events.
  Result<size_t> log_points(std::span<const Event> events) {
    RETURN_IF_ERROR(ensure_attempt());
    if (client_->has_uncertain_requests()) RETURN_IF_ERROR(read_job_run());
    json batch = json::array();
    std::map<std::string, int64_t> steps = newest_steps_;
    size_t count = 0;
    for (const Event& event : events) {
      const auto* scalars = std::get_if<Scalars>(&event.content);
      if (scalars == nullptr || (count > 0 && batch.size() + scalars->values.size() > kMaxMlflowMetrics)) break;
      ++count;
      for (const auto& [name, value] : scalars->values) {
        const std::string key = mlflow_key(name);
        const auto [newest, is_first] = steps.try_emplace(key, event.step);
        if (!is_first && event.step <= newest->second) continue;
        newest->second = event.step;
        batch.push_back({{"key", key},
                         {"value", mlflow_number(value)},
                         {"timestamp", mlflow_milliseconds(event.time)},
                         {"step", event.step}});
      }
    }
    for (size_t begin = 0; begin < batch.size(); begin += kMaxMlflowMetrics) {
      const size_t end = std::min(begin + kMaxMlflowMetrics, batch.size());
      const json part(std::vector<json>(batch.begin() + static_cast<std::ptrdiff_t>(begin),
                                        batch.begin() + static_cast<std::ptrdiff_t>(end)));
      RETURN_IF_ERROR(client_->post("runs/log-batch", {{"run_id", run_id_}, {"metrics", part}}));
      for (const json& point : part) newest_steps_[point["key"].get<std::string>()] = point["step"].get<int64_t>();
    }
    return count;
  }

  Result<void> add(const Event&, const Scalars&) { return {}; }
  Result<void> add(const Event&, const Histogram&) { return {}; }

  Result<void> add(const Event& event, const Text& text) {
    return put_artifact(artifact_name("text", text.name, event.step, "md"), text.text, "text/markdown");
  }

  Result<void> add(const Event& event, const Image& image) {
    return put_artifact(artifact_name("images", image.name, event.step, "png"), image.png, "image/png");
  }

  // A repeated upload replaces the file. A server that works, but whose store of artifacts fails, must not hold up the
  // points that follow, so the artifact is dropped.
  Result<void> put_artifact(const std::string& name, const std::string& content, const char* type) {
    RETURN_IF_ERROR(ensure_attempt());
    const std::optional<std::string> folder = proxied_path(artifact_uri_);
    if (!folder) {
      if (!std::exchange(has_reported_artifacts_, true))
        logger_.warn("MLflow: texts and images are not reported, because the server does not serve artifacts",
                     {{"artifact_uri", artifact_uri_}});
      return {};
    }
    const Result<json> put = client_->call(
        {.method = "PUT",
         .target = "/api/2.0/mlflow-artifacts/artifacts/" + kube::percent_encode(*folder + "/" + name, "/"),
         .body = content,
         .content_type = type});
    artifact_failures_ = put ? 0 : artifact_failures_ + 1;
    if (put) return {};
    if (artifact_failures_ < kMaxArtifactFailures || !read_job_run()) return tl::make_unexpected(put.error());
    artifact_failures_ = 0;
    return fail(ExitCode::kDataErr, put.error().message);
  }

  Result<void> add(const Event& event, const RunFinished& finished) {
    RETURN_IF_ERROR(ensure_attempt());
    if (!finished.time_table.empty()) {
      const Result<void> put =
          put_artifact(artifact_name("text", "time", event.step, "md"), finished.time_table, "text/markdown");
      if (!put && put.error().code != ExitCode::kDataErr) return put;
    }
    // The summary is at one step, so a metric that the attempt has there is from an earlier delivery.
    ASSIGN_OR_RETURN(const json known, client_->get("runs/get", "run_id", attempt_id_));
    std::set<std::string> known_names;
    for (const json& metric : elements(member(member(known, "run"), "data"), "metrics")) {
      if (step_of(metric) >= event.step) known_names.insert(text_at(metric, "key"));
    }
    json metrics = json::array();
    for (const auto& [name, value] : finished.summary) {
      if (metrics.size() == kMaxMlflowMetrics || known_names.contains(mlflow_key(name))) continue;
      metrics.push_back({{"key", mlflow_key(name)},
                         {"value", mlflow_number(value)},
                         {"timestamp", mlflow_milliseconds(event.time)},
                         {"step", event.step}});
    }
    const json tags = json::array({tag("oarlock.reason", finished.reason), tag("oarlock.message", finished.message)});
    RETURN_IF_ERROR(client_->post("runs/log-batch", {{"run_id", attempt_id_}, {"metrics", metrics}, {"tags", tags}}));
    RETURN_IF_ERROR(client_->post("runs/log-batch", {{"run_id", run_id_}, {"tags", tags}}));
    const char* status = finished.success ? "FINISHED" : finished.resumes ? "KILLED" : "FAILED";
    RETURN_IF_ERROR(update(attempt_id_, status, event.time));
    // The next attempt continues the job's run.
    if (finished.resumes) return {};
    return update(run_id_, status, event.time);
  }

  // ---- state -------------------------------------------------------------------------------------------------------

  std::filesystem::path state_path() const { return folder_ / "mlflow.json"; }

  // Returns whether there is a state of an earlier attempt.
  bool load_state() {
    if (folder_.empty()) return false;
    const Result<std::string> text = read_file(state_path(), 1u << 20);
    if (!text) return false;
    const json state = parse_untrusted_json(*text);
    const std::string key = text_at(state, "key");
    if (!is_run_key(key)) return false;
    key_ = key;
    if (text_at(state, "server") != server_) return true;
    experiment_id_ = text_at(state, "experiment_id");
    run_id_ = text_at(state, "run_id");
    saved_attempt_id_ = text_at(state, "attempt_id");
    return true;
  }

  void save_state() {
    if (folder_.empty()) return;
    const json state = {{"key", key_},
                        {"server", server_},
                        {"experiment_id", experiment_id_},
                        {"run_id", run_id_},
                        {"attempt_id", attempt_id_}};
    const Result<void> saved = make_writable_folder(folder_).and_then(
        [&]() -> Result<void> { return write_file_atomically(state_path(), state.dump()); });
    if (!saved) logger_.warn("MLflow: cannot save the state of the run", {{"error", saved.error().message}});
  }

  const MlflowSettings settings_;
  const std::unique_ptr<MlflowClient> client_;
  const std::string server_;
  const std::filesystem::path folder_;
  const Logger logger_;

  std::optional<RunStarted> started_;  // of the current attempt
  SystemTime start_time_;
  std::string key_;  // the value of kRunTag
  std::string experiment_id_;
  std::string run_id_;            // of the job
  std::string attempt_id_;        // empty: not created yet
  std::string saved_attempt_id_;  // of the state file
  std::string artifact_uri_;
  std::map<std::string, std::string> params_;    // of the job's run
  std::map<std::string, std::string> changed_;   // parameters that this attempt changed
  std::map<std::string, int64_t> newest_steps_;  // of each metric on the server
  bool has_reported_artifacts_ = false;
  int artifact_failures_ = 0;  // of the uploads since the last one that succeeded
};

}  // namespace

Result<std::unique_ptr<Sink>> make_mlflow_sink(const MlflowConfig& config, const TrackingVariables& variables,
                                               const SinkContext& context) {
  const auto choose = [&](const std::string& configured, const char* variable) {
    return configured.empty() ? variables(variable).value_or("") : configured;
  };
  ASSIGN_OR_RETURN(std::unique_ptr<MlflowClient> client, MlflowClient::create(config, variables, context.clock));
  MlflowSettings settings{.experiment = choose(config.experiment, "MLFLOW_EXPERIMENT_NAME"),
                          .experiment_id = "",
                          .run_name = config.run_name,
                          .run_id = choose(config.run_id, "MLFLOW_RUN_ID")};
  if (settings.experiment.empty()) settings.experiment_id = variables("MLFLOW_EXPERIMENT_ID").value_or("");
  return std::make_unique<MlflowSink>(std::move(settings), std::move(client), context);
}

}  // namespace oarlock
