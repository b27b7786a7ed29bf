#include "cli/launch/line_prefixer.h"

namespace oarlock::launch {

// Index one past the end of the first line, or npos. "\r\n" is one end, so a "\r" that comes last is not decided yet.
size_t LinePrefixer::line_end(std::string_view bytes) const {
  const size_t newline = bytes.find('\n');
  if (at_carriage_return_) {
    const size_t carriage_return = bytes.substr(0, newline).find('\r');
    if (carriage_return != std::string_view::npos && carriage_return + 1 < bytes.size() &&
        carriage_return + 1 != newline) {
      return carriage_return + 1;
    }
  }
  return newline == std::string_view::npos ? newline : newline + 1;
}

void LinePrefixer::emit(std::string_view rest_of_line, std::string& out) {
  out += prefix_;
  out += pending_;
  out += rest_of_line;
  pending_.clear();
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  if (at_carriage_return_ && pending_.ends_with('\r') && !bytes.empty() && bytes.front() != '\n') emit("", out);
  for (size_t end; (end = line_end(bytes)) != std::string_view::npos; bytes.remove_prefix(end)) {
    emit(bytes.substr(0, end), out);
  }
  pending_ += bytes;
  if (pending_.size() >= kLongestLine) {
    pending_ += '\n';
    emit("", out);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (pending_.empty()) return;
  pending_ += '\n';
  emit("", out);
}

}  // namespace oarlock::launch
