#include "common/number.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <system_error>

namespace oarlock {

std::optional<double> parse_double(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (end != text.end() || error == std::errc::invalid_argument) return std::nullopt;
  // from_chars() does not report which of the two it is. No program of Oarlock sets a locale, which strtod() would use.
  if (error == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);
  return value;
}

}  // namespace oarlock
