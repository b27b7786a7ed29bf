#include "trainer/tasks/comformer/task.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/mse_loss.h>

#include <cmath>
#include <optional>
#include <utility>

#include "trainer/tasks/comformer/atom_features.h"
#include "trainer/tasks/comformer/crystal_dataset.h"
#include "trainer/tasks/comformer/data_config.h"
#include "trainer/tasks/comformer/graph_cache.h"
#include "trainer/tasks/comformer/label_scale.h"
#include "trainer/tasks/comformer/model/model.h"
#include "trainer/tasks/comformer/predictions.h"

namespace oarlock {
namespace {

// The section "test".
struct TestConfig {
  std::string predictions;  // CSV; empty: none
  int64_t batch_size = 64;
};

void describe(TestConfig& config, Fields& fields) {
  fields.field("predictions", config.predictions,
               "CSV of id, target and prediction, e.g. test_predictions.csv; empty: none");
  fields.field("batch_size", config.batch_size, at_least(1), "structures of a rank at a time");
}

double total(const at::Tensor& values) { return values.to(at::kDouble).sum().item<double>(); }

class ComformerTask final : public Task {
 public:
  explicit ComformerTask(Fields& root) {
    root.section("data", [&](Fields& data) { describe(data_, data); }, "crystals, as extended XYZ or a JSON list");
    root.section("model", [&](Fields& model) { describe(model_, model); }, "iComFormer or eComFormer");
    root.section(
        "test", [&](Fields& test) { describe(test_config_, test); }, "the best model on the test set, at the end");
  }

  PrepareOn prepare_on() const override { return PrepareOn::kOneRankPerNode; }
  Result<void> prepare_data(const Logger& log) override {
    return prepare_crystal_graphs(data_, model_.output_features, log);
  }

  Result<void> prepare() override {
    Result<GraphCollation> opened = open_crystal_graphs(data_, model_.output_features, Logger::silent());
    if (!opened) return tl::make_unexpected(opened.error());
    const auto graphs = std::make_shared<const GraphCollation>(std::move(*opened));
    Result<CrystalSplit> split = split_crystals(graphs->size(), data_.split);
    if (!split) return fail(split.error().code, data_.path + ": " + split.error().message);
    train_.emplace(graphs, std::move(split->train));
    val_.emplace(graphs, std::move(split->val));
    if (!split->test.empty()) test_.emplace(graphs, std::move(split->test));
    scale_ = LabelScale(train_->labels());
    features_ = atom_features();
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *val_; }

  std::shared_ptr<torch::nn::Module> build_model() override { return make_comformer(model_); }

  at::Tensor train_step(torch::nn::Module& model, const Batch& batch, const StepContext&) override {
    const at::Tensor output = forward(model, batch);
    return at::mse_loss(output, scale_.standardised(batch["label"]).to(at::kFloat));
  }

  EvalOutput eval_step(torch::nn::Module& model, const Batch& batch) override {
    return {.sums = sums_of(forward(model, batch), batch["label"]), .rows = {}};
  }

  Metrics metrics(const MetricSums& totals, const EvalRows& /*rows*/) const override {
    const double count = totals.at("count");
    return {{"loss", totals.at("loss") / count},
            {"mae", totals.at("absolute") / count},
            {"rmse", std::sqrt(totals.at("squared") / count)},
            {"mean_baseline_mae", totals.at("of_mean") / count}};
  }

  std::string graph_obstacle() const override { return "crystals have different numbers of atoms and edges"; }

  Monitor monitor() const override { return {.metric = "mae", .mode = MetricMode::kMin}; }

  std::vector<EvalPass> passes() override {
    if (!test_) return {};
    return {{.name = "test",
             .every_steps = 0,
             .weights = PassWeights::kBest,
             .batch_size = test_config_.batch_size,
             .data = &*test_,
             .step = [this](torch::nn::Module& model, const Batch& batch) { return predict(model, batch); },
             .finish = [this](const MetricSums& totals, const EvalRows& rows,
                              int64_t /*steps*/) { return finish_test(totals, rows); }}};
  }

 private:
  // [crystals, targets], standardised
  at::Tensor forward(torch::nn::Module& model, const Batch& batch) {
    const at::Device device = batch["vector"].device();
    if (features_.device() != device) features_ = features_.to(device);
    scale_.move_to(device);
    return dynamic_cast<Comformer&>(model).forward(
        {.atoms = features_.index_select(0, batch["atomic_number"].to(at::kLong)),
         .edge_index = batch["edge_index"],
         .edge_begin = batch["edge_ptr"],
         .edge_vectors = batch["vector"],
         .lattices = batch["lattice"],
         .crystal_of = batch["batch"],
         .atom_begin = batch["ptr"]});
  }

  // The loss is in units of the standard deviation, as in training; errors are in the label's own. Beside them stands
  // the error of who always says the mean of the training labels.
  MetricSums sums_of(const at::Tensor& output, const at::Tensor& label) const {
    const at::Tensor error = scale_.restored(output) - label;
    const at::Tensor standardised_error = output.to(at::kDouble) - scale_.standardised(label);
    return {{"loss", total(standardised_error.square().mean(1))},
            {"absolute", total(error.abs().mean(1))},
            {"squared", total(error.square().mean(1))},
            {"of_mean", total((label - scale_.mean()).abs().mean(1))}};
  }

  EvalOutput predict(torch::nn::Module& model, const Batch& batch) {
    const at::Tensor output = forward(model, batch);
    return {
        .sums = sums_of(output, batch["label"]),
        .rows = {
            {"structure", batch["structure"]}, {"target", batch["label"]}, {"prediction", scale_.restored(output)}}};
  }

  Result<Metrics> finish_test(const MetricSums& totals, const EvalRows& rows) const {
    Metrics metrics = regression_metrics(rows);
    metrics["mean_baseline_mae"] = totals.at("of_mean") / totals.at("count");
    if (test_config_.predictions.empty()) return metrics;
    return write_predictions(test_config_.predictions, rows).map([&] { return metrics; });
  }

  CrystalDataConfig data_;
  ComformerConfig model_;
  TestConfig test_config_;
  std::optional<CrystalDataset> train_;
  std::optional<CrystalDataset> val_;
  std::optional<CrystalDataset> test_;
  LabelScale scale_;
  at::Tensor features_;
};

}  // namespace

std::unique_ptr<Task> make_comformer_task(Fields& root) { return std::make_unique<ComformerTask>(root); }

}  // namespace oarlock
