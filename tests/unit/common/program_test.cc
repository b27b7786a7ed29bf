#include "tests/support/program.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <csignal>

namespace oarlock::test {
namespace {

// A second wait() must not collect the status of another child.
TEST(Program, RepeatsItsExitCodeAndLeavesOtherProgramsAlone) {
  Program first({"/bin/sh", "-c", "exit 7"});
  EXPECT_EQ(first.wait(), 7);
  Program second({"/bin/sh", "-c", "exit 9"});
  ASSERT_TRUE(eventually([&] { return !alive(second.pid()); }));
  EXPECT_EQ(first.wait(), 7);
  first.signal(SIGKILL);  // not kill(-1), which signals all processes
  EXPECT_EQ(second.wait(), 9);
}

TEST(Program, WaitingForAnotherChildFailsImmediately) {
  EXPECT_NONFATAL_FAILURE(
      {
        pid_t none = -1;
        EXPECT_EQ(wait_for_program(none, [] { return ""; }), -1);
      },
      "no program is running");
  EXPECT_NONFATAL_FAILURE(
      {
        pid_t not_a_child = 1;
        EXPECT_EQ(wait_for_program(not_a_child, [] { return "its output"; }), -1);
      },
      "its output");
}

}  // namespace
}  // namespace oarlock::test
