#include "workloads/formats/extxyz_comment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

constexpr std::string_view kCommentBlank = " \t\r\n\v\f";
constexpr std::string_view kSeparators = " \t\r\n,[]{}";

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool skip_blanks() {
    at_ = std::min(text_.find_first_not_of(kCommentBlank, at_), text_.size());
    return at_ < text_.size();
  }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Reads a word that is quoted, in brackets or bare. A bare word ends before a space, and a key also before "=".
  Result<std::string> word(bool key) {
    const char first = at_ < text_.size() ? text_[at_] : ' ';
    if (first == '"' || first == '\'') return quoted(first);
    if (!key && (first == '[' || first == '{')) return bracketed(first, first == '[' ? ']' : '}');
    const size_t end = std::min(text_.find_first_of(key ? " \t\r\n\v\f=" : kCommentBlank, at_), text_.size());
    std::string bare(text_.substr(at_, end - at_));
    at_ = end;
    return bare;
  }

 private:
  Result<std::string> quoted(char quote) {
    std::string out;
    for (++at_; at_ < text_.size(); ++at_) {
      if (take(quote)) return out;
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        out += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        out += text_[at_];
      }
    }
    return fail(ExitCode::kDataErr, fmt::format("{} is not closed", quote));
  }

  Result<std::string> bracketed(char open, char close) {
    const size_t begin = at_;
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == open) ++depth;
      if (text_[at_] == close && --depth == 0) {
        ++at_;
        return std::string(text_.substr(begin + 1, at_ - begin - 2));
      }
    }
    return fail(ExitCode::kDataErr, fmt::format("{} is not closed", open));
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<bool> parse_flag(std::string_view word) {
  constexpr std::array<std::string_view, 6> kTrue{"T", "t", "true", "True", "TRUE", "1"};
  constexpr std::array<std::string_view, 6> kFalse{"F", "f", "false", "False", "FALSE", "0"};
  if (std::find(kTrue.begin(), kTrue.end(), word) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), word) != kFalse.end()) return false;
  return std::nullopt;
}

template <typename Value, typename Parse>
Result<std::vector<Value>> values_of(std::string_view text, const char* kind, const Parse& parse) {
  constexpr std::string_view kJson = "_JSON";  // with which ase begins a list
  if (text.starts_with(kJson)) text.remove_prefix(kJson.size());
  std::vector<Value> values;
  for (size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::optional<Value> value = parse(text.substr(at, end - at));
    if (!value)
      return fail(ExitCode::kDataErr, fmt::format("'{}' is not {}", shortened(text.substr(at, end - at)), kind));
    values.push_back(*value);
    at = end;
  }
  return values;
}

}  // namespace

Result<ExtxyzInfo> parse_extxyz_comment(std::string_view line) {
  constexpr size_t kMaxKeys = 10'000;  // of a map, which takes thirty times their size
  ExtxyzInfo info;
  Scanner scanner(line);
  while (scanner.skip_blanks()) {
    ASSIGN_OR_RETURN(std::string key, scanner.word(true));
    scanner.skip_blanks();
    std::string value = "T";
    if (scanner.take('=')) {
      scanner.skip_blanks();
      Result<std::string> given = scanner.word(false);
      if (!given) return fail(ExitCode::kDataErr, fmt::format("{}: {}", shortened(key), given.error().message));
      value = std::move(*given);
    }
    info.insert_or_assign(std::move(key), std::move(value));
    if (info.size() > kMaxKeys) return fail(ExitCode::kDataErr, fmt::format("more than {} keys", kMaxKeys));
  }
  return info;
}

Result<std::vector<double>> extxyz_numbers(std::string_view value) {
  return values_of<double>(value, "a number", parse_double);
}

Result<std::vector<bool>> extxyz_flags(std::string_view value) { return values_of<bool>(value, "T or F", parse_flag); }

}  // namespace oarlock
