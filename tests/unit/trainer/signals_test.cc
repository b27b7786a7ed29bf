// The flag that SIGTERM and other signals raise.
#include "trainer/process/termination.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

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

// Each signal in a separate process, because only one flag can have the handlers.
class EndSignals : public testing::TestWithParam<int> {};

TEST_P(EndSignals, RaiseFlagUnlessIgnored) {
  for (const bool is_ignored : {false, true}) {
    EXPECT_EXIT(
        {
          static StopFlag flag;
          if (is_ignored) std::signal(GetParam(), SIG_IGN);  // nohup
          raise_on_termination_signals(flag);
          std::raise(GetParam());
          std::_Exit(flag.signal_number());
        },
        testing::ExitedWithCode(is_ignored ? 0 : GetParam()), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EndSignals, testing::Values(SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU),
                         [](const auto& row) { return std::string(::sigabbrev_np(row.param)); });

TEST(Signals, WriteBeyondTheFileSizeLimitFails) {
  EXPECT_EXIT(
      {
        static StopFlag flag;
        raise_on_termination_signals(flag);
        rlimit none{};
        none.rlim_max = RLIM_INFINITY;
        ::setrlimit(RLIMIT_FSIZE, &none);
        std::FILE* file = std::tmpfile();
        const bool is_written = (::write(::fileno(file), "x", 1) == 1);
        std::_Exit(is_written ? 0 : errno);
      },
      testing::ExitedWithCode(EFBIG), "");
}

}  // namespace
}  // namespace oarlock
