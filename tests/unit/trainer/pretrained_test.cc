// Loading weights of a file into a model: matching and other tensors, and the names that Python's wrappers write.
#include "trainer/engine/task_setup.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

using test::TemporaryDirectory;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Net : public torch::nn::Module {
 public:
  Net() {
    register_module("fc1", torch::nn::Linear(3, 2));
    register_module("fc2", torch::nn::Linear(2, 1));
    register_buffer("seen", at::zeros({}, at::kLong));
  }
};

TensorMap weights(double value, const std::string& prefix = "") {
  return {{prefix + "fc1.weight", at::full({2, 3}, value)},
          {prefix + "fc1.bias", at::full({2}, value)},
          {prefix + "fc2.weight", at::full({1, 2}, value)},
          {prefix + "fc2.bias", at::full({1}, value)},
          {prefix + "seen", at::full({}, 7, at::kLong)}};
}

std::vector<std::string> names(const TensorMap& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : tensors) out.push_back(name);
  return out;
}

class Pretrained : public testing::Test {
 protected:
  Result<PretrainedReport> load(const TensorMap& tensors, bool strict = true) {
    const auto path = directory_.path() / "weights.safetensors";
    std::filesystem::remove(path);
    EXPECT_TRUE(write_safetensors(path, tensors));
    return load_pretrained({path.string(), strict}, read_safetensors(path)->tensors, net_);
  }

  double sum(const std::string& name) { return net_.named_parameters()[name].sum().item<double>(); }

  TemporaryDirectory directory_;
  Net net_;
};

TEST_F(Pretrained, LoadsParametersAndBuffers) {
  const auto report = load(weights(0.5));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->loaded, 5);
  EXPECT_TRUE(report->fits());
  EXPECT_EQ(sum("fc1.weight"), 3);
  EXPECT_EQ(sum("fc2.bias"), 0.5);
  EXPECT_EQ(net_.named_buffers()["seen"].item<int64_t>(), 7);
}

TEST_F(Pretrained, RemovesPrefixesOfPythonWrappers) {
  for (const std::string prefix : {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    const auto report = load(weights(0.25, prefix));
    ASSERT_TRUE(report) << prefix << ": " << report.error().message;
    EXPECT_EQ(report->loaded, 5);
  }
}

TEST(WithoutWrappers, KeepsPrefixThatNotAllNamesHave) {
  EXPECT_THAT(names(without_wrappers({{"module.a", {}}, {"b", {}}})), ElementsAre("b", "module.a"));
  EXPECT_THAT(names(without_wrappers({{"module.a", {}}, {"module.module.b", {}}})), ElementsAre("a", "module.b"));
  EXPECT_THAT(names(without_wrappers({})), IsEmpty());
}

TEST_F(Pretrained, ConvertsToTypeOfModel) {
  TensorMap halves = weights(0.5);
  for (auto& [name, tensor] : halves) tensor = tensor.is_floating_point() ? tensor.to(at::kHalf) : tensor;
  ASSERT_TRUE(load(halves));
  EXPECT_EQ(sum("fc1.weight"), 3);
  EXPECT_EQ(net_.parameters().front().scalar_type(), at::kFloat);
}

TEST_F(Pretrained, StrictLoadsNothingUnlessEverythingFits) {
  TensorMap other = weights(0.5);
  other.erase("fc1.bias");
  other["head.weight"] = at::full({1}, 1.0);
  other["fc2.weight"] = at::full({4, 2}, 1.0);
  const double before = sum("fc1.weight");
  const auto report = load(other);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ExitCode::kDataErr);
  EXPECT_THAT(report.error().message,
              AllOf(HasSubstr("weights.safetensors"), HasSubstr("it has no 'fc1.bias'"),
                    HasSubstr("the model has no 'head.weight'"), HasSubstr("'fc2.weight [4, 2] for [1, 2]'"),
                    HasSubstr("pretrained.strict: false")));
  EXPECT_EQ(sum("fc1.weight"), before);
}

TEST_F(Pretrained, NotStrictLoadsMatchingTensors) {
  TensorMap other = weights(0.5);
  other["fc2.weight"] = at::full({4, 2}, 1.0);
  other.erase("seen");
  const double head = sum("fc2.weight");
  const auto report = load(other, false);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->loaded, 3);
  EXPECT_THAT(report->missing, ElementsAre("seen"));
  EXPECT_EQ(sum("fc1.weight"), 3);
  EXPECT_EQ(sum("fc2.weight"), head);
}

class TiedNet : public torch::nn::Module, public ConstantBuffers {
 public:
  TiedNet() {
    const at::Tensor weight = register_parameter("a", at::zeros({2}));
    register_parameter("b", weight);
  }
  std::map<std::string, at::Tensor> constant_buffers() const override { return {{"centers", at::full({2}, 0.1)}}; }
};

// As state_dict() of Python has them, or safetensors.torch.save_model(), which leaves out all names but one.
TEST_F(Pretrained, AcceptsTiedWeightsAndConstants) {
  const at::Tensor three = at::full({2}, 3.0);
  const at::Tensor centers = at::full({2}, 0.1);
  const auto load_tied = [&](TensorMap tensors, TiedNet& net, bool strict = true) {
    return load_pretrained({"w.safetensors", strict}, std::move(tensors), net);
  };
  for (const TensorMap& tensors : {TensorMap{{"a", three}, {"b", three.clone()}, {"centers", centers}},
                                   TensorMap{{"a", three}}, TensorMap{{"b", three}, {"centers", centers}}}) {
    TiedNet net;
    const auto report = load_tied(tensors, net);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(net.named_parameters()["a"].sum().item<double>(), 6);
    EXPECT_TRUE(report->fits());
  }
  for (const TensorMap& tensors :
       {TensorMap{{"a", three}, {"b", at::full({2}, 4.0)}}, TensorMap{{"a", three}, {"centers", at::full({2}, 0.2)}}}) {
    TiedNet net;
    const auto report = load_tied(tensors, net);
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().message, HasSubstr("constants or tied weights of the model have other values: '"));
    EXPECT_TRUE(load_tied(tensors, net, /*strict=*/false));
  }
}

TEST_F(Pretrained, NamesTheConversionOfAFileOfTorchSave) {
  const auto path = directory_.path() / "best.pt";
  for (const char* begin : {"PK\x03\x04rest of a zip archive", "\x80\x02}q"}) {
    std::ofstream(path) << begin;
    const auto file = read_pretrained({path.string(), true});
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ExitCode::kDataErr);
    EXPECT_THAT(file.error().message, AllOf(HasSubstr("best.pt was written by torch.save()"), HasSubstr("save_file("),
                                            testing::Not(HasSubstr("header")), testing::Not(HasSubstr("\n"))));
  }
  std::ofstream(path) << "nothing of this kind";
  EXPECT_THAT(read_pretrained({path.string(), true}).error().message, testing::Not(HasSubstr("torch.save")));
}

TEST_F(Pretrained, RejectsFileOfAnotherModel) {
  const auto report = load({{"encoder.weight", at::full({2}, 1.0)}}, false);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ExitCode::kDataErr);
  EXPECT_THAT(report.error().message,
              AllOf(HasSubstr("nothing fits"), HasSubstr("'fc1.bias', 'fc1.weight', 'fc2.bias' and 2 more")));
}

}  // namespace
}  // namespace oarlock
