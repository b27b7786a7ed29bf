// Numbers in texts.
#pragma once

#include <optional>
#include <string_view>

namespace oarlock {

// Returns the double nearest to a decimal number such as +1.5, -2e-3, "inf" or "nan". One whose magnitude is too small
// for a double is 0 or a denormal number, and one whose magnitude is too large is infinite. Returns nullopt unless the
// whole text is one number.
std::optional<double> parse_double(std::string_view text);

}  // namespace oarlock
