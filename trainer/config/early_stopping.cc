#include "trainer/config/early_stopping.h"

namespace oarlock {
namespace {

// `name_key`: "metric" where one metric is described in the section itself, "name" in the list of several.
void describe(WatchedMetric& metric, Fields& fields, std::string_view name_key) {
  fields.field(name_key, metric.name,
               "one of the metrics of the evaluation; default: the one by which the task tells "
               "models apart, with its mode");
  fields.choice<MetricMode>("mode", metric.mode, {{"min", MetricMode::kMin}, {"max", MetricMode::kMax}},
                            "whether less or more of it is better");
  fields.only_where("mode", !metric.name.empty(), "belongs to a metric that is named; the task's own has its own mode");
  fields.field("min_delta", metric.min_delta, at_least(0), "a change of no more than this is no improvement");
  fields.field("grace_period", metric.grace_period, at_least(0), "evaluations before patience is lost");
  fields.field("init_best_score", metric.init_best_score, any_number_or_infinity(),
               "what the first value must beat; default: any value is better");
}

}  // namespace

void describe(EarlyStoppingConfig& config, Fields& fields) {
  fields.field("patience", config.patience, at_least(1),
               "evaluations without improvement after which the run ends; default: never");
  if (config.metrics.empty()) config.metrics.emplace_back();
  WatchedMetric single = config.metrics.front();
  describe(single, fields, "metric");
  std::vector<WatchedMetric> several;
  fields.list<WatchedMetric>(
      "metrics", several, [](WatchedMetric& metric, Fields& inner) { describe(metric, inner, "name"); },
      "instead of metric: several, each with settings of its own");
  const bool is_list = !several.empty();
  for (const char* key : {"metric", "mode", "min_delta", "grace_period", "init_best_score"}) {
    fields.only_where(key, !is_list, "belongs to a single metric; the list 'metrics' has its own for each");
  }
  config.metrics = is_list ? several : std::vector<WatchedMetric>{single};
  fields.choice<Aggregate>("aggregate", config.aggregate, {{"all", Aggregate::kAll}, {"any", Aggregate::kAny}},
                           "of several metrics: all of them or any must improve for the model to have improved");
}

}  // namespace oarlock
