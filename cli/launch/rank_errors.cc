#include "cli/launch/rank_errors.h"

#include <algorithm>

#include "common/text.h"

namespace oarlock::launch {
namespace {

constexpr size_t kReasonLength = 1000;

// Exceptions of programs that start the ranks, which only state that a rank has failed.
constexpr std::string_view kLauncherExceptions[] = {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
                                                    "subprocess.CalledProcessError"};

// Returns "[rank3]: " of a line that PyTorch wrote for an uncaught exception; "" for any other line.
std::string_view prefix_of(std::string_view line) {
  constexpr std::string_view kBegin = "[rank";
  constexpr std::string_view kEnd = "]: ";
  if (!line.starts_with(kBegin)) return "";
  const size_t end = line.find_first_not_of("0123456789", kBegin.size());
  if (end == std::string_view::npos || end == kBegin.size() || !line.substr(end).starts_with(kEnd)) return "";
  return line.substr(0, end + kEnd.size());
}

}  // namespace

void RankErrors::add(std::string_view line) {
  if (trim(line).empty()) return;
  last_line_ = shortened(trim(line), kReasonLength);
  ++lines_after_;
  const std::string_view prefix = prefix_of(line);
  const std::string_view text = line.substr(prefix.size());
  if (text.starts_with("Traceback (most recent call last):")) {
    // The traceback of another rank does not interrupt that of the decisive one.
    const bool is_of_other = is_in_traceback_ && !open_prefix_.empty() && open_prefix_ != prefix;
    if (is_of_other) return;
    is_in_traceback_ = !is_ignored_;
    open_prefix_ = prefix;
  } else if (is_in_traceback_ && prefix == open_prefix_ && !text.starts_with(' ')) {
    is_in_traceback_ = false;
    add_exception(prefix, text);
  }
  is_ignored_ = text.starts_with("Exception ignored in");
}

void RankErrors::add_exception(std::string_view prefix, std::string_view line) {
  const auto begins = [line](std::string_view name) { return line.starts_with(name); };
  if (std::ranges::any_of(kLauncherExceptions, begins)) return;
  const bool is_recent = !exception_.empty() && lines_after_ <= kMaxLinesAfter;
  if (is_recent && !rank_prefix_.empty() && rank_prefix_ != prefix) return;
  exception_ = shortened(line, kReasonLength);
  rank_prefix_ = prefix;
  lines_after_ = 0;
}

std::string RankErrors::reason() const {
  return !exception_.empty() && lines_after_ <= kMaxLinesAfter ? exception_ : last_line_;
}

}  // namespace oarlock::launch
