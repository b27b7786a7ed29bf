#include "common/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
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

namespace {

// Whether the descriptor is a pipe or socket whose other end is closed.
bool has_no_reader(int fd) {
  pollfd polled{fd, POLLOUT, 0};
  return ::poll(&polled, 1, 0) > 0 && (polled.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

Result<void> flush_standard_output() {
  errno = 0;
  const bool stream_is_good = !std::cout.flush().fail();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && stream_is_good) return {};
  // The failed write may have been an earlier one, whose errno is lost.
  const std::string reason = has_no_reader(STDOUT_FILENO) ? "its reader has closed it"
                             : errno != 0                 ? std::generic_category().message(errno)
                                                          : "a write failed, as on a full device";
  return fail(ExitCode::kIoErr, "standard output cannot be written: " + reason);
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

int terminal_columns(int fd) {
  constexpr int kDefault = 80;
  if (::isatty(fd) != 1) return 0;
  const char* type = std::getenv("TERM");
  if (type == nullptr || std::string_view(type) == "dumb") return 0;
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kDefault;
}

bool shows_progress_lines() {
  if (terminal_columns(STDERR_FILENO) > 0) return true;
  const char* set = std::getenv(kEnvProgressLines);
  struct stat file{};
  return set != nullptr && *set != '\0' && ::fstat(STDERR_FILENO, &file) == 0 && S_ISFIFO(file.st_mode);
}

std::string cut_to_width(std::string_view text, size_t columns) {
  std::string out;
  size_t used = 0;
  while (!text.empty()) {
    size_t length = std::max<size_t>(first_utf8_character(text).length, 1);
    const bool is_sequence = text.starts_with("\x1b[");
    if (is_sequence) {
      length = 2;
      while (length < text.size() && (text[length] < '@' || text[length] > '~')) ++length;
      length = std::min(length + 1, text.size());
    } else if (++used > columns) {
      text.remove_prefix(length);
      continue;
    }
    out += text.substr(0, length);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace oarlock
