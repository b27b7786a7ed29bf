// Turns the bytes that a rank writes into whole lines with a prefix.
#pragma once

#include <string>
#include <string_view>

namespace oarlock::launch {

// Binary-safe: nothing but the prefix is added, except a newline after a last line that has none. A line longer than
// kLongestLine is cut into several, so that a rank which never writes a newline cannot fill the memory.
class LinePrefixer {
 public:
  static constexpr size_t kLongestLine = size_t{16} << 20;

  // With `at_carriage_return`, a lone "\r" ends a line too: progress bars on a terminal.
  LinePrefixer(std::string prefix, bool at_carriage_return)
      : prefix_(std::move(prefix)), at_carriage_return_(at_carriage_return) {}

  void feed(std::string_view bytes, std::string& out);  // appends the lines that are complete
  void finish(std::string& out);                        // appends what is left; call it once, at the end

 private:
  size_t line_end(std::string_view bytes) const;
  void emit(std::string_view rest_of_line, std::string& out);

  std::string prefix_;
  bool at_carriage_return_;
  std::string pending_;  // the beginning of a line
};

}  // namespace oarlock::launch
