#include "tests/bench/trainer/task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <cstdlib>

#include "tests/bench/trainer/models.h"
#include "tests/bench/trainer/record.h"
#include "trainer/data/batch.h"

namespace oarlock::bench {
namespace {

constexpr size_t kExpectedSteps = 10000;

class MemoryData final : public Dataset {
 public:
  MemoryData(ModelKind kind, int64_t samples) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
    const auto with_samples = [samples](std::vector<int64_t> shape) {
      shape.insert(shape.begin(), samples);
      return shape;
    };
    const std::vector<int64_t> inputs = with_samples(input_shape(kind));
    inputs_ = kind == ModelKind::kSedd ? torch::rand(inputs, generator) : torch::randn(inputs, generator);
    labels_ = torch::randint(outputs(kind), with_samples(label_shape(kind)), generator, torch::kLong);
  }

  int64_t size() const override { return labels_.size(0); }

  void make_batch(std::span<const int64_t> indices, uint64_t, Batch& batch) const override {
    stack_rows(inputs_, indices, "input", batch);
    stack_rows(labels_, indices, "label", batch);
  }

 private:
  at::Tensor inputs_;
  at::Tensor labels_;
};

class BenchTask final : public ModelTask<Model> {
 public:
  explicit BenchTask(Fields& root) {
    root.section(
        "data",
        [&](Fields& data) {
          data.field("samples", samples_, at_least(1), "to train on");
          data.field("record", record_path_, "file of rank 0 for what was measured; empty: none");
        },
        "random samples in memory");
    root.section(
        "model",
        [&](Fields& model) {
          model.choice<ModelKind>("name", kind_,
                                  {{"small", ModelKind::kSmall},
                                   {"mlp", ModelKind::kMlp},
                                   {"cnn", ModelKind::kCnn},
                                   {"resnet_like", ModelKind::kResnetLike},
                                   {"resnet", ModelKind::kResnet},
                                   {"sedd", ModelKind::kSedd}},
                                  "what is timed");
        },
        "the model");
  }

  Result<void> prepare() override {
    train_ = std::make_unique<MemoryData>(kind_, samples_);
    eval_ = std::make_unique<MemoryData>(kind_, 1);
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }
  std::shared_ptr<Model> create_model() override { return make_model(kind_); }

  at::Tensor training_loss(Model& model, const Batch& batch, const StepContext&) override {
    record_.mark();
    return loss_of(model, batch);
  }

  // The evaluation at the end of the run marks the end of the last step.
  EvalOutput evaluate(Model& model, const Batch& batch) override {
    write_record();
    return {.sums = {{"loss", loss_of(model, batch).item<double>()}}, .rows = {}};
  }

  std::vector<std::string> metric_names() const override { return {"loss"}; }

 private:
  static at::Tensor loss_of(Model& model, const Batch& batch) { return model.loss(batch["input"], batch["label"]); }

  void write_record() {
    const char* rank = std::getenv("RANK");
    if (record_path_.empty() || (rank != nullptr && std::string_view(rank) != "0")) return;
    record_.mark();
    record_.write(record_path_);
  }

  int64_t samples_ = 4096;
  std::string record_path_;
  ModelKind kind_ = ModelKind::kSmall;
  StepRecord record_{kExpectedSteps};
  std::unique_ptr<MemoryData> train_;
  std::unique_ptr<MemoryData> eval_;
};

}  // namespace

std::unique_ptr<Task> make_bench_task(Fields& root) { return std::make_unique<BenchTask>(root); }

}  // namespace oarlock::bench
