#include "yaml/structure.h"

#include <algorithm>
#include <utility>

namespace oarlock::yaml {
namespace {

// Scans the text from its beginning to an error, line by line.
class StructureScanner {
 public:
  // `lines` are those of `all`.
  StructureScanner(std::string_view all, const std::vector<Line>& lines, TextPlace error)
      : all_(all), lines_(lines), error_(error) {}

  Structure scan() {
    while (at_.line < lines_.size() && at_.line <= error_.line) scan_line();
    return std::move(out_);
  }

 private:
  std::string_view text() const { return lines_[at_.line].text; }
  char current() const { return text()[at_.column]; }
  bool is_at_end() const { return at_.column >= text().size(); }
  size_t offset_of(TextPlace place) const {
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
    out_.tab = TextPlace{at_.line, at};
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
  TextPlace error_;
  TextPlace at_;
  Structure out_;
};

}  // namespace

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

Structure scan_structure(std::string_view all, const std::vector<Line>& lines, TextPlace error) {
  return StructureScanner(all, lines, error).scan();
}

}  // namespace oarlock::yaml
