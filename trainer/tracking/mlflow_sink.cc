#include "trainer/tracking/sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/json_access.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "http/client/address.h"
#include "trainer/tracking/mlflow_client.h"
#include "trainer/tracking/mlflow_items.h"
#include "trainer/tracking/mlflow_runs.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr int kMaxArtifactFailures = 3;
std::string random_run_key() {
  constexpr size_t kBytes = 12;
  return random_hex(kBytes);
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
        directory_(context.directory),
        logger_(context.logger),
        runs_(*client_, logger_, !settings_.run_id.empty()),
        run_of_process_(context.run) {}

  std::string_view name() const override { return "mlflow"; }
  bool is_remote() const override { return true; }
  bool takes(const Event& event) const override { return !std::holds_alternative<Histogram>(event.content); }
  void cancel() override { client_->cancel(); }
  void set_guard(WriteGuard may_write) override {
    may_write_ = may_write;
    client_->set_guard(std::move(may_write));
  }

  // Never fails with kDataErr: content that MLflow rejects is dropped here, and the rest of its event is delivered.
  Result<size_t> write(std::span<const Event> events) override {
    if (client_->is_paused())
      return fail(ExitCode::kUnavailable, fmt::format("{}: the server requested a pause", server_));
    if (!is_ready_ && !started_) start_time_ = events.front().time;
    const MlflowResult<size_t> delivered = deliver(events);
    if (delivered) return *delivered;
    if (delivered.error().concerns_run()) is_ready_ = false;
    return tl::make_unexpected(repeatable_error(delivered.error()));
  }

 private:
  MlflowResult<size_t> deliver(std::span<const Event> events) {
    const Event& first = events.front();
    if (std::holds_alternative<Scalars>(first.content)) return log_points(events);
    RETURN_IF_ERROR(std::visit([&](const auto& content) { return add(first, content); }, first.content));
    return size_t{1};
  }

  // ---- experiment and runs -----------------------------------------------------------------------------------------

  MlflowResult<void> add(const Event& event, const RunStarted& run) {
    started_ = run;
    start_time_ = event.time;
    is_ready_ = false;
    load_key();
    const RunPlace place{run.place, run.uid};
    if (settings_.run_id.empty() && is_copied(place_, place)) {
      leave_run();
    } else if (!run.place.empty()) {
      place_ = place;
    }
    return ensure_runs();
  }

  // Begins a new run, because this checkpoint directory is a copy: if both continued one run, each would skip the steps
  // that the other one has reported. The events that the original had not delivered when the copy was made precede this
  // call, and are delivered to the run of the original.
  void leave_run() {
    logger_.warn("MLflow: the checkpoint directory is a copy, which gets a new run; the original has the other one",
                 {{"original", shortened(place_.directory)},
                  {"run_id", run_id_},
                  {"remedy", "to continue the run of the original, set tracking.mlflow.run_id"}});
    forget_runs();
    key_ = is_run_key(start().uid) && start().uid != key_ ? start().uid : random_run_key();
    place_ = {start().place, start().uid};
    save_state();
  }

  // Returns the start of the attempt whose events are delivered. For an earlier attempt, which delivered its own start,
  // it is that of this process: only members are used then that are the same for all attempts.
  const RunStarted& start() const { return started_ ? *started_ : run_of_process_; }

  // Creates what does not exist yet, or does not exist any more. Repeated until it succeeds, also by the events after
  // the start of an attempt. Sets attempt_id_, which remains empty for an earlier attempt that is not known.
  MlflowResult<void> ensure_runs() {
    if (is_ready_) return {};
    load_key();
    RETURN_IF_ERROR(ensure_job_run());
    if (started_) {
      RETURN_IF_ERROR(describe_job_run());
      RETURN_IF_ERROR(ensure_attempt());
      save_state();
    }
    is_ready_ = true;
    logger_.info("MLflow: reporting the run",
                 {{"server", server_}, {"experiment_id", experiment_id_}, {"run_id", shortened(run_id_)}});
    return {};
  }

  // The key by which the runs are found is stored before the first of them is created.
  void load_key() {
    if (!key_.empty() || load_state()) return;
    key_ = is_run_key(start().uid) ? start().uid : random_run_key();
    place_ = {start().place, start().uid};
    save_state();
  }

  // The run of the job: configured, or created by an earlier attempt, or a new one. The run of an earlier attempt is
  // verified by its id, which is unique, so that it is also found at another address of the same server.
  MlflowResult<void> ensure_job_run() {
    if (!settings_.run_id.empty()) run_id_ = settings_.run_id;
    if (!run_id_.empty()) {
      const MlflowResult<void> read = read_job_run();
      if (read) compare_experiment();
      if (read || read.error().kind != MlflowErrorKind::kMissing || !settings_.run_id.empty()) return read;
      logger_.warn("MLflow: the run does not exist on the server; a new one is created",
                   {{"server", server_}, {"run_id", shortened(run_id_)}});
      forget_runs();
    }
    experiment_id_ = settings_.experiment_id;
    if (experiment_id_.empty()) {
      ASSIGN_OR_RETURN(experiment_id_, runs_.ensure_experiment(experiment_name()));
    }
    ASSIGN_OR_RETURN(run_id_, runs_.find_run(experiment_id_, key_, kMlflowAttemptOfJob, "ACTIVE_ONLY"));
    if (run_id_.empty()) {
      ASSIGN_OR_RETURN(const std::string deleted,
                       runs_.find_run(experiment_id_, key_, kMlflowAttemptOfJob, "DELETED_ONLY"));
      if (!deleted.empty()) return runs_.deleted_run(deleted);
      ASSIGN_OR_RETURN(
          run_id_, create_run(settings_.run_name.empty() ? start().name : settings_.run_name, kMlflowAttemptOfJob, ""));
    }
    save_state();
    return read_job_run();
  }

  void forget_runs() {
    experiment_id_.clear();
    run_id_.clear();
    attempt_id_.clear();
    newest_steps_.clear();
  }

  std::string experiment_name() const { return settings_.experiment.empty() ? start().task : settings_.experiment; }

  // The run stays in its experiment, so that its curves remain continuous.
  void compare_experiment() {
    if (has_compared_experiment_ || !settings_.run_id.empty()) return;
    const MlflowResult<std::string> found = runs_.experiment_name(experiment_id_);
    if (!found) return;
    has_compared_experiment_ = true;
    const std::string& name = *found;
    const bool is_configured =
        settings_.experiment_id.empty() ? name == experiment_name() : settings_.experiment_id == experiment_id_;
    if (name.empty() || is_configured) return;
    logger_.warn(
        "MLflow: the run stays in the experiment in which it was created; another one is for new jobs only",
        {{"experiment", shortened(name)},
         {"configured", shortened(settings_.experiment_id.empty() ? experiment_name() : settings_.experiment_id)}});
  }

  MlflowResult<std::string> create_run(const std::string& name, const std::string& attempt,
                                       const std::string& parent_id) {
    return runs_.create_run({.experiment_id = experiment_id_,
                             .name = name,
                             .start = start_time_,
                             .key = key_,
                             .attempt = attempt,
                             .parent_id = parent_id});
  }

  // Adds the tags that a run, as of runs/get, does not have yet.
  MlflowResult<void> add_tags(const std::string& id, const json& run_data) {
    std::vector<MlflowItem> tags = {tag_item("mlflow.source.name", "oarlock-trainer"),
                                    tag_item("mlflow.source.type", "JOB"), tag_item("oarlock.task", start().task)};
    for (const auto& [name, value] : start().versions) {
      if (value.empty()) continue;
      tags.push_back(
          tag_item(name == "revision" ? "mlflow.source.git.commit" : mlflow_key("oarlock.version." + name), value));
    }
    if (!start().job.empty()) {
      tags.push_back(tag_item("oarlock.job", start().job));
      tags.push_back(tag_item("oarlock.namespace", start().job_namespace));
    }
    std::set<std::string> known;
    for (const json& item : elements(run_data, "tags")) known.insert(text_at(item, "key"));
    std::erase_if(tags, [&](const MlflowItem& item) { return known.contains(item.key); });
    return runs_.log(id, "tags", tags, kMaxMlflowTags);
  }

  // Parameters cannot change, so the job's run keeps those of its first attempt.
  MlflowResult<void> describe_job_run() {
    if (settings_.run_id.empty()) RETURN_IF_ERROR(add_tags(run_id_, job_data_));
    std::map<std::string, std::string> known;
    for (const json& param : elements(job_data_, "params")) known[text_at(param, "key")] = text_at(param, "value");
    std::map<std::string, std::string> params;
    flatten_params(started_->config, "", params);
    for (const auto& [name, value] : started_->derived) params[mlflow_key(name)] = fmt::format("{}", value);
    changed_.clear();
    std::map<std::string, std::string> missing;
    for (const auto& [name, value] : params) {
      const auto same = known.find(name);
      if (same == known.end()) {
        missing.emplace(name, value);
      } else if (same->second != value) {
        changed_.emplace(name, value);
      }
    }
    RETURN_IF_ERROR(runs_.log_params(run_id_, missing));
    return runs_.update(run_id_, "RUNNING", std::nullopt);
  }

  // A process may continue an attempt: one that replaces a lost rank 0, and each start without an operator, where all
  // have the same number. A nested run that was deleted is replaced, because the points of the job do not depend on it.
  MlflowResult<void> ensure_attempt() {
    const std::string number = fmt::format("{}", started_->attempt);
    ASSIGN_OR_RETURN(std::string id, runs_.find_run(experiment_id_, key_, number, "ACTIVE_ONLY"));
    if (id.empty()) {
      ASSIGN_OR_RETURN(id, create_run("attempt " + number, number, run_id_));
    }
    ASSIGN_OR_RETURN(const json run, runs_.read_active(id));
    const json& data = member(run, "data");
    RETURN_IF_ERROR(add_tags(id, data));
    std::map<std::string, std::string> params = changed_;
    params["attempt"] = number;
    params["restart_step"] = fmt::format("{}", started_->restart_step);
    // The server rejects a parameter that changes, so those of the first process remain.
    for (const json& param : elements(data, "params")) params.erase(text_at(param, "key"));
    RETURN_IF_ERROR(runs_.log_params(id, params));
    RETURN_IF_ERROR(runs_.update(id, "RUNNING", std::nullopt));
    attempt_id_ = id;
    return {};
  }

  // Reads the data of the job's run: the parameters and tags, the newest points, and the place of the artifacts.
  MlflowResult<void> read_job_run() {
    ASSIGN_OR_RETURN(const json run, runs_.read_active(run_id_));
    artifact_uri_ = text_at(member(run, "info"), "artifact_uri");
    ASSIGN_OR_RETURN(experiment_id_, runs_.id_at(member(run, "info"), "experiment_id"));
    job_data_ = member(run, "data");
    for (const json& metric : elements(job_data_, "metrics")) {
      remember_step(text_at(metric, "key"), step_of(metric));
    }
    client_->forget_uncertain_requests();
    return {};
  }

  void remember_step(const std::string& key, int64_t step) {
    const auto [known, is_new] = newest_steps_.try_emplace(key, step);
    if (!is_new) known->second = std::max(known->second, step);
  }

  // A step is a number or, as protocol buffers' JSON has it, a text.
  static int64_t step_of(const json& metric) {
    const int64_t step = std::strtoll(text_at(metric, "step").c_str(), nullptr, 10);
    return integer_at(metric, "step", step);
  }

  // ---- points ------------------------------------------------------------------------------------------------------

  // Sends the points of the first events that have only points. Returns the number of events.
  MlflowResult<size_t> log_points(std::span<const Event> events) {
    RETURN_IF_ERROR(ensure_runs());
    if (client_->has_uncertain_requests()) RETURN_IF_ERROR(read_job_run());
    if (!is_state_saved_) save_state();
    std::vector<MlflowItem> points;
    std::map<std::string, int64_t> steps = newest_steps_;
    size_t count = 0;
    for (const Event& event : events) {
      const auto* scalars = std::get_if<Scalars>(&event.content);
      if (scalars == nullptr || (count > 0 && points.size() + scalars->values.size() > kMaxMlflowMetrics)) break;
      ++count;
      const std::string text_end = metric_text_end(event);
      for (const auto& [name, value] : scalars->values) {
        const MlflowMetric& metric = metric_of(name);
        const auto [newest, is_first] = steps.try_emplace(metric.key, event.step);
        if (!is_first && event.step <= newest->second) continue;
        newest->second = event.step;
        points.push_back(metric_item(metric, value, text_end, event.step));
      }
    }
    RETURN_IF_ERROR(runs_.log(run_id_, "metrics", points, kMaxMlflowMetrics, [this](std::span<const MlflowItem> sent) {
      for (const MlflowItem& item : sent) remember_step(item.key, item.step);
    }));
    return count;
  }

  // Returns the metric of this name, of which a run reports many values.
  const MlflowMetric& metric_of(const std::string& name) {
    const auto known = metrics_.find(name);
    return known != metrics_.end() ? known->second : metrics_.emplace(name, make_mlflow_metric(name)).first->second;
  }

  MlflowResult<void> add(const Event&, const Scalars&) { return {}; }
  MlflowResult<void> add(const Event&, const Histogram&) { return {}; }

  MlflowResult<void> add(const Event& event, const Text& text) {
    return put_artifact(mlflow_artifact_path("text", text.name, event.step, "md"), text.text, "text/markdown");
  }

  MlflowResult<void> add(const Event& event, const Image& image) {
    return put_artifact(mlflow_artifact_path("images", image.name, event.step, "png"), image.png, "image/png");
  }

  // A repeated upload replaces the file. A server that works, but whose store of artifacts fails, must not hold up the
  // points that follow, so the artifact is dropped.
  MlflowResult<void> put_artifact(const std::string& name, const std::string& content, const char* type) {
    RETURN_IF_ERROR(ensure_runs());
    const std::optional<std::string> directory = mlflow_proxied_path(artifact_uri_);
    if (!directory) {
      if (!std::exchange(has_reported_artifacts_, true))
        logger_.warn("MLflow: texts and images are not reported, because the server does not serve artifacts",
                     {{"artifact_uri", shortened(artifact_uri_)}});
      return {};
    }
    const MlflowResult<json> put = client_->call(
        {.method = "PUT",
         .target = "/api/2.0/mlflow-artifacts/artifacts/" + http::percent_encode(*directory + "/" + name, "/"),
         .body = content,
         .content_type = type},
        "");
    if (put) {
      artifact_failures_ = 0;
      return {};
    }
    artifact_failures_ += 1;
    if (!put.error().may_concern_content() && artifact_failures_ < kMaxArtifactFailures)
      return tl::make_unexpected(put.error());
    RETURN_IF_ERROR(read_job_run());
    artifact_failures_ = 0;
    runs_.warn_of_drop("artifact", put.error());
    return {};
  }

  MlflowResult<void> add(const Event& event, const RunFinished& finished) {
    RETURN_IF_ERROR(ensure_runs());
    if (!finished.time_table.empty())
      RETURN_IF_ERROR(
          put_artifact(mlflow_artifact_path("text", "time", event.step, "md"), finished.time_table, "text/markdown"));
    const std::vector<MlflowItem> tags = {tag_item("oarlock.reason", finished.reason),
                                          tag_item("oarlock.message", finished.message)};
    const char* status = finished.success ? "FINISHED" : finished.resumes ? "KILLED" : "FAILED";
    if (!attempt_id_.empty()) {
      const MlflowResult<void> ended = finish_attempt(event, finished, tags, status);
      // The nested run of an earlier attempt that was deleted is not created again.
      if (!ended && (started_ || !ended.error().concerns_run())) return ended;
    }
    RETURN_IF_ERROR(runs_.log(run_id_, "tags", tags, kMaxMlflowTags));
    // The next attempt continues the job's run.
    if (finished.resumes) return {};
    return runs_.update(run_id_, status, event.time);
  }

  MlflowResult<void> finish_attempt(const Event& event, const RunFinished& finished,
                                    const std::vector<MlflowItem>& tags, const char* status) {
    // The summary is at one step, so a metric that the attempt has there is from an earlier delivery.
    ASSIGN_OR_RETURN(const json run, runs_.read_active(attempt_id_));
    std::set<std::string> known;
    for (const json& metric : elements(member(run, "data"), "metrics")) {
      if (step_of(metric) >= event.step) known.insert(text_at(metric, "key"));
    }
    std::vector<MlflowItem> metrics;
    const std::string text_end = metric_text_end(event);
    for (const auto& [name, value] : finished.summary) {
      const MlflowMetric& metric = metric_of(name);
      if (!known.contains(metric.key)) metrics.push_back(metric_item(metric, value, text_end, event.step));
    }
    RETURN_IF_ERROR(runs_.log(attempt_id_, "metrics", metrics, kMaxMlflowMetrics));
    RETURN_IF_ERROR(runs_.log(attempt_id_, "tags", tags, kMaxMlflowTags));
    return runs_.update(attempt_id_, status, event.time);
  }

  // ---- state -------------------------------------------------------------------------------------------------------

  std::filesystem::path state_path() const { return directory_ / "mlflow.json"; }

  // Returns whether there is a state of an earlier attempt.
  bool load_state() {
    if (directory_.empty()) return false;
    const Result<std::string> text = read_regular_file(state_path(), 1u << 20);
    if (!text) return false;
    const json state = parse_untrusted_json(*text);
    const std::string key = text_at(state, "key");
    if (!is_run_key(key)) return false;
    key_ = key;
    place_ = {text_at(state, "place"), text_at(state, "uid")};
    run_id_ = text_at(state, "run_id");
    attempt_id_ = text_at(state, "attempt_id");
    if (!is_mlflow_id(run_id_)) run_id_.clear();  // it is found by the key
    if (!is_mlflow_id(attempt_id_)) attempt_id_.clear();
    return true;
  }

  // Tried again with the next points: without the key, another process would create another run.
  void save_state() {
    if (directory_.empty() || !may_write_()) return;
    const json state = {{"key", key_},       {"place", place_.directory},
                        {"uid", place_.uid}, {"experiment_id", experiment_id_},
                        {"run_id", run_id_}, {"attempt_id", attempt_id_}};
    const Result<void> saved = make_writable_directory(directory_).and_then([&]() -> Result<void> {
      return write_file_atomically(state_path(), dump_json(state));
    });
    is_state_saved_ = saved.has_value();
    if (!saved && !std::exchange(has_reported_state_, true))
      logger_.warn("MLflow: cannot save the state of the run", {{"error", saved.error().message}});
  }

  const MlflowSettings settings_;
  const std::unique_ptr<MlflowClient> client_;
  const std::string server_;
  const std::filesystem::path directory_;
  const Logger logger_;
  MlflowRuns runs_;
  const RunStarted run_of_process_;
  WriteGuard may_write_ = may_always_write;

  std::optional<RunStarted> started_;  // of the current attempt; empty while events of an earlier one are delivered
  SystemTime start_time_;
  bool is_ready_ = false;      // the runs exist, as far as is known
  std::string key_;            // by which the runs are found
  RunPlace place_;             // of the attempts of this run
  std::string experiment_id_;  // of the job's run
  std::string run_id_;         // of the job
  std::string attempt_id_;
  std::string artifact_uri_;
  json job_data_;                                // of the job's run: params, tags
  std::map<std::string, std::string> changed_;   // parameters that this attempt changed
  std::map<std::string, int64_t> newest_steps_;  // of each metric on the server
  std::map<std::string, MlflowMetric> metrics_;  // by the names of metrics
  bool has_compared_experiment_ = false;
  bool has_reported_artifacts_ = false;
  bool is_state_saved_ = true;
  bool has_reported_state_ = false;
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
