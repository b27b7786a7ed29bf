#include "fields/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <regex>

#include "common/text.h"

namespace oarlock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// `pattern` is a string literal. Each expression is compiled once, which takes much longer than a match.
bool matches(const char* pattern, const std::string& value) {
  thread_local std::map<std::string_view, std::regex> compiled;
  return std::regex_search(value, compiled.try_emplace(pattern, pattern).first->second);
}

}  // namespace

std::string Limits::interval() const {
  return fmt::format("{}{}, {}{}", low_is_open ? '(' : '[', low, high, high_is_open ? ')' : ']');
}

std::optional<std::string> check_limits(const Limits& limits, double value) {
  if (std::isnan(value) || (std::isinf(value) && !limits.allows_infinity)) {
    return fmt::format("{} is not finite", value);
  }
  if (!limits.is_bounded()) return std::nullopt;
  const bool low_fits = limits.low_is_open ? value > limits.low : value >= limits.low;
  const bool high_fits = limits.high_is_open ? value < limits.high : value <= limits.high;
  if (low_fits && high_fits) return std::nullopt;
  if (limits.high < kInfinity) {
    return fmt::format("{} is not in {}", value, limits.interval());
  }
  return limits.low_is_open ? fmt::format("{} is not above {}", value, limits.low)
                            : fmt::format("{} is below {}", value, limits.low);
}

std::optional<std::string> check_limits(const Limits& limits, const std::string& value) {
  if (limits.max_length > 0 && value.size() > limits.max_length) {
    return fmt::format("'{}' has {} characters; the maximum is {}", shortened(value), value.size(), limits.max_length);
  }
  if (*limits.pattern == '\0' || matches(limits.pattern, value)) return std::nullopt;
  return *limits.noun == '\0' ? fmt::format("'{}' does not match {}", shortened(value), limits.pattern)
                              : fmt::format("'{}' is not {}", shortened(value), limits.noun);
}

std::string FieldPath::text() const {
  std::string out = parent == nullptr ? "" : parent->text();
  if (!out.empty() && !key.empty()) out += '.';
  out += key;
  if (index >= 0) out += fmt::format("[{}]", index);
  return out;
}

}  // namespace oarlock
