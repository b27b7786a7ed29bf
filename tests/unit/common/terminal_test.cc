// The width of terminals, and lines that fit in.
#include "common/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>

#include "common/work_progress.h"

namespace oarlock {
namespace {

TEST(CutToWidth, CountsCharactersAndKeepsEscapeSequences) {
  EXPECT_EQ(cut_to_width("abcdef", 4), "abcd");
  EXPECT_EQ(cut_to_width("abc", 4), "abc");
  EXPECT_EQ(cut_to_width("\x1b[31mabcdef\x1b[0m", 4), "\x1b[31mabcd\x1b[0m");
  EXPECT_EQ(cut_to_width("äöüß█", 3), "äöü");
  EXPECT_EQ(cut_to_width("\xff\xff\xff", 2), "\xff\xff");
  EXPECT_EQ(cut_to_width("ab\x1b[", 9), "ab\x1b[");
  EXPECT_EQ(cut_to_width("", 9), "");
}

TEST(Terminal, HasTheWidthOfItsWindow) {
  int outer = -1;
  int inner = -1;
  const winsize size{.ws_row = 24, .ws_col = 57, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&outer, &inner, nullptr, nullptr, &size), 0);
  ::setenv("TERM", "xterm", 1);
  EXPECT_EQ(terminal_columns(inner), 57);
  ::setenv("TERM", "dumb", 1);
  EXPECT_EQ(terminal_columns(inner), 0);
  ::unsetenv("TERM");
  EXPECT_EQ(terminal_columns(inner), 0);
  ::close(inner);
  ::close(outer);
}

TEST(Terminal, ProgressLinesNeedAPipeToALauncher) {
  const int before = ::dup(STDERR_FILENO);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int null = ::open("/dev/null", O_WRONLY);
  const auto shows = [](int fd, const char* variable) {
    ::dup2(fd, STDERR_FILENO);
    ::setenv(kEnvProgressLines, variable, 1);
    return shows_progress_lines();
  };
  const bool on_pipe = shows(ends[1], "1");
  const bool without_launcher = shows(ends[1], "");
  const bool redirected = shows(null, "1");
  ::dup2(before, STDERR_FILENO);
  EXPECT_TRUE(on_pipe);
  EXPECT_FALSE(without_launcher);
  EXPECT_FALSE(redirected) << "as by 2> file in a shell that the launcher has started";
  for (const int fd : {before, ends[0], ends[1], null}) ::close(fd);
}

TEST(WorkProgress, KeepsTheLastReport) {
  report_work(LongWork::kSave, 0, 100);
  advance_work(LongWork::kSave, 30);
  advance_work(LongWork::kSave, 12);
  EXPECT_EQ(work_progress(LongWork::kSave).done, 42);
  EXPECT_EQ(work_progress(LongWork::kSave).total, 100);
  EXPECT_EQ(work_progress(LongWork::kPrepareData).total, 0) << "another kind of work";
}

}  // namespace
}  // namespace oarlock
