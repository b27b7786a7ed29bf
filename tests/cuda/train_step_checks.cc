// Runs on a GPU (scripts/bench gpu run): a complete training step with fp16 autocast and gradient scaling: a step that
// overflows is skipped on the device, and the captured step equals the eager one bitwise.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "fields/yaml_reader.h"
#include "tests/support/trainer_program/tiny_task.h"
#include "trainer/device/device.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/engine/train_step.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kBatch = 16;

std::unique_ptr<Task> tiny_task(const std::string& fault) {
  const std::string text = "{data: {samples: 64}, model: {dropout: 0.1, batch_norm: true, fault: " + fault + "}}";
  yaml::Problems problems("test");
  YamlFieldsReader reader(yaml::parse_all(text, "test")->front(), "", problems);
  std::unique_ptr<Task> task = test::make_tiny(reader);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(task->prepare());
  return task;
}

TrainerConfig fp16() {
  TrainerConfig config;
  config.amp.enabled = true;
  config.amp.dtype = AmpType::kFp16;
  config.amp.init_scale = 64;
  config.amp.growth_interval = 3;
  config.gradient.clip_norm = 0.5;
  config.ema.enabled = true;
  return config;
}

struct Trainer {
  explicit Trainer(const std::string& fault = "{}") : task(tiny_task(fault)) {
    seed_model(1);
    std::shared_ptr<torch::nn::Module> module = task->build_model();
    module->to(kGpu);
    model = DistributedDataParallelBase::create(std::move(module), group, {}).value();
    step = TrainStep::create(config, *task, *model, group).value();
  }

  void run(int64_t index) {
    step->optimizer().set_learning_rates([&](double lr) { return lr / static_cast<double>(1 + index); });
    step->begin(index, kBatch);
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < kBatch; ++i) samples.push_back((index * kBatch + i) % 64);
    step->add(to_device(make_batch(task->train_data(), samples), kGpu));
  }

  // Parameters and all state of the step that a checkpoint contains.
  TensorMap state() const {
    TensorMap out;
    for (const NamedTensor& item : model->parameters()) out[item.name] = item.tensor.detach().cpu();
    for (const NamedTensor& item : model->buffers()) out[item.name] = item.tensor.cpu();
    for (const Stateful* part : step->stateful()) {
      for (const auto& [name, tensor] : part->tensors()) out[std::string(part->section()) + "/" + name] = tensor.cpu();
    }
    return out;
  }

  TrainerConfig config = fp16();
  ProcessGroup group{nullptr, kGpu};
  std::unique_ptr<Task> task;
  std::unique_ptr<DistributedDataParallelBase> model;
  std::unique_ptr<TrainStep> step;
};

void expect_same(const TensorMap& actual, const TensorMap& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(actual.at(name), tensor)) << name;
}

TEST(TrainStepOnCuda, OverflowSkipsStepAndHalvesScale) {
  ASSERT_TRUE(configure_device({}, kGpu));
  Trainer trainer("{kind: nan, rank: 0, step: 1}");
  trainer.run(0);
  EXPECT_EQ(trainer.step->read().skipped, 0);
  TensorMap before;
  for (const NamedTensor& item : trainer.model->parameters()) before[item.name] = item.tensor.detach().cpu();
  const TensorMap optimizer = [&] {
    TensorMap out;
    for (const auto& [name, tensor] : trainer.step->stateful()[0]->tensors()) out[name] = tensor.cpu();
    return out;
  }();
  trainer.run(1);
  const StepReading reading = trainer.step->read();
  EXPECT_EQ(reading.skipped, 1);
  EXPECT_EQ(reading.loss_scale, 32);
  for (const NamedTensor& item : trainer.model->parameters())
    EXPECT_TRUE(at::equal(item.tensor.detach().cpu(), before.at(item.name))) << item.name;
  for (const auto& [name, tensor] : trainer.step->stateful()[0]->tensors())
    EXPECT_TRUE(at::equal(tensor.cpu(), optimizer.at(name))) << name;
  trainer.run(2);
  EXPECT_EQ(trainer.step->read().skipped, 1);
  const NamedTensor& first = trainer.model->parameters()[0];
  EXPECT_FALSE(at::equal(first.tensor.detach().cpu(), before.at(first.name)));
}

TEST(TrainStepOnCuda, CapturedStepEqualsEagerStep) {
  CudaConfig cuda;
  cuda.graphs = true;
  cuda.deterministic = true;
  ASSERT_TRUE(configure_device(cuda, kGpu));
  constexpr int64_t kSteps = 20;
  const auto trained = [&](bool graph) {
    Trainer trainer;
    if (graph) {
      const Logger logger(LogFormat::kText, LogLevel::kWarn);
      trainer.step->replay_with(make_step_graph(kGpu, logger, {.warm_up_steps = 3}).value());
    }
    for (int64_t i = 0; i < kSteps; ++i) trainer.run(i);
    TensorMap out = trainer.state();
    const StepReading reading = trainer.step->read();
    out["loss"] = torch::tensor(reading.loss, at::kDouble);
    out["norm"] = torch::tensor(reading.gradient_norm.value(), at::kDouble);
    return out;
  };
  expect_same(trained(true), trained(false));
}

}  // namespace
}  // namespace oarlock
