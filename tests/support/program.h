// Runs a program as a user would, for the tests of the command line.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace oarlock::test {

// The arguments and the environment of a program, prepared before fork(2). `variables` ("NAME=VALUE") are set in
// addition to PATH and HOME of this process.
class ProgramImage {
 public:
  ProgramImage(std::vector<std::string> argv, const std::vector<std::string>& variables);
  ProgramImage(const ProgramImage&) = delete;
  ProgramImage& operator=(const ProgramImage&) = delete;

  // Replaces the calling process, a child of the test that ends with it. Exits with 99 if the program cannot be
  // executed.
  [[noreturn]] void execute(const std::filesystem::path& directory) const;

 private:
  std::vector<std::string> words_;
  std::vector<std::string> entries_;
  std::vector<char*> arguments_;    // pointers into words_
  std::vector<char*> environment_;  // pointers into entries_
};

// Waits for the end of a child, then sets `pid` to -1 and returns the exit code as a shell's $?. Calls `poll` while it
// waits, unless that is empty. Fails the test and returns -1 if `pid` is not a child of this process, and, with the
// text that `output` returns, after five minutes.
int wait_for_program(pid_t& pid, const std::function<std::string()>& output, const std::function<void()>& poll = {});

struct ProgramOptions {
  std::map<std::string, std::string> environment{};  // on top of a clean one: PATH, HOME, TMPDIR and TSAN_OPTIONS only
  std::filesystem::path directory{};                 // working directory; empty: a new temporary one
};

// Both outputs go to files, so that no pipe of the test's own can be the reason why something hangs.
class Program {
 public:
  explicit Program(std::vector<std::string> argv, const ProgramOptions& options = {});
  ~Program();  // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }  // -1 after wait()
  void signal(int number) const;      // no effect after wait()
  int wait();                         // wait_for_program() the first time, then the same exit code
  std::string out() const;
  std::string err() const;
  const std::filesystem::path& directory() const { return directory_; }

 private:
  TemporaryDirectory own_;
  std::filesystem::path directory_;
  pid_t pid_ = -1;
  int exit_code_ = -1;  // once pid_ is -1
};

std::string oarlock();  // path of the program under test

// Polls until it is true; false after five minutes.
bool eventually(const std::function<bool()>& condition);

std::string content(const std::filesystem::path& file);  // "" when it cannot be read
int number_in(const std::filesystem::path& file);        // waits for a file with a line with a number; -1: never came
bool alive(pid_t pid);                                   // whether it exists and has not exited
std::vector<std::string> lines(const std::string& text);

}  // namespace oarlock::test
