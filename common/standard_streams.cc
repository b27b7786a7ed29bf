#include "common/standard_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "common/text.h"

namespace oarlock {

Result<void> open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number, which is fd: all below it are open.
    if (::open("/dev/null", O_RDWR) != fd) return fail_errno(errno, "/dev/null: cannot be opened");
  }
  return {};
}

Result<void> flush_standard_output() {
  errno = 0;
  const bool stream_is_good = !std::cout.flush().fail();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && stream_is_good) return {};
  // The failed write may have been an earlier one, whose errno is lost.
  return fail(ExitCode::kIoErr,
              fmt::format("standard output cannot be written: {}",
                          errno != 0 ? std::generic_category().message(errno) : "a write failed, as on a full device"));
}

Result<void> write_standard_output(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return flush_standard_output();
}

void print_error(std::string_view text) {
  const std::string safe = printable_lines(text);
  std::fwrite(safe.data(), 1, safe.size(), stderr);
}

int exit_code_after_flush(std::string_view program, int exit_code) {
  const Result<void> flushed = flush_standard_output();
  if (flushed) return exit_code;
  print_error(fmt::format("{}: error: {}\n", program, flushed.error().message));
  return exit_code == 0 ? to_int(flushed.error().code) : exit_code;
}

}  // namespace oarlock
