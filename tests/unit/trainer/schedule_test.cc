// Learning rates against PyTorch's closed form.
#include "trainer/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace oarlock {
namespace {

TEST(Schedule, ConstantAfterLinearWarmup) {
  const ScheduleConfig config = {ScheduleKind::kConstant, 4};
  const double expected[] = {0.25, 0.5, 0.75, 1.0, 1.0, 1.0};
  for (int step = 0; step < 6; ++step) EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, step, 100), expected[step]) << step;
}

TEST(Schedule, CosineIsCosineAnnealingLR) {
  const ScheduleConfig config = {ScheduleKind::kCosine, 0};
  for (int step = 0; step <= 50; ++step) {
    EXPECT_NEAR(learning_rate(config, 0.3, step, 50), 0.3 * (1 + std::cos(std::numbers::pi * step / 50)) / 2, 1e-15)
        << step;
  }
}

TEST(Schedule, CosineBeginsAfterTheWarmupAndEndsAtZero) {
  const ScheduleConfig config = {ScheduleKind::kCosine, 10};
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 9, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1, 10, 110), 1.0);
  EXPECT_NEAR(learning_rate(config, 1, 60, 110), 0.5, 1e-15);
  EXPECT_NEAR(learning_rate(config, 1, 110, 110), 0.0, 1e-15);
  EXPECT_NEAR(learning_rate(config, 1, 500, 110), 0.0, 1e-15);
}

}  // namespace
}  // namespace oarlock
