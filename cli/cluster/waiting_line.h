// A line on the terminal that shows that an operation still runs, and what it has done so far.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace oarlock::cli {

// From one second after the construction until the destruction, which erases it, the line is the last one on the
// terminal of standard error. If standard error is not a terminal, it does nothing. Nothing else should be written to
// the terminal meanwhile.
class WaitingLine {
 public:
  // `text` returns the present content of the line. It is called on another thread, once a second.
  explicit WaitingLine(std::function<std::string()> text);

 private:
  std::jthread thread_;
};

}  // namespace oarlock::cli
