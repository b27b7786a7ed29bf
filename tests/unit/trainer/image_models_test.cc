// The networks of image_classification against PyTorch's.
#include "tests/support/image_task.h"
#include "tests/support/paths.h"
#include "workloads/image_classification/model.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ddp/safetensors.h"
#include "tests/support/temporary_directory.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock::image_classification {
namespace {

using test::bytes_of;
using test::shapes_of;
using testing::ElementsAre;
using testing::Pair;
using Shape = std::vector<int64_t>;

constexpr uint64_t kSeed = 7;  // of make_resnet_goldens.py

// Equal to a share of the largest number.
testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double tolerance = 1e-6) {
  if (actual.sizes() != expected.sizes()) return testing::AssertionFailure() << "shape " << actual.sizes();
  const double scale = expected.abs().max().item<double>();
  const double difference = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  if (difference <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "they differ by " << difference << ", the largest is " << scale;
}

// Normal draws are std * sqrt(-2 ln u) * cos(2 pi v) in float32, and the vector units' logarithm and cosine differ in
// their last places. With eps = 2^-23, 2 pi v is rounded by at most 2 pi * eps / 2, the radius is at most 5.8 and by 2
// eps (relative) off: together less than 5.8 * 5.2 * eps = 3.6e-6 of std, and the largest of the draws exceeds 1.5 std.
constexpr double kNormalDraw = 2.4e-6;

TEST(ImageModels, NamesAndShapesAreThoseOfPython) {
  const auto cnn = make_image_model({.hidden = {128}}, {});
  EXPECT_THAT(shapes_of(*cnn), ElementsAre(Pair("conv1.weight", Shape{16, 1, 3, 3}), Pair("conv1.bias", Shape{16}),
                                           Pair("conv2.weight", Shape{32, 16, 3, 3}), Pair("conv2.bias", Shape{32}),
                                           Pair("fc1.weight", Shape{128, 1568}), Pair("fc1.bias", Shape{128}),
                                           Pair("fc2.weight", Shape{10, 128}), Pair("fc2.bias", Shape{10})));
  const auto mlp =
      make_image_model({.kind = ImageModelKind::kMlp, .classes = 3, .hidden = {20}}, {.height = 8, .width = 9});
  EXPECT_THAT(shapes_of(*mlp), ElementsAre(Pair("fc1.weight", Shape{20, 72}), Pair("fc1.bias", Shape{20}),
                                           Pair("fc2.weight", Shape{3, 20}), Pair("fc2.bias", Shape{3})));
}

TEST(ImageModels, SmallNetworksEqualPyTorch) {
  const auto golden = read_safetensors(test::data_path("image_model_goldens.safetensors"));
  ASSERT_TRUE(golden) << golden.error().message;
  const TensorMap& tensors = golden->tensors;
  const std::vector<std::pair<std::string, ImageModelConfig>> configs{
      {"cnn", {.classes = 5, .channels = {3, 4}, .hidden = {6}}},
      {"cnn", {.classes = 5, .channels = {3, 4}, .hidden = {6}, .activation_checkpointing = true}},
      {"mlp", {.kind = ImageModelKind::kMlp, .classes = 5, .hidden = {7, 6}}}};
  for (const auto& [name, config] : configs) {
    SCOPED_TRACE(name);
    const auto model = make_image_model(config, {.height = 9, .width = 13});
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : model->named_parameters()) item.value().copy_(tensors.at(name + ".parameter." + item.key()));
    }
    const at::Tensor logits = model->forward(tensors.at("image"));
    EXPECT_TRUE(at::allclose(logits, tensors.at(name + ".logits"), 1e-5, 1e-6));
    const at::Tensor loss = at::cross_entropy_loss(logits, tensors.at("label"));
    EXPECT_TRUE(at::allclose(loss, tensors.at(name + ".loss"), 1e-5, 1e-6));
    loss.backward();
    for (const auto& item : model->named_parameters()) {
      EXPECT_TRUE(at::allclose(item.value().grad(), tensors.at(name + ".gradient." + item.key()), 1e-5, 1e-6))
          << item.key();
    }
  }
}

int64_t count_of(const ImageModelConfig& config, int64_t channels) {
  const auto model = make_image_model(config, {.channels = channels});
  const auto parameters = model->parameters();
  return std::accumulate(parameters.begin(), parameters.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& parameter) { return sum + parameter.numel(); });
}

TEST(ResidualNetworks, HaveAsManyParametersAsTheOriginals) {
  EXPECT_EQ(count_of({.kind = ImageModelKind::kResnetLike}, 3), 1'193'546);
  EXPECT_EQ(count_of({.kind = ImageModelKind::kResnet18, .classes = 1000}, 3), 11'689'512);
  EXPECT_EQ(count_of({.kind = ImageModelKind::kResnet50, .classes = 1000}, 3), 25'557'032);
  EXPECT_EQ(count_of({.kind = ImageModelKind::kResnet18, .stem = ResnetStem::kCifar}, 3), 11'173'962);
}

struct Case {
  std::string name;
  ImageModelConfig config;
  Shape images;
  bool shallow;  // enough for single precision to keep five digits through so many batch norms
};

class Residual : public testing::TestWithParam<Case> {
 protected:
  static const SafetensorsFile& golden() {
    static const auto file = read_safetensors(test::data_path("resnet_goldens.safetensors"));
    return file.value();
  }
  static at::Tensor expected(const std::string& what) { return golden().tensors.at(GetParam().name + "." + what); }

  static std::shared_ptr<ImageModel> seeded() {
    torch::manual_seed(kSeed);
    return make_image_model(GetParam().config, {.channels = GetParam().images[1]});
  }

  // images() of make_resnet_goldens.py
  static at::Tensor images() {
    const at::Tensor i = at::arange(c10::multiply_integers(GetParam().images), at::kLong);
    return (i * i * 37 + i * 11).remainder(101).sub(50).to(at::kFloat).div(25).reshape(GetParam().images);
  }

  // Parameters and buffers: Python's state_dict().
  static TensorMap state_of(const torch::nn::Module& model) {
    TensorMap state;
    for (const NamedTensor& item : unique_parameters(model)) state.emplace(item.name, item.tensor);
    for (const NamedTensor& item : unique_buffers(model)) state.emplace(item.name, item.tensor);
    return state;
  }

  static TensorMap expected_state() {
    TensorMap state;
    const std::string prefix = GetParam().name + ".state.";
    for (const auto& [name, tensor] : golden().tensors) {
      if (name.rfind(prefix, 0) == 0) state.emplace(name.substr(prefix.size()), tensor);
    }
    return state;
  }

  static void load(torch::nn::Module& model, const TensorMap& state) {
    const torch::NoGradGuard no_grad;
    for (auto& [name, tensor] : state_of(model)) at::Tensor(tensor).copy_(state.at(name));
  }
};

TEST_P(Residual, ParametersHavePythonsNamesAndOrder) {
  std::vector<std::string> names;
  for (const NamedTensor& item : unique_parameters(*seeded())) names.push_back(item.name);
  EXPECT_EQ(fmt::format("{}", fmt::join(names, ",")), golden().metadata.at(GetParam().name));
}

TEST_P(Residual, TheSameSeedGivesTheSameWeightsAsInPython) {
  const TensorMap actual = state_of(*seeded());
  const TensorMap expected = expected_state();
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_EQ(actual.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(close(actual.at(name), tensor, kNormalDraw)) << name;
  }
}

TEST_P(Residual, ForwardAndBackwardEqualPyTorch) {
  const auto model = seeded();
  load(*model, expected_state());
  if (GetParam().shallow) {
    EXPECT_TRUE(close(model->forward(images()), expected("logits"), 1e-5));
  }
  load(*model, expected_state());
  model->to(at::kDouble);
  const at::Tensor image = images().to(at::kDouble);
  const at::Tensor logits = model->forward(image);
  EXPECT_TRUE(close(logits, expected("logits")));
  const at::Tensor label = at::arange(logits.size(0), at::kLong).remainder(GetParam().config.classes);
  const at::Tensor loss = at::cross_entropy_loss(logits, label);
  EXPECT_TRUE(close(loss, expected("loss")));
  loss.backward();
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(close(item.value().grad(), expected("gradient." + item.key()))) << item.key();
  for (const auto& item : model->named_buffers())
    EXPECT_TRUE(close(item.value(), expected("buffer." + item.key()))) << item.key();
  model->eval();
  EXPECT_TRUE(close(model->forward(image), expected("eval_logits")));
}

// The state that Python wrote, once through the model here and back, is the same file: names, types, shapes, bytes.
TEST_P(Residual, WeightsGoBothWaysAsSafetensors) {
  const test::TemporaryDirectory directory;
  const auto from_python = directory.path() / "python.safetensors";
  const auto from_here = directory.path() / "here.safetensors";
  ASSERT_TRUE(write_safetensors(from_python, expected_state()));  // byte for byte what Python writes: safetensors_test
  torch::manual_seed(kSeed + 1);
  const auto model = make_image_model(GetParam().config, {.channels = GetParam().images[1]});
  const auto read = read_safetensors(from_python);
  ASSERT_TRUE(read) << read.error().message;
  load(*model, read->tensors);
  ASSERT_TRUE(write_safetensors(from_here, state_of(*model)));
  EXPECT_EQ(bytes_of(from_here), bytes_of(from_python));
}

INSTANTIATE_TEST_SUITE_P(
    All, Residual,
    testing::Values(
        Case{"resnet_like", {.kind = ImageModelKind::kResnetLike, .classes = 5, .width = 4}, {8, 1, 28, 28}, true},
        Case{"resnet18",
             {.kind = ImageModelKind::kResnet18, .classes = 5, .width = 2, .stem = ResnetStem::kCifar},
             {8, 3, 16, 16},
             true},
        Case{"resnet50", {.kind = ImageModelKind::kResnet50, .classes = 5, .width = 2}, {8, 3, 64, 64}, false}),
    [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace oarlock::image_classification
