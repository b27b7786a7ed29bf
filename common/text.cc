#include "common/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace oarlock {
namespace {

// Returns the lowest digits of a number in hexadecimal.
std::string hex_digits(uint32_t number, size_t digits) {
  std::string out(digits, '0');
  for (size_t i = digits; i > 0; --i, number >>= 4) out[i - 1] = "0123456789abcdef"[number & 0xF];
  return out;
}

void append_escape(char32_t code, std::string& out) {
  switch (code) {
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default:
      out += code < 0x80 ? "\\x" + hex_digits(code, 2) : "\\u" + hex_digits(code, 4);
  }
}

// Appends the first character of `text`, escaped if necessary, and removes it from `text`.
void take_character(std::string_view& text, std::string& out) {
  const Utf8Character character = first_utf8_character(text);
  if (character.length == 0) {
    out += "\\x" + hex_digits(static_cast<unsigned char>(text.front()), 2);
  } else if (is_control_character(character.code)) {
    append_escape(character.code, out);
  } else {
    out += text.substr(0, character.length);
  }
  text.remove_prefix(std::max<size_t>(character.length, 1));
}

// Longer names are not typing errors, and the comparison takes quadratic time.
constexpr size_t kMaxName = 200;

std::string normalized(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_' && c != '-') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// Returns the number of bytes before the first one that is not part of well-formed UTF-8.
size_t valid_length(std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    uint64_t word = 0;
    if (text.size() - done >= sizeof word) {
      std::memcpy(&word, text.data() + done, sizeof word);
      if ((word & 0x8080808080808080) == 0) {  // ASCII
        done += sizeof word;
        continue;
      }
    }
    const size_t length = first_utf8_character(text.substr(done)).length;
    if (length == 0) break;
    done += length;
  }
  return done;
}

}  // namespace

std::string_view trim(std::string_view text, std::string_view space) {
  const size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Utf8Character first_utf8_character(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {1, byte(0)};
  const size_t length = byte(0) >= 0xC2 && byte(0) <= 0xDF   ? 2
                        : byte(0) >= 0xE0 && byte(0) <= 0xEF ? 3
                        : byte(0) >= 0xF0 && byte(0) <= 0xF4 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return {};
  char32_t code = byte(0) & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF) return {};
  return {length, code};
}

bool is_control_character(char32_t code) {
  const bool c0_or_c1 = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool bidirectional = code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
                             (code >= 0x2066 && code <= 0x2069);
  return c0_or_c1 || separator || bidirectional;
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character character = first_utf8_character(text);
    if (character.length == 0 || is_control_character(character.code)) return false;
    text.remove_prefix(character.length);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) take_character(text, out);
  return out;
}

std::string abridged(std::string_view line) {
  if (line.size() <= kMaxMessageLine) return std::string(line);
  const auto continues_character = [&](size_t at) { return (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80; };
  constexpr size_t kEnd = kMaxMessageLine / 4;
  size_t head = kMaxMessageLine - kEnd;
  size_t tail = line.size() - kEnd;
  while (head > 0 && continues_character(head)) --head;
  while (tail < line.size() && continues_character(tail)) ++tail;
  return std::string(line.substr(0, head)) + " ... (" + std::to_string(tail - head) + " bytes are omitted) ... " +
         std::string(line.substr(tail));
}

std::string printable_lines(std::string_view text) {
  std::string out;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    out += printable(abridged(text.substr(0, end)));
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string shortened(std::string_view text, size_t max_length) {
  std::string out;
  for (size_t taken = 0; !text.empty(); ++taken) {
    if (taken == max_length) return out + "...";
    take_character(text, out);
  }
  return out;
}

std::string replace_invalid_utf8(std::string_view text) {
  const size_t valid = valid_length(text);
  std::string out(text.substr(0, valid));
  text.remove_prefix(valid);
  while (!text.empty()) {
    const size_t length = first_utf8_character(text).length;
    if (length == 0) {
      out += "\uFFFD";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string_view to_valid_utf8(std::string_view text, std::string& replaced) {
  if (valid_length(text) == text.size()) return text;
  return replaced = replace_invalid_utf8(text);
}

std::string to_utf8(std::string text) {
  if (valid_length(text) == text.size()) return text;
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      out += static_cast<char>(0xC0 | (byte >> 6));
      out += static_cast<char>(0x80 | (byte & 0x3F));
    } else {
      out += c;
    }
  }
  return out;
}

int edit_distance(std::string_view a_text, std::string_view b_text) {
  const std::string a = normalized(a_text);
  const std::string b = normalized(b_text);
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// Returns the only candidate that begins with `typed`, in the sense of edit_distance(): activeDeadlineSeconds for
// activeDeadline; "" if there is none, or several.
std::string find_completion(std::string_view typed, const std::vector<std::string>& candidates) {
  constexpr size_t kMinBeginning = 3;
  const std::string beginning = normalized(typed);
  std::string found;
  if (beginning.size() < kMinBeginning) return found;
  for (const std::string& candidate : candidates) {
    if (!normalized(candidate).starts_with(beginning)) continue;
    if (!found.empty()) return "";
    found = candidate;
  }
  return found;
}

std::string suggest(std::string_view typed, const std::vector<std::string>& candidates) {
  if (typed.size() > kMaxName) return "";
  std::string best;
  int best_distance = static_cast<int>(std::max<size_t>(typed.size() / 3, 1)) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(typed, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best.empty() ? find_completion(typed, candidates) : best;
}

std::string counted(std::string digits, std::string_view noun, std::string_view plural) {
  const bool is_one = digits == "1";
  digits += ' ';
  digits += is_one || plural.empty() ? noun : plural;
  if (!is_one && plural.empty()) digits += 's';
  return digits;
}

std::string to_hex(std::span<const unsigned char> bytes) {
  std::string out;
  for (const unsigned char byte : bytes) out += hex_digits(byte, 2);
  return out;
}

std::string size_text(double bytes) {
  constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (!std::isfinite(bytes) || bytes < 0) return "";
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  const double tenths = std::round(bytes * 10);
  const bool has_decimal = unit > 0 && tenths < 100 && std::fmod(tenths, 10) != 0;
  std::array<char, 400> number{};  // the largest double has 309 digits
  const auto [end, error] =
      std::to_chars(number.begin(), number.end(), bytes, std::chars_format::fixed, has_decimal ? 1 : 0);
  return std::string(number.begin(), end) + ' ' + kUnits[unit];
}

std::string endpoint(const std::string& host, int port) {
  return (host.find(':') == std::string::npos ? host : '[' + host + ']') + ':' + std::to_string(port);
}

int json_depth(std::string_view json) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace oarlock
