// Batch norm over the ranks, compared with batch norm over the combined batch in one process.
#include "ddp/distributed_data_parallel_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include <numeric>

#include "ddp/batch_norm.h"
#include "ddp/sync_batchnorm.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;

constexpr double kTolerance = 1e-6;

void expect_near(const at::Tensor& actual, const at::Tensor& wanted, const std::string& what) {
  ASSERT_TRUE(actual.defined() && wanted.defined()) << what;
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  if (actual.numel() == 0) return;
  const double difference = (actual.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>();
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  EXPECT_LE(difference / scale, kTolerance) << what;
}

struct Case {
  std::vector<int64_t> shards;  // samples by rank
  std::vector<int64_t> rest;    // shape of a sample
  BatchNormOptions options{};
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  at::ScalarType type = at::kFloat;
  int64_t repeats = 1;  // of the batch
};

std::shared_ptr<BatchNorm> make(const Case& test_case) {
  const int64_t features = test_case.rest[0];
  std::shared_ptr<BatchNorm> out;
  if (test_case.rest.size() <= 2) out = std::make_shared<BatchNorm1dImpl>(features, test_case.options);
  if (test_case.rest.size() == 3) out = std::make_shared<BatchNorm2dImpl>(features, test_case.options);
  if (test_case.rest.size() == 4) out = std::make_shared<BatchNorm3dImpl>(features, test_case.options);
  if (out->weight.defined()) {
    at::manual_seed(3);
    const at::NoGradGuard no_grad;
    out->weight.uniform_(0.5, 1.5);
    out->bias.uniform_(-1, 1);
  }
  out->to(test_case.type);
  return out;
}

// Runs three training steps and an evaluation on the ranks and on the combined batch.
void expect_joined(const Case& test_case) {
  run_ranks(static_cast<int>(test_case.shards.size()), [&](const ProcessGroup& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const int64_t total = std::accumulate(test_case.shards.begin(), test_case.shards.end(), int64_t{0});
    const int64_t begin =
        std::accumulate(test_case.shards.begin(), test_case.shards.begin() + group.rank(), int64_t{0});
    std::vector<int64_t> shape = {total};
    shape.insert(shape.end(), test_case.rest.begin(), test_case.rest.end());

    const auto joined = make(test_case);
    const auto own = make(test_case);
    ASSERT_TRUE(convert_sync_batchnorm(*own, group));
    EXPECT_EQ(own->is_synchronized(), group.world_size() > 1);
    for (int step = 0; step < 4; ++step) {
      joined->train(step < 3);
      own->train(step < 3);
      joined->zero_grad();
      own->zero_grad();
      at::manual_seed(static_cast<uint64_t>(50 + step));
      const at::Tensor batch = (torch::randn(shape, test_case.type) * 1.5 + 2).contiguous(test_case.format);
      const at::Tensor gradient = torch::randn(shape, test_case.type);
      const auto shard = [&](const at::Tensor& whole) { return whole.narrow(0, begin, test_case.shards[rank]); };
      const at::Tensor whole = batch.clone().requires_grad_();
      const at::Tensor part = shard(batch).clone().requires_grad_();
      const int64_t before = group.sequence_number();
      const std::vector<at::Tensor> copies(static_cast<size_t>(test_case.repeats), whole);
      const at::Tensor wanted = joined->forward(torch::cat(copies)).narrow(0, 0, total);
      const at::Tensor actual = own->forward_repeated(part, test_case.repeats);
      expect_near(actual, shard(wanted), "output");
      wanted.backward(gradient);
      actual.backward(shard(gradient));
      expect_near(part.grad(), shard(whole.grad()), "input gradient");
      if (step == 3 || group.world_size() == 1) {
        EXPECT_EQ(group.sequence_number(), before) << "a collective ran";
      }
      for (const auto& item : unique_parameters(*own)) {
        at::Tensor sum = item.tensor.grad().clone();
        if (group.world_size() > 1) {
          std::vector<at::Tensor> tensors = {sum};
          group.c10d()->allreduce(tensors)->wait();
        }
        expect_near(sum, joined->named_parameters()[item.name].grad(), item.name);
      }
      for (const auto& item : unique_buffers(*own))
        expect_near(item.tensor, joined->named_buffers()[item.name], item.name);
    }
  });
}

TEST(SyncBatchNorm, EqualsCombinedBatch) {
  expect_joined({.shards = {8, 8}, .rest = {5}});
  expect_joined({.shards = {4, 4}, .rest = {5, 7}});
  expect_joined({.shards = {3, 3, 3}, .rest = {4, 5, 6}});
  expect_joined({.shards = {2, 2}, .rest = {3, 2, 3, 4}});
}

TEST(SyncBatchNorm, EqualsCombinedBatchInDouble) {
  expect_joined({.shards = {4, 4}, .rest = {5, 3, 3}, .type = at::kDouble});
}

TEST(SyncBatchNorm, HandlesUnequalAndEmptyShards) {
  expect_joined({.shards = {1, 6, 3}, .rest = {4, 3, 5}});
  expect_joined({.shards = {5, 0, 2}, .rest = {4, 3, 5}});
  expect_joined({.shards = {0, 4}, .rest = {6}});
  // One value per rank: the gradient nearly cancels, so that floats would compare rounding errors.
  expect_joined({.shards = {1, 1}, .rest = {6}, .type = at::kDouble});
}

TEST(SyncBatchNorm, CountsRepeatedValues) {
  expect_joined({.shards = {4, 3}, .rest = {5}, .repeats = 3});
  expect_joined({.shards = {2, 2}, .rest = {4, 3}, .options = {.momentum = std::nullopt}, .repeats = 5});
  expect_joined({.shards = {0, 3}, .rest = {5}, .type = at::kDouble, .repeats = 2});
}

TEST(SyncBatchNorm, AppliesOptions) {
  expect_joined({.shards = {4, 3}, .rest = {4, 3, 5}, .options = {.momentum = std::nullopt}});
  expect_joined({.shards = {4, 3}, .rest = {4, 3, 5}, .options = {.affine = false}});
  expect_joined({.shards = {4, 0}, .rest = {4, 3, 5}, .options = {.affine = false}});
  expect_joined({.shards = {4, 3}, .rest = {4, 3, 5}, .options = {.eps = 0.1, .momentum = 0.5}});
}

TEST(SyncBatchNorm, KeepsChannelsLast) {
  expect_joined({.shards = {3, 5}, .rest = {4, 3, 5}, .format = at::MemoryFormat::ChannelsLast});
  expect_joined({.shards = {3, 0}, .rest = {4, 3, 5}, .format = at::MemoryFormat::ChannelsLast});
  run_ranks(2, [](const ProcessGroup& group) {
    BatchNorm2d norm(4);
    ASSERT_TRUE(convert_sync_batchnorm(*norm, group));
    const at::Tensor x = torch::randn({3, 4, 5, 6}).contiguous(at::MemoryFormat::ChannelsLast);
    EXPECT_TRUE(norm(x).is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(SyncBatchNorm, EqualsPlainBatchNormOnSingleRank) { expect_joined({.shards = {6}, .rest = {4, 3, 5}}); }

TEST(SyncBatchNorm, SingleValueFailsOnAllRanks) {
  run_ranks(3, [](const ProcessGroup& group) {
    BatchNorm1d norm(4);
    ASSERT_TRUE(convert_sync_batchnorm(*norm, group));
    EXPECT_THROW(norm(torch::randn({group.rank() == 1 ? 1 : 0, 4})), c10::Error);
  });
}

TEST(SyncBatchNorm, KeepsBfloat16InputType) {
  run_ranks(2, [](const ProcessGroup& group) {
    BatchNorm1d norm(4);
    ASSERT_TRUE(convert_sync_batchnorm(*norm, group));
    at::manual_seed(static_cast<uint64_t>(group.rank()));
    const at::Tensor x = torch::randn({32, 4}).to(at::kBFloat16).requires_grad_();
    const at::Tensor y = norm(x);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.square().sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
    EXPECT_EQ(norm->weight.grad().scalar_type(), at::kFloat);
  });
}

TEST(SyncBatchNorm, RejectsTorchBatchNormByName) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](const ProcessGroup& group) {
      torch::nn::Sequential model(torch::nn::BatchNorm2d(3), BatchNorm2d(3), torch::nn::BatchNorm1d(3));
      DdpOptions config;
      config.sync_batch_norm = true;
      const auto created = DistributedDataParallelBase::create(model.ptr(), group, config);
      ASSERT_FALSE(created);
      EXPECT_EQ(created.error().code, ExitCode::kConfig);
      EXPECT_THAT(
          created.error().message,
          testing::AllOf(testing::HasSubstr("'0', '2'"), testing::HasSubstr("oarlock::BatchNorm"),
                         testing::HasSubstr("sync_batch_norm to false"), testing::Not(testing::HasSubstr("'1'"))));
    });
  }
}

// Two layers in DDP: after the step every rank's gradients equal those of the combined batch.
TEST(SyncBatchNorm, WorksInDdp) {
  run_ranks(3, [](const ProcessGroup& group) {
    const auto build = [] {
      at::manual_seed(9);
      torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 6, 3)), BatchNorm2d(6),
                                  torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 4, 3)),
                                  BatchNorm2d(4));
      return model;
    };
    torch::nn::Sequential joined = build();
    torch::nn::Sequential own = build();
    DdpOptions config;
    config.sync_batch_norm = true;
    auto created = DistributedDataParallelBase::create(own.ptr(), group, config);
    ASSERT_TRUE(created) << created.error().message;
    for (int step = 0; step < 3; ++step) {
      at::manual_seed(static_cast<uint64_t>(step));
      const at::Tensor batch = torch::randn({6, 2, 7, 8});
      joined->zero_grad();
      joined->forward(batch).pow(3).mean().backward();
      (*created)->backward(
          (*created)->forward([&] { return own->forward(batch.narrow(0, 2 * group.rank(), 2)).pow(3).mean(); }));
      for (const NamedTensor& item : (*created)->parameters())
        expect_near(item.tensor.grad(), joined->named_parameters()[item.name].grad(), item.name);
      for (const NamedTensor& item : (*created)->buffers())
        expect_near(item.tensor, joined->named_buffers()[item.name], item.name);
      (*created)->zero_grad();
    }
  });
}

}  // namespace
}  // namespace oarlock
