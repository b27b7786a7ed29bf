#include "yaml/internal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "common/number.h"

namespace oarlock::yaml {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <size_t kSize>
bool is_one_of(std::string_view text, const std::array<std::string_view, kSize>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool is_null_word(std::string_view text) { return text.empty() || is_one_of<4>(text, {"~", "null", "Null", "NULL"}); }

std::optional<bool> boolean_of(std::string_view text) {
  if (is_one_of<11>(text, {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) return true;
  if (is_one_of<11>(text, {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) return false;
  return std::nullopt;
}

std::optional<double> special_number(std::string_view text) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (is_one_of<6>(text, {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"})) return kInfinity;
  if (is_one_of<3>(text, {"-.inf", "-.Inf", "-.INF"})) return -kInfinity;
  if (is_one_of<3>(text, {".nan", ".NaN", ".NAN"})) return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

// Removes the prefix of an integer and returns its base, as strconv.ParseInt() of Go does for base 0.
int take_base(std::string_view& digits) {
  if (digits.size() < 2 || digits.front() != '0') return 10;
  const char letter = static_cast<char>(digits[1] | 0x20);
  const int base = letter == 'b' ? 2 : letter == 'o' ? 8 : letter == 'x' ? 16 : 0;
  digits.remove_prefix(base == 0 ? 1 : 2);
  return base == 0 ? 8 : base;
}

std::optional<nlohmann::json> integer_of(std::string_view text) {
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  const bool is_negative = text.starts_with('-');
  if (has_sign) text.remove_prefix(1);
  const int base = take_base(text);
  const std::optional<uint64_t> parsed = parse_integer<uint64_t>(text, base);
  if (!parsed) return std::nullopt;
  const uint64_t magnitude = *parsed;
  constexpr uint64_t kMostNegative = uint64_t{1} << 63;
  if (magnitude < kMostNegative) {
    const auto value = static_cast<int64_t>(magnitude);
    return is_negative ? -value : value;
  }
  if (is_negative && magnitude == kMostNegative) return std::numeric_limits<int64_t>::min();
  if (has_sign) return std::nullopt;
  return static_cast<double>(magnitude);
}

// Whether the text is a decimal number: [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
bool is_decimal(std::string_view text) {
  const auto take_sign = [&] {
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  };
  const auto take_digits = [&] {
    const size_t count = static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
    text.remove_prefix(count);
    return count;
  };
  take_sign();
  const size_t whole = take_digits();
  size_t fraction = 0;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = take_digits();
  }
  if (whole + fraction == 0) return false;
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text.remove_prefix(1);
  take_sign();
  return take_digits() > 0 && text.empty();
}

// A number that is too large for a double is not a number; one that is too small is 0.
std::optional<double> decimal_of(const std::string& text) {
  if (!is_decimal(text)) return std::nullopt;
  const std::optional<double> value = parse_double(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// A number that begins with a point can have underscores between digits only.
bool has_misplaced_underscore(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') continue;
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) return true;
  }
  return false;
}

}  // namespace

nlohmann::json resolve_plain_scalar(const std::string& text) {
  if (is_null_word(text)) return nullptr;
  if (const std::optional<bool> flag = boolean_of(text)) return *flag;
  if (const std::optional<double> number = special_number(text)) return *number;
  const char first = text.front();
  if (first == '.') {
    if (has_misplaced_underscore(text)) return text;
    if (const std::optional<double> number = decimal_of(without_underscores(text))) return *number;
  }
  if (is_digit(first) || first == '+' || first == '-') {
    const std::string plain = without_underscores(text);
    if (std::optional<nlohmann::json> integer = integer_of(plain)) return *std::move(integer);
    if (const std::optional<double> number = decimal_of(plain)) return *number;
  }
  return text;
}

nlohmann::json with_whole_number(nlohmann::json value) {
  if (!value.is_number_float()) return value;
  const auto number = value.get<double>();
  constexpr double kBound = 9223372036854775808.0;  // 2^63
  if (std::trunc(number) != number || number <= -kBound || number >= kBound) return value;
  return static_cast<int64_t>(number);
}

}  // namespace oarlock::yaml
