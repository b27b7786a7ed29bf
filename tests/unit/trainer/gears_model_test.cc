// The GEARS model and its loss, held against what cell-gears 0.1.2 computed (tests/data/gears_*.safetensors).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ddp/safetensors.h"
#include "tests/support/gears_goldens.h"
#include "tests/unit/trainer/expect_close.h"
#include "trainer/nn/module_tensors.h"
#include "trainer/optim/optimizer.h"
#include "workloads/gears/model.h"

namespace oarlock::gears {
namespace {

struct Golden {
  TensorMap tensors;
  nlohmann::json config;

  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }
};

Golden golden(const std::string& name) {
  const auto file = read_safetensors(test::gears_file(name + ".safetensors"));
  EXPECT_TRUE(file) << file.error().message;
  return {file->tensors, nlohmann::json::parse(file->metadata.at("config"))};
}

// The original's float32 is this far from its own float64; 1e-5 is what this program may add.
double tolerance_of(const Golden& golden) {
  return 1e-5 + golden.config["float64_check"]["worst_tensor_relative"][0].get<double>();
}

void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance, const std::string& name) {
  test::expect_close(ours, theirs, name, tolerance, 1e-6);
}

// A gradient that is zero, as that of a bias before a BatchNorm is, is rounding errors in the original's float32.
void expect_close_gradient(const at::Tensor& ours, const at::Tensor& theirs, double tolerance,
                           const std::string& name) {
  constexpr double kRounding = 2e-5;
  if (ours.abs().max().item<double>() < 1e-12) {
    EXPECT_LT(theirs.abs().max().item<double>(), kRounding) << name;
  } else {
    expect_close(ours, theirs, tolerance, name);
  }
}

GearsConfig config_of(const Golden& golden) {
  const nlohmann::json& made = golden.config["model_initialize"];
  return {.hidden_size = made["hidden_size"],
          .num_go_gnn_layers = made.value("num_go_gnn_layers", 1),
          .num_gene_gnn_layers = made.value("num_gene_gnn_layers", 1),
          .decoder_hidden_size = made["decoder_hidden_size"],
          .uncertainty = made.value("uncertainty", false),
          .original_defects = true};
}

GearsGraphs graphs_of(const Golden& golden) {
  const auto edges = [&](const std::string& name) {
    return GraphEdges{golden[name].select(0, 0), golden[name].select(0, 1), golden[name + "_weight"].to(at::kDouble)};
  };
  return {.genes = golden.config["num_genes"],
          .perturbations = golden.config["num_perts"],
          .coexpression = edges("G_coexpress"),
          .ontology = edges("G_go")};
}

void load(GearsModel& model, const Golden& golden, const std::string& weights, const std::string& buffers) {
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : unique_parameters(model)) tensor.copy_(golden[weights + name]);
  for (auto& [name, tensor] : unique_buffers(model)) tensor.copy_(golden[buffers + name]);
}

struct Truth {
  GearsTruth truth;
  GearsReference reference;
};

// The conditions of the batch, numbered, with the genes that count for each.
Truth truth_of(const Golden& golden) {
  const auto names = golden.config["pert"].get<std::vector<std::string>>();
  std::vector<std::string> distinct;
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    auto at = std::find(distinct.begin(), distinct.end(), name);
    if (at == distinct.end()) at = distinct.insert(distinct.end(), name);
    numbers.push_back(at - distinct.begin());
  }
  const int64_t genes = golden.config["num_genes"];
  at::Tensor counted = at::zeros({static_cast<int64_t>(distinct.size()), genes}, at::kBool);
  for (size_t i = 0; i < distinct.size(); ++i) {
    at::Tensor row = counted.select(0, static_cast<int64_t>(i));
    if (distinct[i] == "ctrl") row.fill_(true);
    for (const int64_t gene : golden.config["dict_filter"].value(distinct[i], std::vector<int64_t>())) row[gene] = true;
  }
  return {{golden["y"].to(at::kDouble), at::tensor(numbers)}, {golden["ctrl_expression"].to(at::kDouble), counted}};
}

GearsLossConfig loss_of(const Golden& golden) {
  return {.direction_lambda = golden.config["direction_lambda"], .uncertainty_reg = golden.config["uncertainty_reg"]};
}

class GearsGolden : public ::testing::TestWithParam<const char*> {
 protected:
  Golden golden_ = golden(std::string("model_") + GetParam());
  double tolerance_ = tolerance_of(golden_);
};

TEST_P(GearsGolden, NamesOrderAndShapesOfParametersAreTheOriginals) {
  const GearsModel model(config_of(golden_), graphs_of(golden_));
  std::vector<std::string> names;
  std::vector<std::string> without_gradient;
  for (const auto& [name, tensor] : unique_parameters(model)) {
    names.push_back(name);
    EXPECT_EQ(tensor.sizes(), golden_["weight." + name].sizes()) << name;
    if (!tensor.requires_grad()) without_gradient.push_back(name);
  }
  EXPECT_EQ(names, golden_.config["param_order"].get<std::vector<std::string>>());
  std::vector<std::string> never_used;
  for (const nlohmann::json& entry : golden_.config["no_grad"]) never_used.push_back(entry[1]);
  EXPECT_EQ(without_gradient, never_used);
  for (const auto& [name, tensor] : unique_buffers(model))
    EXPECT_TRUE(golden_.tensors.contains("buffer_before." + name));
}

TEST_P(GearsGolden, OutputsLossGradientsBuffersAndShortenedEmbeddingsAreTheOriginals) {
  GearsModel model(config_of(golden_), graphs_of(golden_));
  model.to(at::kDouble);
  load(model, golden_, "weight.", "buffer_before.");
  model.renormalize_embeddings();
  const GearsOutput output = model.forward(golden_["x"].to(at::kDouble), golden_["pert_idx"]);
  expect_close(output.expression, golden_["train_pred"], 1e-5, "train_pred");
  if (output.log_variance.defined()) expect_close(output.log_variance, golden_["train_logvar"], 1e-5, "train_logvar");

  const Truth truth = truth_of(golden_);
  const at::Tensor loss = gears_loss(loss_of(golden_), output, truth.truth, truth.reference);
  expect_close(loss, golden_["loss"], 1e-5, "loss");
  loss.backward();
  int gradients = 0;
  for (const auto& [name, tensor] : unique_parameters(model)) {
    if (!golden_.tensors.contains("grad." + name)) continue;
    ASSERT_TRUE(tensor.grad().defined()) << name;
    expect_close_gradient(tensor.grad(), golden_["grad." + name], tolerance_, "grad " + name);
    ++gradients;
  }
  EXPECT_GE(gradients, 47);
  for (const auto& [name, tensor] : unique_buffers(model)) {
    expect_close(tensor, golden_["buffer_after." + name], 1e-5, "buffer " + name);
  }
  for (const auto& [name, tensor] : unique_parameters(model)) {
    if (golden_.tensors.contains("weight_after_forward." + name)) {
      expect_close(tensor, golden_["weight_after_forward." + name], 1e-6, name);
    }
  }

  model.eval();
  const at::NoGradGuard no_grad;
  const GearsOutput evaluated = model.forward(golden_["x"].to(at::kDouble), golden_["pert_idx"]);
  expect_close(evaluated.expression, golden_["eval_pred"], 1e-5, "eval_pred");
  if (evaluated.log_variance.defined())
    expect_close(evaluated.log_variance, golden_["eval_logvar"], 1e-5, "eval_logvar");
}

INSTANTIATE_TEST_SUITE_P(All, GearsGolden, ::testing::Values("plain", "uncertainty", "deep", "one"));

TEST(GearsModel, AnAdamStepWithClippingByValueIsTheOriginals) {
  const Golden step = golden("adam_step");
  const Golden plain = golden("model_plain");
  GearsModel model(config_of(plain), graphs_of(plain));
  {
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : unique_parameters(model)) tensor.copy_(step["before." + name]);
  }
  OptimizerConfig config;
  config.kind = OptimizerKind::kAdam;
  config.lr = step.config["lr"];
  config.weight_decay = step.config["weight_decay"].get<double>();
  const auto optimizer = make_optimizer(config, unique_parameters(model)).value();
  for (const auto& [name, tensor] : unique_parameters(model)) {
    if (plain.tensors.contains("grad." + name)) tensor.mutable_grad() = plain["grad." + name] * 40;
  }
  GradientConfig clipping;
  clipping.clip_value = 1.0;
  clip_gradients(clipping, optimizer->gather_gradients());
  for (const auto& [name, tensor] : unique_parameters(model)) {
    if (step.tensors.contains("clipped_grad." + name)) {
      expect_close(tensor.grad(), step["clipped_grad." + name], 1e-6, name);
    }
  }
  optimizer->set_learning_rates([](double lr) { return lr; });
  optimizer->step({});
  for (const auto& [name, tensor] : unique_parameters(model)) expect_close(tensor, step["after." + name], 1e-6, name);
}

TEST(GearsModel, WithoutPerturbationTheOutputIsTheInput) {
  const Golden plain = golden("model_plain");
  GearsConfig config = config_of(plain);
  config.no_perturb = true;
  GearsModel model(config, graphs_of(plain));
  const at::Tensor x = plain["x"];
  EXPECT_TRUE(model.forward(x, plain["pert_idx"]).expression.equal(x));
  model.eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(model.forward(x, plain["pert_idx"]).expression.equal(x));
}

// A defect of the original: a cell's prediction depends on its position in the batch.
TEST(GearsModel, ByDefaultTheOrderOfCellsDoesNotMatter) {
  const Golden plain = golden("model_plain");
  for (const bool defects : {false, true}) {
    GearsConfig config = config_of(plain);
    config.original_defects = defects;
    GearsModel model(config, graphs_of(plain));
    model.to(at::kDouble);
    load(model, plain, "weight.", "buffer_after.");
    model.eval();
    const at::NoGradGuard no_grad;
    const at::Tensor x = plain["x"].to(at::kDouble);
    const at::Tensor straight = model.forward(x, plain["pert_idx"]).expression;
    const at::Tensor turned = model.forward(x.flip(0), plain["pert_idx"].flip(0)).expression.flip(0);
    EXPECT_EQ((straight - turned).abs().max().item<double>() < 1e-9, !defects);
  }
}

// The original applies the graph to the first cell only. In evaluation, no cell depends on another one.
TEST(GearsModel, TheDefaultTreatsEveryCellAsTheOriginalTreatsTheFirst) {
  const Golden plain = golden("model_plain");
  GearsConfig config = config_of(plain);
  GearsModel original(config, graphs_of(plain));
  config.original_defects = false;
  GearsModel ours(config, graphs_of(plain));
  for (GearsModel* model : {&original, &ours}) {
    model->to(at::kDouble);
    load(*model, plain, "weight.", "buffer_after.");
    model->eval();
  }
  const at::NoGradGuard no_grad;
  const at::Tensor x = plain["x"].to(at::kDouble);
  const at::Tensor all = ours.forward(x, plain["pert_idx"]).expression;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const at::Tensor alone =
        original.forward(x.slice(0, i, i + 1), plain["pert_idx"].slice(0, i, i + 1)).expression.squeeze(0);
    expect_close(all[i], alone, 1e-9, "cell " + std::to_string(i));
  }
}

// The default computes the states that all cells share once. The original computes them for each cell; without
// co-expression its cells have the same states, so both models do the same. In double they differ by the rounding of
// sums of at most a few thousand terms, of which 1e-10 is far above.
TEST(GearsModel, TheDefaultsRunningStatisticsCountTheRowsOfAllCells) {
  const Golden plain = golden("model_plain");
  GearsGraphs graphs = graphs_of(plain);
  graphs.coexpression = {at::zeros({0}, at::kLong), at::zeros({0}, at::kLong), at::zeros({0}, at::kDouble)};
  GearsConfig config = config_of(plain);
  GearsModel original(config, graphs);
  config.original_defects = false;
  GearsModel ours(config, graphs);
  for (GearsModel* model : {&original, &ours}) {
    model->to(at::kDouble);
    load(*model, plain, "weight.", "buffer_before.");
    model->forward(plain["x"].to(at::kDouble), plain["pert_idx"]);
  }
  const auto expected = unique_buffers(original);
  const auto actual = unique_buffers(ours);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) expect_close(actual[i].tensor, expected[i].tensor, 1e-10, actual[i].name);
}

// Every cell has the same rows in bn_emb, also in the original. The original's float32 is what the tolerance is for.
TEST(GearsModel, TheDefaultsStatisticsOfTheEmbeddingAreTheOriginals) {
  for (const char* name : {"model_plain", "model_deep", "model_uncertainty"}) {
    const Golden expected = golden(name);
    GearsConfig config = config_of(expected);
    config.original_defects = false;
    GearsModel model(config, graphs_of(expected));
    model.to(at::kDouble);
    load(model, expected, "weight.", "buffer_before.");
    model.forward(expected["x"].to(at::kDouble), expected["pert_idx"]);
    int compared = 0;
    for (const auto& [buffer, tensor] : unique_buffers(model)) {
      if (!buffer.starts_with("bn_emb.")) continue;
      expect_close(tensor, expected["buffer_after." + buffer], 1e-5, buffer);
      ++compared;
    }
    EXPECT_EQ(compared, 3);
  }
}

TEST(GearsModel, ABatchOfControlsGivesEveryParameterAGradient) {
  const Golden plain = golden("model_plain");
  GearsConfig config = config_of(plain);
  config.original_defects = false;
  GearsModel model(config, graphs_of(plain));
  const at::Tensor none = at::full({12, 2}, -1, at::kLong);
  model.forward(plain["x"], none).expression.sum().backward();
  for (const auto& [name, tensor] : unique_parameters(model)) {
    EXPECT_EQ(tensor.grad().defined(), tensor.requires_grad()) << name;
  }
}

TEST(GearsLoss, ClosedFormOfOneCellAndOfADirection) {
  const at::Tensor control = at::full({3}, 1.0);
  const at::Tensor counted = at::ones({1, 3}, at::kBool);
  const GearsTruth truth{at::tensor({2.0, 1.0, 0.0}).unsqueeze(0), at::zeros({1}, at::kLong)};
  const GearsOutput output{at::tensor({3.0, 0.0, 0.0}).unsqueeze(0), {}};
  // Errors 1, 1, 0; directions of truth +, 0, - and of prediction +, -, -: the second differs by 1.
  EXPECT_DOUBLE_EQ(gears_loss({.direction_lambda = 0.5}, output, truth, {control, counted}).item<double>(),
                   (2 + 0.5 * 1) / 3);
  const GearsOutput certain{output.expression, at::zeros({1, 3}, at::kDouble)};
  EXPECT_DOUBLE_EQ(
      gears_loss({.direction_lambda = 0, .uncertainty_reg = 3}, certain, truth, {control, counted}).item<double>(),
      2.0 * (1 + 3) / 3);
}

TEST(GearsLoss, ConditionsCountAlikeWhateverTheirCells) {
  const at::Tensor control = at::zeros({1}, at::kDouble);
  const at::Tensor counted = at::ones({2, 1}, at::kBool);
  const GearsTruth truth{at::zeros({3, 1}, at::kDouble), at::tensor({0, 0, 1}, at::kLong)};
  const GearsOutput output{at::tensor({1.0, 1.0, 2.0}).unsqueeze(1), {}};
  EXPECT_DOUBLE_EQ(gears_loss({.direction_lambda = 0}, output, truth, {control, counted}).item<double>(),
                   (1 + 16) / 2.0);
}

}  // namespace
}  // namespace oarlock::gears
