// The tests run in child processes, because GoogleTest uses the streams of this one.
#include "common/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>

namespace oarlock {
namespace {

// Returns the result of `body` in a forked process.
int exit_code_of(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void redirect(int fd, const char* path) {
  const int file = ::open(path, O_WRONLY);
  ::dup2(file, fd);
  ::close(file);
}

TEST(StandardStreams, OpensClosedDescriptors) {
  for (const int closed : {0, 1, 2}) {
    EXPECT_EQ(exit_code_of([closed] {
                ::close(closed);
                if (!open_standard_streams()) return 1;
                return ::open("/dev/null", O_RDONLY) > 2 ? 0 : 2;
              }),
              0)
        << closed;
  }
  EXPECT_EQ(exit_code_of([] {
              for (const int fd : {0, 1, 2}) ::close(fd);
              if (!open_standard_streams()) return 1;
              return ::open("/dev/null", O_RDONLY) > 2 && ::write(1, "x", 1) == 1 ? 0 : 2;
            }),
            0);
}

// As in oarlock validate | head -1, which ignores SIGPIPE.
TEST(StandardStreams, ClosedReaderIsNamed) {
  EXPECT_EQ(exit_code_of([] {
              int ends[2];
              if (::pipe(ends) != 0) return 1;
              ::dup2(ends[1], 1);
              ::close(ends[0]);
              std::signal(SIGPIPE, SIG_IGN);
              const Result<void> written = write_standard_output("text");
              if (written || written.error().code != ExitCode::kIoErr) return 2;
              return written.error().message == "standard output cannot be written: its reader has closed it" ? 0 : 3;
            }),
            0);
}

TEST(StandardStreams, KeepsOpenDescriptors) {
  EXPECT_EQ(exit_code_of([] {
              redirect(1, "/dev/full");
              if (!open_standard_streams()) return 1;
              return ::write(1, "x", 1) < 0 && errno == ENOSPC ? 0 : 2;
            }),
            0);
}

TEST(StandardStreams, ReportsLostOutput) {
  EXPECT_EQ(exit_code_of([] {
              redirect(1, "/dev/full");
              redirect(2, "/dev/null");
              std::fputs("result\n", stdout);
              return exit_code_after_flush("test", 0);
            }),
            74);
  EXPECT_EQ(exit_code_of([] {
              redirect(1, "/dev/full");
              redirect(2, "/dev/null");
              std::cout << std::string(100'000, 'x');  // lost long before the end of the program
              return exit_code_after_flush("test", 0);
            }),
            74);
  EXPECT_EQ(exit_code_of([] {
              redirect(1, "/dev/full");
              redirect(2, "/dev/null");
              std::fputs("result\n", stdout);
              return exit_code_after_flush("test", 78);
            }),
            78);
  EXPECT_EQ(exit_code_of([] {
              redirect(1, "/dev/null");
              std::fputs("result\n", stdout);
              return exit_code_after_flush("test", 0);
            }),
            0);
}

TEST(StandardStreams, IgnoresFullStandardError) {
  EXPECT_EQ(exit_code_of([] {
              redirect(2, "/dev/full");
              print_error("lost\n");
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace oarlock
