#include "cli/convert/shell_arithmetic.h"

#include <cstdlib>

#include "common/number.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

using VariableLookup = std::function<std::optional<std::string>(const std::string&)>;

constexpr int64_t kMaxValue = 1'000'000;  // of nodes and ranks; far from an overflow

// A recursive-descent parser; each function removes what it has read.
class Arithmetic {
 public:
  explicit Arithmetic(const VariableLookup& value_of) : value_of_(value_of) {}

  std::optional<int64_t> evaluate(std::string_view rest) const {
    const std::optional<int64_t> value = sum(rest, 0);
    return value && trim(rest).empty() ? value : std::nullopt;
  }

 private:
  std::optional<int64_t> sum(std::string_view& rest, int depth) const {
    std::optional<int64_t> value = product(rest, depth);
    while (value) {
      rest = trim(rest);
      if (!rest.starts_with('+') && !rest.starts_with('-')) break;
      const bool adds = rest.front() == '+';
      rest.remove_prefix(1);
      const std::optional<int64_t> next = product(rest, depth);
      if (!next) return std::nullopt;
      value = adds ? *value + *next : *value - *next;
    }
    return value;
  }

  std::optional<int64_t> product(std::string_view& rest, int depth) const {
    std::optional<int64_t> value = factor(rest, depth);
    while (value) {
      rest = trim(rest);
      if (!rest.starts_with('*') && !rest.starts_with('/')) break;
      const bool multiplies = rest.front() == '*';
      rest.remove_prefix(1);
      const std::optional<int64_t> next = factor(rest, depth);
      if (!next || (!multiplies && *next == 0) || std::abs(*value) > kMaxValue || std::abs(*next) > kMaxValue)
        return std::nullopt;
      value = multiplies ? *value * *next : *value / *next;
    }
    return value;
  }

  std::optional<int64_t> factor(std::string_view& rest, int depth) const {
    rest = trim(rest);
    if (rest.starts_with('(')) {
      if (depth > 20) return std::nullopt;
      rest.remove_prefix(1);
      const std::optional<int64_t> inner = sum(rest, depth + 1);
      rest = trim(rest);
      if (!inner || !rest.starts_with(')')) return std::nullopt;
      rest.remove_prefix(1);
      return inner;
    }
    while (rest.starts_with('$') || rest.starts_with('{')) rest.remove_prefix(1);
    size_t end = 0;
    while (end < rest.size() && is_name_part(rest[end])) ++end;
    std::string word(rest.substr(0, end));
    rest.remove_prefix(end);
    if (rest.starts_with('}')) rest.remove_prefix(1);
    if (!word.empty() && is_name_start(word.front())) {
      const std::optional<std::string> known = value_of_(word);
      if (!known) return std::nullopt;
      word = *known;
    }
    const std::optional<int64_t> value = parse_integer<int64_t>(word);
    return value && *value >= -kMaxValue && *value <= kMaxValue ? value : std::nullopt;
  }

  const VariableLookup& value_of_;
};

}  // namespace

std::optional<int64_t> evaluate_arithmetic(std::string_view expression, const VariableLookup& value_of) {
  return Arithmetic(value_of).evaluate(expression);
}

}  // namespace oarlock::convert
