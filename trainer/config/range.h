// Bounds of a number in the configuration.
#pragma once

#include <limits>
#include <optional>
#include <string>

namespace oarlock {

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_is_open = false;   // low itself is outside
  bool high_is_open = false;  // high itself is outside
  bool infinity_is_inside = false;

  bool bounded() const { return low > -std::numeric_limits<double>::infinity(); }

  // "0.5 is below 1"; nothing for a value inside. NaN is outside of every range.
  std::optional<std::string> complaint(double value) const;

  // "at least 1", "above 0", "in [0, 1)"; "" where any number will do.
  std::string text() const;
};

constexpr Range any_number() { return {}; }
constexpr Range any_number_or_infinity() { return {.infinity_is_inside = true}; }
constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range above(double low) { return {.low = low, .low_is_open = true}; }
constexpr Range from_to(double low, double high) { return {.low = low, .high = high}; }
constexpr Range from_below(double low, double high) { return {.low = low, .high = high, .high_is_open = true}; }
constexpr Range above_to(double low, double high) { return {.low = low, .high = high, .low_is_open = true}; }

}  // namespace oarlock
