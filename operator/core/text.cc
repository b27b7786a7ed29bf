#include "operator/core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "common/number.h"
#include "common/text.h"

namespace oarlock::control {
namespace {

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string sanitize_line(std::string_view text, size_t limit) {
  std::string out;
  size_t cut = 0;  // length of the longest prefix that leaves room for "..."
  while (!text.empty()) {
    const auto [length, code] = first_utf8_character(text);
    if (length == 0) {
      out += '?';
    } else if (is_control_character(code)) {
      out += ' ';
    } else {
      out += text.substr(0, length);
    }
    if (out.size() + 3 <= limit) cut = out.size();
    if (out.size() > limit) {
      out.resize(cut);
      return out + "...";
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string to_reason(std::string_view text) {
  constexpr size_t kLimit = 60;
  if (text.empty() || text.size() > kLimit || !is_letter(text.front())) return "";
  const bool is_word = std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
  return is_word ? std::string(text) : "";
}

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  const size_t start = text.find_last_of('\n');
  return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

std::string format_rank_set(const std::vector<bool>& ranks) {
  std::string out;
  for (size_t first = 0; first < ranks.size(); ++first) {
    if (!ranks[first]) continue;
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1]) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ",", first);
    if (last > first) out += fmt::format("-{}", last);
    first = last;
  }
  return out;
}

std::vector<bool> parse_rank_set(std::string_view text, size_t size) {
  std::vector<bool> out(size, false);
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = item.find('-');
    const std::optional<size_t> first = parse_integer<size_t>(item.substr(0, dash));
    const std::optional<size_t> last =
        dash == std::string_view::npos ? first : parse_integer<size_t>(item.substr(dash + 1));
    if (!first || !last) continue;
    for (size_t rank = *first; rank < size && rank <= *last; ++rank) out[rank] = true;
  }
  return out;
}

}  // namespace oarlock::control
