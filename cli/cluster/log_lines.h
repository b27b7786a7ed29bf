// Lines of the logs of a job's pods: prefixes, the selection of one rank, safe output, and the position from which to
// continue after a lost connection. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/cluster/output.h"

namespace oarlock::cli {

struct LogFormat {
  int node_rank = 0;
  int processes_per_node = 1;
  std::optional<int> rank{};  // only the lines of this rank
  bool has_prefix = true;     // "[rank 3] " before each line
  bool shows_timestamps = false;
  bool is_terminal = false;  // makes the text safe for a terminal; otherwise its bytes are not changed
  Style style{};
};

// Converts the log of one pod, read with timestamps=true, to lines of output. A line longer than kMaxLineBytes is
// output as several lines.
class LogLines {
 public:
  static constexpr size_t kMaxLineBytes = 64u << 10;

  explicit LogLines(LogFormat format) : format_(std::move(format)) {}

  // Appends the complete lines to `out`.
  void feed(std::string_view bytes, std::string& out);
  // Appends the incomplete last line. Call it at the end of the stream.
  void finish(std::string& out);

  // Begins another stream of the same log. Lines up to the last one that was output are skipped.
  void restart();

  // The timestamp of the last line, as the kubelet wrote it; "" before the first line.
  const std::string& last_timestamp() const { return last_timestamp_; }

 private:
  void add_line(std::string_view line, std::string& out);
  void add_text(std::string_view text, std::string_view timestamp, std::string& out) const;

  const LogFormat format_;
  std::string pending_;
  bool is_continued_ = false;  // `pending_` continues a line whose beginning was output
  bool skips_line_ = false;    // the rest of the current line was output before restart()
  std::string last_timestamp_;
  std::string skip_until_;  // lines up to this timestamp were output before restart()
};

}  // namespace oarlock::cli
