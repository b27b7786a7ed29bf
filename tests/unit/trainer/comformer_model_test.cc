// iComFormer and eComFormer against the originals: names, shapes, outputs and gradients; and their invariances.
#include "tests/support/paths.h"
#include "workloads/comformer/model.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include "tests/unit/trainer/comformer_golden.h"
#include "tests/unit/trainer/expect_close.h"
#include "workloads/comformer/data.h"
#include "workloads/formats/extxyz.h"

namespace oarlock::comformer {
namespace {

using test::comformer_golden;
using test::ComformerGolden;
using test::expect_close;

struct Size {
  const char* name;
  ComformerConfig config;
  int64_t parameters;
};

const ComformerConfig kEquivariant{.kind = ComformerKind::kEquivariant, .conv_layers = 3};

TEST(ComformerModel, NamesOrderShapesAndNumbersOfParametersAreTheOriginals) {
  const nlohmann::json original = nlohmann::json::parse(std::ifstream(test::data_path("comformer_parameters.json")));
  for (const auto& [name, config, parameters] :
       {Size{"iComformer", {}, 4'966'497}, Size{"eComformer", kEquivariant, 5'583'809},
        Size{"", {.conv_layers = 3}, 4'111'201}}) {
    const auto model = make_comformer(config);
    int64_t count = 0;
    std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
    for (const auto& item : model->named_parameters()) {
      count += item.value().numel();
      shapes.emplace_back(item.key(), item.value().sizes().vec());
    }
    EXPECT_EQ(count, parameters);
    if (*name == '\0') continue;
    EXPECT_EQ(original[name]["total"], parameters);
    std::vector<std::pair<std::string, std::vector<int64_t>>> expected;
    for (const nlohmann::json& parameter : original[name]["parameters"])
      expected.emplace_back(parameter[0], parameter[1].get<std::vector<int64_t>>());
    EXPECT_EQ(shapes, expected);
  }
}

// The buffers of the originals' state_dict() that are constants.
TEST(ComformerModel, NamesConstantBuffersOfTheOriginals) {
  const auto shapes_of = [](const ComformerConfig& config) {
    std::map<std::string, int64_t> sizes;
    for (const auto& [name, tensor] : derived_tensors(*make_comformer(config)).constants) sizes[name] = tensor.numel();
    return sizes;
  };
  EXPECT_EQ(shapes_of({}), (std::map<std::string, int64_t>{{"rbf.0.centers", 256}, {"rbf_angle.0.centers", 256}}));
  EXPECT_EQ(shapes_of(kEquivariant), (std::map<std::string, int64_t>{{"equi_update.nlayer_1.tp.output_mask", 128},
                                                                     {"equi_update.nlayer_1.tp.weight", 0},
                                                                     {"equi_update.nlayer_2.tp.output_mask", 64},
                                                                     {"equi_update.nlayer_2.tp.weight", 0},
                                                                     {"rbf.0.centers", 256}}));
}

void load(torch::nn::Module& model, const ComformerGolden& golden, const std::string& buffers) {
  const at::NoGradGuard no_gradients;
  for (auto& item : model.named_parameters()) item.value().copy_(golden["weight." + item.key()]);
  for (auto& item : model.named_buffers()) item.value().copy_(golden[buffers + item.key()]);
}

class Originals : public testing::TestWithParam<const char*> {};

// A gradient that is 0 except for rounding errors, because a batch normalization follows these biases.
bool vanishes(const std::string& parameter) { return parameter.ends_with("lin_concate.bias"); }

TEST_P(Originals, OutputLossAndGradientsInDoublePrecision) {
  const ComformerGolden golden = comformer_golden(GetParam());
  const auto model = make_comformer(golden.model());
  model->to(at::kDouble);
  load(*model, golden, "buffer_before.");
  const at::Tensor output = model->forward(golden.batch(at::kDouble)).squeeze(-1);
  expect_close(output, golden["double.train_output"], "output");
  const at::Tensor loss = (output - golden["target"].to(at::kDouble)).square().mean();
  expect_close(loss, golden["double.loss"], "loss");
  loss.backward();
  std::vector<std::pair<int64_t, std::string>> without;
  int64_t index = 0;
  for (const auto& item : model->named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    if (!gradient.defined()) {
      without.emplace_back(index, item.key());
    } else if (vanishes(item.key())) {
      EXPECT_LT(gradient.abs().max().item<double>(), 1e-10) << item.key();
    } else {
      expect_close(gradient, golden["double.grad." + item.key()], item.key());
    }
    ++index;
  }
  EXPECT_EQ(without, (golden.no_grad.get<std::vector<std::pair<int64_t, std::string>>>()));
  for (const auto& item : model->named_buffers())
    if (!item.key().ends_with("num_batches_tracked"))
      expect_close(item.value(), golden["double.buffer_after." + item.key()], item.key());
}

TEST_P(Originals, EvaluationUsesTheRunningStatistics) {
  const ComformerGolden golden = comformer_golden(GetParam());
  const auto model = make_comformer(golden.model());
  load(*model, golden, "buffer_after.");
  model->eval();
  const at::NoGradGuard no_gradients;
  expect_close(model->forward(golden.batch(at::kFloat)).squeeze(-1), golden["eval_output"], "single precision", 1e-4);
  model->to(at::kDouble);
  expect_close(model->forward(golden.batch(at::kDouble)).squeeze(-1), golden["eval_output"], "double precision", 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Original, Originals, testing::Values("icomformer", "ecomformer"));

TEST(ComformerModel, ParametersWithoutGradientAtFullSize) {
  const nlohmann::json original = nlohmann::json::parse(std::ifstream(test::data_path("comformer_parameters.json")));
  const ComformerGolden golden = comformer_golden("icomformer");
  const auto model = make_comformer({});
  model->forward(golden.batch(at::kFloat)).sum().backward();
  const auto parameters = model->parameters();
  std::vector<size_t> without;
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].grad().defined(), original["iComformer"]["parameters"][i][2].get<bool>()) << i;
    if (!parameters[i].grad().defined()) without.push_back(i);
  }
  EXPECT_THAT(without, testing::ElementsAre(94, 114, 115));
}

std::vector<Crystal> real_crystals() {
  const auto file = ExtxyzFile::open(test::data_path("comformer_crystals.extxyz"));
  std::vector<Crystal> crystals;
  for (int64_t i = 0; i < file->size(); ++i) crystals.push_back(file->read(i)->crystal);
  return crystals;
}

// Turned, moved, its atoms in another order and in other cells.
Crystal moved(const Crystal& crystal, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  const double a = 3 * uniform(random);
  const double b = 3 * uniform(random);
  const auto turned = [&](const Vector3& v) {
    const Vector3 w{v[0] * std::cos(a) - v[1] * std::sin(a), v[0] * std::sin(a) + v[1] * std::cos(a), v[2]};
    return Vector3{w[0], w[1] * std::cos(b) - w[2] * std::sin(b), w[1] * std::sin(b) + w[2] * std::cos(b)};
  };
  Crystal out;
  for (size_t i = 0; i < 3; ++i) out.lattice[i] = turned(crystal.lattice[i]);
  const Vector3 shift{uniform(random), uniform(random), uniform(random)};
  std::vector<size_t> order(crystal.numbers.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    Vector3 position = turned(crystal.positions[i]);
    const CellImage cell{static_cast<int32_t>(random() % 3) - 1, static_cast<int32_t>(random() % 3) - 1, 0};
    for (size_t axis = 0; axis < 3; ++axis) position[axis] += shift[axis] + translation_of(out.lattice, cell)[axis];
    out.numbers.push_back(crystal.numbers[i]);
    out.positions.push_back(position);
  }
  return out;
}

TEST(ComformerModel, DoesNotDependOnOrientationAndRepresentation) {
  std::mt19937 random(3);
  std::vector<CrystalGraph> as_read;
  std::vector<CrystalGraph> as_moved;
  for (const Crystal& crystal : real_crystals()) {
    as_read.push_back(crystal_graph(crystal, {}).value());
    as_moved.push_back(crystal_graph(moved(crystal, random), {}).value());
  }
  torch::manual_seed(1);
  for (const ComformerConfig& config :
       {ComformerConfig{.node_features = 24, .fc_features = 12},
        ComformerConfig{
            .kind = ComformerKind::kEquivariant, .conv_layers = 3, .node_features = 24, .fc_features = 12}}) {
    const auto model = make_comformer(config);
    model->to(at::kDouble);
    const at::NoGradGuard no_gradients;
    const at::Tensor output = model->forward(test::batch_of(as_read, atom_features()));
    ASSERT_GT(output.std().item<double>(), 1e-3) << "the outputs of the crystals do not differ";
    expect_close(model->forward(test::batch_of(as_moved, atom_features())), output, "moved");
  }
}

TEST(AtomFeatures, AreCgcnns) {
  const at::Tensor features = atom_features();
  EXPECT_EQ(features.size(0), 101);
  EXPECT_EQ(features.size(1), kAtomFeatures);
  const ComformerGolden golden = comformer_golden("icomformer");
  // SrTiO3, then K2O2: four K, four O.
  const std::vector<int64_t> numbers{38, 22, 8, 8, 8, 19, 19, 19, 19, 8, 8, 8, 8};
  expect_close(features.index_select(0, at::tensor(numbers)), golden["x"], "atoms", 0);
  EXPECT_EQ(features[0].sum().item<float>(), 0);
  for (int64_t number = 1; number <= kFeaturedElements; ++number)
    EXPECT_GE(features[number].sum().item<float>(), 5) << number;
}

}  // namespace
}  // namespace oarlock::comformer
