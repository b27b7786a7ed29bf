// Numbers in texts.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace oarlock {

// Returns the integer of the digits, after "-" for a negative one; nullopt unless the whole text is one integer that an
// Integer can represent. Neither blanks nor "+" nor a prefix such as 0x is permitted.
template <std::integral Integer>
std::optional<Integer> parse_integer(std::string_view text, int base = 10) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value, base);
  if (error != std::errc() || end != text.end()) return std::nullopt;
  return value;
}

// Returns the double nearest to a decimal number such as +1.5, -2e-3, "inf" or "nan". One whose magnitude is too small
// for a double is 0 or a denormal number, and one whose magnitude is too large is infinite. Returns nullopt unless the
// whole text is one number.
std::optional<double> parse_double(std::string_view text);

}  // namespace oarlock
