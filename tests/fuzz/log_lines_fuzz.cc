// The log of a pod, read with timestamps. Byte 0 is the size of the pieces in which the rest arrives, byte 1 has the
// bits of the format, and byte 2 is the length of the first line's beginning in KiB: lines may be longer than the
// limit. The output must not depend on the pieces, a terminal gets no control characters, and a file gets the bytes of
// the log.
#include <algorithm>
#include <string>

#include "cli/cluster/log_lines.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

struct Output {
  std::string text;
  std::string after_restart;
  std::string last_timestamp;

  bool operator==(const Output&) const = default;
};

// The connection is lost after half of the log, of which the next one delivers all again.
Output convert_log(const cli::LogFormat& format, std::string_view log, size_t piece) {
  const auto feed = [&](cli::LogLines& lines, std::string_view bytes, std::string& out) {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) lines.feed(bytes.substr(0, piece), out);
  };
  Output out;
  cli::LogLines lines(format);
  feed(lines, log, out.text);
  lines.finish(out.text);
  out.last_timestamp = lines.last_timestamp();
  cli::LogLines interrupted(format);
  feed(interrupted, log.substr(0, log.size() / 2), out.after_restart);
  interrupted.restart();
  feed(interrupted, log, out.after_restart);
  interrupted.finish(out.after_restart);
  return out;
}

// A file gets the log as the kubelet sent it. Only the end of the last line may be added, and long lines are broken.
void require_unchanged(std::string_view log, size_t piece) {
  if (log.size() > cli::LogLines::kMaxLineBytes) return;
  cli::LogFormat format;
  format.has_prefix = false;
  format.shows_timestamps = true;
  std::string expected(log);
  if (!expected.empty() && expected.back() != '\n') expected += '\n';
  fuzz::require(convert_log(format, log, piece).text == expected);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t piece = size_t{1} + data[0];
  cli::LogFormat format;
  format.node_rank = 1;
  if ((data[1] & 1) != 0) format.processes_per_node = 4;
  if ((data[1] & 2) != 0) format.rank = 5;
  format.has_prefix = (data[1] & 4) != 0;
  format.shows_timestamps = (data[1] & 8) != 0;
  format.is_terminal = (data[1] & 16) != 0;
  const std::string log = std::string(size_t{data[2]} * 1024, 'x') + std::string(fuzz::text_of(data + 3, size - 3));

  const Output output = convert_log(format, log, piece);
  fuzz::require(output == convert_log(format, log, log.size() + 1));
  fuzz::require(output.last_timestamp.size() <= 40 && is_printable(output.last_timestamp));
  if (format.is_terminal) {
    for (const std::string& text : {output.text, output.after_restart})
      if (!text.empty()) fuzz::require_printable_lines(text);
  }
  require_unchanged(log, piece);
  return 0;
}
