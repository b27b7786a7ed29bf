#include "fields/reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace oarlock {
namespace {

// "at least 1", "above 0", "in [0, 1)"; "" if any number is valid.
std::string format_bounds(const Limits& limits) {
  if (!limits.is_bounded()) return "";
  if (!std::isinf(limits.high)) return "in " + limits.interval();
  return limits.low_is_open ? fmt::format("above {}", limits.low) : fmt::format("at least {}", limits.low);
}

constexpr char kNoDefault[] = "–";

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string type_name(const bool*) { return "true or false"; }
std::string type_name(const std::string*) { return "string"; }
std::string type_name(const std::vector<std::string>*) { return "list of strings"; }
std::string type_name(const int*) { return "integer"; }
std::string type_name(const int64_t*) { return "integer"; }
std::string type_name(const double*) { return "number"; }
std::string type_name(const std::vector<int64_t>*) { return "list of integers"; }
std::string type_name(const std::vector<double>*) { return "list of numbers"; }
std::string type_name(const SystemTime*) { return "time"; }
template <typename Number>
std::string type_name(const std::optional<Number>*) {
  return type_name(static_cast<const Number*>(nullptr));
}

std::string format_value(bool value) { return value ? "true" : "false"; }
std::string format_value(const std::string& value) { return value; }
std::string format_value(int value) { return fmt::format("{}", value); }
std::string format_value(int64_t value) { return fmt::format("{}", value); }
std::string format_value(SystemTime value) { return to_rfc3339(value); }
std::string format_value(double value) {
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  return fmt::format("{}", value);
}

template <typename Value>
std::string format_default(const Value& value) {
  return code(format_value(value));
}
std::string format_default(const std::string& value) { return code(value.empty() ? "\"\"" : value); }
template <typename Value>
std::string format_default(const std::optional<Value>& value) {
  return value ? code(format_value(*value)) : kNoDefault;
}
template <typename Value>
std::string format_default(const std::vector<Value>& values) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const Value& value : values) texts.push_back(format_value(value));
  return code(fmt::format("[{}]", fmt::join(texts, ", ")));
}

// Escapes text for a table cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '|') out.push_back('\\');
    out.push_back(letter);
  }
  return out;
}

}  // namespace

void FieldsReference::visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) {
  const std::string bounds = format_bounds(limits);
  std::visit(
      [&](const auto* initial) {
        const std::string type = type_name(initial);
        rows_.push_back({.key = std::string(key),
                         .type = bounds.empty() ? type : fmt::format("{}, {}", type, bounds),
                         .default_value = format_default(*initial),
                         .help = std::string(help)});
      },
      value);
}

bool FieldsReference::visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                                   std::string_view help) {
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const std::string_view choice : choices) names.push_back(code(choice));
  rows_.push_back({.key = std::string(key),
                   .type = fmt::format("{}", fmt::join(names, ", ")),
                   .default_value = chosen < choices.size() ? code(choices[chosen]) : kNoDefault,
                   .help = std::string(help)});
  return false;
}

void FieldsReference::section(std::string_view key, const Describe& describe, std::string_view help) {
  FieldsReference inner(path_of(key), help);
  describe(inner);
  sections_.push_back(std::move(inner));
}

void FieldsReference::visit_optional(std::string_view key, bool, const Describe& describe, std::string_view help) {
  section(key, describe, help);
}

void FieldsReference::number_or_name(std::string_view key, int&, NumberForm&, std::string_view name,
                                     const Limits& limits, std::string_view help) {
  const std::string bounds = format_bounds(limits);
  rows_.push_back({.key = std::string(key),
                   .type = fmt::format("integer{}{}, or {}", bounds.empty() ? "" : ", ", bounds, code(name)),
                   .default_value = kNoDefault,
                   .help = std::string(help)});
}

void FieldsReference::raw_object(std::string_view key, std::string&, std::string_view help) {
  rows_.push_back({.key = std::string(key), .type = "map", .default_value = kNoDefault, .help = std::string(help)});
}

void FieldsReference::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                                 const std::function<void(size_t, Fields&)>& describe, const Limits&,
                                 std::string_view help) {
  FieldsReference inner(fmt::format("{}[]", path_of(key)), help);
  resize(1);
  describe(0, inner);
  resize(size);
  rows_.push_back({.key = std::string(key),
                   .type = "list of maps",
                   .default_value = size == 0 ? code("[]") : kNoDefault,
                   .help = fmt::format("{}; see {}", help, code(inner.path_))});
  sections_.push_back(std::move(inner));
}

std::string FieldsReference::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

// "" unless each rank may have its own value.
std::string FieldsReference::note_of_scope(const std::string& key) const {
  const auto found = scopes_.find(key);
  if (found == scopes_.end() || found->second == Scope::kShared) return "";
  return found->second == Scope::kRank ? ". May differ between ranks"
                                       : ". May differ between ranks, of which all or none must set it";
}

std::string FieldsReference::markdown(size_t level, const std::string& note) const {
  std::string out;
  if (!path_.empty()) out += fmt::format("{} {}\n\n{}{}.\n\n", std::string(level, '#'), code(path_), help_, note);
  if (!rows_.empty()) {
    out += "| key | value | default | meaning |\n|---|---|---|---|\n";
    for (const Row& row : rows_) {
      const bool required = std::find(required_.begin(), required_.end(), row.key) != required_.end();
      out += fmt::format("| {} | {} | {} | {} |\n", code(row.key), cell(row.type),
                         required ? "required" : cell(row.default_value), cell(row.help + note_of_scope(row.key)));
    }
    out += '\n';
  }
  for (const FieldsReference& section : sections_) {
    const std::string key = path_.empty() ? section.path_ : section.path_.substr(path_.size() + 1);
    out += section.markdown(level, note_of_scope(key));
  }
  return out;
}

}  // namespace oarlock
