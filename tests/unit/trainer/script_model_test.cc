// A TorchScript module trains as in Python, with the same parameter names.
#include "ddp/script_model.h"
#include "tests/support/paths.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <fstream>

#include "ddp/safetensors.h"
#include "tests/support/temporary_directory.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kModel = test::data_path("script_model.pt");

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> out;
  for (const NamedTensor& item : tensors) out.push_back(item.name);
  return out;
}

TEST(ScriptModel, KeepsNamesAndFrozenParameters) {
  const auto model = ScriptModel::load(kModel);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(names(unique_parameters(**model)),
              ElementsAre("scale", "features.0.weight", "features.0.bias", "features.1.weight", "features.1.bias",
                          "head.weight", "head.bias"));
  EXPECT_THAT(names(unique_buffers(**model)),
              ElementsAre("features.1.running_mean", "features.1.running_var", "features.1.num_batches_tracked"));
  for (const NamedTensor& item : unique_parameters(**model))
    EXPECT_EQ(item.tensor.requires_grad(), item.name != "scale") << item.name;
}

TEST(ScriptModel, MatchesThreeStepsOfPython) {
  const auto golden = read_safetensors(test::data_path("script_model_goldens.safetensors"));
  ASSERT_TRUE(golden) << golden.error().message;
  const TensorMap& tensors = golden->tensors;
  const auto loaded = ScriptModel::load(kModel);
  ASSERT_TRUE(loaded) << loaded.error().message;
  ScriptModel& model = **loaded;
  const at::Tensor& image = tensors.at("image");
  model.eval();
  EXPECT_TRUE(model.forward({image}).allclose(tensors.at("before.eval"), 1e-5, 1e-6));
  model.train();
  for (int64_t step = 0; step < 3; ++step) {
    model.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(model.forward({image}), tensors.at("label"));
    EXPECT_NEAR(loss.item<double>(), tensors.at("loss")[step].item<double>(), 1e-6);
    loss.backward();
    const at::NoGradGuard no_gradients;
    for (const NamedTensor& item : unique_parameters(model)) {
      if (item.tensor.grad().defined()) item.tensor.sub_(item.tensor.grad(), 0.1);
    }
  }
  model.eval();
  EXPECT_TRUE(model.forward({image}).allclose(tensors.at("after.eval"), 1e-5, 1e-6));
  std::vector<NamedTensor> state = unique_parameters(model);
  for (const NamedTensor& item : unique_buffers(model)) state.push_back(item);
  for (const NamedTensor& item : state) {
    const at::Tensor& expected = tensors.at("after." + item.name);
    EXPECT_TRUE(item.tensor.to(at::kDouble).allclose(expected.to(at::kDouble), 1e-5, 1e-6)) << item.name;
  }
}

std::string saved(const torch::jit::Module& script, const test::TemporaryDirectory& directory) {
  const std::string path = (directory.path() / "model.pt").string();
  script.save(path);
  return path;
}

TEST(ScriptModel, RejectsAnotherResultThanATensor) {
  const test::TemporaryDirectory directory;
  torch::jit::Module script("net");
  script.register_parameter("w", at::ones({2}), /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return x * self.w, x\n");
  const auto model = ScriptModel::load(saved(script, directory));
  ASSERT_TRUE(model) << model.error().message;
  try {
    (*model)->forward({at::ones({2})});
    ADD_FAILURE() << "it was accepted";
  } catch (const ErrorException& error) {
    EXPECT_EQ(error.error().code, ExitCode::kConfig);
    EXPECT_THAT(error.error().message,
                testing::AllOf(HasSubstr("model.pt: forward() returns Tuple[Tensor, Tensor] in training mode"),
                               testing::Not(HasSubstr("\n"))));
  }
}

// torch.jit.freeze() removes the parameters and the attribute "training".
TEST(ScriptModel, LoadsAFrozenModuleWithoutParameters) {
  const test::TemporaryDirectory directory;
  torch::jit::Module script("net");
  script.define("def forward(self, x):\n  return x + x\n");
  const auto model = ScriptModel::load(saved(script, directory));
  ASSERT_TRUE(model) << model.error().message;
  (*model)->train();
  (*model)->eval();
  EXPECT_TRUE((*model)->parameters().empty());
  EXPECT_EQ((*model)->forward({at::ones({})}).item<double>(), 2);
}

TEST(ScriptModel, NamesTiedWeights) {
  const test::TemporaryDirectory directory;
  torch::jit::Module script("net");
  const at::Tensor weight = at::ones({2});
  script.register_parameter("a", weight, /*is_buffer=*/false);
  script.register_parameter("b", weight, /*is_buffer=*/false);
  script.define("def forward(self, x):\n  return x * self.a * self.b\n");
  const auto model = ScriptModel::load(saved(script, directory));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_THAT(names(unique_parameters(**model)), ElementsAre("a"));
  EXPECT_THAT(derived_tensors(**model).ties, ElementsAre(testing::Pair("b", "a")));
}

TEST(ScriptModel, RejectsOtherFiles) {
  const auto missing = ScriptModel::load("/nowhere/model.pt");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ExitCode::kNoInput);
  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "model.pt").string();
  std::ofstream(path) << "not a script";
  const auto wrong = ScriptModel::load(path);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ExitCode::kDataErr);
  EXPECT_THAT(wrong.error().message, HasSubstr(path + ": not a TorchScript module"));
}

}  // namespace
}  // namespace oarlock
