#include "workloads/comformer/task.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/mse_loss.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/status_macros.h"
#include "workloads/comformer/config.h"
#include "workloads/comformer/data.h"
#include "workloads/comformer/graph_cache.h"
#include "workloads/comformer/model.h"

namespace oarlock::comformer {

namespace {

double total(const at::Tensor& values) { return values.to(at::kDouble).sum().item<double>(); }

class ComformerTask final : public ModelTask<Comformer> {
 public:
  explicit ComformerTask(Fields& root) {
    root.section("data", [&](Fields& data) { describe(data_, data); }, "crystals, as extended XYZ or a JSON list");
    root.section("model", [&](Fields& model) { describe(model_, model); }, "iComFormer or eComFormer");
    root.section(
        "test", [&](Fields& test) { describe(test_config_, test); },
        "the test set, evaluated at the end of the run with the best model");
  }

  Result<void> prepare_data(const Logger& log) override {
    return prepare_crystal_graphs(data_, model_.output_features, log);
  }

  Result<void> prepare() override {
    ASSIGN_OR_RETURN(CrystalGraphs opened, open_crystal_graphs(data_, model_.output_features, Logger::silent()));
    entry_ = std::move(opened.entry);
    const auto graphs = std::make_shared<const GraphCollation>(std::move(opened.graphs));
    Result<CrystalSplit> split = split_crystals(graphs->size(), data_.split);
    if (!split) return fail(split.error().code, data_.path + ": " + split.error().message);
    train_.emplace(graphs, std::move(split->train));
    val_.emplace(graphs, std::move(split->val));
    if (!split->test.empty()) test_.emplace(graphs, std::move(split->test));
    scaler_ = LabelScaler(train_->labels());
    features_ = atom_features();
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *val_; }
  std::map<std::string, std::string> fingerprints() const override {
    return {{"test", test_ ? test_->fingerprint() : ""}};
  }

  std::shared_ptr<Comformer> create_model() override { return make_comformer(model_); }

  at::Tensor training_loss(Comformer& model, const Batch& batch, const StepContext&) override {
    const at::Tensor output = forward(model, batch);
    return at::mse_loss(output, scaler_.standardize(batch["label"]).to(at::kFloat));
  }

  EvalOutput evaluate(Comformer& model, const Batch& batch) override {
    return {.sums = sums_of(forward(model, batch), batch["label"]), .rows = {}};
  }

  Metrics metrics(const MetricSums& totals, const EvalRows& /*rows*/) const override {
    const double count = totals.at("count");
    return {{"loss", totals.at("loss") / count},
            {"mae", totals.at("absolute") / count},
            {"rmse", std::sqrt(totals.at("squared") / count)},
            {"mean_baseline_mae", totals.at("of_mean") / count}};
  }

  std::vector<std::string> metric_names() const override { return {"loss", "mae", "rmse", "mean_baseline_mae"}; }

  std::string graph_obstacle() const override { return "crystals have different numbers of atoms and edges"; }

  std::string inference_settings() const override {
    const auto numbers = [](const at::Tensor& tensor) {
      const at::Tensor values = tensor.cpu().contiguous();
      const auto* data = values.const_data_ptr<double>();
      return std::vector<double>(data, data + values.numel());
    };
    return nlohmann::json{{"output", "label = output * std + mean for each target"},
                          {"target_property", data_.target_property},
                          {"mean", numbers(scaler_.mean())},
                          {"std", numbers(scaler_.standard_deviation())}}
        .dump();
  }

  std::vector<UnusedSetting> unused_settings() const override {
    return {{"eval.rows_file",
             "its evaluation returns no values per sample; test.predictions writes those of the test "
             "set"}};
  }

  Monitor monitor() const override { return {.metric = "mae", .mode = MetricMode::kMin}; }

  std::vector<EvalPass> passes() override {
    if (!test_) return {};
    return {{.name = "test",
             .every_steps = 0,
             .weights = PassWeights::kBest,
             .batch_size = test_config_.batch_size,
             .data = &*test_,
             .step = pass_step([this](Comformer& model, const Batch& batch) { return predict(model, batch); }),
             .finish = [this](const MetricSums& totals, const EvalRows& rows, int64_t /*steps*/) {
               return finish_test(totals, rows);
             }}};
  }

 private:
  // Returns standardized predictions, [crystals, targets].
  at::Tensor forward(Comformer& model, const Batch& batch) {
    const at::Device device = batch["vector"].device();
    if (features_.device() != device) features_ = features_.to(device);
    scaler_.move_to(device);
    return model.forward({.atoms = features_.index_select(0, batch["atomic_number"].to(at::kLong)),
                          .edge_index = batch["edge_index"],
                          .edge_begin = batch["edge_ptr"],
                          .edge_vectors = batch["vector"],
                          .lattices = batch["lattice"],
                          .crystal_of = batch["batch"],
                          .atom_begin = batch["ptr"]});
  }

  // The loss is in units of the standard deviation, as in training; errors are in units of the label. The baseline
  // predicts the mean of the training labels.
  MetricSums sums_of(const at::Tensor& output, const at::Tensor& label) const {
    const at::Tensor error = scaler_.restore(output) - label;
    const at::Tensor standardized_error = output.to(at::kDouble) - scaler_.standardize(label);
    return {{"loss", total(standardized_error.square().mean(1))},
            {"absolute", total(error.abs().mean(1))},
            {"squared", total(error.square().mean(1))},
            {"of_mean", total((label - scaler_.mean()).abs().mean(1))}};
  }

  EvalOutput predict(Comformer& model, const Batch& batch) {
    const at::Tensor output = forward(model, batch);
    return {
        .sums = sums_of(output, batch["label"]),
        .rows = {
            {"structure", batch["structure"]}, {"target", batch["label"]}, {"prediction", scaler_.restore(output)}}};
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
  std::shared_ptr<const CacheEntry> entry_;
  std::optional<CrystalDataset> train_;
  std::optional<CrystalDataset> val_;
  std::optional<CrystalDataset> test_;
  LabelScaler scaler_;
  at::Tensor features_;
};

}  // namespace

std::unique_ptr<Task> make_task(Fields& root) { return std::make_unique<ComformerTask>(root); }

}  // namespace oarlock::comformer
