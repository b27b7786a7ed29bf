#include "cli/launch/log_options.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/text.h"

namespace oarlock::launch {
namespace {

std::optional<int> number_below(std::string_view text, int limit) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value >= 0 && value < limit ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<std::vector<int>> streams_by_rank(const std::string& option, const std::string& value, int ranks) {
  constexpr int kStreams = 4;
  std::vector<int> out(static_cast<size_t>(ranks), 0);
  if (value.empty()) return out;
  if (const auto streams = number_below(value, kStreams)) {
    out.assign(out.size(), *streams);
    return out;
  }
  std::istringstream entries(value);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t colon = entry.find(':');
    const std::string_view text = entry;
    const auto rank = number_below(text.substr(0, colon), ranks);
    const auto streams = colon == std::string::npos ? std::nullopt : number_below(text.substr(colon + 1), kStreams);
    if (!rank || !streams) {
      return fail(
          ExitCode::kUsage,
          fmt::format("{}={} is neither 0 to 3 (1: stdout, 2: stderr, 3: both) nor a list of LOCAL_RANK:N, such "
                      "as 0:3,1:1, with local ranks below {}",
                      option, shortened(value), ranks));
    }
    out[static_cast<size_t>(*rank)] = *streams;
  }
  return out;
}

Result<std::vector<bool>> shown_ranks(const std::string& value, int ranks) {
  std::vector<bool> out(static_cast<size_t>(ranks), value.empty());
  std::istringstream entries(value);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto rank = number_below(entry, ranks);
    if (!rank) {
      return fail(ExitCode::kUsage, fmt::format("--local-ranks-filter={} is not a list of local ranks below {}",
                                                shortened(value), ranks));
    }
    out[static_cast<size_t>(*rank)] = true;
  }
  return out;
}

}  // namespace oarlock::launch
