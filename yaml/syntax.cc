#include "yaml/internal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text.h"
#include "yaml/structure.h"

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
    structure_ = scan_structure(text, lines_, error_);
  }

  SyntaxProblem explain() {
    if (!lines_.empty()) {
      for (const auto find : {&Explainer::tab, &Explainer::no_break_space, &Explainer::helm, &Explainer::quotes,
                              &Explainer::brackets, &Explainer::reserved, &Explainer::colon, &Explainer::indentation}) {
        if (std::optional<SyntaxProblem> found = (this->*find)()) return *std::move(found);
      }
    }
    return at(error_, fmt::format("{}{}", kNoYaml, shortened(message_, kMaxParserMessage)));
  }

 private:
  static constexpr size_t kMaxParserMessage = 300;
  using Found = std::optional<SyntaxProblem>;

  // A position in a message has a column in characters.
  SyntaxProblem at(TextPlace place, std::string message) const {
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
    if (has_message("invalid unicode"))
      return at(error_,
                "this escape sequence is half of a surrogate pair, or no character; write the character itself, or "
                "such as \\U0001F680");
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
    const TextPlace end{lines_.size() - 1, lines_.back().text.size()};
    const std::vector<Bracket> open = scan_structure(text_, lines_, end).open_brackets;
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
    const TextPlace begin{error_.line, line.indentation};
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
  TextPlace error_;
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
  constexpr int kMaxColumn = 4096;  // the time for all positions of a long line is thus limited
  const auto bytes = static_cast<size_t>(std::max(position.column - 1, 0));
  if (position.column > kMaxColumn || offset > text.size() || offset < bytes) return position;
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
