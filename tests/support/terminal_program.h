// Runs a program on a terminal, as a user does.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace oarlock::test {

class TerminalProgram {
 public:
  // The terminal has `columns` columns and TERM=xterm. The program has no other environment than PATH, HOME and TMPDIR.
  TerminalProgram(std::vector<std::string> argv, const std::filesystem::path& directory, int columns = 80);
  ~TerminalProgram();  // kills it if it still runs
  TerminalProgram(const TerminalProgram&) = delete;
  TerminalProgram& operator=(const TerminalProgram&) = delete;

  // Everything that the terminal has received so far, with control characters. Reads what has arrived.
  const std::string& output();
  void type(const std::string& keys) const;  // "\x03" is Ctrl-C
  int wait();                                // wait_for_program()

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string output_;
};

// Returns the text that a terminal shows at the end, by lines without trailing spaces: "\r" returns to the start of the
// line, and "\x1b[K" erases the rest of it. Other escape sequences are ignored.
std::vector<std::string> screen(const std::string& output);

}  // namespace oarlock::test
