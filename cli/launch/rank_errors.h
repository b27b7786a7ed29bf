// The standard error of one rank, of which the line is kept that names why the rank has failed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace oarlock::launch {

// Of a Python traceback, that is the line with the exception, and not its last line or a message of a library that
// follows. A program that starts the ranks itself writes the tracebacks of all its ranks and its own: PyTorch begins
// each line of an uncaught exception with "[rank3]: ", and the rank that wrote the first one is decisive.
class RankErrors {
 public:
  // Adds a line without its end.
  void add(std::string_view line);
  // Returns the exception of a traceback that ended at most kMaxLinesAfter lines ago, else the last line that is not
  // blank. At most 1000 bytes; empty if nothing was written.
  std::string reason() const;

 private:
  static constexpr size_t kMaxLinesAfter = 64;

  void add_exception(std::string_view prefix, std::string_view line);

  std::string last_line_;
  std::string exception_;
  size_t lines_after_ = 0;   // the exception
  std::string rank_prefix_;  // of the rank whose exception this is; empty: not known
  std::string open_prefix_;  // of the traceback whose exception has not been read
  bool is_in_traceback_ = false;
  bool is_ignored_ = false;  // the next traceback is one that Python reports and ignores
};

}  // namespace oarlock::launch
