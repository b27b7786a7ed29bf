// Averaging without compression: through memory that ranks share, in the ring's way and by recursive doubling.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tests/support/rank_harness.h"
#include "trainer/distributed/distributed_model.h"

namespace oarlock {
namespace {

using test::run_ranks;

// Two layers that the loss sums over: the gradient of a rank is its input, in every row.
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

// The mean of the inputs, which is what every rank's weights must have as their gradient.
void expect_mean(const RankGroup& group, int64_t width, const DdpConfig& config, at::ScalarType type = at::kFloat) {
  auto layers = std::make_shared<Layers>(width);
  layers->to(type);
  auto model = DistributedModel::create(layers, group, config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->shares_memory(), config.shared_memory);
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
    (*model)->clear_gradients();
  }
}

class Average : public testing::TestWithParam<bool> {
 protected:
  static DdpConfig config() {
    DdpConfig config;
    config.shared_memory = GetParam();
    return config;
  }
};

TEST_P(Average, IsTheMeanWithEqualBitsOnAllRanks) {
  for (const int world_size : {2, 3, 4}) {  // 3: no partner for everybody, so a ring
    run_ranks(world_size, [](const RankGroup& group) { expect_mean(group, 64, config()); });
  }
}

TEST_P(Average, LongAndShortBucketsInOneModel) {
  DdpConfig several = config();
  several.bucket_cap_mb = 0.002;  // of which the last is exchanged
  run_ranks(2, [&](const RankGroup& group) { expect_mean(group, 64, several); });
  // 60,001 x 8 weights: 1.9 MB, left to DDP, and more than a rank's part of the shared memory.
  run_ranks(2, [](const RankGroup& group) { expect_mean(group, 60'001, config()); });
  run_ranks(3, [](const RankGroup& group) { expect_mean(group, 60'001, config(), at::kDouble); });
}

TEST_P(Average, GradientsThatAreNoViews) {
  DdpConfig copied = config();
  copied.gradient_as_bucket_view = false;
  copied.static_graph = true;
  run_ranks(2, [&](const RankGroup& group) { expect_mean(group, 64, copied); });
}

// Halves and their sum are exact or rounded once: what DDP gives without a hook.
TEST_P(Average, HasTheBitsOfAPlainSumOfTwo) {
  run_ranks(2, [](const RankGroup& group) {
    auto layers = std::make_shared<Layers>(64);
    auto model = DistributedModel::create(layers, group, config());
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
