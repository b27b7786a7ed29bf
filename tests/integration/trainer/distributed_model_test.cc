// DDP compared with one process on the combined batch: the gradients are equal for all options.
#include "ddp/distributed_data_parallel_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <optional>

#include "ddp/library_errors.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;

constexpr double kTolerance = 1e-6;
constexpr int64_t kPerRank = 4;

// A trunk and three branches; a step may use any subset of the branches.
class Branches final : public torch::nn::Module {
 public:
  Branches() {
    trunk_ = register_module("trunk", torch::nn::Linear(6, 32));
    for (const char* name : {"left", "right", "spare"})
      branches_.push_back(register_module(name, torch::nn::Linear(32, 2)));
  }

  // The mean over the batch's samples of the squared sum of the outputs of the branches that are used.
  at::Tensor loss(const at::Tensor& x, const std::vector<size_t>& used) {
    const at::Tensor hidden = torch::tanh(trunk_(x));
    at::Tensor out = torch::zeros({x.size(0), 2}, x.options());
    for (const size_t branch : used) out = out + branches_[branch](hidden);
    return out.pow(2).sum(1).mean();
  }

 private:
  torch::nn::Linear trunk_{nullptr};
  std::vector<torch::nn::Linear> branches_;
};

using Used = std::vector<std::vector<size_t>>;  // branches, by rank

// The branches that the ranks use in one step.
struct StepPlan {
  Used used;                  // in each micro-batch
  std::vector<Used> micro{};  // per micro-batch; overrides `used`

  const Used& of(size_t index) const { return micro.empty() ? used : micro[index]; }
};

std::shared_ptr<Branches> seeded_model() {
  at::manual_seed(5);
  auto model = std::make_shared<Branches>();
  model->to(at::kDouble);
  return model;
}

at::Tensor joined_batch(int step, int world_size) {
  at::manual_seed(static_cast<uint64_t>(100 + step));
  return torch::randn({kPerRank * world_size, 6}, at::kDouble);
}

at::Tensor shard(const at::Tensor& batch, int rank) { return batch.narrow(0, rank * kPerRank, kPerRank); }

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

void copy_parameters(const torch::nn::Module& from, const torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const auto source = from.named_parameters();
  for (const auto& item : to.named_parameters()) at::Tensor(item.value()).copy_(source[item.key()]);
}

// Runs steps with DDP, and compares every gradient with that of the mean of all ranks' losses in a single process.
void expect_joined_gradients(const ProcessGroup& group, const DdpOptions& config, const std::vector<StepPlan>& plans,
                             size_t accumulate = 1) {
  const auto module = seeded_model();
  auto created = DistributedDataParallelBase::create(module, group, config);
  ASSERT_TRUE(created) << created.error().message;
  DistributedDataParallelBase& model = **created;
  const auto reference = seeded_model();
  for (size_t step = 0; step < plans.size(); ++step) {
    copy_parameters(*module, *reference);
    reference->zero_grad();
    for (size_t micro = 0; micro < accumulate; ++micro) {
      const at::Tensor batch = joined_batch(static_cast<int>(step * accumulate + micro), group.world_size());
      at::Tensor joined = torch::zeros({}, at::kDouble);
      for (int rank = 0; rank < group.world_size(); ++rank) {
        joined = joined + reference->loss(shard(batch, rank), plans[step].of(micro)[static_cast<size_t>(rank)]) /
                              group.world_size();
      }
      joined.backward();
      const auto own_step = [&] {
        const at::Tensor loss = model.forward([&] {
          return module->loss(shard(batch, group.rank()), plans[step].of(micro)[static_cast<size_t>(group.rank())]);
        });
        model.backward(loss);
      };
      if (micro + 1 < accumulate) {
        const DistributedDataParallelBase::NoSync no_sync(model);
        own_step();
      } else {
        own_step();
      }
    }
    const auto expected = reference->named_parameters();
    for (const NamedTensor& parameter : model.parameters()) {
      const at::Tensor& wanted = expected[parameter.name].grad();
      const at::Tensor& actual = parameter.tensor.grad();
      if (!wanted.defined()) {  // no rank used it
        EXPECT_TRUE(!actual.defined() || actual.abs().max().item<double>() == 0)
            << parameter.name << " at step " << step;
        continue;
      }
      ASSERT_TRUE(actual.defined()) << parameter.name << " at step " << step;
      EXPECT_LE(difference(actual, wanted), kTolerance) << parameter.name << " at step " << step;
    }
    // Changes the parameters for the next step.
    const at::NoGradGuard no_grad;
    for (const NamedTensor& parameter : model.parameters()) {
      if (parameter.tensor.grad().defined()) at::Tensor(parameter.tensor).sub_(parameter.tensor.grad(), 0.1);
    }
    model.zero_grad();
  }
  EXPECT_TRUE(equal_on_all_ranks(model.parameters(), group));
}

std::vector<StepPlan> all_used(int world_size, size_t steps) {
  return std::vector<StepPlan>(steps,
                               StepPlan{std::vector<std::vector<size_t>>(static_cast<size_t>(world_size), {0, 1, 2})});
}

DdpOptions options(bool bucket_view, double bucket_cap_mb = 25) {
  DdpOptions config;
  config.gradient_as_bucket_view = bucket_view;
  config.bucket_cap_mb = bucket_cap_mb;
  return config;
}

TEST(Ddp, GradientsEqualThoseOfCombinedBatch) {
  for (const int world_size : {2, 3}) {
    for (const bool bucket_view : {true, false}) {
      run_ranks(world_size, [&](const ProcessGroup& group) {
        expect_joined_gradients(group, options(bucket_view), all_used(world_size, 4));
      });
    }
  }
}

TEST(Ddp, HandlesManySmallBuckets) {
  run_ranks(2, [](const ProcessGroup& group) {
    const DdpOptions config = options(true, 0.0005);  // 524 bytes: the weights have 1.5 KiB and 512 bytes
    expect_joined_gradients(group, config, all_used(2, 4));
    auto model = DistributedDataParallelBase::create(seeded_model(), group, config);
    ASSERT_TRUE(model);
    for (int step = 0; step < 2; ++step) {
      (*model)->backward((*model)->forward(
          [&] { return dynamic_cast<Branches&>((*model)->module()).loss(joined_batch(0, 1), {0, 1, 2}); }));
      (*model)->zero_grad();
    }
    EXPECT_GT((*model)->traffic().buckets, 2);
    EXPECT_EQ((*model)->traffic().bytes, 8 * (6 * 32 + 32 + 3 * (32 * 2 + 2)));
  });
}

TEST(Ddp, HandlesUnusedParametersThatVaryByRankAndStep) {
  for (const bool bucket_view : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      DdpOptions config = options(bucket_view);
      config.find_unused_parameters = true;
      // "spare" (2) is used by no rank in the first step, then by a single rank.
      expect_joined_gradients(group, config, {{{{0}, {1}}}, {{{0, 1}, {1}}}, {{{1}, {0}}}, {{{0}, {2}}}, {{{2}, {2}}}});
    });
  }
}

TEST(Ddp, SupportsStaticGraph) {
  for (const bool bucket_view : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      DdpOptions config = options(bucket_view);
      config.static_graph = true;
      expect_joined_gradients(group, config, all_used(2, 4));
    });
  }
}

TEST(Ddp, SupportsStaticGraphWithUnusedParameter) {
  run_ranks(2, [](const ProcessGroup& group) {
    DdpOptions config = options(true);
    config.static_graph = true;
    expect_joined_gradients(group, config, std::vector<StepPlan>(4, StepPlan{{{0, 1}, {0, 1}}}));
  });
}

TEST(Ddp, NoSyncAccumulates) {
  for (const bool bucket_view : {true, false}) {
    run_ranks(
        2, [&](const ProcessGroup& group) { expect_joined_gradients(group, options(bucket_view), all_used(2, 3), 3); });
  }
}

TEST(Ddp, NoSyncAccumulatesWithStaticGraph) {
  for (const bool bucket_view : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      DdpOptions config = options(bucket_view);
      config.static_graph = true;
      expect_joined_gradients(group, config, all_used(2, 4), 3);
    });
  }
}

// The gradient of a parameter that only an earlier micro-batch used is kept and reduced (pytorch/pytorch#69031).
TEST(Ddp, NoSyncAccumulatesWithUnusedParameters) {
  for (const bool bucket_view : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      DdpOptions config = options(bucket_view);
      config.find_unused_parameters = true;
      const Used left = {{0}, {0}};
      const Used right = {{1}, {1}};
      const Used all = {{0, 1, 2}, {0, 1, 2}};
      const Used rank_0_left = {{0}, {1}};
      const Used rank_1_left = {{1}, {0}};
      expect_joined_gradients(group, config,
                              {{{}, {left, right}},
                               {{}, {rank_0_left, right}},
                               {{}, {all, left}},
                               {{}, {rank_0_left, rank_1_left}},
                               {{}, {{{2}, {0}}, {{0}, {0}}}},
                               {{}, {right, right}}},
                              2);
    });
  }
}

// One step of 2 ranks that accumulate over 2 micro-batches equals one step of 4 ranks; both are compared with one
// process on the same samples.
TEST(Ddp, AccumulationEqualsMoreRanks) {
  const auto gradients_of = [](const ProcessGroup& group, size_t accumulate) {
    const auto module = seeded_model();
    auto model = DistributedDataParallelBase::create(module, group, options(true));
    const at::Tensor samples = joined_batch(0, 4);
    const int shards = group.world_size() * static_cast<int>(accumulate);
    for (size_t micro = 0; micro < accumulate; ++micro) {
      const int index = group.rank() + static_cast<int>(micro) * group.world_size();
      std::optional<DistributedDataParallelBase::NoSync> no_sync;
      if (micro + 1 < accumulate) no_sync.emplace(**model);
      EXPECT_EQ(shards, 4);
      (*model)->backward((*model)->forward(
          [&] { return module->loss(shard(samples, index), {0, 1, 2}) / static_cast<double>(accumulate); }));
    }
    std::vector<at::Tensor> out;
    for (const NamedTensor& parameter : (*model)->parameters()) out.push_back(parameter.tensor.grad().clone());
    return out;
  };
  for (const auto& [world_size, accumulate] : {std::pair<int, size_t>{4, 1}, {2, 2}, {1, 4}}) {
    run_ranks(world_size, [&, accumulate = accumulate](const ProcessGroup& group) {
      const auto actual = gradients_of(group, accumulate);
      const auto reference = seeded_model();
      reference->loss(joined_batch(0, 4), {0, 1, 2}).backward();
      const auto wanted = reference->parameters();
      ASSERT_EQ(actual.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_LE(difference(actual[i], wanted[i].grad()), kTolerance);
    });
  }
}

TEST(Ddp, NamesUnusedParameterWithoutFindUnusedParameters) {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto module = seeded_model();
    auto model = DistributedDataParallelBase::create(module, group, options(true));
    ASSERT_TRUE(model);
    try {
      (*model)->backward(
          (*model)->forward([&] { return module->loss(shard(joined_batch(0, 2), group.rank()), {0, 1}); }));
      FAIL() << "nothing was thrown";
    } catch (...) {
      const Error error = to_error(std::current_exception());
      EXPECT_EQ(error.code, ExitCode::kConfig);
      EXPECT_THAT(error.message, testing::AllOf(testing::HasSubstr("'spare.weight', 'spare.bias'"),
                                                testing::HasSubstr("rank " + std::to_string(group.rank())),
                                                testing::HasSubstr("find_unused_parameters to true")));
    }
  });
}

TEST(Ddp, NoSyncRunsNoCollective) {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto module = seeded_model();
    auto model = DistributedDataParallelBase::create(module, group, options(true));
    ASSERT_TRUE(model);
    const int64_t before = group.sequence_number();
    {
      const DistributedDataParallelBase::NoSync no_sync(**model);
      (*model)->backward(
          (*model)->forward([&] { return module->loss(shard(joined_batch(0, 2), group.rank()), {0, 1, 2}); }));
    }
    EXPECT_EQ(group.sequence_number(), before) << "a collective ran";
    std::vector<NamedTensor> gradients;
    for (const NamedTensor& parameter : (*model)->parameters())
      gradients.push_back({parameter.name, parameter.tensor.grad()});
    EXPECT_FALSE(equal_on_all_ranks(gradients, group));
  });
}

TEST(Ddp, WorksWithoutGroupOnSingleRank) {
  run_ranks(1, [](const ProcessGroup& group) {
    EXPECT_FALSE(group.c10d());
    expect_joined_gradients(group, options(true), all_used(1, 2));
    expect_joined_gradients(group, options(true), all_used(1, 2), 2);
  });
}

class WithBuffers final : public torch::nn::Module {
 public:
  explicit WithBuffers(int64_t width) {
    fc = register_module("fc", torch::nn::Linear(6, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(Ddp, BroadcastsInitialParametersAndBuffers) {
  run_ranks(3, [](const ProcessGroup& group) {
    at::manual_seed(static_cast<uint64_t>(group.rank()));
    const auto module = std::make_shared<WithBuffers>(4);
    module->norm->running_mean.fill_(group.rank() + 1);
    auto model = DistributedDataParallelBase::create(module, group, {});
    ASSERT_TRUE(model);
    EXPECT_TRUE(equal_on_all_ranks((*model)->parameters(), group));
    EXPECT_TRUE(equal_on_all_ranks((*model)->buffers(), group));
    EXPECT_EQ(module->norm->running_mean[0].item<double>(), 1);
  });
}

TEST(Ddp, BroadcastsBuffersBeforeForward) {
  for (const bool broadcast : {true, false}) {
    run_ranks(2, [&](const ProcessGroup& group) {
      const auto module = std::make_shared<WithBuffers>(4);
      DdpOptions config;
      config.broadcast_buffers = broadcast;
      auto model = DistributedDataParallelBase::create(module, group, config);
      ASSERT_TRUE(model);
      at::Tensor seen;
      for (int step = 0; step < 3; ++step) {
        at::manual_seed(static_cast<uint64_t>(10 * step + group.rank()));
        (*model)->backward((*model)->forward([&] {
          seen = module->norm->running_mean.clone();
          return module->norm(module->fc(torch::randn({8, 6}))).pow(2).mean();
        }));
        (*model)->zero_grad();
      }
      EXPECT_EQ(equal_on_all_ranks({{"seen", seen}}, group), broadcast);
      (*model)->broadcast_buffers();
      EXPECT_TRUE(equal_on_all_ranks((*model)->buffers(), group));
    });
  }
}

TEST(Ddp, DifferingShapeFailsOnAllRanks) {
  run_ranks(3, [](const ProcessGroup& group) {
    const auto model =
        DistributedDataParallelBase::create(std::make_shared<WithBuffers>(group.rank() == 2 ? 5 : 4), group, {});
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ExitCode::kConfig);
    if (group.rank() == 2) {
      EXPECT_THAT(model.error().message, testing::AllOf(testing::HasSubstr("'fc.weight'"), testing::HasSubstr("[5, 6]"),
                                                        testing::HasSubstr("[4, 6]"), testing::HasSubstr("rank 2")));
    } else {
      EXPECT_THAT(model.error().message, testing::HasSubstr("rank 2"));
    }
  });
}

class Tied final : public torch::nn::Module {
 public:
  Tied() {
    embed = register_parameter("embed", torch::randn({4, 4}));
    register_parameter("head", embed);
  }
  at::Tensor embed;
};

TEST(Ddp, CountsTiedWeightsOnce) {
  run_ranks(2, [](const ProcessGroup& group) {
    at::manual_seed(1);
    const auto module = std::make_shared<Tied>();
    auto model = DistributedDataParallelBase::create(module, group, {});
    ASSERT_TRUE(model);
    ASSERT_EQ((*model)->parameters().size(), 1U);
    const at::Tensor x = torch::ones({2, 4}) * (group.rank() + 1);
    const at::Tensor before = module->embed.detach().clone().requires_grad_();
    (*model)->backward((*model)->forward([&] { return x.mm(module->embed).mm(module->embed.t()).mean(); }));
    at::Tensor joined = torch::zeros({});
    for (int rank = 0; rank < 2; ++rank) {
      const at::Tensor other = torch::ones({2, 4}) * (rank + 1);
      joined = joined + other.mm(before).mm(before.t()).mean() / 2;
    }
    joined.backward();
    EXPECT_LE(difference(module->embed.grad(), before.grad()), 1e-5);
  });
}

TEST(Ddp, DetectsDivergence) {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto module = std::make_shared<WithBuffers>(4);
    auto model = DistributedDataParallelBase::create(module, group, {});
    ASSERT_TRUE(model);
    EXPECT_TRUE(equal_on_all_ranks((*model)->parameters(), group));
    if (group.rank() == 1) {  // one bit
      module->fc->bias.data_ptr<float>()[0] = std::nextafter(module->fc->bias.data_ptr<float>()[0], 9.0F);
    }
    EXPECT_FALSE(equal_on_all_ranks((*model)->parameters(), group));
  });
}

TEST(ParameterCheck, NamesFirstDifferingTensorAndRanks) {
  run_ranks(3, [](const ProcessGroup& group) {
    const auto module = std::make_shared<WithBuffers>(4);
    auto model = DistributedDataParallelBase::create(module, group, {});
    ASSERT_TRUE(model);
    EXPECT_TRUE(check_equal_on_all_ranks((*model)->parameters(), group));
    if (group.rank() == 1) {  // one bit
      module->fc->bias.data_ptr<float>()[0] = std::nextafter(module->fc->bias.data_ptr<float>()[0], 9.0F);
    }
    const Result<void> same = check_equal_on_all_ranks((*model)->parameters(), group);
    ASSERT_FALSE(same);
    EXPECT_EQ(same.error().code, ExitCode::kSoftware);
    EXPECT_THAT(same.error().message, testing::AllOf(testing::HasSubstr("'fc.bias'"), testing::HasSubstr("rank 1")));
  });
}

TEST(ParameterCheck, ReportsMinority) {
  EXPECT_THAT(minority({7, 7, 3, 7}), testing::ElementsAre(2));
  EXPECT_THAT(minority({3, 7, 7, 5}), testing::ElementsAre(0, 3));
  EXPECT_THAT(minority({3, 7}), testing::ElementsAre(1)) << "as many of one as of another";
  EXPECT_THAT(minority({3, 3, 3}), testing::IsEmpty());
}

TEST(ProcessGroup, RunsCollectives) {
  for (const int world_size : {1, 3}) {
    run_ranks(world_size, [&](const ProcessGroup& group) {
      const double n = world_size;
      std::vector<double> values = {1.0, static_cast<double>(group.rank())};
      group.all_reduce_sum(values);
      EXPECT_THAT(values, testing::ElementsAre(n, n * (n - 1) / 2));
      values = {static_cast<double>(group.rank())};
      group.all_reduce_max(values);
      EXPECT_THAT(values, testing::ElementsAre(n - 1));
      std::vector<int64_t> ranks;
      for (int rank = 0; rank < world_size; ++rank) ranks.push_back(INT64_C(1) << (40 + rank));
      EXPECT_EQ(group.all_gather(INT64_C(1) << (40 + group.rank())), ranks);
      std::vector<std::string> texts;
      for (int rank = 0; rank < world_size; ++rank) texts.emplace_back(static_cast<size_t>(rank), 'x');
      EXPECT_EQ(group.all_gather(texts[static_cast<size_t>(group.rank())]), texts);
      EXPECT_EQ(group.broadcast(std::string("from ") + std::to_string(group.rank())), "from 0");
      EXPECT_EQ(group.broadcast(std::string()), "");
      const Result<std::string> own =
          group.rank() == 0 ? Result<std::string>(fail(ExitCode::kIoErr, "disk full")) : "unused";
      EXPECT_EQ(group.broadcast(own).error(), (Error{ExitCode::kIoErr, "disk full"}));
      EXPECT_TRUE(group.agree({}));
      const Result<void> last_fails =
          group.rank() == world_size - 1 ? Result<void>(fail(ExitCode::kNoInput, "gone")) : Result<void>();
      const Result<void> agreed = group.agree(last_fails);
      ASSERT_FALSE(agreed);
      EXPECT_EQ(agreed.error().code, ExitCode::kNoInput);
      const bool is_own = group.rank() == world_size - 1;
      EXPECT_EQ(agreed.error().message, is_own ? "gone" : "rank " + std::to_string(world_size - 1) + ": gone");
    });
  }
}

}  // namespace
}  // namespace oarlock
