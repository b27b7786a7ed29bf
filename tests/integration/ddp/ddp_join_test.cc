// DistributedDataParallel::join(): ranks with different numbers of batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "ddp/ddp.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;

constexpr int64_t kBatch = 4;
constexpr double kTolerance = 1e-12;

// A buffer counts the forward passes, and `spare` is used only if the input is negative at its first place.
struct CountingImpl : torch::nn::Module {
  CountingImpl() {
    at::manual_seed(5);
    trunk = register_module("trunk", torch::nn::Linear(6, 8));
    head = register_module("head", torch::nn::Linear(8, 2));
    spare = register_module("spare", torch::nn::Linear(8, 2));
    calls = register_buffer("calls", torch::zeros({}, at::kLong));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool use_spare = true) {
    calls.add_(1);
    const at::Tensor hidden = torch::tanh(trunk(x));
    return use_spare ? head(hidden) + spare(hidden) : head(hidden);
  }

  torch::nn::Linear trunk{nullptr};
  torch::nn::Linear head{nullptr};
  torch::nn::Linear spare{nullptr};
  at::Tensor calls;
};
TORCH_MODULE(Counting);

at::Tensor batch_of(int rank, int step) {
  at::manual_seed(static_cast<uint64_t>(100 * rank + step));
  return torch::randn({kBatch, 6}, at::kDouble);
}

torch::optim::SGD optimizer_of(const torch::nn::Module& module) {
  return torch::optim::SGD(module.parameters(), torch::optim::SGDOptions(0.1));
}

// The parameters of one process that computes the gradients of all ranks with a batch in each step.
std::vector<at::Tensor> expected_parameters(const std::vector<int>& batches, bool divide_by_initial, bool use_spare) {
  Counting net;
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < std::ranges::max(batches); ++step) {
    const auto active = std::ranges::count_if(batches, [&](int count) { return step < count; });
    const auto divisor = static_cast<double>(divide_by_initial ? static_cast<int64_t>(batches.size()) : active);
    optimizer.zero_grad();
    for (size_t rank = 0; rank < batches.size(); ++rank) {
      if (step < batches[rank])
        (net->forward(batch_of(static_cast<int>(rank), step), use_spare).pow(2).mean() / divisor).backward();
    }
    optimizer.step();
  }
  return net->parameters();
}

struct Case {
  DdpOptions options{};
  JoinOptions join{};
  bool use_spare = true;
};

// Trains with batches[rank] batches, and expects the parameters and buffers of expected_parameters() on all ranks.
void expect_joined_training(const ProcessGroup& group, const std::vector<int>& batches, const Case& test_case) {
  Counting net;
  DistributedDataParallel model(net, group, test_case.options);
  torch::optim::SGD optimizer = optimizer_of(*net);
  model.join(
      [&] {
        for (int step = 0; step < batches.at(static_cast<size_t>(group.rank())); ++step) {
          model.zero_grad();
          model.forward(batch_of(group.rank(), step), test_case.use_spare).pow(2).mean().backward();
          optimizer.step();
        }
      },
      test_case.join);
  const auto expected = expected_parameters(batches, test_case.join.divide_by_initial_world_size, test_case.use_spare);
  const auto actual = net->parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LE((actual[i] - expected[i]).abs().max().item<double>(), kTolerance) << i;
  EXPECT_EQ(net->calls.item<int64_t>(), std::ranges::max(batches));
  EXPECT_TRUE(equal_on_all_ranks(unique_parameters(*net), group));
  // The ranks can train together again.
  model.forward(batch_of(group.rank(), 0)).pow(2).mean().backward();
  EXPECT_EQ(net->calls.item<int64_t>(), std::ranges::max(batches) + 1);
}

TEST(Join, RanksHaveDifferentNumbersOfBatches) {
  for (const bool shared_memory : {true, false}) {
    for (const bool divide_by_initial : {true, false}) {
      for (const std::vector<int>& batches : {std::vector{3, 5}, std::vector{5, 3}, std::vector{0, 2}}) {
        SCOPED_TRACE(testing::Message() << "shared memory " << shared_memory << ", by initial " << divide_by_initial
                                        << ", batches " << testing::PrintToString(batches));
        run_ranks(2, [&](const ProcessGroup& group) {
          expect_joined_training(group, batches,
                                 {.options = {.shared_memory = shared_memory},
                                  .join = {.divide_by_initial_world_size = divide_by_initial}});
        });
      }
    }
  }
}

TEST(Join, LeavesUnusedParametersUntouched) {
  run_ranks(2, [](const ProcessGroup& group) {
    for (const bool shared_memory : {true, false}) {
      expect_joined_training(
          group, {1, 3},
          {.options = {.find_unused_parameters = true, .shared_memory = shared_memory}, .use_spare = false});
    }
  });
}

TEST(Join, WorksWithManyBuckets) {
  run_ranks(3, [](const ProcessGroup& group) {
    expect_joined_training(group, {2, 4, 3}, {.options = {.bucket_cap_mb = 1e-4, .shared_memory = false}});
  });
}

TEST(Join, FollowsNoSyncAndForwardWithoutGradients) {
  run_ranks(2, [](const ProcessGroup& group) {
    Counting net;
    DistributedDataParallel model(net, group);
    model.join([&] {
      if (group.rank() == 0) return;
      {
        const auto no_sync = model.no_sync();
        model.forward(batch_of(1, 0)).pow(2).mean().backward();
      }
      model.forward(batch_of(1, 1)).pow(2).mean().backward();
      const at::NoGradGuard no_grad;
      model.forward(batch_of(1, 2));
    });
    EXPECT_EQ(net->calls.item<int64_t>(), 3);
    if (group.rank() == 0) return;
    Counting reference;
    for (int step = 0; step < 2; ++step) (reference->forward(batch_of(1, step)).pow(2).mean() / 2).backward();
    EXPECT_LE((net->head->weight.grad() - reference->head->weight.grad()).abs().max().item<double>(), kTolerance);
  });
}

TEST(Join, ThrowsOnEarlyTermination) {
  run_ranks(3, [](const ProcessGroup& group) {
    Counting net;
    DistributedDataParallel model(net, group);
    int steps = 0;
    try {
      model.join(
          [&] {
            for (; steps < (group.rank() == 1 ? 2 : 4); ++steps)
              model.forward(batch_of(group.rank(), steps)).pow(2).mean().backward();
          },
          {.throw_on_early_termination = true});
      FAIL() << "nothing was thrown";
    } catch (const ErrorException& error) {
      EXPECT_EQ(error.error().code, ExitCode::kDataErr);
      EXPECT_THAT(error.what(), testing::HasSubstr("1 of 3 ranks have no more batches"));
    }
    EXPECT_EQ(steps, 2);
    model.join([&] { model.forward(batch_of(group.rank(), 0)).pow(2).mean().backward(); },
               {.throw_on_early_termination = true});
  });
}

TEST(Join, RejectsStaticGraph) {
  run_ranks(2, [](const ProcessGroup& group) {
    DistributedDataParallel model(Counting(), group, {.static_graph = true});
    EXPECT_THROW(model.join([] {}), ErrorException);
  });
}

TEST(Join, OneRankCallsTheSteps) {
  const ProcessGroup group;
  DistributedDataParallel model(Counting(), group);
  int calls = 0;
  model.join([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace oarlock
