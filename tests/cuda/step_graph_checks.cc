// Runs on a GPU (scripts/bench gpu run): a captured step trains like the eager one.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ddp/seed_step.h"
#include "trainer/config/optimization.h"
#include "trainer/device/device.h"
#include "trainer/device/step_graph.h"
#include "trainer/engine/train_step.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr int64_t kBatch = 32;
constexpr int64_t kFeatures = 64;
constexpr int64_t kSteps = 40;

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
  bool recorded = false;
};

Batch batch_of(int64_t step, int64_t size) {
  torch::manual_seed(1000 + step);
  Batch batch;
  batch.ids.resize(static_cast<size_t>(size));
  batch.tensors["x"] = torch::randn({size, kFeatures}).to(kGpu);
  batch.tensors["y"] = batch.tensors["x"].narrow(1, 0, 10).argmax(1);
  return batch;
}

// An MLP with dropout and AdamW whose rate changes at every step; the last step has a smaller batch.
Trained train(bool graph) {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(kFeatures, 128), torch::nn::Dropout(0.2), torch::nn::Linear(128, 10));
  model->to(kGpu);
  OptimizerConfig config;
  config.lr = 0.01;
  config.weight_decay = 0.01;
  auto optimizer = std::move(make_optimizer(config, unique_parameters(*model)).value());
  const auto step_graph = std::move(make_step_graph(kGpu, Logger(LogFormat::kText, LogLevel::kWarn)).value());
  const auto body = [&](const Batch& batch) {
    const at::Tensor loss = torch::nn::functional::cross_entropy(model->forward(batch["x"]), batch["y"]);
    loss.backward();
    optimizer->gather_gradients();
    optimizer->step();
    for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
    return StepGraph::Outputs{loss.detach()};
  };
  Trained out;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = batch_of(step, step + 1 == kSteps ? kBatch / 2 : kBatch);
    seed_step(1, 0, step, kGpu);
    optimizer->set_learning_rates([&](double lr) { return lr * std::cos(0.03 * static_cast<double>(step)); });
    out.losses.push_back((graph ? step_graph->run(batch, body) : body(batch)).front().item<double>());
  }
  for (const at::Tensor& parameter : model->parameters()) out.parameters.push_back(parameter.detach().cpu());
  out.recorded = step_graph->is_captured();
  return out;
}

TEST(StepGraph, EqualsEagerStepBitwise) {
  CudaConfig config;
  config.graphs = true;
  config.deterministic = true;
  ASSERT_TRUE(configure_device(config, kGpu));
  const Trained eager = train(false);
  const Trained replayed = train(true);
  EXPECT_FALSE(eager.recorded);
  EXPECT_TRUE(replayed.recorded);
  EXPECT_EQ(replayed.losses, eager.losses);
  EXPECT_LT(eager.losses.back(), eager.losses.front());
  for (size_t i = 0; i < eager.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(replayed.parameters[i], eager.parameters[i])) << "parameter " << i;
  }
}

[[noreturn]] void record_what_waits_for_the_host() {
  CudaConfig config;
  config.graphs = true;
  if (!configure_device(config, kGpu)) std::_Exit(1);
  StepGraphOptions options;
  options.warm_up_steps = 0;
  const auto graph = std::move(make_step_graph(kGpu, Logger(LogFormat::kText, LogLevel::kWarn), options).value());
  try {
    graph->run(batch_of(0, kBatch),
               [](const Batch& batch) { return StepGraph::Outputs{batch["x"] * batch["x"].sum().item<double>()}; });
  } catch (const c10::Error& error) {
    std::fputs(error.what_without_backtrace(), stderr);
    std::_Exit(3);
  }
  std::_Exit(0);
}

// Runs in a separate process, since a failed capture corrupts the allocator.
TEST(StepGraphDeathTest, ReportsWhyStepCannotBeCaptured) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(record_what_waits_for_the_host(), testing::ExitedWithCode(3),
              "cuda.graphs: the training step cannot be captured");
}

}  // namespace
}  // namespace oarlock
