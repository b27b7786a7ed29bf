// Communication hooks on two ranks, compared with PyTorch's. The goldens are from tests/data/make_powersgd_goldens.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "ddp/distributed_data_parallel_base.h"
#include "ddp/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;

constexpr int kSteps = 5;

torch::nn::Sequential model_of(const TensorMap& goldens) {
  using torch::nn::Linear;
  torch::nn::Sequential model(Linear(12, 16), torch::nn::Tanh(), Linear(16, 12), torch::nn::Tanh(), Linear(12, 16),
                              torch::nn::Tanh(), Linear(16, 2));
  const at::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) item.value().copy_(goldens.at("model." + item.key()));
  return model;
}

void expect_goldens(const std::string& name, const DdpOptions& config, double tolerance) {
  run_ranks(2, [&](const ProcessGroup& group) {
    const TensorMap goldens = read_safetensors(test::data_path("powersgd_goldens.safetensors"))->tensors;
    torch::nn::Sequential module = model_of(goldens);
    auto created = DistributedDataParallelBase::create(module.ptr(), group, config);
    ASSERT_TRUE(created) << created.error().message;
    for (int step = 0; step < kSteps; ++step) {
      const at::Tensor x = goldens.at("x." + std::to_string(step))[group.rank()];
      (*created)->backward((*created)->forward([&] { return module->forward(x).square().mean(); }));
      const at::NoGradGuard no_grad;
      for (const NamedTensor& item : (*created)->parameters()) {
        const at::Tensor& wanted = goldens.at(name + "." + std::to_string(step) + "." + item.name);
        EXPECT_LE((item.tensor.grad() - wanted).abs().max().item<double>(), tolerance)
            << name << " step " << step << " " << item.name;
        at::Tensor(item.tensor).sub_(item.tensor.grad(), 0.5);
      }
      (*created)->zero_grad();
    }
    EXPECT_TRUE(equal_on_all_ranks((*created)->parameters(), group));
  });
}

DdpOptions powersgd(const PowerSgdOptions& options) {
  DdpOptions config;
  config.comm_hook = CommHook::kPowerSgd;
  config.powersgd = options;
  return config;
}

TEST(PowerSgd, MatchesPyTorch) {
  expect_goldens("rank1", powersgd({.start_iteration = 2}), 1e-6);
  expect_goldens("rank2", powersgd({.matrix_approximation_rank = 2, .start_iteration = 2, .min_compression_rate = 1}),
                 1e-6);
  expect_goldens("rank4_qr",
                 powersgd({.matrix_approximation_rank = 4, .start_iteration = 2, .min_compression_rate = 0.5}), 1e-6);
  expect_goldens("cold",
                 powersgd({.start_iteration = 0, .use_error_feedback = false, .warm_start = false, .random_seed = 7}),
                 1e-6);
  expect_goldens("epsilon",
                 powersgd({.start_iteration = 3, .min_compression_rate = 1.5, .orthogonalization_epsilon = 1e-3}),
                 1e-6);
}

TEST(PowerSgd, DiffersFromPlainAveraging) {
  const TensorMap goldens = read_safetensors(test::data_path("powersgd_goldens.safetensors"))->tensors;
  EXPECT_GT((goldens.at("rank1.4.0.weight") - goldens.at("fp16.4.0.weight")).abs().max().item<double>(), 1e-3);
}

// The gradients that a compressing hook averages are sums of two numbers of the compressed type, so they are numbers of
// that type themselves. The float32 gradients before compression differ in their last places between vector units,
// which moves a few of them over a rounding boundary: each of the two shares, and their sum, by at most one unit in the
// last place of the compressed type. Every step starts from the golden's parameters, so nothing accumulates.
void expect_compressed_goldens(const std::string& name, CommHook hook, at::ScalarType type) {
  run_ranks(2, [&](const ProcessGroup& group) {
    const TensorMap goldens = read_safetensors(test::data_path("powersgd_goldens.safetensors"))->tensors;
    torch::nn::Sequential module = model_of(goldens);
    DdpOptions config;
    config.comm_hook = hook;
    auto created = DistributedDataParallelBase::create(module.ptr(), group, config);
    ASSERT_TRUE(created) << created.error().message;
    const double unit = type == at::kHalf ? 0x1p-10 : 0x1p-7;  // the type's epsilon
    int64_t elements = 0;
    int64_t differing = 0;
    for (int step = 0; step < kSteps; ++step) {
      const at::Tensor x = goldens.at("x." + std::to_string(step))[group.rank()];
      (*created)->backward((*created)->forward([&] { return module->forward(x).square().mean(); }));
      const at::NoGradGuard no_grad;
      for (const NamedTensor& item : (*created)->parameters()) {
        const at::Tensor& expected = goldens.at(name + "." + std::to_string(step) + "." + item.name);
        const at::Tensor gradient = item.tensor.grad();
        EXPECT_TRUE(gradient.to(type).to(at::kFloat).equal(gradient))
            << name << " step " << step << " " << item.name << " is not of the compressed type";
        const at::Tensor difference = (gradient - expected).abs();
        EXPECT_LE(difference.max().item<double>(), 3 * unit * expected.abs().max().item<double>())
            << name << " step " << step << " " << item.name;
        elements += difference.numel();
        differing += difference.gt(1e-6).sum().item<int64_t>();
        at::Tensor(item.tensor).sub_(expected, 0.5);
      }
      (*created)->zero_grad();
    }
    EXPECT_LE(differing, elements / 20) << name << ": more than rounding boundaries explain";
    EXPECT_TRUE(equal_on_all_ranks((*created)->parameters(), group));
  });
}

TEST(CompressHook, MatchesPyTorchForFp16AndBf16) {
  expect_compressed_goldens("fp16", CommHook::kFp16, at::kHalf);
  expect_compressed_goldens("bf16", CommHook::kBf16, at::kBFloat16);
}

// Factors of full rank are exact, also in several buckets and with error feedback.
TEST(PowerSgd, EqualsMeanAtFullRank) {
  for (const double cap : {25.0, 0.0005}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      const TensorMap goldens = read_safetensors(test::data_path("powersgd_goldens.safetensors"))->tensors;
      torch::nn::Sequential module = model_of(goldens);
      torch::nn::Sequential joined = model_of(goldens);
      DdpOptions config =
          powersgd({.matrix_approximation_rank = 16, .start_iteration = 2, .min_compression_rate = 0.1});
      config.bucket_cap_mb = cap;
      auto created = DistributedDataParallelBase::create(module.ptr(), group, config);
      ASSERT_TRUE(created);
      for (int step = 0; step < kSteps; ++step) {
        const at::Tensor x = goldens.at("x." + std::to_string(step));
        (*created)->backward((*created)->forward([&] { return module->forward(x[group.rank()]).square().mean(); }));
        joined->zero_grad();
        joined->forward(x.flatten(0, 1)).square().mean().backward();
        for (const NamedTensor& item : (*created)->parameters()) {
          const at::Tensor wanted = joined->named_parameters()[item.name].grad();
          EXPECT_LE((item.tensor.grad() - wanted).abs().max().item<double>(), 1e-5) << item.name << " step " << step;
        }
        (*created)->zero_grad();
      }
    });
  }
}

}  // namespace
}  // namespace oarlock
