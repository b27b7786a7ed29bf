#include "operator/core/text.h"

#include <algorithm>

#include "common/printable.h"

namespace oarlock::control {
namespace {

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string one_line(std::string_view text, size_t limit) {
  std::string out;
  size_t cut = 0;  // the longest prefix that leaves room for "..."
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

std::string reason_word(std::string_view text) {
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

}  // namespace oarlock::control
