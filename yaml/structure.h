// The lines, brackets and quotes of a text that is not YAML, from which syntax.cc finds the cause of the error.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace oarlock::yaml {

struct Line {
  std::string_view text;   // without its end
  size_t indentation = 0;  // spaces only
  std::string_view content() const { return text.substr(indentation); }
  bool is_empty() const {
    const size_t first = text.find_first_not_of(" \t");
    return first == std::string_view::npos || text[first] == '#';
  }
};

std::vector<Line> split_lines(std::string_view text);

size_t count_characters(std::string_view text);

inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
inline bool is_end_of_word(std::string_view text, size_t at) { return at >= text.size() || is_blank(text[at]); }

// Returns the offset after the quote that ends a scalar; `at` is that of its first quote. Returns npos if there is
// none.
size_t end_of_quoted(std::string_view text, size_t at);

// A place in the text; both numbers begin at 0.
struct TextPlace {
  size_t line = 0;
  size_t column = 0;  // in bytes
  auto operator<=>(const TextPlace&) const = default;
};

struct Bracket {
  char open;
  TextPlace place;
};

struct QuotedScalar {
  TextPlace begin;
  TextPlace end;  // after the last quote
  bool is_closed = true;
};

// The structure of the lines up to an error. It is an approximation, and used only to find the cause of the error.
struct Structure {
  std::vector<Bracket> open_brackets;      // at the error
  std::optional<QuotedScalar> bad_quotes;  // without an end, or with text after it
  std::optional<TextPlace> tab;            // the first tab in an indentation
  std::vector<size_t> block_lines;         // lines that are neither empty nor inside of a scalar or of brackets
};

// Scans the text from its beginning to an error. `lines` are those of `all`.
Structure scan_structure(std::string_view all, const std::vector<Line>& lines, TextPlace error);

}  // namespace oarlock::yaml
