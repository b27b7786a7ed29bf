// The metrics, parameters and tags of MLflow's log-batch, with names and values that MLflow accepts. All functions are
// pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "trainer/tracking/event.h"

namespace oarlock {

// Returns the name of a metric, parameter or tag: at most 250 bytes of letters, digits and "_-. :/" that are a relative
// path in its shortest form. Letters of other scripts are kept if every version of MLflow knows them. A name that must
// be changed gets a checksum of the original as its end, so that different names remain different.
std::string mlflow_key(std::string_view name);

// Returns the path of an artifact in its run: "images/eval/predictions/00000100.png". The name is changed as by
// mlflow_key(), and has no dots or colons, so that it is valid for every store.
std::string mlflow_artifact_path(std::string_view directory, std::string_view name, int64_t step,
                                 std::string_view extension);

// Returns a value of at most `max_bytes` bytes without control characters: "..." replaces the end of a longer one.
std::string mlflow_text(std::string_view value, size_t max_bytes);

// Limits of one request, which has either metrics, or parameters, or tags.
inline constexpr size_t kMaxMlflowMetrics = 1000;
inline constexpr size_t kMaxMlflowParams = 100;
inline constexpr size_t kMaxMlflowTags = 100;

// An item of a request, serialized: a run has many metrics, and a json object for each takes several times the
// processor time of its text.
struct MlflowItem {
  std::string key;
  std::string text;
  int64_t step = -1;  // of a metric
};

// The parts that all items of a metric have in common.
struct MlflowMetric {
  std::string key;        // mlflow_key() of its name
  std::string text_head;  // of its items, before the value
};

MlflowMetric make_mlflow_metric(const std::string& name);

// Returns the end of the items of an event, after the value.
std::string metric_text_end(const Event& event);

// `text_end` is that of the event with this step.
MlflowItem metric_item(const MlflowMetric& metric, double value, const std::string& text_end, int64_t step);

MlflowItem param_item(const std::string& key, const std::string& value);

// Returns a tag as an object and as an item. A long value is truncated.
nlohmann::json mlflow_tag(const std::string& key, const std::string& value);
MlflowItem tag_item(const std::string& key, const std::string& value);

// Adds the values of a configuration as parameters: the keys are the paths of the values, as mlflow_key() makes them.
// Existing keys keep their values.
void flatten_params(const nlohmann::json& value, const std::string& path, std::map<std::string, std::string>& out);

// Returns a time as MLflow accepts it.
int64_t mlflow_milliseconds(SystemTime time);

// Returns the path for the server's proxy of artifacts, from the artifact_uri of a run:
// "mlflow-artifacts:/1/RUN/artifacts", or with an authority. Absent if the artifacts are stored elsewhere.
std::optional<std::string> mlflow_proxied_path(std::string_view uri);

}  // namespace oarlock
