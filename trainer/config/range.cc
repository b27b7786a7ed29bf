#include "trainer/config/range.h"

#include <fmt/format.h>

#include <cmath>

namespace oarlock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string interval(const Range& range) {
  return fmt::format("{}{}, {}{}", range.low_is_open ? '(' : '[', range.low, range.high,
                     range.high_is_open ? ')' : ']');
}

}  // namespace

std::optional<std::string> Range::complaint(double value) const {
  if (std::isnan(value) || (std::isinf(value) && !infinity_is_inside)) return fmt::format("{} is not finite", value);
  if (!bounded()) return std::nullopt;
  const bool low_fits = low_is_open ? value > low : value >= low;
  const bool high_fits = high_is_open ? value < high : value <= high;
  if (low_fits && high_fits) return std::nullopt;
  if (high < kInfinity) return fmt::format("{} is not in {}", value, interval(*this));
  return low_is_open ? fmt::format("{} is not above {}", value, low) : fmt::format("{} is below {}", value, low);
}

std::string Range::text() const {
  if (!bounded()) return "";
  if (high < kInfinity) return "in " + interval(*this);
  return low_is_open ? fmt::format("above {}", low) : fmt::format("at least {}", low);
}

}  // namespace oarlock
