#include "cli/convert/shell_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "cli/convert/shell_arithmetic.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

// The text of a command substitution. It has no blanks, at which the shell would split it.
constexpr char kSubstitution[] = "$(...)";

// A part of a word before word splitting: quoted text is not split.
struct WordPart {
  std::string text;
  bool is_quoted = false;
  std::string unknown;
};

class ScriptReader {
 public:
  ScriptReader(std::string_view script, std::string file, const std::map<std::string, std::string>& variables)
      : text_(script), file_(std::move(file)) {
    for (const auto& [name, value] : variables) values_[name] = {value, ""};
  }

  Result<std::vector<ShellCommand>> run() {
    while (at_ < text_.size()) {
      RETURN_IF_ERROR(read_command());
      if (expanded_ > kMaxExpandedBytes) return failure("the script is too large with its variables expanded");
    }
    return std::move(commands_);
  }

 private:
  tl::unexpected<Error> failure(const std::string& message) const {
    return fail(ExitCode::kConfig, fmt::format("{}:{}: {}", file_, line_, message));
  }

  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void advance(size_t count = 1) {
    for (; count > 0 && at_ < text_.size(); --count) {
      if (text_[at_++] == '\n') ++line_;
    }
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      if (peek() == '\\' && peek(1) == '\n') {
        advance(2);
      } else if (peek() != '\n' && std::isspace(static_cast<unsigned char>(peek())) != 0) {
        advance();
      } else if (peek() == '#') {
        while (at_ < text_.size() && peek() != '\n') advance();
      } else {
        return;
      }
    }
  }

  static bool is_operator(char c) { return c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' || c == ')'; }

  // Reads one simple command and the operator after it.
  Result<void> read_command() {
    ShellCommand command;
    skip_blanks();
    command.line = line_;
    bool begins = true;  // assignments are possible
    while (at_ < text_.size()) {
      skip_blanks();
      const char c = peek();
      if (at_ >= text_.size()) break;
      if (is_operator(c)) {
        advance();
        break;
      }
      if (c == '<' || c == '>' || (std::isdigit(static_cast<unsigned char>(c)) != 0 && is_redirection())) {
        RETURN_IF_ERROR(skip_redirection());
        continue;
      }
      if (begins && is_assignment()) {
        RETURN_IF_ERROR(read_assignment(command));
        continue;
      }
      const bool is_plain = is_name_start(c);
      ASSIGN_OR_RETURN(const std::vector<WordPart> parts, read_word());
      const size_t before = command.words.size();
      add_words(parts, command.words);
      if (begins && is_plain && command.words.size() == before + 1 && handle_keyword(command.words.back().text)) {
        command.words.pop_back();
        continue;
      }
      if (command.words.size() > before) begins = false;
      if (!command.words.empty() && is_declaration(command.words.front().text)) begins = true;
    }
    finish_command(std::move(command));
    return {};
  }

  static bool is_declaration(const std::string& word) {
    return word == "export" || word == "declare" || word == "local" || word == "readonly" || word == "typeset";
  }

  // Returns whether the word begins or ends a compound command.
  bool handle_keyword(const std::string& word) {
    if (word == "if" || word == "for" || word == "while" || word == "until" || word == "case" || word == "select") {
      ++depth_;
      return word != "for" && word != "select" && word != "case";
    }
    if (word == "fi" || word == "done" || word == "esac") {
      depth_ = std::max(0, depth_ - 1);
      return true;
    }
    return word == "then" || word == "else" || word == "elif" || word == "do";
  }

  void finish_command(ShellCommand command) {
    command.is_conditional = depth_ > 0 || braces_ > 0;
    if (!command.words.empty() && command.words.front().text == "}") braces_ = std::max(0, braces_ - 1);
    if (!command.words.empty() && command.words.back().text == "{") ++braces_;
    if (!command.words.empty() && is_declaration(command.words.front().text)) {
      for (size_t i = 1; i < command.words.size(); ++i) exported_.insert(command.words[i].text);
      return;
    }
    if (command.words.empty()) return;
    for (const std::string& name : exported_) {
      const auto value = values_.find(name);
      if (value == values_.end()) continue;
      command.exported[name] = value->second;
      expanded_ += name.size() + value->second.text.size() + sizeof(ShellWord);  // bounds the copies, too
      if (expanded_ > kMaxExpandedBytes) return;                                 // run() reports it
    }
    commands_.push_back(std::move(command));
  }

  bool is_assignment() const {
    size_t end = at_;
    if (end >= text_.size() || !is_name_start(text_[end])) return false;
    while (end < text_.size() && is_name_part(text_[end])) ++end;
    return end < text_.size() && (text_[end] == '=' || (text_[end] == '+' && text_.substr(end, 2) == "+="));
  }

  Result<void> read_assignment(ShellCommand& command) {
    std::string name;
    while (is_name_part(peek())) {
      name += peek();
      advance();
    }
    const bool appends = peek() == '+';
    advance(appends ? 2 : 1);
    ShellWord value;
    if (peek() == '(') {  // an array
      RETURN_IF_ERROR(skip_parentheses());
      value = {"$" + name, "$" + name};
    } else if (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(peek())) && !is_operator(peek())) {
      ASSIGN_OR_RETURN(const std::vector<WordPart> parts, read_word());
      for (const WordPart& part : parts) {
        value.text += part.text;
        if (value.unknown.empty()) value.unknown = part.unknown;
      }
    }
    if (depth_ > 0 || braces_ > 0) value = {"$" + name, "$" + name};
    if (appends) {
      ShellWord& present = values_[name];
      present.text += value.text;
      if (present.unknown.empty()) present.unknown = value.unknown;
    } else {
      values_[name] = value;
    }
    if (!command.words.empty() && is_declaration(command.words.front().text)) exported_.insert(name);
    // A variable in front of a command is meant for that command.
    pending_.insert(name);
    if (command.words.empty()) {
      size_t next = at_;
      while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
      const bool before_command =
          next < text_.size() && !is_operator(text_[next]) && text_[next] != '#' && text_[next] != '\r';
      if (before_command) exported_.insert(pending_.begin(), pending_.end());
      pending_.clear();
    }
    return {};
  }

  bool is_redirection() const {
    size_t end = at_;
    while (end < text_.size() && std::isdigit(static_cast<unsigned char>(text_[end])) != 0) ++end;
    return end < text_.size() && (text_[end] == '<' || text_[end] == '>');
  }

  Result<void> skip_redirection() {
    while (std::isdigit(static_cast<unsigned char>(peek())) != 0) advance();
    if (text_.substr(at_, 3) == "<<<") {
      advance(3);
    } else if (text_.substr(at_, 2) == "<<") {
      return skip_here_document();
    } else {
      while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '|') advance();
    }
    if (std::isdigit(static_cast<unsigned char>(peek())) != 0 || peek() == '-') {  // 2>&1
      while (at_ < text_.size() && is_name_part(peek())) advance();
      if (peek() == '-') advance();
      if (at_ >= text_.size() || std::isspace(static_cast<unsigned char>(peek())) != 0 || is_operator(peek()))
        return {};
    }
    skip_blanks();
    if (at_ < text_.size() && !is_operator(peek())) return read_word().map([](const auto&) {});
    return {};
  }

  Result<void> skip_here_document() {
    advance(2);
    if (peek() == '-') advance();
    skip_blanks();
    ASSIGN_OR_RETURN(const std::vector<WordPart> parts, read_word());
    std::string end;
    for (const WordPart& part : parts) end += part.text;
    size_t line_end = text_.find('\n', at_);
    const size_t rest_begin = at_;
    if (line_end == std::string_view::npos) return {};
    // The rest of the first line is dropped; scripts put pipes there, but not the command that trains.
    size_t body = line_end + 1;
    while (body < text_.size()) {
      line_end = std::min(text_.find('\n', body), text_.size());
      if (trim(text_.substr(body, line_end - body)) == end) {
        advance(line_end - rest_begin);
        return {};
      }
      body = line_end + 1;
    }
    advance(text_.size());
    return {};
  }

  // Skips balanced parentheses, with quotes inside.
  Result<void> skip_parentheses() {
    const int begin = line_;
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == '\\') {
        advance(2);
        continue;
      }
      if (c == '\'' || c == '"' || c == '`') {
        const size_t close = text_.find(c, at_ + 1);
        if (close == std::string_view::npos) break;
        advance(close + 1 - at_);
        continue;
      }
      if (c == '(') ++depth;
      if (c == ')') --depth;
      advance();
      if (depth == 0) return {};
    }
    line_ = begin;
    return failure("a parenthesis is not closed");
  }

  Result<std::vector<WordPart>> read_word() {
    std::vector<WordPart> parts;
    while (at_ < text_.size()) {
      const char c = peek();
      if (std::isspace(static_cast<unsigned char>(c)) != 0 || is_operator(c) || c == '<' || c == '>') break;
      if (c == '\\') {
        if (peek(1) == '\n') {
          advance(2);
          break;
        }
        parts.push_back({std::string(1, peek(1)), true, ""});
        advance(2);
      } else if (c == '\'') {
        const size_t close = text_.find('\'', at_ + 1);
        if (close == std::string_view::npos) return failure("a quote is not closed");
        parts.push_back({std::string(text_.substr(at_ + 1, close - at_ - 1)), true, ""});
        advance(close + 1 - at_);
      } else if (c == '"') {
        RETURN_IF_ERROR(read_double_quotes(parts));
      } else if (c == '$' || c == '`') {
        RETURN_IF_ERROR(read_expansion(false, parts));
      } else {
        if (parts.empty() || parts.back().is_quoted || !parts.back().unknown.empty()) parts.emplace_back();
        parts.back().text += c;
        advance();
      }
    }
    for (const WordPart& part : parts) expanded_ += part.text.size();
    if (expanded_ > kMaxExpandedBytes) return failure("the script is too large with its variables expanded");
    return parts;
  }

  Result<void> read_double_quotes(std::vector<WordPart>& parts) {
    const int begin = line_;
    advance();
    parts.push_back({"", true, ""});
    while (at_ < text_.size() && peek() != '"') {
      if (peek() == '\\' && (peek(1) == '"' || peek(1) == '\\' || peek(1) == '$' || peek(1) == '`')) {
        parts.back().text += peek(1);
        advance(2);
      } else if (peek() == '\\' && peek(1) == '\n') {
        advance(2);
      } else if (peek() == '$' || peek() == '`') {
        RETURN_IF_ERROR(read_expansion(true, parts));
        parts.push_back({"", true, ""});
      } else {
        parts.back().text += peek();
        advance();
      }
    }
    if (at_ >= text_.size()) {
      line_ = begin;
      return failure("a quote is not closed");
    }
    advance();
    return {};
  }

  Result<void> read_expansion(bool is_quoted, std::vector<WordPart>& parts) {
    if (peek() == '`') {
      const size_t close = text_.find('`', at_ + 1);
      if (close == std::string_view::npos) return failure("a backquote is not closed");
      const std::string command(text_.substr(at_, close + 1 - at_));
      advance(close + 1 - at_);
      parts.push_back({kSubstitution, true, command});
      return {};
    }
    if (text_.substr(at_, 3) == "$((") {
      const size_t begin = at_ + 3;
      const size_t close = text_.find("))", begin);
      if (close == std::string_view::npos) return failure("$(( is not closed");
      const std::string expression(text_.substr(begin, close - begin));
      advance(close + 2 - at_);
      const std::optional<int64_t> value =
          evaluate_arithmetic(expression, [this](const std::string& name) { return known_value(name); });
      const std::string shown = "$((" + expression + "))";
      parts.push_back({value ? std::to_string(*value) : std::string(kSubstitution), is_quoted, value ? "" : shown});
      return {};
    }
    if (text_.substr(at_, 2) == "$(") {
      const size_t begin = at_;
      advance();
      RETURN_IF_ERROR(skip_parentheses());
      const std::string command(text_.substr(begin, at_ - begin));
      parts.push_back({kSubstitution, true, command});
      return {};
    }
    return read_variable(is_quoted, parts);
  }

  Result<void> read_variable(bool is_quoted, std::vector<WordPart>& parts) {
    const size_t begin = at_;
    advance();
    std::string name;
    std::string fallback;
    bool has_fallback = false;
    if (peek() == '{') {
      const size_t close = text_.find('}', at_);
      if (close == std::string_view::npos) return failure("${ is not closed");
      const std::string_view inner = text_.substr(at_ + 1, close - at_ - 1);
      size_t end = 0;
      while (end < inner.size() && is_name_part(inner[end])) ++end;
      name = inner.substr(0, end);
      const std::string_view rest = inner.substr(end);
      if (rest.starts_with(":-") || rest.starts_with("-")) {
        has_fallback = true;
        fallback = rest.substr(rest.starts_with(":-") ? 2 : 1);
      } else if (!rest.empty()) {
        name = "";  // an expansion with a pattern
      }
      advance(close + 1 - at_);
    } else if (is_name_start(peek())) {
      while (is_name_part(peek())) {
        name += peek();
        advance();
      }
    } else {
      advance();  // $1, $@, $?
    }
    const std::string shown(text_.substr(begin, at_ - begin));
    const auto found = values_.find(name);
    if (found != values_.end()) {
      parts.push_back({found->second.text, is_quoted, found->second.unknown});
    } else if (has_fallback) {
      const bool is_simple = fallback.find_first_of("$`\"'\\") == std::string::npos;
      parts.push_back({std::string(trim(fallback)), is_quoted, is_simple ? "" : shown});
    } else {
      parts.push_back({shown, is_quoted, shown});
    }
    return {};
  }

  // Returns the text of a variable whose value is known.
  std::optional<std::string> known_value(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end() || !found->second.unknown.empty()) return std::nullopt;
    return found->second.text;
  }

  // Splits unquoted parts at blanks, as the shell does after an expansion.
  static void add_words(const std::vector<WordPart>& parts, std::vector<ShellWord>& words) {
    ShellWord word;
    bool is_open = false;
    const auto close = [&] {
      if (is_open) words.push_back(std::move(word));
      word = {};
      is_open = false;
    };
    for (const WordPart& part : parts) {
      if (part.is_quoted) {
        word.text += part.text;
        if (word.unknown.empty()) word.unknown = part.unknown;
        is_open = true;
        continue;
      }
      for (const char c : part.text) {
        if (c == ' ' || c == '\t' || c == '\n') {
          close();
          continue;
        }
        word.text += c;
        is_open = true;
        if (c == '$' && word.unknown.empty()) word.unknown = part.unknown;  // the place of the unknown value
      }
      if (part.text.empty() && !part.unknown.empty()) {
        word.unknown = part.unknown;
        is_open = true;
      }
    }
    close();
  }

  const std::string_view text_;
  const std::string file_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;   // of if, for, while and case
  int braces_ = 0;  // of functions
  size_t expanded_ = 0;
  std::map<std::string, ShellWord> values_;
  std::set<std::string> exported_;
  std::set<std::string> pending_;
  std::vector<ShellCommand> commands_;
};

}  // namespace

Result<std::vector<ShellCommand>> read_shell_script(const std::string& script, const std::string& file,
                                                    const std::map<std::string, std::string>& variables) {
  if (script.size() > kMaxScriptBytes)
    return fail(ExitCode::kConfig, fmt::format("{}: has more than {} KiB", file, kMaxScriptBytes >> 10));
  return ScriptReader(script, file, variables).run();
}

}  // namespace oarlock::convert
