#include "task.h"

#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <oarlock/trainer/data/fingerprint.h>

namespace kepler {
namespace {

using oarlock::Batch;
using oarlock::ExitCode;
using oarlock::Result;

struct Row {
  float distance;  // logarithms, of astronomical units and of days
  float period;
};

class Planets final : public oarlock::Dataset {
 public:
  // "name,distance,period" below one line of headings.
  static Result<Planets> open(const std::string& path) {
    std::ifstream file(path);
    if (!file) return oarlock::fail(ExitCode::kNoInput, path + ": cannot be read; set data.path");
    std::vector<Row> rows;
    std::string line;
    std::getline(file, line);
    for (int number = 2; std::getline(file, line); ++number) {
      std::istringstream columns(line);
      std::string name;
      double distance = 0;
      double period = 0;
      char comma = 0;
      if (!std::getline(columns, name, ',') || !(columns >> distance >> comma >> period) || distance <= 0 ||
          period <= 0) {
        return oarlock::fail(ExitCode::kDataErr, path + ":" + std::to_string(number) +
                                                     ": expected a name and two numbers above 0, got '" + line + "'");
      }
      rows.push_back({static_cast<float>(std::log(distance)), static_cast<float>(std::log(period))});
    }
    return Planets(std::move(rows));
  }

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::string fingerprint() const override { return oarlock::sampled_fingerprint(*this); }

  void make_batch(std::span<const int64_t> indices, uint64_t, Batch& batch) const override {
    const auto count = static_cast<int64_t>(indices.size());
    auto* distance = batch.allocate("distance", {count, 1}, at::kFloat).mutable_data_ptr<float>();
    auto* period = batch.allocate("period", {count, 1}, at::kFloat).mutable_data_ptr<float>();
    for (const int64_t index : indices) {
      const Row& row = rows_[static_cast<size_t>(index)];
      *distance++ = row.distance;
      *period++ = row.period;
    }
  }

 private:
  explicit Planets(std::vector<Row> rows) : rows_(std::move(rows)) {}

  std::vector<Row> rows_;
};

class Kepler final : public oarlock::ModelTask<torch::nn::LinearImpl> {
 public:
  explicit Kepler(oarlock::Fields& root) {
    root.section(
        "data",
        [&](oarlock::Fields& data) {
          data.field("path", path_, "CSV file: name, distance in AU, period in days");
          data.scope("path", oarlock::Scope::kRank);  // each node may have its own copy
        },
        "the planets");
  }

  Result<void> prepare() override {
    Result<Planets> planets = Planets::open(path_);
    if (!planets) return tl::make_unexpected(planets.error());
    planets_ = std::make_unique<Planets>(std::move(*planets));
    return {};
  }

  const oarlock::Dataset& train_data() const override { return *planets_; }
  const oarlock::Dataset& eval_data() const override { return *planets_; }

  std::shared_ptr<torch::nn::LinearImpl> create_model() override {
    return std::make_shared<torch::nn::LinearImpl>(1, 1);
  }

  at::Tensor training_loss(torch::nn::LinearImpl& model, const Batch& batch, const oarlock::StepContext&) override {
    return at::mse_loss(predict(model, batch), batch["period"]);
  }

  oarlock::EvalOutput evaluate(torch::nn::LinearImpl& model, const Batch& batch) override {
    const at::Tensor error = predict(model, batch) - batch["period"];
    const double slope = model.named_parameters()["weight"].item<double>();
    return {.sums = {{"loss", error.to(at::kDouble).square().sum().item<double>()},
                     {"slope", slope * static_cast<double>(batch.size())}}};
  }

  std::vector<std::string> metric_names() const override { return {"loss", "slope"}; }

 private:
  static at::Tensor predict(torch::nn::LinearImpl& model, const Batch& batch) {
    return model.forward(batch["distance"]);
  }

  std::string path_ = "planets.csv";
  std::unique_ptr<Planets> planets_;
};

}  // namespace

std::unique_ptr<oarlock::Task> make_task(oarlock::Fields& root) { return std::make_unique<Kepler>(root); }

}  // namespace kepler
