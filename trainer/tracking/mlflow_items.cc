#include "trainer/tracking/mlflow_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/json_access.h"
#include "trainer/tracking/mlflow_names.h"

namespace oarlock {
namespace {

constexpr size_t kMaxMlflowParamValue = 6000;
constexpr size_t kMaxMlflowTagValue = 5000;

// Protocol buffers' JSON has texts for the numbers that JSON lacks.
std::string mlflow_number(double value) {
  if (std::isnan(value)) return R"("NaN")";
  if (std::isinf(value)) return value > 0 ? R"("Infinity")" : R"("-Infinity")";
  return fmt::format("{}", value);
}

}  // namespace

MlflowMetric make_mlflow_metric(const std::string& name) {
  MlflowMetric out{.key = mlflow_key(name), .text_head = ""};
  out.text_head = fmt::format(R"({{"key":{},"value":)", dump_json(out.key));
  return out;
}

std::string metric_text_end(const Event& event) {
  return fmt::format(R"(,"timestamp":{},"step":{}}})", mlflow_milliseconds(event.time), event.step);
}

MlflowItem metric_item(const MlflowMetric& metric, double value, const std::string& text_end, int64_t step) {
  return {.key = metric.key, .text = metric.text_head + mlflow_number(value) + text_end, .step = step};
}

MlflowItem param_item(const std::string& key, const std::string& value) {
  return {.key = key, .text = dump_json({{"key", key}, {"value", value}})};
}

nlohmann::json mlflow_tag(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", mlflow_text(value, kMaxMlflowTagValue)}};
}

MlflowItem tag_item(const std::string& key, const std::string& value) {
  return {.key = key, .text = dump_json(mlflow_tag(key, value))};
}

void flatten_params(const nlohmann::json& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) flatten_params(member, path.empty() ? key : path + "." + key, out);
  } else if (!value.is_null() && !path.empty()) {
    const std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
    out.emplace(mlflow_key(path), mlflow_text(text, kMaxMlflowParamValue));
  }
}

// MLflow rejects times before 1970, which a clock that is not set may have.
int64_t mlflow_milliseconds(SystemTime time) {
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count());
}

}  // namespace oarlock
