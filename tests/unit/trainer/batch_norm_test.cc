// Compares results, names and errors with torch.nn.BatchNorm* (tests/data/make_batch_norm_goldens.py).
#include "ddp/batch_norm.h"
#include "tests/support/paths.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp/safetensors.h"
#include "trainer/nn/module_tensors.h"

namespace oarlock {
namespace {

const TensorMap& goldens() {
  static const TensorMap tensors = read_safetensors(test::data_path("batch_norm_goldens.safetensors"))->tensors;
  return tensors;
}

void expect_close(const at::Tensor& actual, const at::Tensor& wanted, const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  EXPECT_TRUE(at::allclose(actual.to(at::kDouble), wanted.to(at::kDouble), 1e-5, 1e-6)) << what;
}

struct Case {
  const char* name;
  std::function<std::shared_ptr<BatchNorm>()> make;
  bool channels_last = false;
};

class Goldens : public testing::TestWithParam<Case> {};

TEST_P(Goldens, MatchesTwoStepsAndEvaluation) {
  const std::string name = GetParam().name;
  const auto module = GetParam().make();
  if (module->weight.defined()) {
    const at::NoGradGuard no_grad;
    module->weight.copy_(goldens().at(name + ".weight"));
    module->bias.copy_(goldens().at(name + ".bias"));
  }
  for (int step = 0; step < 3; ++step) {
    const auto golden = [&](const std::string& what) {
      return goldens().at(name + "." + std::to_string(step) + "." + what);
    };
    module->train(step < 2);
    module->zero_grad();
    at::Tensor x = golden("x").detach().clone();
    if (GetParam().channels_last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
    x.requires_grad_();
    const at::Tensor y = module->forward(x);
    expect_close(y, golden("y"), "y");
    y.backward(golden("dy"));
    expect_close(x.grad(), golden("dx"), "dx");
    for (const auto& item : unique_parameters(*module))
      expect_close(item.tensor.grad(), golden("d" + item.name), item.name);
    size_t buffers = 0;
    for (const auto& item : unique_buffers(*module)) {
      expect_close(item.tensor, golden(item.name), item.name);
      ++buffers;
    }
    EXPECT_EQ(buffers, module->running_mean.defined() ? 3U : 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Goldens,
    testing::Values(
        Case{"1d", [] { return std::make_shared<BatchNorm1dImpl>(3); }},
        Case{"1d_length", [] { return std::make_shared<BatchNorm1dImpl>(3, BatchNormOptions{.momentum = 0.3}); }},
        Case{"2d", [] { return std::make_shared<BatchNorm2dImpl>(4, BatchNormOptions{.eps = 1e-3}); }},
        Case{"2d", [] { return std::make_shared<BatchNorm2dImpl>(4, BatchNormOptions{.eps = 1e-3}); }, true},
        Case{"2d_average",
             [] { return std::make_shared<BatchNorm2dImpl>(4, BatchNormOptions{.momentum = std::nullopt}); }},
        Case{"2d_plain", [] { return std::make_shared<BatchNorm2dImpl>(4, BatchNormOptions{.affine = false}); }},
        Case{"2d_stateless",
             [] { return std::make_shared<BatchNorm2dImpl>(4, BatchNormOptions{.track_running_stats = false}); }},
        Case{"3d", [] { return std::make_shared<BatchNorm3dImpl>(3); }}),
    [](const auto& test_case) {
      return "of_" + std::string(test_case.param.name) + (test_case.param.channels_last ? "_channels_last" : "");
    });

TEST(BatchNorm, RejectsSameInputsAsPyTorch) {
  const auto message = [](const std::function<void()>& body) -> std::string {
    try {
      body();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "";
  };
  BatchNorm2d norm(4);
  EXPECT_THAT(message([&] { norm(at::randn({3, 4})); }), testing::HasSubstr("expected 4D input (got 2D input)"));
  EXPECT_THAT(message([&] { norm(at::randn({3, 5, 2, 2})); }), testing::HasSubstr("expected 4 features"));
  EXPECT_THAT(message([&] { norm(at::randn({1, 4, 1, 1})); }), testing::HasSubstr("more than 1 value per channel"));
  norm->eval();
  EXPECT_EQ(message([&] { norm(at::randn({1, 4, 1, 1})); }), "");
}

// In double, the two computations differ by the rounding of sums of 15 terms: about 15 * 2^-53, far below 1e-12.
TEST(RepeatedBatch, MatchesStatisticsOfAllCopies) {
  constexpr int64_t kCopies = 5;
  for (const bool plain_mean : {false, true}) {
    BatchNormOptions options;
    if (plain_mean) options.momentum = std::nullopt;
    BatchNorm1d once(4, options);
    BatchNorm1d copies(4, options);
    once->to(at::kDouble);
    copies->to(at::kDouble);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = at::randn({3, 4}, at::kDouble);
      const at::Tensor y = copies->forward(x.repeat({kCopies, 1}));
      EXPECT_TRUE(at::allclose(once->forward_repeated(x, kCopies), y.narrow(0, 0, 3), 1e-12, 1e-12));
      EXPECT_TRUE(at::allclose(once->running_mean, copies->running_mean, 1e-12, 1e-12));
      EXPECT_TRUE(at::allclose(once->running_var, copies->running_var, 1e-12, 1e-12));
      EXPECT_EQ(once->num_batches_tracked.item<int64_t>(), step + 1);
    }
  }
}

}  // namespace
}  // namespace oarlock
