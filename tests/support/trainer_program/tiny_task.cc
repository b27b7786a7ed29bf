#include "tests/support/trainer_program/tiny_task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace oarlock::test {
namespace {

constexpr int64_t kFeatures = 8;
constexpr int64_t kClasses = 3;

struct Fault {
  std::string kind;
  int64_t rank = 0;
  int64_t step = 0;  // counted from 0, of this process

  bool here(const std::string& wanted) const {
    const char* own = std::getenv("RANK");
    return kind == wanted && rank == (own != nullptr ? std::atoll(own) : 0);
  }
};

class RandomData final : public Dataset {
 public:
  RandomData(int64_t size, uint64_t seed) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    features_ = torch::randn({size, kFeatures}, generator);
    labels_ = features_.narrow(1, 0, kClasses).argmax(1);
  }

  int64_t size() const override { return features_.size(0); }

  Batch make_batch(std::span<const int64_t> indices, uint64_t) const override {
    Batch batch;
    batch.ids.assign(indices.begin(), indices.end());
    const at::Tensor index = torch::tensor(batch.ids, torch::kLong);
    batch.tensors["features"] = features_.index_select(0, index);
    batch.tensors["labels"] = labels_.index_select(0, index);
    return batch;
  }

 private:
  at::Tensor features_;
  at::Tensor labels_;
};

class TinyNet final : public torch::nn::Module {
 public:
  TinyNet(int64_t hidden, double dropout, bool batch_norm)
      : batch_norm_(batch_norm),
        fc1_(register_module("fc1", torch::nn::Linear(kFeatures, hidden))),
        norm_(batch_norm ? register_module("norm", torch::nn::BatchNorm1d(hidden)) : nullptr),
        dropout_(register_module("dropout", torch::nn::Dropout(dropout))),
        fc2_(register_module("fc2", torch::nn::Linear(hidden, kClasses))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = fc1_(x);
    return fc2_(dropout_(torch::relu(batch_norm_ ? norm_(hidden) : hidden)));
  }

 private:
  bool batch_norm_;
  torch::nn::Linear fc1_;
  torch::nn::BatchNorm1d norm_;
  torch::nn::Dropout dropout_;
  torch::nn::Linear fc2_;
};

class TinyTask final : public Task {
 public:
  explicit TinyTask(Fields& root) {
    root.section(
        "data",
        [&](Fields& data) {
          data.field("samples", samples_, at_least(1), "to train on");
          data.field("eval_samples", eval_samples_, at_least(0), "to evaluate on");
        },
        "random features and a rule");
    root.section(
        "model",
        [&](Fields& model) {
          model.field("hidden", hidden_, at_least(1), "width");
          model.field("dropout", dropout_, from_below(0, 1), "probability");
          model.field("batch_norm", batch_norm_, "between the layers");
          model.section("fault", [&](Fields& fault) { describe_fault(fault); }, "what goes wrong, where and when");
        },
        "an MLP");
  }

  Result<void> prepare() override {
    if (fault_.here("prepare")) return fail(ExitCode::kNoInput, "the fault 'prepare': a file is missing");
    train_ = std::make_unique<RandomData>(samples_, 1);
    eval_ = std::make_unique<RandomData>(eval_samples_, 2);
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }

  std::shared_ptr<torch::nn::Module> build_model() override {
    return std::make_shared<TinyNet>(fault_.here("shape") ? hidden_ + 1 : hidden_, dropout_, batch_norm_);
  }

  TrainOutput train_step(torch::nn::Module& model, const Batch& batch) override {
    if (fault_.step == step_ && fault_.here("throw")) throw std::runtime_error("the fault 'throw'");
    at::Tensor loss = loss_of(model, batch);
    if (fault_.step == step_ && fault_.here("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
    ++step_;
    return {loss, {}};
  }

  MetricSums eval_step(torch::nn::Module& model, const Batch& batch) override {
    const at::Tensor logits = dynamic_cast<TinyNet&>(model).forward(batch["features"]);
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits, batch["labels"]);
    return {{"loss", loss.item<double>() * static_cast<double>(batch.size())},
            {"correct", logits.argmax(1).eq(batch["labels"]).sum().item<double>()}};
  }

  Metrics metrics(const MetricSums& totals) const override {
    const double count = totals.at("count");
    return {{"loss", totals.at("loss") / count}, {"accuracy", totals.at("correct") / count}, {"count", count}};
  }

 private:
  void describe_fault(Fields& fault) {
    fault.field("kind", fault_.kind, "throw, nan, shape or prepare");
    fault.field("rank", fault_.rank, at_least(0), "of the rank that fails");
    fault.field("step", fault_.step, at_least(0), "of this process, from 0");
  }

  static at::Tensor loss_of(torch::nn::Module& model, const Batch& batch) {
    return torch::nn::functional::cross_entropy(dynamic_cast<TinyNet&>(model).forward(batch["features"]),
                                                batch["labels"]);
  }

  int64_t samples_ = 256;
  int64_t eval_samples_ = 101;
  int64_t hidden_ = 16;
  double dropout_ = 0.2;
  bool batch_norm_ = true;
  Fault fault_;
  int64_t step_ = 0;
  std::unique_ptr<RandomData> train_;
  std::unique_ptr<RandomData> eval_;
};

}  // namespace

std::unique_ptr<Task> make_tiny(Fields& root) { return std::make_unique<TinyTask>(root); }

}  // namespace oarlock::test
