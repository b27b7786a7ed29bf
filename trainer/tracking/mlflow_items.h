// The metrics, parameters and tags of MLflow's log-batch. All functions are pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/clock.h"
#include "trainer/tracking/event.h"

namespace oarlock {

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

// A metric, with what its items have in common.
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

// Returns a tag, of which the end of a long value is cut, as an object and as an item.
nlohmann::json mlflow_tag(const std::string& key, const std::string& value);
MlflowItem tag_item(const std::string& key, const std::string& value);

// Adds the values of a configuration as parameters: the keys are the paths of the values, as mlflow_key() makes them.
// Existing keys keep their values.
void flatten_params(const nlohmann::json& value, const std::string& path, std::map<std::string, std::string>& out);

// Returns a time as MLflow accepts it.
int64_t mlflow_milliseconds(SystemTime time);

}  // namespace oarlock
