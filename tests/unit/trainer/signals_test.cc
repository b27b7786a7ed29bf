// The flag that SIGTERM and SIGINT raise.
#include "trainer/process/termination.h"

#include <gtest/gtest.h>

#include <csignal>

namespace oarlock {
namespace {

TEST(StopFlag, KeepsFirstSignal) {
  StopFlag flag;
  EXPECT_FALSE(flag.is_raised());
  flag.raise(SIGTERM);
  flag.raise(SIGINT);
  EXPECT_TRUE(flag.is_raised());
  EXPECT_EQ(flag.signal_number(), SIGTERM);
}

TEST(Signals, RaiseFlagAndKeepProcessAlive) {
  static StopFlag flag;  // the handlers keep a pointer to it
  raise_on_termination_signals(flag);
  ASSERT_EQ(std::raise(SIGPIPE), 0);
  EXPECT_FALSE(flag.is_raised());
  ASSERT_EQ(std::raise(SIGINT), 0);
  EXPECT_EQ(flag.signal_number(), SIGINT);
  ASSERT_EQ(std::raise(SIGTERM), 0);
  EXPECT_EQ(flag.signal_number(), SIGINT);
}

}  // namespace
}  // namespace oarlock
