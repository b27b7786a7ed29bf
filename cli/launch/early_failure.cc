#include "cli/launch/early_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "common/contract.h"
#include "common/error.h"

namespace oarlock::launch {
namespace {

constexpr int kFirstSignalCode = 128;
constexpr int kMaxEntries = 10'000;  // of a directory

}  // namespace

bool is_early_failure(const RankEnd& end) {
  const bool is_classified =
      end.exit_code >= to_int(ExitCode::kUsage) && end.exit_code <= to_int(ExitCode::kDeviceFailed);
  const bool is_of_program = end.exit_code > 0 && end.exit_code < kFirstSignalCode && !is_classified;
  return is_of_program && end.lifetime < kEarlyFailureTime && !end.has_progress;
}

bool is_repeated(const RankEnd& earlier, const RankEnd& later) {
  const bool is_same_line = !later.last_line.empty() && earlier.last_line == later.last_line;
  return is_early_failure(earlier) && is_early_failure(later) && earlier.exit_code == later.exit_code &&
         (earlier.rank == later.rank || is_same_line);
}

std::string describe_repeated(const std::string& name, const RankEnd& end) {
  return fmt::format(
      "{} ended with exit code {} again within {} s of its start, before a step or a checkpoint, so that a restart "
      "would fail, too{}",
      name, end.exit_code, std::chrono::duration_cast<std::chrono::seconds>(kEarlyFailureTime).count(),
      end.last_line.empty() ? "" : fmt::format("; its last line: {}", end.last_line));
}

bool reports_progress(const std::string& message) {
  const auto parsed = termination_message_from_json(message);
  return parsed && (parsed->step > 0 || parsed->checkpoint_step >= 0);
}

std::optional<std::filesystem::file_time_type> newest_change(const std::filesystem::path& directory) {
  std::error_code error;
  std::optional<std::filesystem::file_time_type> newest;
  int count = 0;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end && count < kMaxEntries;
       entry.increment(error), ++count) {
    std::error_code gone;
    const auto changed = entry->last_write_time(gone);
    if (!gone) newest = std::max(newest.value_or(changed), changed);
  }
  return newest;
}

}  // namespace oarlock::launch
