#include "cli/launch/progress_pattern.h"

#include <fmt/format.h>

#include <cmath>

#include "common/number.h"
#include "common/text.h"

namespace oarlock::launch {

Result<ProgressPattern> ProgressPattern::make(const std::string& expression) {
  std::string reason;
  try {
    // With the extension __polynomial of libstdc++, an expression such as (a+)+b does not take exponential time.
    std::regex made(expression, std::regex::ECMAScript | std::regex::optimize | std::regex_constants::__polynomial);
    if (made.mark_count() > 0) return ProgressPattern(std::move(made));
    reason = "it has no group for the step";
  } catch (const std::regex_error& error) {
    reason = error.code() == std::regex_constants::error_complexity ? "back references are not supported"
                                                                    : "it is not a valid regular expression";
  }
  return fail(ExitCode::kUsage, fmt::format("progress pattern '{}': {}; an example: 'step (\\d+).*loss ([\\d.]+)'",
                                            shortened(expression), reason));
}

std::optional<ProgressReport> ProgressPattern::match(std::string_view line) const {
  std::cmatch found;
  if (line.size() > kMaxLineBytes) line = line.substr(0, kMaxLineBytes);
  if (!std::regex_search(line.begin(), line.end(), found, expression_)) return std::nullopt;
  const auto group = [&found](size_t index) {
    return index < found.size() ? parse_double(found[index].str()) : std::nullopt;
  };
  constexpr double kMaxStep = 1e15;  // a double represents each smaller integer
  const std::optional<double> step = group(1);
  if (!step || !(*step >= 0 && *step <= kMaxStep)) return std::nullopt;
  ProgressReport out{.step = static_cast<int64_t>(*step)};
  if (const std::optional<double> loss = group(2); loss && std::isfinite(*loss)) out.loss = loss;
  return out;
}

}  // namespace oarlock::launch
