// Learning rates against torch.optim.lr_scheduler (tests/data/make_schedule_goldens.py).
#include "tests/support/paths.h"
#include "trainer/optim/lr_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "fields/yaml_reader.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

const Json& goldens() {
  static const Json kGoldens = Json::parse(std::ifstream(test::data_path("schedule_goldens.json")));
  return kGoldens;
}

// Parses a section as a user writes it.
ScheduleConfig parse(const std::string& text) {
  yaml::Problems problems("test");
  const auto documents = yaml::parse_all(text, "test");
  EXPECT_TRUE(documents) << text;
  ScheduleConfig config;
  YamlFieldsReader reader(documents->front(), "schedule", problems);
  describe(config, reader);
  reader.finish();
  EXPECT_TRUE(problems.empty()) << text << ": " << problems.to_error().message;
  return config;
}

double learning_rate(const ScheduleConfig& config, double lr, const RunProgress& progress) {
  LrScheduler scheduler(config);
  scheduler.set_progress(progress);
  return scheduler.learning_rate(lr);
}

std::optional<double> momentum_at(const ScheduleConfig& config, const RunProgress& progress) {
  LrScheduler scheduler(config);
  scheduler.set_progress(progress);
  return scheduler.momentum();
}

TEST(LrScheduler, EveryStepEqualsPyTorch) {
  const double lr = goldens()["lr"];
  ASSERT_GT(goldens()["schedules"].size(), 15U);
  for (const Json& golden : goldens()["schedules"]) {
    const ScheduleConfig config = parse(golden["config"]);
    const auto steps = static_cast<int64_t>(golden["rates"].size());
    const int64_t per_epoch = golden.value("steps_per_epoch", steps);
    for (int64_t step = 0; step < steps; ++step) {
      const RunProgress progress = {step, step / per_epoch, steps, steps / per_epoch};
      const double expected = golden["rates"][static_cast<size_t>(step)];
      EXPECT_NEAR(learning_rate(config, lr, progress), expected, 1e-12) << golden["name"] << " at step " << step;
    }
  }
}

TEST(LrScheduler, MomentumOfEveryStepEqualsPyTorch) {
  int cycles = 0;
  for (const Json& golden : goldens()["schedules"]) {
    const ScheduleConfig config = parse(golden["config"]);
    const auto steps = static_cast<int64_t>(golden["rates"].size());
    for (int64_t step = 0; step < steps; ++step) {
      const std::optional<double> momentum = momentum_at(config, {step, 0, steps, 1});
      ASSERT_EQ(momentum.has_value(), golden.contains("momentum")) << golden["name"];
      if (!momentum) continue;
      const double expected = golden["momentum"][static_cast<size_t>(step)];
      EXPECT_NEAR(*momentum, expected, 1e-12) << golden["name"] << " at step " << step;
    }
    cycles += golden.contains("momentum") ? 1 : 0;
  }
  EXPECT_EQ(cycles, 3);
  EXPECT_FALSE(momentum_at(parse("{name: onecycle, cycle_momentum: false}"), {0, 0, 10, 1}));
  EXPECT_EQ(momentum_at(parse("{name: onecycle, warmup_steps: 5}"), {2, 0, 20, 1}), 0.95) << "before the cycle";
}

TEST(LrScheduler, KeepsFinalLearningRateAfterItsLength) {
  for (const auto& [text, last] : {std::pair{"{name: cosine, min_ratio: 0.01, length: 10}", 0.01},
                                   {"{name: linear, min_ratio: 0.2, length: 10}", 0.2},
                                   {"{name: onecycle, length: 10, div_factor: 10, final_div_factor: 2}", 0.05}}) {
    for (const int64_t step : {10, 11, 1000}) {
      EXPECT_NEAR(learning_rate(parse(text), 1, {step, 0, 1000, 1}), last, 1e-15) << text << " at step " << step;
    }
  }
}

TEST(LrScheduler, WarmUpStartsAtOneStepFractionByDefault) {
  const ScheduleConfig config = parse("{warmup_steps: 4}");
  const double expected[] = {0.25, 0.4375, 0.625, 0.8125, 1.0, 1.0};
  for (int step = 0; step < 6; ++step) EXPECT_DOUBLE_EQ(learning_rate(config, 1, {step, 0, 100, 1}), expected[step]);
}

// optimize_fn() of SEDD's losses.py, called after state['step'] += 1: lr * min(step / warmup, 1).
TEST(LrScheduler, SeddWarmUpEqualsOriginal) {
  constexpr double kLr = 3e-4;
  for (const int64_t warmup : {1, 4, 50, 5000}) {
    const ScheduleConfig config = parse("{warmup_form: sedd, warmup_steps: " + std::to_string(warmup) + "}");
    for (int64_t done = 0; done < warmup + 3; ++done) {
      const double original = kLr * std::min(static_cast<double>(done + 1) / static_cast<double>(warmup), 1.0);
      EXPECT_DOUBLE_EQ(learning_rate(config, kLr, {done, 0, warmup + 3, 1}), original) << warmup << ", " << done;
    }
  }
  EXPECT_EQ(learning_rate(parse("{warmup_form: sedd}"), 1, {0, 0, 10, 1}), 1) << "without a warm-up";
}

// A schedule begins after warmup_steps in both forms.
TEST(LrScheduler, SeddWarmUpPrecedesSchedule) {
  const ScheduleConfig config = parse("{name: linear, length: 10, warmup_form: sedd, warmup_steps: 2}");
  const double expected[] = {0.5, 1.0, 1.0, 0.9, 0.8};
  for (int step = 0; step < 5; ++step) EXPECT_DOUBLE_EQ(learning_rate(config, 1, {step, 0, 100, 1}), expected[step]);
}

TEST(LrScheduler, EpochIntervalDefaultsToEpochsOfRun) {
  const ScheduleConfig config = parse("{name: linear, interval: epoch}");
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, {0, 0, 100, 4}), 1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, {30, 1, 100, 4}), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, {99, 3, 100, 4}), 0.25);
}

TEST(LrScheduler, PlateauEqualsPyTorch) {
  const double lr = goldens()["lr"];
  ASSERT_GE(goldens()["plateaus"].size(), 5U);
  for (const Json& golden : goldens()["plateaus"]) {
    const ScheduleConfig config = parse("{name: plateau, plateau: " + golden["config"].get<std::string>() + "}");
    LrScheduler scheduler(config);
    for (size_t i = 0; i < goldens()["metrics"].size(); ++i) {
      ASSERT_TRUE(scheduler.observe({{"loss", goldens()["metrics"][i].get<double>()}}));
      EXPECT_NEAR(scheduler.learning_rate(lr), golden["rates"][i].get<double>(), 1e-12)
          << golden["config"] << " at " << i;
      // The state is saved and restored between two evaluations.
      LrScheduler next(config);
      ASSERT_TRUE(next.restored(Json::parse(scheduler.values().dump())));
      scheduler = next;
    }
  }
}

TEST(LrScheduler, PlateauCountsNanAsNoImprovement) {
  LrScheduler scheduler(parse("{name: plateau, plateau: {patience: 1, factor: 0.5}}"));
  ASSERT_TRUE(scheduler.observe({{"loss", std::numeric_limits<double>::quiet_NaN()}}));
  EXPECT_NO_THROW(scheduler.values().dump());
  ASSERT_TRUE(scheduler.observe({{"loss", std::numeric_limits<double>::quiet_NaN()}}));
  EXPECT_DOUBLE_EQ(scheduler.learning_rate(1), 0.5);
}

}  // namespace
}  // namespace oarlock
