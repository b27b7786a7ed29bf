// Text utilities: trimming, safe output of untrusted text, spelling suggestions, formats of numbers and endpoints, and
// the depth of JSON text. All functions are pure and thread-safe.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace oarlock {

// Returns the part of `text` without the characters of `space` at its beginning and its end. It refers to `text`.
std::string_view trim(std::string_view text, std::string_view space = " \t\r\n");

// Removes the slashes at the end of an absolute path, other than "/".
std::string without_trailing_slash(std::string path);

// ---- Safe output -----------------------------------------------------------------------------------------------
// Files, peers and command lines may contain any bytes. These functions make them safe for a terminal or a log.

// The first character of a UTF-8 text. `length` is its size in bytes; 0 if the bytes are not well-formed UTF-8.
struct Utf8Character {
  size_t length = 0;
  char32_t code = 0;
};
Utf8Character first_utf8_character(std::string_view text);

// Returns true if a terminal or a viewer acts on the character instead of showing it: C0 and C1 controls, DEL, the line
// and paragraph separators, and all characters that change the direction of writing (Unicode's Bidi_Control).
bool is_control_character(char32_t code);

// Returns true if the text is well-formed UTF-8 without control characters.
bool is_printable(std::string_view text);

// Replaces control characters and invalid bytes by escape sequences: \n, \t, \r, \x1b, \u202e.
std::string printable(std::string_view text);

// The longest line of a message for users, in bytes.
inline constexpr size_t kMaxMessageLine = 2000;

// Returns a line that has at most kMaxMessageLine bytes unchanged. Of a longer one, which quotes a value of any
// length, it returns the beginning, with the place, and the end, with the remedy.
std::string abridged(std::string_view line);

// Like printable(), but keeps line feeds, and the lines are abridged().
std::string printable_lines(std::string_view text);

// Like printable(), truncated to `max_length` characters followed by "...". For values inside a message.
std::string shortened(std::string_view text, size_t max_length = 80);

// Replaces each byte that is not part of well-formed UTF-8 by U+FFFD. For formats whose readers reject other text, such
// as protocol buffers and JSON.
std::string replace_invalid_utf8(std::string_view text);

// Like replace_invalid_utf8(), without a copy of a well-formed text: returns `text` itself, or `replaced` after a
// change.
std::string_view to_valid_utf8(std::string_view text, std::string& replaced);

// Returns the text itself if it is well-formed UTF-8; otherwise the text as UTF-8, with each byte read as a character
// of Latin-1. For files whose programs wrote names in the encoding of their system.
std::string to_utf8(std::string text);

// ---- Spelling suggestions --------------------------------------------------------------------------------------

// Damerau-Levenshtein distance (restricted to adjacent transpositions), ignoring case, '_' and '-'.
int edit_distance(std::string_view a, std::string_view b);

// Returns the candidate that is nearest to `typed` if their distance is at most a third of its length; otherwise "".
std::string suggest(std::string_view typed, const std::vector<std::string>& candidates);

// ---- Formats ---------------------------------------------------------------------------------------------------

// Joins a number, given in decimal digits, and its noun, whose plural ends in "s" unless it is given: "1 node",
// "2 nodes".
std::string counted(std::string digits, std::string_view noun, std::string_view plural = "");
template <std::integral Number>
std::string counted(Number number, std::string_view noun, std::string_view plural = "") {
  return counted(std::to_string(number), noun, plural);
}

// Returns two lowercase hexadecimal digits for each byte.
std::string to_hex(std::span<const unsigned char> bytes);

// Formats a size with a binary unit; below 10 units with one decimal, unless that is 0: "512 B", "1.5 KiB", "64 MiB".
// Returns "" for a number that is negative or not finite.
std::string size_text(double bytes);

// Joins a host and a port as in URLs: "10.0.0.1:9400", "host:9400", "[fd00::1]:9400".
std::string endpoint(const std::string& host, int port);

// Returns the number of nested objects and arrays in JSON text; 0 for a scalar. It does not parse the text, so callers
// can reject deep input before a recursive parser runs out of stack. If the text is not JSON, the result is at least
// the depth at which a parser would stop.
int json_depth(std::string_view json);

}  // namespace oarlock
