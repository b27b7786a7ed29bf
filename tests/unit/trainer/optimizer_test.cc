// The fused optimizers against torch::optim, whose arithmetic is PyTorch's, and against the formulas where that has
// none.
#include "trainer/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

namespace oarlock {
namespace {

std::vector<NamedTensor> parameters(at::ScalarType type = at::kFloat) {
  at::manual_seed(3);
  std::vector<NamedTensor> out;
  for (const auto& [name, shape] :
       {std::pair{"a.weight", std::vector<int64_t>{5, 3}}, {"a.bias", {5}}, {"scale", {}}}) {
    out.push_back({name, torch::randn(shape, type).requires_grad_()});
  }
  return out;
}

std::vector<at::Tensor> copies(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& item : named) out.push_back(item.tensor.detach().clone().requires_grad_());
  return out;
}

// Runs both for `steps` with the same gradients; "scale" has a gradient at even steps only.
void expect_same(Optimizer& ours, const std::vector<NamedTensor>& named, torch::optim::Optimizer& theirs,
                 std::vector<at::Tensor>& reference, int steps, double lr, double tolerance) {
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < named.size(); ++i) {
      const bool used = named[i].name != "scale" || step % 2 == 0;
      const at::Tensor gradient = used ? torch::randn_like(reference[i].detach()) : at::Tensor();
      named[i].tensor.mutable_grad() = gradient;
      reference[i].mutable_grad() = used ? gradient.clone() : gradient;
    }
    ours.step(lr);
    theirs.step();
    for (size_t i = 0; i < named.size(); ++i) {
      const double difference = (named[i].tensor - reference[i]).abs().max().item<double>();
      EXPECT_LE(difference, tolerance) << named[i].name << " after step " << step + 1;
    }
  }
}

TEST(AdamW, EqualsTorchOptim) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    OptimizerConfig config;
    config.lr = 0.01;
    config.weight_decay = 0.1;
    config.betas = {0.8, 0.95};
    config.eps = 1e-6;
    const auto named = parameters(type);
    auto reference = copies(named);
    const auto ours = make_optimizer(config, named);
    torch::optim::AdamW theirs(reference,
                               torch::optim::AdamWOptions(0.01).weight_decay(0.1).betas({0.8, 0.95}).eps(1e-6));
    expect_same(*ours, named, theirs, reference, 20, 0.01, type == at::kFloat ? 2e-6 : 1e-12);
  }
}

TEST(Sgd, EqualsTorchOptim) {
  struct Case {
    double weight_decay, momentum;
    bool nesterov;
  };
  for (const Case& c : {Case{0, 0, false}, Case{0.1, 0, false}, Case{0.05, 0.9, false}, Case{0.05, 0.9, true}}) {
    OptimizerConfig config;
    config.kind = OptimizerKind::kSgd;
    config.lr = 0.05;
    config.weight_decay = c.weight_decay;
    config.momentum = c.momentum;
    config.nesterov = c.nesterov;
    const auto named = parameters();
    auto reference = copies(named);
    const auto ours = make_optimizer(config, named);
    torch::optim::SGD theirs(
        reference,
        torch::optim::SGDOptions(0.05).weight_decay(c.weight_decay).momentum(c.momentum).nesterov(c.nesterov));
    expect_same(*ours, named, theirs, reference, 20, 0.05, 2e-6);
  }
}

TEST(AdamW, TheRateIsTheCallers) {
  const auto named = parameters(at::kDouble);
  const at::Tensor before = named[0].tensor.detach().clone();
  for (const NamedTensor& item : named) item.tensor.mutable_grad() = torch::ones_like(item.tensor.detach());
  OptimizerConfig config;
  config.weight_decay = 0;
  make_optimizer(config, named)->step(0.25);
  // The first step of Adam moves by lr * g / (|g| + eps).
  EXPECT_LE((named[0].tensor - (before - 0.25)).abs().max().item<double>(), 1e-7);
}

TEST(Optimizer, StateHasPyTorchsNamesAndShapes) {
  OptimizerConfig config;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : make_optimizer(config, parameters())->state()) names.push_back(name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("a.weight.exp_avg", "a.weight.exp_avg_sq", "a.weight.step",
                                                   "a.bias.exp_avg", "a.bias.exp_avg_sq", "a.bias.step",
                                                   "scale.exp_avg", "scale.exp_avg_sq", "scale.step"));
  config.kind = OptimizerKind::kSgd;
  EXPECT_TRUE(make_optimizer(config, parameters())->state().empty());
  config.momentum = 0.9;
  EXPECT_EQ(make_optimizer(config, parameters())->state().count("a.bias.momentum_buffer"), 1U);
}

TEST(Optimizer, GoesOnFromASavedStateBitForBit) {
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    OptimizerConfig config;
    config.kind = kind;
    config.momentum = kind == OptimizerKind::kSgd ? 0.9 : 0;
    const auto first = parameters();
    const auto one = make_optimizer(config, first);
    const auto step = [](const std::vector<NamedTensor>& named, Optimizer& optimizer, uint64_t seed) {
      at::manual_seed(seed);
      for (const NamedTensor& item : named) item.tensor.mutable_grad() = torch::randn_like(item.tensor.detach());
      optimizer.step(0.01);
    };
    for (uint64_t i = 0; i < 5; ++i) step(first, *one, i);
    const auto second = parameters();
    for (size_t i = 0; i < first.size(); ++i) second[i].tensor.detach().copy_(first[i].tensor.detach());
    const auto two = make_optimizer(config, second);
    ASSERT_TRUE(two->load(copy_to_cpu(one->state())));
    for (uint64_t i = 5; i < 10; ++i) {
      step(first, *one, i);
      step(second, *two, i);
    }
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(at::equal(first[i].tensor, second[i].tensor)) << first[i].name;
  }
}

TEST(Optimizer, AStateThatDoesNotFitIsRefusedByName) {
  OptimizerConfig config;
  const auto optimizer = make_optimizer(config, parameters());
  TensorMap state = copy_to_cpu(optimizer->state());
  const auto message = [&] {
    const auto loaded = optimizer->load(state);
    EXPECT_FALSE(loaded);
    if (loaded) return std::string();
    EXPECT_EQ(loaded.error().code, ExitCode::kDataErr);
    return loaded.error().message;
  };
  state["a.bias.exp_avg"] = torch::zeros({6});
  EXPECT_THAT(message(), testing::AllOf(testing::HasSubstr("'a.bias.exp_avg'"), testing::HasSubstr("[6]"),
                                        testing::HasSubstr("[5]")));
  state.erase("a.bias.exp_avg");
  EXPECT_THAT(message(), testing::HasSubstr("has no 'a.bias.exp_avg'"));
  state["a.bias.exp_avg"] = torch::zeros({5});
  state["b.exp_avg"] = torch::zeros({5});
  EXPECT_THAT(message(), testing::HasSubstr("has 'b.exp_avg'"));
}

}  // namespace
}  // namespace oarlock
