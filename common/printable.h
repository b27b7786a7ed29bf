// Text of files, peers and command lines in a form that is safe in a one-line message on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace oarlock {

// The first character of a text as UTF-8. `length` is its size in bytes; 0 if the bytes are not well-formed UTF-8.
struct Utf8Character {
  size_t length = 0;
  char32_t code = 0;
};
Utf8Character first_utf8_character(std::string_view text);

// Whether a terminal or viewer acts on the character instead of showing it: C0 and C1 controls, DEL, the line and
// paragraph separators, and all characters that change the direction of writing (Unicode's Bidi_Control).
bool is_control_character(char32_t code);

// Whether the text is well-formed UTF-8 without control characters.
bool is_printable(std::string_view text);

// The text with everything that is not printable replaced by an escape sequence: \n, \t, \r, \x1b, \u202e.
std::string printable(std::string_view text);

// printable() for a text of several lines: line feeds stay.
std::string printable_lines(std::string_view text);

// printable(), cut after `most` characters with "..." in place of the rest. For values inside a message.
std::string shortened(std::string_view text, size_t most = 80);

}  // namespace oarlock
