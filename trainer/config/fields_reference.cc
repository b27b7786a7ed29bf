#include "trainer/config/fields_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace oarlock {
namespace {

constexpr char kNone[] = "–";

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string shown(double value) {
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  return fmt::format("{}", value);
}
std::string shown(int64_t value) { return fmt::format("{}", value); }

template <typename Value>
std::string initial(const Value& value) {
  return code(shown(value));
}
template <typename Value>
std::string initial(const std::optional<Value>& value) {
  return value ? code(shown(*value)) : kNone;
}
template <typename Value>
std::string initial(const std::vector<Value>& values) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const Value& value : values) texts.push_back(shown(value));
  return code(fmt::format("[{}]", fmt::join(texts, ", ")));
}

// Text in a cell of a table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '|') out.push_back('\\');
    out.push_back(letter);
  }
  return out;
}

}  // namespace

void FieldsReference::add(std::string_view key, std::string_view type, std::string initial, std::string_view meaning) {
  rows_.push_back({std::string(key), std::string(type), std::move(initial), std::string(meaning)});
}

template <typename Number>
void FieldsReference::number(std::string_view key, const Number& value, const Range& range, std::string_view type,
                             std::string_view meaning) {
  const std::string bounds = range.text();
  add(key, bounds.empty() ? std::string(type) : fmt::format("{}, {}", type, bounds), initial(value), meaning);
}

void FieldsReference::field(std::string_view key, bool& value, std::string_view meaning) {
  add(key, "true or false", code(value ? "true" : "false"), meaning);
}
void FieldsReference::field(std::string_view key, std::string& value, std::string_view meaning) {
  add(key, "string", value.empty() ? code("\"\"") : code(value), meaning);
}
void FieldsReference::field(std::string_view key, std::vector<std::string>& value, std::string_view meaning) {
  add(key, "list of strings", code(fmt::format("[{}]", fmt::join(value, ", "))), meaning);
}
void FieldsReference::field(std::string_view key, int& value, const Range& range, std::string_view meaning) {
  number(key, static_cast<int64_t>(value), range, "integer", meaning);
}
void FieldsReference::field(std::string_view key, int64_t& value, const Range& range, std::string_view meaning) {
  number(key, value, range, "integer", meaning);
}
void FieldsReference::field(std::string_view key, double& value, const Range& range, std::string_view meaning) {
  number(key, value, range, "number", meaning);
}
void FieldsReference::field(std::string_view key, std::optional<int64_t>& value, const Range& range,
                            std::string_view meaning) {
  number(key, value, range, "integer", meaning);
}
void FieldsReference::field(std::string_view key, std::optional<double>& value, const Range& range,
                            std::string_view meaning) {
  number(key, value, range, "number", meaning);
}
void FieldsReference::field(std::string_view key, std::vector<int64_t>& value, const Range& range,
                            std::string_view meaning) {
  number(key, value, range, "list of integers", meaning);
}
void FieldsReference::field(std::string_view key, std::vector<double>& value, const Range& range,
                            std::string_view meaning) {
  number(key, value, range, "list of numbers", meaning);
}

bool FieldsReference::choose(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                             std::string_view meaning) {
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const std::string_view choice : choices) names.push_back(code(choice));
  add(key, fmt::format("{}", fmt::join(names, ", ")), code(choices[chosen]), meaning);
  return false;
}

void FieldsReference::section(std::string_view key, const std::function<void(Fields&)>& describe,
                              std::string_view meaning) {
  FieldsReference inner(path_of(key), meaning);
  describe(inner);
  sections_.push_back(std::move(inner));
}

void FieldsReference::sequence(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                               const std::function<void(size_t, Fields&)>& describe, std::string_view meaning) {
  FieldsReference inner(fmt::format("{}[]", path_of(key)), meaning);
  resize(1);
  describe(0, inner);
  resize(size);
  add(key, "list of maps", size == 0 ? code("[]") : kNone, fmt::format("{}; see {}", meaning, code(inner.path_)));
  sections_.push_back(std::move(inner));
}

std::string FieldsReference::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::string FieldsReference::markdown(size_t level) const {
  std::string out;
  if (!path_.empty()) out += fmt::format("{} {}\n\n{}.\n\n", std::string(level, '#'), code(path_), meaning_);
  if (!rows_.empty()) {
    out += "| key | value | default | meaning |\n|---|---|---|---|\n";
    for (const Row& row : rows_) {
      const bool required = std::find(required_.begin(), required_.end(), row.key) != required_.end();
      out += fmt::format("| {} | {} | {} | {} |\n", code(row.key), cell(row.type),
                         required ? "required" : cell(row.initial), cell(row.meaning));
    }
    out += '\n';
  }
  for (const FieldsReference& section : sections_) out += section.markdown(level);
  return out;
}

}  // namespace oarlock
