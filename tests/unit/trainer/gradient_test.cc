// Clipping, loss scaling, autocast and the moving average against PyTorch.
#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <limits>
#include <stdexcept>

#include "ddp/clip_grad.h"
#include "ddp/grad_scaler.h"
#include "tests/support/tensor_copies.h"
#include "tests/unit/trainer/optim_goldens.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/optim/amp.h"
#include "trainer/optim/moving_average.h"
#include "trainer/optim/optimizer.h"

namespace oarlock {
namespace {

using test::expect_near;
using test::golden_parameters;
using test::optim_goldens;
using test::set_gradients;

GradientLists gradients_of(const std::vector<NamedTensor>& parameters) {
  GradientLists lists(1);
  for (const NamedTensor& item : parameters) lists[0].push_back(item.tensor.grad());
  return lists;
}

TEST(GradientClip, EqualsPyTorch) {
  GradientConfig small;
  small.clip_norm = 0.5;
  GradientConfig large;
  large.clip_norm = 100;
  GradientConfig infinity = small;
  infinity.norm_type = NormType::kInfinity;
  GradientConfig value;
  value.clip_value = 0.3;
  for (const auto& [name, config] : std::vector<std::pair<std::string, GradientConfig>>{{"clip_norm_small", small},
                                                                                        {"clip_norm_large", large},
                                                                                        {"clip_norm_inf", infinity},
                                                                                        {"clip_value", value}}) {
    const auto parameters = golden_parameters();
    set_gradients(parameters, 0);
    const at::Tensor norm = clip_gradients(config, gradients_of(parameters));
    EXPECT_EQ(norm.defined(), config.clip_norm.has_value());
    if (norm.defined()) expect_near(norm, name + "/norm", 1e-6);
    for (const NamedTensor& item : parameters) expect_near(item.tensor.grad(), name + "/" + item.name, 1e-6);
  }
}

TEST(GradientClip, ComputesNormOverAllTypes) {
  GradientConfig config;
  config.clip_norm = 1;
  const GradientLists lists = {
      {torch::full({4}, 3.0)}, {}, {torch::full({4}, 4.0, at::kDouble), torch::zeros({2}, at::kDouble)}};
  EXPECT_NEAR(clip_gradients(config, lists).item<double>(), 10, 1e-6);
  EXPECT_NEAR(lists[0][0][0].item<double>(), 0.3, 1e-6);
  EXPECT_NEAR(lists[2][0][0].item<double>(), 0.4, 1e-6);
  EXPECT_FALSE(clip_gradients(config, {{}, {}}).defined()) << "no gradient";
}

// Each parameter has the gradient that LibTorch clips in the reference.
TEST(GradientClip, EqualsLibTorchWithoutReadingTheNorm) {
  for (const double order : {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
    const auto parameters = golden_parameters();
    const auto reference = golden_parameters();
    set_gradients(parameters, 0);
    set_gradients(reference, 0);
    std::vector<at::Tensor> tensors;
    std::vector<at::Tensor> reference_tensors;
    for (const NamedTensor& item : parameters) tensors.push_back(item.tensor);
    for (const NamedTensor& item : reference) reference_tensors.push_back(item.tensor);
    tensors.push_back(torch::zeros({3}, at::TensorOptions().requires_grad(true)));  // without a gradient
    const double norm = torch::nn::utils::clip_grad_norm_(reference_tensors, 0.5, order);
    EXPECT_NEAR(clip_grad_norm_(tensors, 0.5, order).item<double>(), norm, 1e-6 * norm);
    for (size_t i = 0; i < reference.size(); ++i)
      EXPECT_TRUE(parameters[i].tensor.grad().allclose(reference[i].tensor.grad(), 1e-6)) << reference[i].name;
  }
}

TEST(GradScaler, StepsOptimizersOfLibTorch) {
  torch::nn::Linear net(3, 2);
  torch::nn::Linear reference(3, 2);
  for (size_t i = 0; i < 2; ++i) reference->parameters()[i].data().copy_(net->parameters()[i]);
  const auto options = torch::optim::SGDOptions(0.001).momentum(0.9);
  torch::optim::SGD optimizer(net->parameters(), options);
  torch::optim::SGD reference_optimizer(reference->parameters(), options);
  GradScaler scaler(at::kCPU, {.init_scale = 1024, .growth_interval = 3});
  std::vector<float> scales;
  for (int step = 0; step < 7; ++step) {
    const bool overflows = step == 2;
    const at::Tensor batch = torch::full({4, 3}, 1.0 + step);
    optimizer.zero_grad();
    scaler.scale(net(batch).pow(2).mean()).backward();
    if (overflows) net->weight.grad()[1][1] = std::numeric_limits<float>::infinity();
    if (step % 2 == 0) {
      scaler.unscale_(optimizer);
      EXPECT_THROW(scaler.unscale_(optimizer), std::logic_error);
    }
    EXPECT_EQ(scaler.step(optimizer), !overflows) << step;
    scaler.update();
    scales.push_back(scaler.scale().item<float>());
    if (overflows) continue;
    reference_optimizer.zero_grad();
    reference(batch).pow(2).mean().backward();
    reference_optimizer.step();
  }
  EXPECT_THAT(scales, testing::ElementsAre(1024, 1024, 512, 512, 512, 1024, 1024));
  // The scales are powers of two, so that scaling does not round.
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(net->parameters()[i].equal(reference->parameters()[i]));
}

// Otherwise, the next step would use gradients that are still scaled.
TEST(GradScaler, RejectsStepsWithoutUpdate) {
  torch::nn::Linear net(3, 2);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  GradScaler scaler(at::kCPU);
  EXPECT_THROW(scaler.update(), std::logic_error);
  scaler.scale(net(torch::ones({1, 3})).sum()).backward();
  EXPECT_TRUE(scaler.step(optimizer));
  EXPECT_THROW(scaler.step(optimizer), std::logic_error);
  scaler.update();
  EXPECT_TRUE(scaler.step(optimizer));
}

TEST(GradScaler, UnscalesSparseGradients) {
  torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
  torch::optim::SGD optimizer(net->parameters(), 1);
  GradScaler scaler(at::kCPU, {.init_scale = 1024});
  scaler.scale(net(torch::tensor({1, 1})).sum()).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(net->weight.grad().to_dense()[1].eq(2).all().item<bool>());
}

TEST(GradScaler, EqualsPyTorchOverOverflows) {
  AmpConfig amp;
  amp.init_scale = 1024;
  amp.growth_factor = 4;
  amp.backoff_factor = 0.25;
  amp.growth_interval = 3;
  OptimizerConfig sgd;
  sgd.kind = OptimizerKind::kSgd;
  sgd.lr = 0.05;
  sgd.momentum = 0.9;
  GradientConfig clip;
  clip.clip_norm = 1;
  const auto parameters = golden_parameters();
  auto optimizer = make_optimizer(sgd, parameters);
  ASSERT_TRUE(optimizer);
  auto scaler = std::make_unique<AmpGradScaler>(amp, at::kCPU);
  for (int step = 0; step < test::kGoldenSteps; ++step) {
    set_gradients(parameters, step);
    const GradientLists& gradients = (*optimizer)->gather_gradients();
    for (const at::Tensor& gradient : gradients[0]) gradient.mul_(scaler->scale());
    if (step == 3 || step == 4 || step == 9) {
      parameters[1].tensor.grad()[2] = step == 3 ? std::numeric_limits<float>::infinity() : std::nanf("");
    }
    at::Tensor found_inf = torch::zeros({});
    scaler->unscale(gradients, found_inf);
    EXPECT_EQ(found_inf.item<float>(), step == 3 || step == 4 || step == 9 ? 1 : 0) << step;
    clip_gradients(clip, gradients);
    (*optimizer)->step(found_inf);
    scaler->update(found_inf);
    EXPECT_EQ(scaler->scale().item<float>(), optim_goldens().at("scaler/scales")[step].item<float>()) << step;
    // Saving and restoring in between does not change the sequence.
    auto restored = std::make_unique<AmpGradScaler>(amp, at::kCPU);
    ASSERT_TRUE(copy_tensors(test::copies_of(scaler->tensors()), restored->tensors(), "grad-scaler"));
    scaler = std::move(restored);
  }
  for (const NamedTensor& item : parameters) expect_near(item.tensor, "scaler/" + item.name, 2e-6);
}

TEST(Autocast, AppliesDuringItsLifetime) {
  const at::Tensor a = torch::ones({2, 2});
  const auto type = [&] { return torch::mm(a, a).scalar_type(); };
  AmpConfig off;
  {
    const Autocast autocast(off, at::kCPU);
    EXPECT_EQ(type(), at::kFloat);
  }
  for (const auto& [dtype, expected] : {std::pair{AmpType::kBf16, at::kBFloat16}, {AmpType::kFp16, at::kHalf}}) {
    AmpConfig amp;
    amp.enabled = true;
    amp.dtype = dtype;
    const Autocast autocast(amp, at::kCPU);
    EXPECT_EQ(type(), expected);
    EXPECT_EQ(a.log_softmax(0).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(type(), at::kFloat);
}

TEST(Autocast, DropsWeightCopiesBeforeUpdate) {
  AmpConfig amp;
  amp.enabled = true;
  at::Tensor weight = torch::ones({2, 2}).requires_grad_();
  for (const double expected : {2.0, 4.0}) {
    const Autocast autocast(amp, at::kCPU);
    EXPECT_EQ(torch::mm(torch::ones({1, 2}), weight)[0][0].item<double>(), expected);
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  }
}

// ---- moving average --------------------------------------------------------------------------------------------

std::vector<NamedTensor> model_of(const at::Tensor& weight) { return {{"weight", weight}}; }

void train(const at::Tensor& weight, int step) {
  const at::NoGradGuard no_grad;
  at::Tensor(weight).sub_(optim_goldens().at("gradient/" + std::to_string(step) + "/a.weight"), 0.1);
}

TEST(MovingAverage, EqualsPyTorchAndSeddWarmUp) {
  for (const bool warmup : {false, true}) {
    EmaConfig config;
    config.decay = warmup ? 0.45 : 0.9;
    config.warmup = warmup;
    const at::Tensor weight = optim_goldens().at("initial/a.weight").clone().requires_grad_();
    auto average = std::make_unique<MovingAverage>(config, model_of(weight), std::vector<NamedTensor>{});
    for (int step = 0; step < test::kGoldenSteps; ++step) {
      train(weight, step);
      average->update();
      // Saving and restoring in between does not change the average.
      auto restored = std::make_unique<MovingAverage>(config, model_of(weight), std::vector<NamedTensor>{});
      ASSERT_TRUE(copy_tensors(test::copies_of(average->tensors()), restored->tensors(), "ema"));
      ASSERT_TRUE(restored->restored(nlohmann::json::parse(average->values().dump())));
      average = std::move(restored);
    }
    expect_near(average->tensors().at("weight"), warmup ? "ema_warmup/weight" : "ema/weight", 1e-6);
    expect_near(weight, "ema/model", 1e-6);
  }
}

TEST(MovingAverage, ExchangeRestoresWeightsBitwise) {
  EmaConfig config;
  config.decay = 0.5;
  config.buffers = true;
  const at::Tensor weight = torch::zeros({3}).requires_grad_();
  const at::Tensor running = torch::zeros({2});
  const at::Tensor count = torch::zeros({}, at::kLong);
  MovingAverage average(config, model_of(weight), {{"running", running}, {"count", count}});
  {
    const at::NoGradGuard no_grad;
    at::Tensor(weight).fill_(1.0 / 3);
    running.fill_(4);
    count.fill_(7);
  }
  average.update();
  EXPECT_EQ(average.tensors().count("count"), 0U) << "whole numbers are not averaged";
  const at::Tensor own = weight.detach().clone();
  const void* memory = weight.data_ptr();
  {
    const MovingAverage::Exchange exchange(average);
    EXPECT_FLOAT_EQ(weight[0].item<float>(), 1.0F / 6);
    EXPECT_EQ(running[0].item<float>(), 2);
    EXPECT_TRUE(at::equal(average.tensors().at("weight"), own));
  }
  EXPECT_TRUE(at::equal(weight, own));
  EXPECT_EQ(weight.data_ptr(), memory);
  EXPECT_EQ(running[0].item<float>(), 4);
  EXPECT_TRUE(weight.requires_grad());
  average.update();
  EXPECT_FLOAT_EQ(average.tensors().at("weight")[0].item<float>(), 0.25F);
}

TEST(MovingAverage, StartsFromCurrentWeightsWithoutCheckpoint) {
  const at::Tensor weight = torch::zeros({3}).requires_grad_();
  MovingAverage average({}, model_of(weight), {});
  {
    const at::NoGradGuard no_grad;
    at::Tensor(weight).fill_(2);
  }
  ASSERT_TRUE(average.missing());
  EXPECT_TRUE(at::equal(average.tensors().at("weight"), weight));
}

}  // namespace
}  // namespace oarlock
