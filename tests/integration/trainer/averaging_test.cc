// Gradient averaging without compression: through shared memory, and through the process group.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "ddp/distributed_data_parallel_base.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;

// The loss is the sum over two layers, so that every row of a rank's weight gradient is its input.
struct Layers : torch::nn::Module {
  explicit Layers(int64_t width)
      : first(register_module("first", torch::nn::Linear(width, 8))),
        second(register_module("second", torch::nn::Linear(width, 4))) {}
  at::Tensor forward(const at::Tensor& x) { return first(x).sum() + second(x).sum(); }
  torch::nn::Linear first, second;
};

at::Tensor input_of(int rank, int64_t width) {
  torch::manual_seed(100 + static_cast<uint64_t>(rank));
  return torch::randn({1, width});
}

// The gradient of every rank's weights must be the mean of the inputs.
void expect_mean(const ProcessGroup& group, int64_t width, const DdpOptions& config, at::ScalarType type = at::kFloat) {
  auto layers = std::make_shared<Layers>(width);
  layers->to(type);
  auto model = DistributedDataParallelBase::create(layers, group, config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->uses_shared_memory(), config.shared_memory);
  at::Tensor mean = torch::zeros({width}, type);
  for (int rank = 0; rank < group.world_size(); ++rank) mean += input_of(rank, width)[0] / group.world_size();
  for (int step = 0; step < 3; ++step) {  // buckets are rebuilt after the first
    const at::Tensor x = input_of(group.rank(), width).to(type);
    (*model)->backward((*model)->forward([&] { return layers->forward(x); }));
    std::vector<NamedTensor> gradients;
    for (const NamedTensor& item : (*model)->parameters()) gradients.push_back({item.name, item.tensor.grad().clone()});
    EXPECT_LE((layers->first->weight.grad() - mean).abs().max().item<double>(), 1e-6) << "step " << step;
    EXPECT_LE((layers->second->weight.grad() - mean).abs().max().item<double>(), 1e-6) << "step " << step;
    EXPECT_EQ(layers->first->bias.grad().sum().item<double>(), 8);
    EXPECT_TRUE(equal_on_all_ranks(gradients, group)) << "step " << step;
    (*model)->zero_grad();
  }
}

class Average : public testing::TestWithParam<bool> {
 protected:
  static DdpOptions config() {
    DdpOptions config;
    config.shared_memory = GetParam();
    return config;
  }
};

TEST_P(Average, IsMeanWithEqualBitsOnAllRanks) {
  for (const int world_size : {2, 3, 4}) {
    run_ranks(world_size, [](const ProcessGroup& group) { expect_mean(group, 64, config()); });
  }
}

TEST_P(Average, HandlesLongAndShortBuckets) {
  DdpOptions several = config();
  several.bucket_cap_mb = 0.002;
  run_ranks(2, [&](const ProcessGroup& group) { expect_mean(group, 64, several); });
  // 60,001 x 8 weights: 1.9 MB, more than a slot of the shared memory.
  run_ranks(2, [](const ProcessGroup& group) { expect_mean(group, 60'001, config()); });
  run_ranks(3, [](const ProcessGroup& group) { expect_mean(group, 60'001, config(), at::kDouble); });
}

TEST_P(Average, HandlesGradientsThatAreNotBucketViews) {
  DdpOptions copied = config();
  copied.gradient_as_bucket_view = false;
  copied.static_graph = true;
  run_ranks(2, [&](const ProcessGroup& group) { expect_mean(group, 64, copied); });
}

// Halving is exact and the sum is rounded once, so that both ways give the same bits.
TEST_P(Average, EqualsPlainSumOfTwoBitwise) {
  run_ranks(2, [](const ProcessGroup& group) {
    auto layers = std::make_shared<Layers>(64);
    auto model = DistributedDataParallelBase::create(layers, group, config());
    ASSERT_TRUE(model);
    (*model)->backward((*model)->forward([&] { return layers->forward(input_of(group.rank(), 64)); }));
    const at::Tensor wanted = input_of(0, 64)[0] * 0.5 + input_of(1, 64)[0] * 0.5;
    EXPECT_TRUE(layers->first->weight.grad()[0].equal(wanted));
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, Average, testing::Bool(),
                         [](const auto& way) { return way.param ? "shared_memory" : "gloo"; });

}  // namespace
}  // namespace oarlock
