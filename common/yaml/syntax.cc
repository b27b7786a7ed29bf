#include "common/yaml/internal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text.h"

namespace oarlock::yaml {
namespace {

// ---- Characters --------------------------------------------------------------------------------------------------

// Returns true for the characters of a YAML stream (YAML 1.2, c-printable). yaml-cpp treats U+0004 as the end of the
// file.
bool is_allowed(char32_t code) {
  return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code <= 0x7E) || code == 0x85 ||
         (code >= 0xA0 && code != 0xFFFE && code != 0xFFFF);
}

bool is_utf16(std::string_view text) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return true;
  return text.size() >= 2 && (text[0] == '\0') != (text[1] == '\0');
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_end_of_word(std::string_view text, size_t at) { return at >= text.size() || is_blank(text[at]); }

// ---- Lines -------------------------------------------------------------------------------------------------------

struct Line {
  std::string_view text;   // without its end
  size_t indentation = 0;  // spaces only
  std::string_view content() const { return text.substr(indentation); }
  bool is_empty() const {
    const size_t first = text.find_first_not_of(" \t");
    return first == std::string_view::npos || text[first] == '#';
  }
};

std::vector<Line> split_lines(std::string_view text) {
  std::vector<Line> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    Line line{text.substr(0, end)};
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    line.indentation = std::min(line.text.find_first_not_of(' '), line.text.size());
    lines.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Returns the offset after the quote that ends a scalar; `at` is that of its first quote. Returns npos if there is
// none.
size_t end_of_quoted(std::string_view text, size_t at) {
  const char quote = text[at];
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) return i + 1;
      ++i;  // '' is an apostrophe
    }
  }
  return std::string_view::npos;
}

// ---- The structure of a text up to an error ----------------------------------------------------------------------

// A place in the text; both numbers begin at 0.
struct Place {
  size_t line = 0;
  size_t column = 0;  // in bytes
  auto operator<=>(const Place&) const = default;
};

struct Bracket {
  char open;
  Place place;
};

struct QuotedScalar {
  Place begin;
  Place end;  // after the last quote
  bool is_closed = true;
};

// The structure of the lines up to an error. It is an approximation, and used only to find the cause of the error.
struct Structure {
  std::vector<Bracket> open_brackets;      // at the error
  std::optional<QuotedScalar> bad_quotes;  // without an end, or with text after it
  std::optional<Place> tab;                // the first tab in an indentation
  std::vector<size_t> block_lines;         // lines that are neither empty nor inside of a scalar or of brackets
};

// Scans the text from its beginning to an error, line by line.
class StructureScanner {
 public:
  // `lines` are those of `all`.
  StructureScanner(std::string_view all, const std::vector<Line>& lines, Place error)
      : all_(all), lines_(lines), error_(error) {}

  Structure scan() {
    while (at_.line < lines_.size() && at_.line <= error_.line) scan_line();
    return std::move(out_);
  }

 private:
  std::string_view text() const { return lines_[at_.line].text; }
  char current() const { return text()[at_.column]; }
  bool is_at_end() const { return at_.column >= text().size(); }
  size_t offset_of(Place place) const {
    return static_cast<size_t>(lines_[place.line].text.data() - all_.data()) + place.column;
  }
  void stop() { at_ = {lines_.size(), 0}; }

  void scan_line() {
    const Line& line = lines_[at_.line];
    if (line.text.starts_with("---") || line.text.starts_with("...")) out_.open_brackets.clear();
    if (!line.is_empty() && out_.open_brackets.empty()) {
      out_.block_lines.push_back(at_.line);
      find_tab(line);
    }
    const size_t number = at_.line;
    at_.column = line.indentation;
    bool is_token_begin = true;
    while (at_.line == number && !is_at_end() && at_ < error_) scan_token(is_token_begin);
    if (at_.line == number) at_ = {number + 1, 0};
  }

  // Finds a tab in the indentation, or after the "-" of a list item.
  void find_tab(const Line& line) {
    if (out_.tab) return;
    size_t at = line.indentation;
    while (at + 1 < line.text.size() && line.text[at] == '-' && line.text[at + 1] == ' ')
      at = std::min(line.text.find_first_not_of(' ', at + 1), line.text.size());
    const bool after_dash = at + 1 < line.text.size() && line.text[at] == '-' && line.text[at + 1] == '\t';
    if (after_dash) ++at;
    if (at >= line.text.size() || line.text[at] != '\t') return;
    // A tab between "- " and a value is allowed if the value is a scalar.
    if (after_dash && line.text.find(": ", at) == std::string_view::npos && !line.text.ends_with(':')) return;
    out_.tab = Place{at_.line, at};
  }

  void scan_token(bool& is_token_begin) {
    const char c = current();
    if (is_blank(c)) {
      ++at_.column;
    } else if (c == '#' && (at_.column == 0 || is_blank(text()[at_.column - 1]))) {
      at_.column = text().size();
    } else if (is_token_begin && (c == '"' || c == '\'')) {
      scan_quoted();
      is_token_begin = false;
    } else if (is_token_begin && (c == '[' || c == '{')) {
      out_.open_brackets.push_back({c, at_});
      ++at_.column;
    } else if (!out_.open_brackets.empty() && (c == ']' || c == '}')) {
      close_bracket();
      is_token_begin = false;
    } else if (!out_.open_brackets.empty() && c == ',') {
      ++at_.column;
      is_token_begin = true;
    } else if ((c == ':' || c == '-' || c == '?') && is_end_of_word(text(), at_.column + 1)) {
      ++at_.column;
      is_token_begin = true;
    } else if (is_token_begin && (c == '&' || c == '!')) {
      at_.column = std::min(text().find_first_of(" \t", at_.column), text().size());
    } else if (is_token_begin && out_.open_brackets.empty() && (c == '|' || c == '>')) {
      skip_block_scalar();
    } else {
      if (c == ':' && !out_.open_brackets.empty())
        is_token_begin = true;  // after a key in quotes
      else
        is_token_begin = false;
      ++at_.column;
    }
  }

  void scan_quoted() {
    QuotedScalar scalar{.begin = at_, .end = at_};
    const size_t end = end_of_quoted(all_, offset_of(at_));
    if (end == std::string_view::npos) {
      scalar.is_closed = false;
      out_.bad_quotes = scalar;
      return stop();
    }
    while (at_.line + 1 < lines_.size() && offset_of({at_.line + 1, 0}) <= end) ++at_.line;
    at_.column = end - offset_of({at_.line, 0});
    scalar.end = at_;
    const std::string_view after = text().substr(at_.column);
    const size_t next = after.find_first_not_of(" \t");
    const bool is_in_brackets = !out_.open_brackets.empty();
    if (next == std::string_view::npos || (after[next] == '#' && next > 0)) return;
    if (is_in_brackets && std::string_view(",]}:").find(after[next]) != std::string_view::npos) return;
    if (after[next] == ':' && is_end_of_word(after, next + 1)) return;
    if (is_in_brackets && next > 0) return;  // a comma is missing
    out_.bad_quotes = scalar;
    stop();
  }

  // The parser reports a bracket of the other kind, so that the scan ends before it.
  void close_bracket() {
    out_.open_brackets.pop_back();
    ++at_.column;
  }

  // Skips the lines of a block scalar, which are indented more than the line that begins it.
  void skip_block_scalar() {
    const size_t indentation = lines_[at_.line].indentation;
    size_t next = at_.line + 1;
    while (next < lines_.size() && next < error_.line &&
           (lines_[next].text.find_first_not_of(" \t") == std::string_view::npos ||
            lines_[next].indentation > indentation))
      ++next;
    at_ = {next, 0};
  }

  std::string_view all_;
  const std::vector<Line>& lines_;
  Place error_;
  Place at_;
  Structure out_;
};

// ---- Explanations ------------------------------------------------------------------------------------------------

constexpr char kNoYaml[] = "this is not YAML: ";

// Returns the first word of a line, for a message.
std::string first_word(std::string_view content) { return shortened(content.substr(0, content.find_first_of(" \t"))); }

class Explainer {
 public:
  Explainer(std::string_view text, Mark position, std::string_view message)
      : lines_(split_lines(text)),
        error_{position.line > 0 ? static_cast<size_t>(position.line - 1) : 0,
               position.column > 0 ? static_cast<size_t>(position.column - 1) : 0},
        message_(message),
        text_(text) {
    if (lines_.empty()) return;
    is_at_end_ = position.line == 0 || error_.line >= lines_.size();
    if (is_at_end_) error_ = {lines_.size() - 1, lines_.back().text.size()};
    structure_ = StructureScanner(text, lines_, error_).scan();
  }

  SyntaxProblem explain() {
    if (!lines_.empty()) {
      for (const auto find : {&Explainer::tab, &Explainer::no_break_space, &Explainer::helm, &Explainer::quotes,
                              &Explainer::brackets, &Explainer::reserved, &Explainer::colon, &Explainer::indentation}) {
        if (std::optional<SyntaxProblem> found = (this->*find)()) return *std::move(found);
      }
    }
    return at(error_, fmt::format("{}{}", kNoYaml, shortened(message_, kLongestParserMessage)));
  }

 private:
  static constexpr size_t kLongestParserMessage = 300;
  using Found = std::optional<SyntaxProblem>;

  // A position in a message has a column in characters.
  SyntaxProblem at(Place place, std::string message) const {
    Mark mark{.line = static_cast<int>(place.line) + 1, .column = static_cast<int>(place.column) + 1};
    if (place.line < lines_.size())
      mark.column = static_cast<int>(count_characters(lines_[place.line].text.substr(0, place.column))) + 1;
    return {mark, std::move(message)};
  }

  std::string_view error_text() const { return lines_[error_.line].text; }
  char error_character() const { return error_.column < error_text().size() ? error_text()[error_.column] : '\0'; }
  bool has_message(std::string_view part) const { return message_.find(part) != std::string_view::npos; }

  Found tab() {
    if (structure_.tab)
      return at(*structure_.tab, "a tab is used as indentation, which YAML does not allow; use spaces instead");
    if (has_message("illegal tab"))
      return at(error_, "a tab is used as indentation, which YAML does not allow; use spaces instead");
    return std::nullopt;
  }

  // Pages and word processors use no-break spaces.
  Found no_break_space() {
    constexpr std::string_view kNoBreakSpace = "\xC2\xA0";
    for (const size_t number : structure_.block_lines) {
      if (lines_[number].content().starts_with(kNoBreakSpace))
        return at({number, lines_[number].indentation},
                  "a no-break space is used as indentation, which YAML does not allow; use spaces instead");
    }
    return std::nullopt;
  }

  Found helm() {
    const size_t column = error_text().find("{{");
    if (column == std::string_view::npos) return std::nullopt;
    return at({error_.line, column}, std::string(kHelmTemplate));
  }

  Found quotes() {
    if (!structure_.bad_quotes) return unknown_escape();
    const QuotedScalar& scalar = *structure_.bad_quotes;
    const char quote = lines_[scalar.begin.line].text[scalar.begin.column];
    if (!scalar.is_closed)
      return at(scalar.begin,
                fmt::format("the quote {} that begins here has no end; add the closing {}", quote, quote));
    if (scalar.end.line != scalar.begin.line) {
      return at(scalar.begin,
                fmt::format("the quote {} that begins here ends in line {}, where text follows it; add the "
                            "closing {} where the value ends",
                            quote, scalar.end.line + 1, quote));
    }
    return at(scalar.end,
              quote == '"'
                  ? "text follows the closing quote; remove it, or write \\\" for a quote inside of the value"
                  : "text follows the closing quote; remove it, or write '' for an apostrophe inside of the value");
  }

  Found unknown_escape() {
    if (!has_message("escape")) return std::nullopt;
    return at(error_, "this escape sequence does not exist; write \\\\ for a backslash, or use single quotes");
  }

  Found brackets() {
    if (has_message("flow not found") && structure_.open_brackets.empty()) return bracket_without_end();
    const char c = error_character();
    const bool is_closing = c == ']' || c == '}';
    if (structure_.open_brackets.empty()) {
      if (!is_closing) return std::nullopt;
      return at(error_,
                fmt::format("'{}' closes no '{}'; remove it, or put the value in quotes", c, c == ']' ? '[' : '{'));
    }
    const Bracket& opened = structure_.open_brackets.back();
    if (is_closing && c != closing(opened.open)) {
      return at(error_, fmt::format("'{}' does not close the '{}' in line {}; write '{}'", c, opened.open,
                                    opened.place.line + 1, closing(opened.open)));
    }
    const bool is_inside =
        opened.place.line == error_.line || lines_[error_.line].indentation > lines_[opened.place.line].indentation;
    if (is_inside && !is_at_end_ && c != '\0') {
      return at(error_,
                fmt::format("{} is missing before this; the '{}' in line {} is still open",
                            opened.open == '[' ? "',' or ']'" : "',', ':' or '}'", opened.open, opened.place.line + 1));
    }
    return unclosed(opened);
  }

  // The parser reports some brackets without an end at an arbitrary place.
  Found bracket_without_end() const {
    const Place end{lines_.size() - 1, lines_.back().text.size()};
    const std::vector<Bracket> open = StructureScanner(text_, lines_, end).scan().open_brackets;
    if (open.empty()) return std::nullopt;
    return unclosed(open.back());
  }

  SyntaxProblem unclosed(const Bracket& bracket) const {
    return at(bracket.place, fmt::format("the '{}' that begins here has no end; add the closing '{}'", bracket.open,
                                         closing(bracket.open)));
  }

  static char closing(char open) { return open == '[' ? ']' : '}'; }

  Found reserved() {
    const char c = error_character();
    if (error_text().find("```") == lines_[error_.line].indentation)
      return at(error_, "this line is a code fence of Markdown; remove it");
    if (has_message("unknown token") && c != '\0' && c != '\t')
      return at(error_, fmt::format("a value cannot begin with '{}'; put it in quotes", c));
    if (has_message("anchor is not defined")) {
      return at(error_,
                fmt::format("'{}' refers to an anchor that does not exist; put the value in quotes, or define the "
                            "anchor above with &",
                            first_word(error_text().substr(std::min(error_.column, error_text().size())))));
    }
    if (has_message("illegal block entry"))
      return at(error_, "a list item cannot begin in the line of its key; write '- ' in the next line");
    if (has_message("block scalar"))
      return at(error_, "text follows '|' or '>'; write the text in the next lines, or put the value in quotes");
    return std::nullopt;
  }

  // Returns the last line before the error that has content outside of scalars and brackets.
  std::optional<size_t> line_before() const {
    std::optional<size_t> out;
    for (const size_t line : structure_.block_lines) {
      if (line < error_.line) out = line;
    }
    return out;
  }

  // Returns the content of a line after the "- " of list items, and its column.
  static std::pair<std::string_view, size_t> item_content(const Line& line) {
    size_t column = line.indentation;
    while (column + 1 < line.text.size() && line.text[column] == '-' && line.text[column + 1] == ' ')
      column = std::min(line.text.find_first_not_of(' ', column + 1), line.text.size());
    return {line.text.substr(column), column};
  }

  static size_t find_colon(std::string_view content) {
    for (size_t i = 0; i < content.size(); ++i) {
      if (content[i] == ':' && is_end_of_word(content, i + 1)) return i;
    }
    return std::string_view::npos;
  }

  // Explains a line without the ':' of its key.
  Found keyless_line(size_t number) const {
    const auto [content, column] = item_content(lines_[number]);
    if (content.empty() || find_colon(content) != std::string_view::npos) return std::nullopt;
    if (content.front() == '-') return std::nullopt;
    return at({number, column}, missing_colon_message(content));
  }

  Found colon() {
    if (!has_message("illegal map value")) return std::nullopt;
    if (error_text().starts_with("---"))
      return at({error_.line, 3}, "text follows '---', which begins a document; write it in the next line");
    const auto [content, column] = item_content(lines_[error_.line]);
    const size_t first = find_colon(content);
    if (first != std::string_view::npos && column + first < error_.column)
      return at(error_,
                "a second ':' is in this line; put the value in quotes, or move the second key to the next line");
    const std::optional<size_t> before = line_before();
    if (!before) return std::nullopt;
    if (Found found = keyless_line(*before)) return found;
    const Line& above = lines_[*before];
    if (above.text.starts_with("----"))
      return at({*before, 0}, "'----' separates no documents; write '---', with three dashes");
    const auto [content_above, column_above] = item_content(above);
    if (content_above.size() > 1 && content_above[0] == '-' && content_above[1] != '-')
      return at({*before, column_above}, "a space is missing after the '-' of the list item");
    if (lines_[error_.line].indentation <= above.indentation) return std::nullopt;
    return at({error_.line, lines_[error_.line].indentation},
              fmt::format("this line is indented by {} spaces, but line {} has a value already; indent both alike",
                          lines_[error_.line].indentation, *before + 1));
  }

  // Returns the indentations that a line can have: those of the lines that contain it.
  std::vector<size_t> indentations(size_t number) const {
    std::vector<size_t> open;
    for (const size_t line : structure_.block_lines) {
      if (line >= number) break;
      const size_t outer = lines_[line].indentation;
      while (!open.empty() && open.back() > outer) open.pop_back();
      if (open.empty() || open.back() < outer) open.push_back(outer);
      const size_t inner = item_content(lines_[line]).second;
      if (inner > outer) open.push_back(inner);
    }
    return open;
  }

  Found indentation() {
    if (!has_message("end of map not found") && !has_message("end of sequence not found")) return std::nullopt;
    const Line& line = lines_[error_.line];
    if (line.is_empty()) return std::nullopt;
    if (error_.column > line.indentation)
      return at(error_, "text follows the end of a value; remove it, or write it in the next line");
    const std::vector<size_t> open = indentations(error_.line);
    const Place begin{error_.line, line.indentation};
    if (std::find(open.begin(), open.end(), line.indentation) != open.end()) {
      const bool is_item = line.content() == "-" || line.content().starts_with("- ");
      return at(begin,
                is_item ? "a list item is where a key of a map is expected; indent it like the items of its list, or "
                          "write a key"
                        : "a key is where a list item is expected; write '- ' before it, or indent it like the keys "
                          "of its map");
    }
    if (open.empty()) return std::nullopt;
    std::string choices = fmt::format("{}", fmt::join(open.begin(), open.end() - 1, ", "));
    choices += fmt::format("{}{}", choices.empty() ? "" : " or ", open.back());
    return at(begin,
              fmt::format("this line is indented by {} space{}, and the lines that can contain it by {}; indent it "
                          "like one of them",
                          line.indentation, line.indentation == 1 ? "" : "s", choices));
  }

  std::vector<Line> lines_;
  Place error_;
  bool is_at_end_ = false;  // the error is the end of the text
  std::string_view message_;
  std::string_view text_;
  Structure structure_;
};

}  // namespace

std::optional<SyntaxProblem> find_unreadable_text(std::string_view text) {
  Mark mark{.line = 1, .column = 1};
  if (is_utf16(text)) return SyntaxProblem{mark, "the file is encoded as UTF-16, not as UTF-8; save it as UTF-8"};
  bool is_first = true;
  while (!text.empty()) {
    const Utf8Character character = first_utf8_character(text);
    if (character.length == 0) {
      return SyntaxProblem{mark, fmt::format("{}the byte {} is not UTF-8; save the file as UTF-8", kNoYaml,
                                             printable(text.substr(0, 1)))};
    }
    if (!is_allowed(character.code)) {
      return SyntaxProblem{mark, fmt::format("{}the control character {} is not allowed here; write it as an escape "
                                             "sequence in double quotes",
                                             kNoYaml, printable(text.substr(0, character.length)))};
    }
    if (mark.column == 1 && character.code == 0xFEFF && !is_first)
      return SyntaxProblem{mark, "a byte order mark (U+FEFF) begins this line; remove it"};
    if (mark.column == 1 && (text.starts_with("<<<<<<< ") || text.starts_with(">>>>>>> ")))
      return SyntaxProblem{mark, "this line is a conflict marker of git; resolve the conflict, and remove the markers"};
    is_first = false;
    if (character.code == '\n') {
      ++mark.line;
      mark.column = 1;
    } else {
      ++mark.column;
    }
    text.remove_prefix(character.length);
  }
  return std::nullopt;
}

SyntaxProblem explain_syntax_error(std::string_view text, Mark position, std::string_view message) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  return Explainer(text, position, message).explain();
}

std::string missing_colon_message(std::string_view content) {
  const size_t colon = content.find(':');
  if (colon != std::string_view::npos && colon > 0 && colon + 1 < content.size()) {
    const std::string key = shortened(content.substr(0, colon));
    return fmt::format("a space is missing after the ':' of the key '{}'; write '{}: ...'", key, key);
  }
  const std::string word = first_word(content);
  return fmt::format("a ':' is missing after the key '{}'; write '{}: ...'", word, word);
}

bool has_closing_quote(std::string_view text, size_t offset) {
  if (offset >= text.size() || (text[offset] != '"' && text[offset] != '\'')) return true;
  return end_of_quoted(text, offset) != std::string_view::npos;
}

Mark with_character_column(std::string_view text, size_t offset, Mark position) {
  constexpr int kLongest = 4096;  // the time for all positions of a long line is thus limited
  const auto bytes = static_cast<size_t>(std::max(position.column - 1, 0));
  if (position.column > kLongest || offset > text.size() || offset < bytes) return position;
  position.column = static_cast<int>(count_characters(text.substr(offset - bytes, bytes))) + 1;
  return position;
}

bool may_begin_document(std::string_view text, size_t offset) {
  if (offset >= text.size() || text[offset] == '{' || text[offset] == '[') return true;
  const auto is_marker = [](std::string_view line) { return line.starts_with("---"); };
  const size_t begin = text.rfind('\n', offset) + 1;  // 0 if there is none
  if (is_marker(text.substr(begin)) || begin == 0) return true;
  // Markers can be followed by empty lines and comments.
  for (size_t end = begin - 1;;) {
    const size_t previous = end == 0 ? 0 : text.rfind('\n', end - 1) + 1;
    std::string_view line = text.substr(previous, end - previous);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!Line{line}.is_empty()) return is_marker(line);
    if (previous == 0) return true;
    end = previous - 1;
  }
}

}  // namespace oarlock::yaml
