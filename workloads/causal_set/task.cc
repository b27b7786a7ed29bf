#include "workloads/causal_set/task.h"

#include <ATen/ops/zeros.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/files.h"
#include "workloads/causal_set/config.h"
#include "workloads/causal_set/data.h"
#include "workloads/causal_set/model.h"

namespace oarlock::causal_set {

namespace {

GraphInput input_of(const Batch& batch) {
  const at::Tensor& edges = batch["edge_index"];
  const auto features = batch.tensors.find("graph_features");
  return {.x = batch["x"],
          .edges = {.source = edges[0], .destination = edges[1], .begin = batch["edge_ptr"]},
          .begin = batch["ptr"],
          .graph_features = features == batch.tensors.end() ? at::Tensor() : features->second};
}

class CausalSet final : public ModelTask<GnnModel> {
 public:
  explicit CausalSet(Fields& root) {
    root.section("data", [&](Fields& data) { describe(data_, data); }, "causal sets, as zarr or HDF5");
    root.section("model", [&](Fields& model) { describe(model_, model); }, "a graph network with one head per task");
    root.section(
        "testing", [&](Fields& testing) { describe(testing_, testing); },
        "the test set, evaluated at the end of the run with the best model's weights");
  }

  Result<void> prepare_data(const Logger& log) override { return prepare_causal_sets(data_, model_.targets(), log); }

  Result<void> prepare() override {
    return open_causal_sets(data_, model_.targets()).map([&](CausalSetSplits splits) {
      splits_.emplace(std::move(splits));
    });
  }

  const Dataset& train_data() const override { return splits_->train; }
  const Dataset& eval_data() const override { return splits_->validation; }
  std::map<std::string, std::string> fingerprints() const override { return {{"test", splits_->test.fingerprint()}}; }

  std::shared_ptr<GnnModel> create_model() override {
    const GraphArrays& arrays = splits_->train.graphs().arrays();
    const auto features = arrays.graphs.find("graph_features");
    const int64_t graph_features = features == arrays.graphs.end() ? 0 : features->second.size(1);
    return std::make_shared<GnnModel>(model_.network, arrays.nodes.at("x").size(1), graph_features);
  }

  at::Tensor training_loss(GnnModel& model, const Batch& batch, const StepContext& /*context*/) override {
    at::Tensor sum;
    for_each_task(model, batch, [&](const GraphTaskConfig& task, const at::Tensor& outputs, const at::Tensor& targets) {
      const at::Tensor losses = task.weight * sample_losses(task.loss, outputs, targets);
      sum = sum.defined() ? sum + losses : losses;
    });
    return sum.mean();
  }

  EvalOutput evaluate(GnnModel& model, const Batch& batch) override {
    EvalOutput out;
    at::Tensor sum = at::zeros({batch.size()}, batch["x"].options().dtype(at::kDouble));
    for_each_task(model, batch, [&](const GraphTaskConfig& task, const at::Tensor& outputs, const at::Tensor& targets) {
      const at::Tensor losses = sample_losses(task.loss, outputs, targets);
      add_sums(task.name, task.loss, losses, outputs, targets, out.sums);
      sum = sum + task.weight * losses.to(at::kDouble);
      out.rows[task.name] = outputs.size(1) == 1 ? outputs.squeeze(1) : outputs;
      out.rows[task.name + "_target"] = targets.size(1) == 1 ? targets.squeeze(1) : targets;
    });
    add_sums("", LossKind::kMse, sum, at::Tensor(), at::Tensor(), out.sums);
    out.rows["sample"] = batch["sample"];
    return out;
  }

  Metrics metrics(const MetricSums& totals, const EvalRows& /*rows*/) const override {
    Metrics metrics;
    add_metrics("", LossKind::kMse, totals, metrics);
    for (const GraphTaskConfig& task : model_.tasks)
      if (task.head.active) add_metrics(task.name, task.loss, totals, metrics);
    return metrics;
  }

  std::vector<std::string> metric_names() const override {
    std::vector<std::string> names = causal_set::metric_names("", LossKind::kMse);
    for (const GraphTaskConfig& task : model_.tasks) {
      if (!task.head.active) continue;
      const std::vector<std::string> own = causal_set::metric_names(task.name, task.loss);
      names.insert(names.end(), own.begin(), own.end());
    }
    return names;
  }

  // "classes": for each head whose target has a list of classes, the value of each output.
  std::string inference_settings() const override {
    nlohmann::json targets = nlohmann::json::array();
    nlohmann::json classes = nlohmann::json::object();
    for (const GraphTaskConfig& task : model_.tasks) {
      if (!task.head.active) continue;
      targets.push_back(task.name);
      if (!task.classes.empty()) classes[task.name] = task.classes;
    }
    return nlohmann::json{{"node_features", data_.node_features},
                          {"graph_features", data_.graph_features},
                          {"outputs", targets},
                          {"classes", classes}}
        .dump();
  }

  std::string graph_obstacle() const override { return "causal sets have different numbers of elements and links"; }

  std::vector<EvalPass> passes() override {
    if (splits_->test.size() == 0) return {};
    EvalPass pass;
    pass.name = "test";
    pass.weights = PassWeights::kBest;
    pass.batch_size = testing_.batch_size;
    pass.data = &splits_->test;
    pass.step = pass_step([this](GnnModel& model, const Batch& batch) { return evaluate(model, batch); });
    pass.finish = [this](const MetricSums& totals, const EvalRows& rows, int64_t /*steps*/) -> Result<Metrics> {
      return write_predictions(rows).map([&] { return metrics(totals, rows); });
    };
    return {pass};
  }

 private:
  // Calls `use` with the outputs and the targets of each active task, both [graphs, ...].
  template <typename Use>
  void for_each_task(GnnModel& model, const Batch& batch, const Use& use) const {
    const std::vector<at::Tensor> outputs = model.forward(input_of(batch));
    int64_t column = 0;
    for (size_t i = 0; i < model_.tasks.size(); ++i) {
      if (!model_.tasks[i].head.active) continue;
      const int64_t width = model_.tasks[i].target_spec().width;
      use(model_.tasks[i], outputs[i], batch["targets"].narrow(1, column, width));
      column += width;
    }
  }

  Result<void> write_predictions(const EvalRows& rows) const {
    if (testing_.predictions.empty()) return {};
    const std::filesystem::path path = testing_.predictions;
    const Result<void> directory =
        path.has_parent_path() ? make_writable_directory(path.parent_path()) : Result<void>();
    return directory ? write_rows_csv(path, rows) : directory;
  }

  CausalSetDataConfig data_;
  CausalSetModelConfig model_;
  TestingConfig testing_;
  std::optional<CausalSetSplits> splits_;
};

}  // namespace

std::unique_ptr<Task> make_task(Fields& root) { return std::make_unique<CausalSet>(root); }

}  // namespace oarlock::causal_set
