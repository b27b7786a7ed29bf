#include "tests/support/terminal_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/support/program.h"

namespace oarlock::test {

TerminalProgram::TerminalProgram(std::vector<std::string> argv, const std::filesystem::path& directory, int columns) {
  const ProgramImage image(std::move(argv), {"TERM=xterm", "TMPDIR=" + directory.string()});
  const winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
  if (pid_ == 0) image.execute(directory);
  if (pid_ < 0) ADD_FAILURE() << "no terminal can be created";
  ::fcntl(terminal_, F_SETFL, ::fcntl(terminal_, F_GETFL) | O_NONBLOCK);
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(terminal_);
}

const std::string& TerminalProgram::output() {
  char buffer[4096];
  for (ssize_t got; (got = ::read(terminal_, buffer, sizeof buffer)) > 0;)
    output_.append(buffer, static_cast<size_t>(got));
  return output_;
}

void TerminalProgram::type(const std::string& keys) const {
  if (::write(terminal_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size()))
    ADD_FAILURE() << "the terminal does not take the keys";
}

int TerminalProgram::wait() {
  // A full terminal would block the program.
  const int exit_code = wait_for_program(pid_, [this] { return output_; }, [this] { output(); });
  output();
  return exit_code;
}

std::vector<std::string> screen(const std::string& output) {
  std::vector<std::string> out(1);
  size_t column = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    std::string& line = out.back();
    const char c = output[i];
    if (c == '\n') {
      out.emplace_back();
      column = 0;
    } else if (c == '\r') {
      column = 0;
    } else if (c == '\x1b' && i + 1 < output.size() && output[i + 1] == '[') {
      for (i += 2; i < output.size() && (output[i] < '@' || output[i] > '~');) ++i;
      if (i < output.size() && output[i] == 'K') line.resize(std::min(line.size(), column));
    } else {
      if (line.size() <= column) line.resize(column + 1, ' ');
      line[column++] = c;
    }
  }
  for (std::string& line : out) {
    while (line.ends_with(' ')) line.pop_back();
  }
  return out;
}

}  // namespace oarlock::test
