// Effective batch, learning rate and warm-up by the number of ranks: the tables of the guides of the original projects.
#include "trainer/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainerConfig config_of(int64_t batch, int64_t accumulation, double lr, int64_t warmup) {
  TrainerConfig config;
  config.batch.size = batch;
  config.gradient.accumulation_steps = accumulation;
  config.optimizer.lr = lr;
  config.schedule.warmup_steps = warmup;
  config.scaling.lr = ScalingRule::kLinear;
  config.scaling.warmup = ScalingRule::kLinear;
  return config;
}

BatchPlan plan_of(const TrainerConfig& config, int world_size) {
  const Result<BatchPlan> plan = plan_batches(config, world_size);
  EXPECT_TRUE(plan) << plan.error().message;
  return plan.value_or(BatchPlan{});
}

// UniRef50 SEDD: learning rates (S03), effective batches (S04) and warm-ups (S05) for 1, 2, 4 and 8 devices.
TEST(BatchPlan, MatchesTableOfSeddGuide) {
  const TrainerConfig config = config_of(16, 4, 5e-5, 5000);
  struct Row {
    int world;
    int64_t batch;
    double lr;
    int64_t warmup;
  };
  for (const Row& row : {Row{1, 64, 5e-5, 5000}, {2, 128, 1e-4, 10000}, {4, 256, 2e-4, 20000}, {8, 512, 4e-4, 40000}}) {
    const BatchPlan plan = plan_of(config, row.world);
    EXPECT_EQ(plan.micro_batch, 16);
    EXPECT_EQ(plan.per_rank, 64);
    EXPECT_EQ(plan.effective_batch, row.batch);
    const TrainerConfig used = apply_plan(config, plan);
    EXPECT_DOUBLE_EQ(used.optimizer.lr, row.lr);
    EXPECT_EQ(used.schedule.warmup_steps, row.warmup);
  }
}

// Its presets (S06): on 8 devices a smaller batch of 12 per device gives 384 in all, and six times the reference.
TEST(BatchPlan, MatchesPresetsOfSeddGuide) {
  TrainerConfig config = config_of(12, 4, 5e-5, 5000);
  config.scaling.reference_batch = 64;
  const BatchPlan plan = plan_of(config, 8);
  EXPECT_EQ(plan.effective_batch, 384);
  EXPECT_DOUBLE_EQ(apply_plan(config, plan).optimizer.lr, 3e-4);
  EXPECT_EQ(plan.warmup_steps, 30000);
}

// GEARS (G10, G19): 32 per device and 1e-3 become 128 and 4e-3 on 4; accumulation 4 makes it 512 (G25). TrainingEngine
// (T12) and ComFormer (C07) count alike. QuantumGrav (Q01): 64 x 3 = 192.
TEST(BatchPlan, MultipliesPerDeviceBatchByRanks) {
  TrainerConfig config = config_of(32, 1, 1e-3, 0);
  EXPECT_EQ(plan_of(config, 4).effective_batch, 128);
  EXPECT_DOUBLE_EQ(apply_plan(config, plan_of(config, 4)).optimizer.lr, 4e-3);
  config.gradient.accumulation_steps = 4;
  EXPECT_EQ(plan_of(config, 4).effective_batch, 512);
  EXPECT_EQ(plan_of(config_of(64, 1, 1e-3, 0), 3).effective_batch, 192);
}

TEST(BatchPlan, AppliesRuleAndCap) {
  TrainerConfig config = config_of(16, 1, 1, 100);
  config.scaling.lr = ScalingRule::kNone;
  config.scaling.warmup = ScalingRule::kSqrt;
  EXPECT_EQ(plan_of(config, 8).lr_factor, 1);
  EXPECT_EQ(plan_of(config, 8).warmup_steps, std::llround(100 * std::sqrt(8.0)));
  config.scaling.lr = ScalingRule::kSqrt;
  EXPECT_DOUBLE_EQ(plan_of(config, 16).lr_factor, 4);
  config.scaling.lr = ScalingRule::kLinear;
  config.scaling.warmup = ScalingRule::kLinear;
  config.scaling.cap = 4;  // min(n, 4) of the SEDD guide (S12)
  EXPECT_DOUBLE_EQ(plan_of(config, 3).lr_factor, 3);
  EXPECT_DOUBLE_EQ(plan_of(config, 8).lr_factor, 4);
  EXPECT_EQ(plan_of(config, 8).warmup_steps, 400);
  config.scaling.cap.reset();
  config.scaling.reference_world = 2;
  EXPECT_DOUBLE_EQ(plan_of(config, 8).lr_factor, 4);
  EXPECT_DOUBLE_EQ(plan_of(config, 1).lr_factor, 0.5);
}

TEST(BatchPlan, ScalesLearningRatesOfGroups) {
  TrainerConfig config = config_of(16, 1, 1, 0);
  config.optimizer.groups.resize(2);
  config.optimizer.groups[0].lr = 0.1;
  const TrainerConfig used = apply_plan(config, plan_of(config, 4));
  EXPECT_DOUBLE_EQ(*used.optimizer.groups[0].lr, 0.4);
  EXPECT_FALSE(used.optimizer.groups[1].lr) << "follows optimizer.lr";
}

TEST(BatchPlan, DividesGlobalBatchOrFails) {
  TrainerConfig config = config_of(96, 2, 1, 0);
  config.batch.per = BatchPer::kGlobal;
  config.scaling = {};
  const BatchPlan plan = plan_of(config, 3);
  EXPECT_EQ(plan.micro_batch, 16);
  EXPECT_EQ(plan.per_rank, 32);
  EXPECT_EQ(plan.effective_batch, 96);
  const auto uneven = plan_batches(config, 5);
  ASSERT_FALSE(uneven);
  EXPECT_EQ(uneven.error().code, ExitCode::kConfig);
  EXPECT_THAT(uneven.error().message, AllOf(HasSubstr("96"), HasSubstr("5 ranks"), HasSubstr("2 accumulation steps"),
                                            HasSubstr("multiple of 10")));
  config.scaling.lr = ScalingRule::kLinear;
  const auto rootless = plan_batches(config, 3);
  ASSERT_FALSE(rootless);
  EXPECT_THAT(rootless.error().message, HasSubstr("scaling.reference_batch"));
  config.scaling.reference_batch = 48;
  EXPECT_DOUBLE_EQ(plan_of(config, 3).lr_factor, 2);
}

TEST(BatchPlan, RejectsStepsThatOverflow) {
  const auto error_of = [](const TrainerConfig& config, int world_size) {
    const Result<BatchPlan> plan = plan_batches(config, world_size);
    EXPECT_FALSE(plan);
    if (plan) return std::string();
    EXPECT_EQ(plan.error().code, ExitCode::kConfig);
    return plan.error().message;
  };
  constexpr int64_t kLarge = int64_t{1} << 40;  // its square is 0 in 64 bits
  constexpr int64_t kHuge = int64_t{1} << 62;
  TrainerConfig config = config_of(kLarge, kLarge, 1, 0);
  EXPECT_THAT(error_of(config, 1),
              AllOf(HasSubstr("batch size of 1099511627776 on 1 rank"), HasSubstr("lower batch.size")));
  config = config_of(kHuge, 1, 1, 0);
  EXPECT_EQ(plan_of(config, 1).effective_batch, kHuge);
  EXPECT_THAT(error_of(config, 2), HasSubstr("too large"));
  config = config_of(1, kHuge, 1, 0);
  config.batch.per = BatchPer::kGlobal;
  EXPECT_THAT(error_of(config, 4), HasSubstr("4 ranks with 4611686018427387904 accumulation steps is too large"));
  config = config_of(kLarge, 1, 1, int64_t{1} << 39);
  config.scaling.reference_batch = 1;
  EXPECT_THAT(error_of(config, 8), AllOf(HasSubstr("schedule.warmup_steps"), HasSubstr("scaling.cap")));
  config.scaling.cap = 1;
  EXPECT_EQ(plan_of(config, 8).warmup_steps, int64_t{1} << 39);
}

TEST(BatchPlan, ChecksEverySizeOfAGroup) {
  TrainerConfig config = config_of(12, 1, 1, 0);
  config.batch.per = BatchPer::kGlobal;
  config.scaling = {};
  EXPECT_TRUE(check_group_sizes(config, {.nodes = 4, .min_nodes = 1, .ranks_per_node = 1}));
  EXPECT_TRUE(check_group_sizes(config, {.nodes = 3, .min_nodes = 2, .ranks_per_node = 2}));
  const auto fixed = check_group_sizes(config, {.nodes = 5, .min_nodes = 5, .ranks_per_node = 1});
  ASSERT_FALSE(fixed);
  EXPECT_EQ(fixed.error().code, ExitCode::kConfig);
  EXPECT_THAT(fixed.error().message, testing::StartsWith("batch: a global batch of 12 is not divisible by 5 ranks"));
  const auto elastic = check_group_sizes(config, {.nodes = 8, .min_nodes = 2, .ranks_per_node = 2});
  ASSERT_FALSE(elastic);
  EXPECT_THAT(elastic.error().message, AllOf(HasSubstr("with 4 nodes: batch: "), HasSubstr("8 ranks")));
}

TEST(BatchPlan, GivesEachRankOfANodeADevice) {
  TrainerConfig config = config_of(1, 1, 1, 0);
  config.gpu_ids = {0, 2};
  EXPECT_TRUE(check_group_sizes(config, {.nodes = 4, .min_nodes = 4, .ranks_per_node = 2}));
  const auto few = check_group_sizes(config, {.nodes = 1, .min_nodes = 1, .ranks_per_node = 3});
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ExitCode::kConfig);
  EXPECT_THAT(few.error().message, HasSubstr("gpu_ids: [0, 2] are 2 devices for 3 ranks"));
  config.device = DeviceKind::kCpu;
  EXPECT_TRUE(check_group_sizes(config, {.nodes = 1, .min_nodes = 1, .ranks_per_node = 3})) << "gpu_ids are not used";
}

TEST(BatchPlan, LimitsStepToDataSize) {
  TrainerConfig config = config_of(100'000, 1, 1, 0);
  EXPECT_EQ(plan_of(config, 1).effective_batch, 100'000);
  const BatchPlan plan = plan_batches(config, 3, 256).value();
  EXPECT_EQ(plan.effective_batch, 258) << "with two samples of padding";
  EXPECT_EQ(plan.per_rank, 86);
  EXPECT_EQ(plan.micro_batch, 86);
  EXPECT_NEAR(plan.lr_factor, 258.0 / 256, 1e-12) << "from what one rank's step would have taken";
  config.scaling.reference_batch = 64;
  EXPECT_DOUBLE_EQ(plan_batches(config, 1, 256).value().lr_factor, 4);
  config.batch.size = 64;
  EXPECT_EQ(plan_batches(config, 2, 256).value().effective_batch, 128);
  config.batch.size = 100'000;
  config.batch.drop_last = true;
  EXPECT_EQ(plan_batches(config, 1, 256).value().effective_batch, 100'000)
      << "there is no such step, which is an error";
}

TEST(BatchPlan, FindsTheSmallestBatchOfAnEpoch) {
  struct Row {
    int64_t batch;
    int64_t accumulation;
    int world;
    int64_t samples;
    bool drop_last;
    std::optional<int64_t> steps;
    int64_t smallest;
  };
  for (
      const Row& row : {
          Row{.batch = 32,
              .accumulation = 1,
              .world = 1,
              .samples = 33,
              .drop_last = false,
              .steps = {},
              .smallest = 1},
          Row{.batch = 32,
              .accumulation = 1,
              .world = 2,
              .samples = 33,
              .drop_last = false,
              .steps = {},
              .smallest = 17},
          Row{.batch = 16,
              .accumulation = 1,
              .world = 2,
              .samples = 33,
              .drop_last = false,
              .steps = {},
              .smallest = 1},
          Row{.batch = 32,
              .accumulation = 1,
              .world = 1,
              .samples = 64,
              .drop_last = false,
              .steps = {},
              .smallest = 32},
          Row{.batch = 32,
              .accumulation = 1,
              .world = 1,
              .samples = 33,
              .drop_last = true,
              .steps = {},
              .smallest = 32},
          Row{.batch = 32,
              .accumulation = 1,
              .world = 1,
              .samples = 33,
              .drop_last = false,
              .steps = 1,
              .smallest = 32},
          Row{.batch = 32, .accumulation = 1, .world = 1, .samples = 33, .drop_last = false, .steps = 2, .smallest = 1},
          Row{.batch = 4, .accumulation = 3, .world = 1, .samples = 17, .drop_last = false, .steps = {}, .smallest = 1},
          Row{.batch = 4, .accumulation = 3, .world = 1, .samples = 9, .drop_last = false, .steps = {}, .smallest = 1},
          Row{.batch = 64, .accumulation = 1, .world = 1, .samples = 1, .drop_last = false, .steps = {}, .smallest = 1},
      }) {
    TrainerConfig config = config_of(row.batch, row.accumulation, 1, 0);
    config.batch.drop_last = row.drop_last;
    config.steps = row.steps;
    EXPECT_EQ(plan_batches(config, row.world, row.samples).value().smallest_batch, row.smallest)
        << row.samples << " samples, batch " << row.batch << ", " << row.world << " ranks";
  }
  EXPECT_EQ(plan_of(config_of(1, 1, 1, 0), 1).smallest_batch, 0) << "the data are unknown";
}

}  // namespace
}  // namespace oarlock
