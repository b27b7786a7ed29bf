// Learning rates against torch.optim.lr_scheduler (tests/data/make_schedule_goldens.py).
#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "trainer/config/fields_reader.h"
#include "trainer/optim/plateau.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

const Json& goldens() {
  static const Json kGoldens = Json::parse(std::ifstream(OARLOCK_TEST_DATA "/schedule_goldens.json"));
  return kGoldens;
}

// As a user writes it.
ScheduleConfig parse(const std::string& text) {
  yaml::Problems problems("test");
  const auto documents = yaml::parse_all(text, "test");
  EXPECT_TRUE(documents) << text;
  ScheduleConfig config;
  FieldsReader reader(documents->front(), "schedule", problems);
  describe(config, reader);
  reader.finish();
  EXPECT_TRUE(problems.empty()) << text << ": " << problems.to_error().message;
  return config;
}

TEST(Schedule, EveryStepEqualsPyTorch) {
  const double lr = goldens()["lr"];
  ASSERT_GT(goldens()["schedules"].size(), 15U);
  for (const Json& golden : goldens()["schedules"]) {
    const ScheduleConfig config = parse(golden["config"]);
    const auto steps = static_cast<int64_t>(golden["rates"].size());
    const int64_t per_epoch = golden.value("steps_per_epoch", steps);
    for (int64_t step = 0; step < steps; ++step) {
      const ScheduleTime time = {step, step / per_epoch, steps, steps / per_epoch};
      const double expected = golden["rates"][static_cast<size_t>(step)];
      EXPECT_NEAR(learning_rate(config, lr, time), expected, 1e-12) << golden["name"] << " at step " << step;
    }
  }
}

TEST(Schedule, TheMomentumOfEveryStepEqualsPyTorch) {
  int cycles = 0;
  for (const Json& golden : goldens()["schedules"]) {
    const ScheduleConfig config = parse(golden["config"]);
    const auto steps = static_cast<int64_t>(golden["rates"].size());
    for (int64_t step = 0; step < steps; ++step) {
      const std::optional<double> momentum = cycled_momentum(config, {step, 0, steps, 1});
      ASSERT_EQ(momentum.has_value(), golden.contains("momentum")) << golden["name"];
      if (!momentum) continue;
      const double expected = golden["momentum"][static_cast<size_t>(step)];
      EXPECT_NEAR(*momentum, expected, 1e-12) << golden["name"] << " at step " << step;
    }
    cycles += golden.contains("momentum") ? 1 : 0;
  }
  EXPECT_EQ(cycles, 3);
  EXPECT_FALSE(cycled_momentum(parse("{name: onecycle, cycle_momentum: false}"), {0, 0, 10, 1}));
  EXPECT_EQ(cycled_momentum(parse("{name: onecycle, warmup_steps: 5}"), {2, 0, 20, 1}), 0.95) << "before the cycle";
}

TEST(Schedule, AfterItsLengthTheLastRateStays) {
  for (const auto& [text, last] : {std::pair{"{name: cosine, min_ratio: 0.01, length: 10}", 0.01},
                                   {"{name: linear, min_ratio: 0.2, length: 10}", 0.2},
                                   {"{name: onecycle, length: 10, div_factor: 10, final_div_factor: 2}", 0.05}}) {
    for (const int64_t step : {10, 11, 1000}) {
      EXPECT_NEAR(learning_rate(parse(text), 1, {step, 0, 1000, 1}), last, 1e-15) << text << " at step " << step;
    }
  }
}

TEST(Schedule, WithoutAStartFactorTheWarmUpBeginsAtOneShare) {
  const ScheduleConfig config = parse("{warmup_steps: 4}");
  const double expected[] = {0.25, 0.4375, 0.625, 0.8125, 1.0, 1.0};
  for (int step = 0; step < 6; ++step) EXPECT_DOUBLE_EQ(learning_rate(config, 1, {step, 0, 100, 1}), expected[step]);
}

TEST(Schedule, ByEpochItsLengthIsTheRunsEpochs) {
  const ScheduleConfig config = parse("{name: linear, interval: epoch}");
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, {0, 0, 100, 4}), 1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, {30, 1, 100, 4}), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, {99, 3, 100, 4}), 0.25);
}

TEST(Plateau, EveryEvaluationEqualsPyTorch) {
  const double lr = goldens()["lr"];
  ASSERT_GE(goldens()["plateaus"].size(), 5U);
  for (const Json& golden : goldens()["plateaus"]) {
    const ScheduleConfig config = parse("{name: plateau, plateau: " + golden["config"].get<std::string>() + "}");
    Plateau plateau(config.plateau);
    for (size_t i = 0; i < goldens()["metrics"].size(); ++i) {
      plateau.observe(goldens()["metrics"][i]);
      EXPECT_NEAR(plateau.rate(lr), golden["rates"][i].get<double>(), 1e-12) << golden["config"] << " at " << i;
      // Saved and restored in between, it goes on.
      Plateau next(config.plateau);
      ASSERT_TRUE(next.restored(Json::parse(plateau.values().dump())));
      plateau = next;
    }
  }
}

TEST(Plateau, NotANumberIsNoImprovement) {
  Plateau plateau(parse("{name: plateau, plateau: {patience: 1, factor: 0.5}}").plateau);
  plateau.observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_NO_THROW(plateau.values().dump());
  plateau.observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_DOUBLE_EQ(plateau.rate(1), 0.5);
}

}  // namespace
}  // namespace oarlock
