#include "cli/cluster/log_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/number.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

constexpr Color kRankColors[] = {Color::kGreen, Color::kYellow, Color::kFaint, Color::kNone};

// Splits "2026-11-23T06:50:00.123456789Z text" into timestamp and text. A line without a timestamp is all text.
std::string_view take_timestamp(std::string_view& line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space < 20 || space > 40 || line[4] != '-' || line[10] != 'T') return {};
  if (line.substr(0, space).find_first_not_of("0123456789-:.+TZ") != std::string_view::npos) return {};
  const std::string_view timestamp = line.substr(0, space);
  line.remove_prefix(space + 1);
  return timestamp;
}

// Compares timestamps in UTC, whose fractions may have different numbers of digits.
bool is_after(std::string_view a, std::string_view b) {
  if (a.ends_with('Z')) a.remove_suffix(1);
  if (b.ends_with('Z')) b.remove_suffix(1);
  return a > b;
}

struct RankPrefix {
  int rank = 0;
  size_t length = 0;
};

// The prefix "[RANK n] " that the launcher adds to the lines of its ranks.
std::optional<RankPrefix> rank_prefix(std::string_view text) {
  constexpr std::string_view kBegin = "[RANK ";
  if (!text.starts_with(kBegin)) return std::nullopt;
  const size_t close = text.find("] ");
  if (close == std::string_view::npos) return std::nullopt;
  const auto rank = parse_integer<int>(text.substr(kBegin.size(), close - kBegin.size()));
  if (!rank) return std::nullopt;
  return RankPrefix{.rank = *rank, .length = close + 2};
}

// Removes the escape sequences for colors, which would be shown as text otherwise.
std::string without_colors(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t escape = std::min(text.find("\x1b["), text.size());
    out += text.substr(0, escape);
    text.remove_prefix(escape);
    if (text.empty()) break;
    const size_t end = std::min(text.find_first_not_of("0123456789;", 2), text.size());
    if (end < text.size() && text[end] == 'm') {
      text.remove_prefix(end + 1);
    } else {
      out += text.substr(0, 2);
      text.remove_prefix(2);
    }
  }
  return out;
}

// Returns the text that a terminal would show for a line, without control characters.
std::string terminal_text(std::string_view text) {
  while (text.ends_with('\r')) text.remove_suffix(1);
  if (const size_t last = text.rfind('\r'); last != std::string_view::npos) text.remove_prefix(last + 1);
  std::string plain = without_colors(text);
  for (size_t at = plain.find('\t'); at != std::string::npos; at = plain.find('\t', at)) plain.replace(at, 1, "    ");
  return printable(plain);
}

}  // namespace

void LogLines::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (bytes.front() == '\n') {
      bytes.remove_prefix(1);
      add_line(pending_, out);
      pending_.clear();
      is_continued_ = false;
      continue;
    }
    // A full line is not output before its next byte, which may be its end.
    if (pending_.size() == kMaxLineBytes) {
      add_line(pending_, out);
      pending_.clear();
      is_continued_ = true;
    }
    const std::string_view piece =
        bytes.substr(0, std::min({bytes.find('\n'), kMaxLineBytes - pending_.size(), bytes.size()}));
    pending_ += piece;
    bytes.remove_prefix(piece.size());
  }
}

void LogLines::finish(std::string& out) {
  if (!pending_.empty()) add_line(pending_, out);
  pending_.clear();
  is_continued_ = false;
}

void LogLines::restart() {
  pending_.clear();
  is_continued_ = false;
  skip_until_ = last_timestamp_;
}

void LogLines::add_line(std::string_view line, std::string& out) {
  std::string_view timestamp = last_timestamp_;
  if (!is_continued_) {
    timestamp = take_timestamp(line);
    skips_line_ = !skip_until_.empty() && !timestamp.empty() && !is_after(timestamp, skip_until_);
    if (!timestamp.empty() && !skips_line_) last_timestamp_ = timestamp;
  }
  if (!skips_line_) add_text(line, timestamp, out);
}

void LogLines::add_text(std::string_view text, std::string_view timestamp, std::string& out) const {
  std::string label = fmt::format("[node {}] ", format_.node_rank);
  int rank = format_.node_rank;
  if (format_.processes_per_node == 1) {
    label = fmt::format("[rank {}] ", rank);
  } else if (const std::optional<RankPrefix> prefix = rank_prefix(text)) {
    rank = prefix->rank;
    label = fmt::format("[rank {}] ", rank);
    if (format_.rank && *format_.rank != rank) return;
    text.remove_prefix(prefix->length);
  } else if (format_.rank) {
    return;
  }
  if (format_.has_prefix)
    out += format_.style.paint(kRankColors[static_cast<size_t>(std::max(rank, 0)) % std::size(kRankColors)], label);
  if (format_.shows_timestamps && !timestamp.empty()) out += fmt::format("{} ", timestamp);
  out += format_.is_terminal ? terminal_text(text) : std::string(text);
  out += '\n';
}

}  // namespace oarlock::cli
