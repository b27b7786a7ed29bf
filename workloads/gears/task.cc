#include "workloads/gears/task.h"

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "trainer/data/fingerprint.h"
#include "workloads/gears/config.h"
#include "workloads/gears/data.h"
#include "workloads/gears/evaluation.h"
#include "workloads/gears/prediction.h"

namespace oarlock::gears {

namespace {

// Returns the sums over the cells of each sample. Each sample is computed separately, so that the result is bitwise
// independent of its batch and rank.
EvalOutput group_sums(GearsModel& model, const Batch& batch) {
  const at::Tensor begin = batch["begin"].cpu();
  const auto* ends = begin.const_data_ptr<int64_t>();
  const int64_t samples = batch["group"].size(0);
  std::vector<at::Tensor> sums;
  std::vector<at::Tensor> variances;
  for (int64_t i = 0; i < samples; ++i) {
    const at::Tensor x = batch["x"].slice(0, ends[i], ends[i + 1]);
    const GearsOutput output = model.forward(x, batch["perturbed"].slice(0, i, i + 1).expand({x.size(0), -1}));
    sums.push_back(output.expression.to(at::kDouble).sum(0));
    if (output.log_variance.defined())
      variances.push_back(output.log_variance.to(at::kDouble).mean(1).sum(0, /*keepdim=*/true));
  }
  EvalOutput out{.sums = {},
                 .rows = {{"sum", at::stack(sums)},
                          {"cells", batch["begin"].diff().unsqueeze(1)},
                          {"group", batch["group"].unsqueeze(1)}}};
  if (!variances.empty()) out.rows["log_variance"] = at::stack(variances);
  return out;
}

std::string fingerprint_of(const GraphEdges& edges) {
  FingerprintBuilder out;
  for (const at::Tensor& tensor : {edges.source, edges.target, edges.weight}) out.add(tensor);
  return out.text();
}

// Of what losses and metrics compare predictions with. Depends on every cell.
std::string fingerprint_of(const CellStore& store) {
  FingerprintBuilder out;
  out.add(store.means());
  out.add(store.counted());
  for (const CellCondition& condition : store.conditions()) {
    out.add(condition.name);
    for (const std::vector<int64_t>* genes : {&condition.de, &condition.non_dropout_de}) {
      out.add(std::ssize(*genes));
      for (const int64_t gene : *genes) out.add(gene);
    }
  }
  return out.text();
}

class Gears final : public ModelTask<GearsModel> {
 public:
  explicit Gears(Fields& root) { describe(config_, root); }

  Result<void> prepare_data(const Logger& log) override {
    return prepare_gears_data(config_.data, config_.graphs, log);
  }

  Result<void> prepare() override {
    ASSIGN_OR_RETURN(GearsData opened, open_gears_data(config_.data, config_.graphs));
    data_.emplace(std::move(opened));
    const int64_t seed = config_.data.split.seed;
    train_.emplace(*data_, data_->train, seed);
    eval_.emplace(grouped(data_->val));
    test_.emplace(grouped(data_->test));
    evaluation_.emplace(*data_);
    ASSIGN_OR_RETURN(Queries queries, make_queries(config_.predict, *data_));
    queries_ = std::move(queries);
    query_cells_.emplace(data_->store,
                         groups_of_queries(*data_, std::ssize(queries_.names), config_.predict.control_cells, seed,
                                           config_.data.test_batch_size),
                         queries_.perturbed);
    reference_ = {.control = data_->store.means()[data_->control()].to(at::kFloat), .counted = data_->store.counted()};
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }

  // The computed co-expression may differ in the last bits between machines.
  std::map<std::string, std::string> fingerprints() const override {
    std::map<std::string, std::string> out = {{"test", test_->fingerprint()},
                                              {"conditions", fingerprint_of(data_->store)},
                                              {"ontology", fingerprint_of(data_->graphs.ontology)}};
    if (!config_.data.coexpress_graph.empty()) out["coexpression"] = fingerprint_of(data_->graphs.coexpression);
    return out;
  }

  std::shared_ptr<GearsModel> create_model() override {
    return std::make_shared<GearsModel>(config_.model, data_->graphs);
  }

  at::Tensor training_loss(GearsModel& model, const Batch& batch, const StepContext& context) override {
    if (context.before_parameters_change) context.before_parameters_change();
    model.renormalize_embeddings();
    const GearsOutput output = model.forward(batch["x"], batch["perturbed"]);
    return gears_loss(config_.loss, output, {batch["y"], batch["condition"]}, reference_on(batch["x"].device()));
  }

  EvalOutput evaluate(GearsModel& model, const Batch& batch) override { return group_sums(model, batch); }

  Metrics metrics(const MetricSums& /*totals*/, const EvalRows& rows) const override {
    return summarize(evaluation_->results(means_of(rows), data_->split.val_subgroups));
  }

  std::vector<std::string> metric_names() const override { return summary_names(); }

  std::string inference_settings() const override {
    return nlohmann::json{{"genes", data_->store.genes()}, {"perturbations", data_->perturbations}}.dump();
  }

  std::string graph_obstacle() const override { return "which cells are perturbed changes from batch to batch"; }

  Monitor monitor() const override { return {.metric = "mse_de", .mode = MetricMode::kMin}; }

  std::vector<EvalPass> passes() override {
    std::vector<EvalPass> passes;
    const auto add = [&](const char* name, const Dataset& samples, auto finish) {
      if (samples.size() == 0) return;
      passes.push_back({.name = name,
                        .weights = PassWeights::kBest,
                        .batch_size = 1,
                        .data = &samples,
                        .step = pass_step(group_sums),
                        .finish = std::move(finish)});
    };
    add("test", *test_, [this](const MetricSums&, const EvalRows& rows, int64_t) { return finish_test(rows); });
    add("predict", *query_cells_,
        [this](const MetricSums&, const EvalRows& rows, int64_t) { return finish_queries(rows); });
    return passes;
  }

 private:
  GroupedCells grouped(const std::vector<int64_t>& conditions) const {
    return GroupedCells(data_->store,
                        groups_of_conditions(*data_, conditions, config_.data.split.seed, config_.data.test_batch_size),
                        data_->perturbed);
  }

  const GearsReference& reference_on(const at::Device& device) {
    if (reference_.control.device() != device) {
      reference_ = {.control = reference_.control.to(device), .counted = reference_.counted.to(device)};
    }
    return reference_;
  }

  Result<Metrics> finish_test(const EvalRows& rows) const {
    const GroupMeans predictions = means_of(rows);
    const std::vector<ConditionResult> results = evaluation_->results(predictions, data_->split.test_subgroups);
    const auto write = [&](const std::string& file, const auto& writer) {
      return file.empty() ? Result<void>() : writer(file);
    };
    const Result<void> written =
        write(config_.test.file, [&](const std::string& file) { return write_results(file, results); }).and_then([&] {
          return write(config_.test.predictions_file, [&](const std::string& file) {
            std::vector<std::string> names;
            for (const ConditionResult& result : results) names.push_back(result.condition);
            return write_expression(file, names, data_->store.genes(), predictions.mean);
          });
        });
    return written.map([&] { return summarize(results); });
  }

  Result<Metrics> finish_queries(const EvalRows& rows) const {
    return write_predictions(config_.predict, *data_, queries_, rows).map([&] {
      return Metrics{{"perturbations", static_cast<double>(queries_.names.size())}};
    });
  }

  GearsTaskConfig config_;
  std::optional<GearsData> data_;
  std::optional<TrainingCells> train_;
  std::optional<GroupedCells> eval_;
  std::optional<GroupedCells> test_;
  std::optional<GroupedCells> query_cells_;
  std::optional<GearsEvaluation> evaluation_;
  Queries queries_;
  GearsReference reference_;
};

}  // namespace

std::unique_ptr<Task> make_task(Fields& root) { return std::make_unique<Gears>(root); }

}  // namespace oarlock::gears
