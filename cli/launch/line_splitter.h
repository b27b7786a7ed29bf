// Splits bytes that arrive in pieces into lines.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace oarlock::launch {

// "\n" and "\r" end a line, and empty lines are skipped. Of a longer line, the first `max_bytes` bytes are kept.
class LineSplitter {
 public:
  explicit LineSplitter(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Calls `visit` with each line that these bytes complete, without its end.
  template <typename Visit>
  void feed(std::string_view bytes, const Visit& visit) {
    for (;;) {
      const size_t end = bytes.find_first_of("\r\n");
      pending_ += bytes.substr(0, std::min(end, max_bytes_ - pending_.size()));
      if (end == std::string_view::npos) return;
      if (!pending_.empty()) visit(std::string_view(pending_));
      pending_.clear();
      bytes.remove_prefix(end + 1);
    }
  }

  // The beginning of the incomplete line.
  const std::string& pending() const { return pending_; }

 private:
  size_t max_bytes_;
  std::string pending_;
};

}  // namespace oarlock::launch
