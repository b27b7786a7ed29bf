// The fused optimizers and their groups against torch.optim of Python.
#include "trainer/optim/optimizer.h"

#include <gmock/gmock.h>
#include <torch/types.h>

#include "tests/support/tensor_copies.h"
#include "tests/unit/trainer/optim_goldens.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock {
namespace {

using test::expect_near;
using test::golden_parameters;
using test::set_gradients;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::unique_ptr<Optimizer> make(const OptimizerConfig& config, const std::vector<NamedTensor>& parameters) {
  auto optimizer = make_optimizer(config, parameters);
  if (!optimizer) throw std::runtime_error(optimizer.error().message);
  return std::move(*optimizer);
}

void step(Optimizer& optimizer, const std::vector<NamedTensor>& parameters, int index,
          const at::Tensor& found_inf = {}) {
  set_gradients(parameters, index);
  optimizer.gather_gradients();
  optimizer.step(found_inf);
}

struct Case {
  std::string name;
  OptimizerConfig config;
};

std::vector<Case> cases() {
  OptimizerConfig adam;
  adam.kind = OptimizerKind::kAdam;
  adam.lr = 0.02;
  OptimizerConfig adam_decay = adam;
  adam_decay.betas = {0.8, 0.95};
  adam_decay.eps = 1e-6;
  adam_decay.weight_decay = 0.1;
  OptimizerConfig adamw_decay = adam_decay;
  adamw_decay.kind = OptimizerKind::kAdamW;
  OptimizerConfig amsgrad = adam;
  amsgrad.amsgrad = true;
  OptimizerConfig maximize = amsgrad;
  maximize.kind = OptimizerKind::kAdamW;
  maximize.maximize = true;
  OptimizerConfig sgd;
  sgd.kind = OptimizerKind::kSgd;
  sgd.lr = 0.05;
  OptimizerConfig sgd_decay = sgd;
  sgd_decay.weight_decay = 0.1;
  sgd_decay.maximize = true;
  OptimizerConfig momentum = sgd;
  momentum.momentum = 0.9;
  OptimizerConfig momentum_decay = momentum;
  momentum_decay.weight_decay = 0.05;
  OptimizerConfig dampening = momentum;
  dampening.dampening = 0.3;
  OptimizerConfig nesterov = momentum;
  nesterov.nesterov = true;
  OptimizerConfig groups;
  groups.lr = 0.02;
  groups.groups.resize(2);
  groups.groups[0].preset = GroupPreset::kNoDecay;
  groups.groups[1].match = "weight$";
  groups.groups[1].lr = 0.008;
  groups.groups[1].lr_scale = 0.5;
  groups.groups[1].weight_decay = 0.2;
  return {{"adam", adam_decay},
          {"adam_amsgrad", amsgrad},
          {"adamw", adamw_decay},
          {"adamw_amsgrad_maximize", maximize},
          {"sgd", sgd},
          {"sgd_decay", sgd_decay},
          {"sgd_momentum", momentum_decay},
          {"sgd_dampening", dampening},
          {"sgd_nesterov", nesterov},
          {"groups", groups}};
}

TEST(Optimizer, EqualsPyTorch) {
  for (const Case& c : cases()) {
    const auto parameters = golden_parameters();
    const auto optimizer = make(c.config, parameters);
    for (int i = 0; i < test::kGoldenSteps; ++i) step(*optimizer, parameters, i);
    for (const NamedTensor& item : parameters) expect_near(item.tensor, c.name + "/" + item.name, 2e-6);
  }
}

// Skipped steps leave everything, also the counts and the first step of a momentum with dampening, as it was.
TEST(Optimizer, FoundInfSkipsStep) {
  const at::Tensor yes = torch::ones({});
  const at::Tensor no = torch::zeros({});
  for (const Case& c : cases()) {
    const auto parameters = golden_parameters();
    const auto optimizer = make(c.config, parameters);
    for (int i = 0; i < test::kGoldenSteps; ++i) {
      if (i % 3 == 0) step(*optimizer, parameters, (i + 5) % test::kGoldenSteps, yes);
      step(*optimizer, parameters, i, no);
    }
    for (const NamedTensor& item : parameters) expect_near(item.tensor, c.name + "/" + item.name, 2e-6);
  }
}

TEST(Optimizer, ResumesBitwiseFromSavedState) {
  for (const Case& c : cases()) {
    const auto first = golden_parameters();
    const auto one = make(c.config, first);
    // In the dampened case "scale" has had no first step yet when the state is saved.
    step(*one, first, 1);
    step(*one, first, 3);
    const auto second = golden_parameters();
    for (size_t i = 0; i < first.size(); ++i) second[i].tensor.detach().copy_(first[i].tensor.detach());
    const auto two = make(c.config, second);
    ASSERT_TRUE(copy_tensors(test::copies_of(one->tensors()), two->tensors(), "optimizer"));
    ASSERT_TRUE(two->restored(nlohmann::json::parse(one->values().dump())));
    for (int i = 4; i < 10; ++i) {
      step(*one, first, i);
      step(*two, second, i);
    }
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(at::equal(first[i].tensor, second[i].tensor)) << c.name << " " << first[i].name;
  }
}

TEST(Optimizer, UsesScheduledLearningRates) {
  OptimizerConfig config;
  config.weight_decay = 0;
  config.lr = 0.5;
  config.groups.resize(1);
  config.groups[0].match = "bias";
  config.groups[0].lr_scale = 0.1;
  const auto parameters = golden_parameters();
  std::vector<at::Tensor> before;
  for (const NamedTensor& item : parameters) before.push_back(item.tensor.detach().clone());
  const auto optimizer = make(config, parameters);
  for (const NamedTensor& item : parameters) item.tensor.mutable_grad() = torch::ones_like(item.tensor.detach());
  optimizer->set_learning_rates([](double lr) { return lr / 2; });
  optimizer->gather_gradients();
  optimizer->step();
  // The first step of Adam moves by lr * g / (|g| + eps).
  const double moved[] = {0.25, 0.025, 0.25};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LE((parameters[i].tensor - (before[i] - moved[i])).abs().max().item<double>(), 1e-6) << i;
  }
}

// exp_avg <- m exp_avg + (1 - m) g, and momentum_buffer <- m momentum_buffer + g, with g = 1.
TEST(Optimizer, AcceptsMomentumPerStep) {
  for (const auto kind : {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    OptimizerConfig config;
    config.kind = kind;
    config.lr = 0.1;
    config.momentum = kind == OptimizerKind::kSgd ? 0.9 : 0.0;
    const std::vector<NamedTensor> parameters = {{"w", torch::zeros({3}).requires_grad_()}};
    const auto optimizer = make(config, parameters);
    for (const double momentum : {0.95, 0.85}) {
      parameters[0].tensor.mutable_grad() = torch::ones({3});
      optimizer->set_momentum(momentum);
      optimizer->gather_gradients();
      optimizer->step();
    }
    const bool sgd = kind == OptimizerKind::kSgd;
    const at::Tensor moment = optimizer->tensors().at(sgd ? "w.momentum_buffer" : "w.exp_avg");
    EXPECT_NEAR(moment[0].item<double>(), sgd ? 0.85 * 1 + 1 : 0.85 * 0.05 + 0.15, 1e-6);
  }
}

TEST(Optimizer, AcceptsMixedTypes) {
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    OptimizerConfig config;
    config.kind = kind;
    config.lr = 0.1;
    std::vector<NamedTensor> parameters;
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      parameters.push_back({c10::toString(type), torch::ones({3}, type).requires_grad_()});
      parameters.back().tensor.mutable_grad() = torch::ones({3}, type);
    }
    parameters.push_back({"frozen", torch::ones({3})});
    const auto optimizer = make(config, parameters);
    EXPECT_EQ(optimizer->gather_gradients().size(), 3U);
    optimizer->step();
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(parameters[i].tensor.max().item<double>(), 0.95) << parameters[i].name;
    EXPECT_EQ(parameters[3].tensor.max().item<double>(), 1);
  }
}

TEST(Optimizer, StateHasNamesOfPyTorch) {
  const auto names = [](const OptimizerConfig& config) {
    std::vector<std::string> out;
    for (const auto& [name, tensor] : make(config, golden_parameters())->tensors()) {
      if (name.starts_with("a.bias.")) out.push_back(name.substr(7));
    }
    return out;
  };
  OptimizerConfig config;
  EXPECT_THAT(names(config), UnorderedElementsAre("exp_avg", "exp_avg_sq", "step"));
  config.amsgrad = true;
  EXPECT_THAT(names(config), UnorderedElementsAre("exp_avg", "exp_avg_sq", "step", "max_exp_avg_sq"));
  config.kind = OptimizerKind::kSgd;
  EXPECT_TRUE(names(config).empty());
  config.momentum = 0.9;
  EXPECT_THAT(names(config), UnorderedElementsAre("momentum_buffer"));
}

TEST(ParameterGroups, NoDecaySelectsBiasesAndNorms) {
  OptimizerConfig config;
  config.weight_decay = 0.3;
  config.groups.resize(1);
  config.groups[0].preset = GroupPreset::kNoDecay;
  const auto groups = group_parameters(config, golden_parameters());
  ASSERT_TRUE(groups);
  ASSERT_EQ(groups->size(), 2U);
  EXPECT_EQ((*groups)[0].weight_decay, 0);
  EXPECT_EQ((*groups)[0].parameters.size(), 2U);
  EXPECT_EQ((*groups)[1].weight_decay, 0.3);
  EXPECT_EQ((*groups)[1].parameters[0].name, "a.weight");
}

TEST(ParameterGroups, RejectsEmptyGroup) {
  OptimizerConfig config;
  config.groups.resize(1);
  config.groups[0].match = "^encoder";
  auto groups = group_parameters(config, golden_parameters());
  ASSERT_FALSE(groups);
  EXPECT_EQ(groups.error().code, ExitCode::kConfig);
  EXPECT_THAT(groups.error().message, AllOf(HasSubstr("groups[0]"), HasSubstr("'^encoder'"), HasSubstr("a.weight")));
  config.groups[0].match = ".";
  config.groups.resize(2);
  config.groups[1].match = "bias";
  groups = group_parameters(config, golden_parameters());
  ASSERT_FALSE(groups);
  EXPECT_THAT(groups.error().message, AllOf(HasSubstr("groups[1]"), HasSubstr("belongs to a group before")));
}

TEST(Optimizer, RejectsMismatchedStateByName) {
  const auto optimizer = make({}, golden_parameters());
  TensorMap state = test::copies_of(optimizer->tensors());
  const auto message = [&] {
    const auto loaded = copy_tensors(state, optimizer->tensors(), "optimizer");
    EXPECT_FALSE(loaded);
    if (loaded) return std::string();
    EXPECT_EQ(loaded.error().code, ExitCode::kDataErr);
    return loaded.error().message;
  };
  state["a.bias.exp_avg"] = torch::zeros({6});
  EXPECT_THAT(message(), AllOf(HasSubstr("'a.bias.exp_avg'"), HasSubstr("[6]"), HasSubstr("[5]")));
  state.erase("a.bias.exp_avg");
  EXPECT_THAT(message(), HasSubstr("has no 'a.bias.exp_avg'"));
  state["a.bias.exp_avg"] = torch::zeros({5});
  state["b.exp_avg"] = torch::zeros({5});
  EXPECT_THAT(message(), HasSubstr("has 'b.exp_avg'"));
}

}  // namespace
}  // namespace oarlock
