#include "operator/api/codec.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "operator/api/fields.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

constexpr Phase kPhases[] = {Phase::kNone,      Phase::kPending,  Phase::kRunning, Phase::kRestarting,
                             Phase::kSuspended, Phase::kComplete, Phase::kFailed};

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Keeps the first problem and goes on with defaults.
class JsonReader {
 public:
  JsonReader(const Json& node, std::string path, std::optional<Error>& error)
      : node_(node), path_(std::move(path)), error_(error) {
    if (!node_.is_object() && !node_.is_null()) problem(path_, "an object", node_);
  }

  void read(const char* key, bool& target) {
    scalar(key, "true or false", &Json::is_boolean, [&](const Json& value) { target = value.get<bool>(); });
  }
  void read(const char* key, int64_t& target) {
    scalar(key, "an integer", &Json::is_number_integer, [&](const Json& value) { target = value.get<int64_t>(); });
  }
  void read(const char* key, int& target) {
    scalar(key, "an integer", &Json::is_number_integer, [&](const Json& value) {
      const auto wide = value.get<int64_t>();
      if (wide < INT32_MIN || wide > INT32_MAX) return problem(at(key), "an integer of 32 bits", value);
      target = static_cast<int>(wide);
    });
  }
  void read(const char* key, double& target) {
    scalar(key, "a number", &Json::is_number, [&](const Json& value) { target = value.get<double>(); });
  }
  void read(const char* key, std::string& target) {
    scalar(key, "a string", &Json::is_string, [&](const Json& value) { target = value.get<std::string>(); });
  }
  void read(const char* key, SystemTime& target) {
    scalar(key, "a time", &Json::is_string, [&](const Json& value) {
      if (!from_rfc3339(value.get<std::string>(), target)) problem(at(key), "a time as 2026-11-21T10:11:12Z", value);
    });
  }
  template <typename T>
  void read(const char* key, std::optional<T>& target) {
    if (find(key) == nullptr) return;
    T value{};
    read(key, value);
    target = std::move(value);
  }

  void truth(const char* key, bool& target) {
    std::string text = "False";
    read(key, text);
    target = text == "True";
  }
  void phase(const char* key, Phase& target) {
    std::string text;
    read(key, text);
    for (const Phase candidate : kPhases) {
      if (to_string(candidate) == text) {
        target = candidate;
        return;
      }
    }
    problem(at(key), "a phase", text);
  }
  void object(const char* key, std::string& text) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) return problem(at(key), "an object", *value);
    text = value->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  template <typename Fn>
  void map(const char* key, Fn read_fields) {
    const Json* value = find(key);
    if (value == nullptr) return;
    JsonReader nested(*value, at(key), error_);
    read_fields(nested);
  }
  template <typename T, typename Fn>
  void list(const char* key, std::vector<T>& target, Fn read_item) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return problem(at(key), "a list", *value);
    for (size_t i = 0; i < value->size(); ++i) {
      JsonReader nested((*value)[i], fmt::format("{}[{}]", at(key), i), error_);
      read_item(nested, target.emplace_back());
    }
  }

 private:
  std::string at(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

  const Json* find(const char* key) const {
    if (!node_.is_object()) return nullptr;
    const auto it = node_.find(key);
    return it == node_.end() || it->is_null() ? nullptr : &*it;
  }

  template <typename Fn>
  void scalar(const char* key, const char* expected, bool (Json::*is)() const noexcept, Fn take) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!(value->*is)()) return problem(at(key), expected, *value);
    take(*value);
  }

  void problem(const std::string& path, const char* expected, const Json& value) {
    if (!error_)
      error_ = Error{ExitCode::kConfig, fmt::format("{}: expected {}, got {}", path, expected, shown(value))};
  }

  const Json& node_;
  std::string path_;
  std::optional<Error>& error_;
};

void put(Json& json, const char* key, const std::string& value) {
  if (!value.empty()) json[key] = value;
}
template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (!value) return;
  if constexpr (std::is_same_v<T, SystemTime>) {
    json[key] = to_rfc3339(*value);
  } else {
    json[key] = *value;
  }
}

Json condition_to_json(const Condition& condition) {
  return {{"type", condition.type},
          {"status", condition.status ? "True" : "False"},
          {"reason", condition.reason},
          {"message", condition.message},
          {"lastTransitionTime", to_rfc3339(condition.last_transition_time)}};
}

Json progress_to_json(const Progress& progress) {
  Json json = {{"step", progress.step}};
  put(json, "targetSteps", progress.target_steps);
  put(json, "checkpointStep", progress.checkpoint_step);
  put(json, "completed", progress.completed);
  put(json, "loss", progress.loss);
  put(json, "samplesPerSecond", progress.samples_per_second);
  put(json, "eta", progress.eta);
  put(json, "updatedAt", progress.updated_at);
  return json;
}

Json attempt_to_json(const AttemptRecord& record) {
  Json json = {{"attempt", record.attempt}, {"endTime", to_rfc3339(record.end_time)}};
  put(json, "startTime", record.start_time);
  put(json, "reason", record.reason);
  put(json, "message", record.message);
  put(json, "pod", record.pod);
  put(json, "node", record.node);
  put(json, "nodeRank", record.node_rank);
  put(json, "exitCode", record.exit_code);
  return json;
}

Json spec_to_json(const Spec& spec) {
  Json json = {{"nodes", spec.nodes},
               {"processesPerNode", spec.processes_per_node},
               {"failurePolicy", {{"maxRestarts", spec.failure_policy.max_restarts}}},
               {"rendezvous", {{"port", spec.rendezvous.port}}},
               {"suspend", spec.suspend}};
  if (!spec.pod_template.empty()) json["template"] = Json::parse(spec.pod_template, nullptr, false);
  if (!spec.trainer.empty()) json["trainer"] = Json::parse(spec.trainer, nullptr, false);
  return json;
}

}  // namespace

Result<TrainingJob> training_job_from_json(const Json& object) {
  TrainingJob job;
  std::optional<Error> error;
  JsonReader root(object, "", error);
  root.map("metadata", [&](JsonReader& metadata) {
    metadata.read("name", job.metadata.name);
    metadata.read("namespace", job.metadata.name_space);
    metadata.read("uid", job.metadata.uid);
    metadata.read("resourceVersion", job.metadata.resource_version);
    metadata.read("generation", job.metadata.generation);
    metadata.read("creationTimestamp", job.metadata.creation_timestamp);
    metadata.read("deletionTimestamp", job.metadata.deletion_timestamp);
  });
  root.map("spec", [&](JsonReader& spec) { fields::spec(spec, job.spec); });
  root.map("status", [&](JsonReader& status) { fields::status(status, job.status); });
  if (error) return tl::make_unexpected(*error);
  return job;
}

Json to_json(const TrainingJob& job) {
  Json metadata = {{"name", job.metadata.name}, {"namespace", job.metadata.name_space}};
  put(metadata, "uid", job.metadata.uid);
  put(metadata, "resourceVersion", job.metadata.resource_version);
  if (job.metadata.generation != 0) metadata["generation"] = job.metadata.generation;
  put(metadata, "creationTimestamp", job.metadata.creation_timestamp);
  put(metadata, "deletionTimestamp", job.metadata.deletion_timestamp);
  Json json = {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", metadata}, {"spec", spec_to_json(job.spec)}};
  if (job.status != Status{}) json["status"] = status_to_json(job.status);
  return json;
}

Json status_to_json(const Status& status) {
  Json json = {{"observedGeneration", status.observed_generation},
               {"worldSize", status.world_size},
               {"attempt", status.attempt},
               {"nodes",
                {{"desired", status.nodes.desired},
                 {"scheduled", status.nodes.scheduled},
                 {"ready", status.nodes.ready},
                 {"succeeded", status.nodes.succeeded},
                 {"failed", status.nodes.failed},
                 {"summary", status.nodes.summary}}},
               {"restarts", {{"total", status.restarts.total}, {"charged", status.restarts.charged}}}};
  put(json, "phase", to_string(status.phase));
  json["conditions"] = Json::array();
  for (const Condition& condition : status.conditions) json["conditions"].push_back(condition_to_json(condition));
  if (status.progress) json["progress"] = progress_to_json(*status.progress);
  put(json, "startTime", status.start_time);
  put(json, "attemptStartTime", status.attempt_start_time);
  put(json, "completionTime", status.completion_time);
  json["attempts"] = Json::array();
  for (const AttemptRecord& record : status.attempts) json["attempts"].push_back(attempt_to_json(record));
  return json;
}

Json status_patch(const Metadata& job, const Status& status) {
  Json json = status_to_json(status);
  for (const char* key : {"progress", "startTime", "attemptStartTime", "completionTime"}) {
    if (!json.contains(key)) json[key] = nullptr;
  }
  if (json["progress"].is_object()) {
    for (const char* key :
         {"targetSteps", "checkpointStep", "completed", "loss", "samplesPerSecond", "eta", "updatedAt"}) {
      if (!json["progress"].contains(key)) json["progress"][key] = nullptr;
    }
  }
  return {{"metadata", {{"uid", job.uid}, {"resourceVersion", job.resource_version}}}, {"status", json}};
}

}  // namespace oarlock::api
