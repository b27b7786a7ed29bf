#include "common/terminal.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/text.h"

namespace oarlock {

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
