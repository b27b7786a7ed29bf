#include "common/cpu.h"

#include <gtest/gtest.h>

namespace oarlock {
namespace {

using namespace std::chrono_literals;
using Nanoseconds = CpuBudget::Nanoseconds;

constexpr double kShare = 0.04;
constexpr Nanoseconds kBurst = Nanoseconds(CpuBudget::kBurst) * 4 / 100;

// A thread that always has work: pieces of this size, with the pauses of the budget between them.
Nanoseconds busy_time(CpuBudget& budget, Nanoseconds piece, Nanoseconds duration) {
  SteadyTime now{};
  Nanoseconds used{0};
  budget.pause(now, used);
  while (now < SteadyTime{} + duration) {
    used += piece;
    now += piece;
    for (Nanoseconds pause; (pause = budget.pause(now, used)) > 0ns;) now += pause;
  }
  return used;
}

TEST(CpuBudget, BusyThreadIsHeldToItsShare) {
  for (const Nanoseconds piece : std::initializer_list<Nanoseconds>{20us, 300us, 10ms}) {
    CpuBudget budget(kShare);
    const Nanoseconds used = busy_time(budget, piece, 60s);
    EXPECT_GT(used, 2400ms) << piece.count();
    EXPECT_LT(used, 2400ms + kBurst + 2 * piece) << piece.count();
  }
}

TEST(CpuBudget, PausesAreShort) {
  CpuBudget budget(kShare);
  budget.pause({}, 0s);
  EXPECT_EQ(budget.pause({}, 10s), CpuBudget::kLongestPause);
  CpuBudget other(kShare);
  other.pause({}, 0s);
  EXPECT_EQ(other.pause({}, kBurst + 1ns), CpuBudget::kShortestPause);
}

TEST(CpuBudget, BurstAfterIdleTimeIsLimited) {
  CpuBudget budget(kShare);
  budget.pause({}, 0s);
  EXPECT_EQ(budget.pause(SteadyTime{} + 1h, 0s), 0ns);
  EXPECT_EQ(budget.pause(SteadyTime{} + 1h, kBurst - 1us), 0ns);
  EXPECT_GT(budget.pause(SteadyTime{} + 1h, kBurst + 1ms), 0ns);
}

TEST(CpuBudget, ZeroDisablesTheLimit) {
  CpuBudget budget(0);
  EXPECT_EQ(busy_time(budget, 1ms, 1s), 1s);
}

}  // namespace
}  // namespace oarlock
