#include "trainer/config/name_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text.h"

namespace oarlock {
namespace {

// The extension of libstdc++ that simulates all alternatives together instead of backtracking.
constexpr auto kSyntax = std::regex_constants::ECMAScript | std::regex_constants::__polynomial;

// The properties of a pattern that determine how long a search takes.
struct PatternCost {
  double size = 0;
  bool has_costly_lookahead = false;
};

// Returns the largest number in the braces of "{2,5}", at least 1.
double repetitions(std::string_view counts) {
  double most = 1;
  while (!counts.empty()) {
    int count = 0;
    const auto [end, error] = std::from_chars(counts.data(), counts.data() + counts.size(), count);
    if (error == std::errc::result_out_of_range) return NamePattern::kMaxSize + 1;
    most = std::max(most, static_cast<double>(count));
    const size_t comma = counts.find(',');
    if (comma == std::string_view::npos) break;
    counts.remove_prefix(comma + 1);
  }
  return most;
}

// Returns the position of the last character of the bracket expression that begins at `begin`.
size_t end_of_bracket(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  for (; i < text.size() && text[i] != ']'; ++i) {
    const bool is_class =
        text[i] == '[' && i + 1 < text.size() && std::string_view(":.=").find(text[i + 1]) != std::string_view::npos;
    if (text[i] == '\\') ++i;
    if (is_class) i = std::min(text.find(std::string{text[i + 1], ']'}, i + 2), text.size() - 2) + 1;
  }
  return i;
}

PatternCost cost_of(std::string_view text) {
  PatternCost out{.size = static_cast<double>(text.size())};
  std::vector<bool> groups;  // the open ones: whether each is a lookahead
  const auto in_lookahead = [&] { return std::find(groups.begin(), groups.end(), true) != groups.end(); };
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    const bool is_lookahead = rest.starts_with("(?=") || rest.starts_with("(?!");
    const bool is_lookbehind = rest.starts_with('^') || rest.starts_with("\\b") || rest.starts_with("\\B");
    if (in_lookahead() && (is_lookahead || is_lookbehind)) out.has_costly_lookahead = true;
    if (text[i] == '\\') ++i;
    if (rest.front() == '[') i = end_of_bracket(text, i);
    if (rest.front() == '(') groups.push_back(is_lookahead);
    if (rest.front() == ')' && !groups.empty()) groups.pop_back();
    if (rest.front() == '{') out.size *= repetitions(rest.substr(1, rest.find('}') - 1));
  }
  return out;
}

}  // namespace

Result<NamePattern> NamePattern::parse(const std::string& text) {
  const auto invalid = [&](std::string_view why) {
    return fail(ExitCode::kConfig, fmt::format("'{}' {}", shortened(text), why));
  };
  const PatternCost cost = cost_of(text);
  if (cost.size > kMaxSize) {
    return invalid(fmt::format(
        "is too large: its length times its counted repetitions is {:g}, and the maximum is {}; use several groups",
        cost.size, kMaxSize));
  }
  if (cost.has_costly_lookahead) {
    return invalid("has a lookahead that contains ^, \\b, \\B or another lookahead; use several lookaheads or groups");
  }
  try {
    const std::regex part(text, kSyntax);  // rejects unbalanced parentheses, which the whole pattern would balance
    return NamePattern(std::regex(".*(?:" + text + ").*", kSyntax));
  } catch (const std::regex_error& error) {
    if (error.code() == std::regex_constants::error_complexity) {
      return invalid("has a back-reference, which is not supported; write out the alternatives");
    }
    return invalid(fmt::format("is not a regular expression: {}", error.what()));
  }
}

}  // namespace oarlock
