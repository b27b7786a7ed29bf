// Runs on a GPU (scripts/bench gpu run): the same results as on the CPU, which other tests compare with PyTorch:
// optimizers, clipping, gradient scaling, synchronized batch normalization.
#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <limits>

#include "ddp/batch_norm.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/optim/amp.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);
const at::Device kCpu(at::kCPU);

class Numerics : public testing::TestWithParam<OptimizerKind> {};

std::vector<at::Tensor> trained_parameters(OptimizerKind kind, at::Device device) {
  torch::manual_seed(1);
  torch::nn::Linear model(32, 16);
  model->to(device);
  OptimizerConfig config;
  config.kind = kind;
  config.lr = 0.01;
  config.weight_decay = 0.01;
  if (kind == OptimizerKind::kSgd) config.momentum = 0.9;
  auto optimizer = std::move(make_optimizer(config, unique_parameters(*model)).value());
  GradientConfig clipping;
  clipping.clip_norm = 1.0;
  for (int step = 0; step < 10; ++step) {
    model->weight.mutable_grad() = torch::randn({16, 32}).to(device);
    model->bias.mutable_grad() = torch::randn({16}).to(device);
    clip_gradients(clipping, optimizer->gather_gradients());
    optimizer->set_learning_rates([](double lr) { return lr; });
    optimizer->step();
  }
  return {model->weight.detach().cpu(), model->bias.detach().cpu()};
}

TEST_P(Numerics, OptimizerAndClippingMatchCpu) {
  const auto expected = trained_parameters(GetParam(), kCpu);
  const auto got = trained_parameters(GetParam(), kGpu);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-5, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Numerics,
                         testing::Values(OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW));

// The scale after each of several steps with and without overflow.
std::vector<double> scales(at::Device device) {
  AmpConfig config;
  config.growth_interval = 2;
  AmpGradScaler scaler(config, device);
  std::vector<double> out;
  at::Tensor found_inf = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
  for (const double value : {1.0, 1.0, std::numeric_limits<double>::infinity(), 1.0, 1.0, 1.0}) {
    found_inf.zero_();
    const GradientLists gradients = {{at::full({8}, value, found_inf.options())}};
    scaler.unscale(gradients, found_inf);
    scaler.update(found_inf);
    out.push_back(scaler.scale().item<double>());
  }
  return out;
}

TEST(GradScalerOnCuda, MatchesCpu) { EXPECT_EQ(scales(kGpu), scales(kCpu)); }

// With one rank, the combined batch is this rank's batch.
class Alone final : public BatchNormCollectives {
 public:
  at::Tensor all_gather(const at::Tensor& own) const override { return own.unsqueeze(0); }
  void all_reduce(at::Tensor&) const override {}
};

struct Normalized {
  at::Tensor output, input_gradient, weight_gradient, mean, var;
};

Normalized normalize(at::Device device) {
  torch::manual_seed(3);
  const at::Tensor input = torch::randn({16, 8, 5, 5}).to(device).requires_grad_(true);
  const at::Tensor weight = torch::rand({8}).to(device).requires_grad_(true);
  const at::Tensor bias = torch::randn({8}).to(device).requires_grad_(true);
  const at::Tensor direction = torch::randn({16, 8, 5, 5}).to(device);
  const RunningStatistics running{torch::zeros({8}).to(device), torch::ones({8}).to(device), 0.1};
  const at::Tensor output = sync_batch_norm(input, weight, bias, running, 1e-5, std::make_shared<Alone>());
  (output * direction).sum().backward();
  return {output.detach().cpu(), input.grad().cpu(), weight.grad().cpu(), running.mean.cpu(), running.var.cpu()};
}

TEST(SyncBatchNormOnCuda, MatchesCpu) {
  const Normalized expected = normalize(kCpu);
  const Normalized got = normalize(kGpu);
  EXPECT_TRUE(at::allclose(got.output, expected.output, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(got.input_gradient, expected.input_gradient, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(got.weight_gradient, expected.weight_gradient, 1e-4, 1e-3));
  EXPECT_TRUE(at::allclose(got.mean, expected.mean, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(got.var, expected.var, 1e-5, 1e-6));
}

}  // namespace
}  // namespace oarlock
