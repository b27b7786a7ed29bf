// Runs a program as a user would, for the tests of the command line.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace oarlock::test {

struct ProgramOptions {
  std::map<std::string, std::string> environment;  // on top of a clean one: PATH, HOME and TMPDIR only
  std::filesystem::path folder;                    // working directory; empty: a new temporary one
};

// Both outputs go to files, so that no pipe of the test's own can be the reason why something hangs.
class Program {
 public:
  explicit Program(std::vector<std::string> argv, const ProgramOptions& options = {});
  ~Program();  // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  int wait();  // for its end, as a shell's $?; fails the test after five minutes
  std::string out() const;
  std::string err() const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  TemporaryFolder own_;
  std::filesystem::path folder_;
  pid_t pid_ = -1;
};

std::string oarlock();  // path of the program under test

// Polls until it is true; false after five minutes.
bool eventually(const std::function<bool()>& condition);

std::string content(const std::filesystem::path& file);  // "" when it cannot be read
int number_in(const std::filesystem::path& file);        // waits for a file with a line with a number; -1: never came
bool alive(pid_t pid);                                   // whether it exists and has not exited
std::vector<std::string> lines(const std::string& text);

}  // namespace oarlock::test
