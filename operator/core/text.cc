#include "operator/core/text.h"

#include <algorithm>

namespace oarlock::control {
namespace {

// Bytes of the well-formed UTF-8 character at the front; 0: damaged.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t length = 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) length = 2;
  if (byte(0) >= 0xE0 && byte(0) <= 0xEF) length = 3;
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4) length = 4;
  if (length == 1) return byte(0) < 0x80 ? 1 : 0;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;  // surrogate
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

std::string one_line(std::string_view text, size_t limit) {
  std::string out;
  size_t cut = 0;  // the longest prefix that leaves room for "..."
  while (!text.empty()) {
    const size_t length = character_length(text);
    if (length == 1) {
      const bool control = static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7F;
      out += control ? ' ' : text[0];
    } else if (length == 0) {
      out += '?';
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

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  const size_t start = text.find_last_of('\n');
  return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

}  // namespace oarlock::control
