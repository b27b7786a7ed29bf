#include "trainer/config/fields_visitors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace oarlock {
namespace {

std::string join_path(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

// ---- bounds --------------------------------------------------------------------------------------------------------

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string interval(const Range& range) {
  return fmt::format("{}{}, {}{}", range.low_is_open ? '(' : '[', range.low, range.high,
                     range.high_is_open ? ')' : ']');
}

// "0.5 is below 1"; nothing for a value inside the range.
std::optional<std::string> check_bounds(const Range& range, double value) {
  if (std::isnan(value) || (std::isinf(value) && !range.allows_infinity)) {
    return fmt::format("{} is not finite", value);
  }
  if (!range.is_bounded()) return std::nullopt;
  const bool low_fits = range.low_is_open ? value > range.low : value >= range.low;
  const bool high_fits = range.high_is_open ? value < range.high : value <= range.high;
  if (low_fits && high_fits) return std::nullopt;
  if (range.high < kInfinity) return fmt::format("{} is not in {}", value, interval(range));
  return range.low_is_open ? fmt::format("{} is not above {}", value, range.low)
                           : fmt::format("{} is below {}", value, range.low);
}

// "at least 1", "above 0", "in [0, 1)"; "" if any number is valid.
std::string format_bounds(const Range& range) {
  if (!range.is_bounded()) return "";
  if (range.high < kInfinity) return "in " + interval(range);
  return range.low_is_open ? fmt::format("above {}", range.low) : fmt::format("at least {}", range.low);
}

// Overloads for each type of field. Only numbers have bounds.
std::optional<std::string> check_value(const Range&, bool) { return std::nullopt; }
std::optional<std::string> check_value(const Range&, const std::string&) { return std::nullopt; }
std::optional<std::string> check_value(const Range&, const std::vector<std::string>&) { return std::nullopt; }
std::optional<std::string> check_value(const Range& range, int value) { return check_bounds(range, value); }
std::optional<std::string> check_value(const Range& range, int64_t value) {
  return check_bounds(range, static_cast<double>(value));
}
std::optional<std::string> check_value(const Range& range, double value) { return check_bounds(range, value); }
template <typename Number>
std::optional<std::string> check_value(const Range& range, const std::optional<Number>& value) {
  return check_value(range, *value);
}

// ---- the text of the reference -------------------------------------------------------------------------------------

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
template <typename Number>
std::string type_name(const std::optional<Number>*) {
  return type_name(static_cast<const Number*>(nullptr));
}

std::string format_value(bool value) { return value ? "true" : "false"; }
std::string format_value(const std::string& value) { return value; }
std::string format_value(int value) { return fmt::format("{}", value); }
std::string format_value(int64_t value) { return fmt::format("{}", value); }
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

// ---- FieldsReader --------------------------------------------------------------------------------------------------

FieldsReader::FieldsReader(const yaml::Node& node, const std::string& path, yaml::Problems& problems)
    : reader_(node, path, problems) {}

void FieldsReader::visit(std::string_view key, FieldValue value, const Range& range, std::string_view) {
  const auto check = [&](const auto& read) {
    if (const auto problem = check_value(range, read)) reader_.problem(key, *problem);
  };
  const auto check_elements = [&](const auto& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (const auto problem = check_value(range, numbers[i])) {
        reader_.problem(key, fmt::format("element {}: {}", i, *problem));
      }
    }
  };
  std::visit(
      [&](auto* target) {
        if (!reader_.read(key, *target)) return;
        if constexpr (std::is_same_v<decltype(target), std::vector<int64_t>*> ||
                      std::is_same_v<decltype(target), std::vector<double>*>) {
          check_elements(*target);
        } else {
          check(*target);
        }
      },
      value);
}

void FieldsReader::section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view) {
  FieldsReader inner(reader_.take(key).value_or(yaml::empty_map()), path_of(key), reader_.problems());
  describe(inner);
  inner.finish();
}

void FieldsReader::only_if(std::string_view key, bool condition, std::string_view why_not) {
  if (!condition && has(key)) problem(key, why_not);
}

bool FieldsReader::visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                                std::string_view) {
  Names<size_t> names;
  for (const std::string_view choice : choices) names.emplace_back(choice, names.size());
  return reader_.read<size_t>(key, chosen, names);
}

void FieldsReader::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                              const std::function<void(size_t, Fields&)>& describe, std::string_view) {
  const std::optional<yaml::Node> node = reader_.take(key);
  std::vector<yaml::Node> items(size, yaml::empty_map());  // the default items
  if (node && node->kind() != yaml::Node::Kind::kNull && node->kind() != yaml::Node::Kind::kSequence) {
    reader_.problem(key, "expected a list of maps");
    return;
  }
  if (node && node->kind() == yaml::Node::Kind::kSequence) items = node->items();
  resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    FieldsReader inner(items[i], fmt::format("{}[{}]", path_of(key), i), reader_.problems());
    describe(i, inner);
    inner.finish();
  }
}

std::string FieldsReader::path_of(std::string_view key) const { return join_path(reader_.path(), key); }

// ---- FieldsPrinter -------------------------------------------------------------------------------------------------

template <typename Value>
void FieldsPrinter::record(std::string_view key, const Value& value) {
  if (std::find(omitted_.begin(), omitted_.end(), key) == omitted_.end()) printed_[std::string(key)] = value;
}
template <typename Value>
void FieldsPrinter::record(std::string_view key, const std::optional<Value>& value) {
  if (value) record(key, *value);
}

void FieldsPrinter::visit(std::string_view key, FieldValue value, const Range& range, std::string_view help) {
  reader_.visit(key, value, range, help);
  std::visit([&](const auto* read) { record(key, *read); }, value);
}

void FieldsPrinter::section(std::string_view key, const std::function<void(Fields&)>& describe, std::string_view help) {
  reader_.section(
      key,
      [&](Fields& inner) {
        FieldsPrinter printer(inner);
        describe(printer);
        record(key, printer.printed());
      },
      help);
}

void FieldsPrinter::only_if(std::string_view key, bool condition, std::string_view why_not) {
  reader_.only_if(key, condition, why_not);
  if (condition) return;
  printed_.erase(std::string(key));
  omitted_.emplace_back(key);
}

bool FieldsPrinter::visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                                 std::string_view help) {
  const bool found = reader_.visit_choice(key, chosen, choices, help);
  record(key, choices[chosen]);
  return found;
}

void FieldsPrinter::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                               const std::function<void(size_t, Fields&)>& describe, std::string_view help) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  reader_.visit_list(
      key, size, resize,
      [&](size_t index, Fields& inner) {
        FieldsPrinter printer(inner);
        describe(index, printer);
        items.push_back(printer.printed());
      },
      help);
  record(key, items);
}

// ---- FieldsReference -----------------------------------------------------------------------------------------------

void FieldsReference::visit(std::string_view key, FieldValue value, const Range& range, std::string_view help) {
  const std::string bounds = format_bounds(range);
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
                   .default_value = code(choices[chosen]),
                   .help = std::string(help)});
  return false;
}

void FieldsReference::section(std::string_view key, const std::function<void(Fields&)>& describe,
                              std::string_view help) {
  FieldsReference inner(path_of(key), help);
  describe(inner);
  sections_.push_back(std::move(inner));
}

void FieldsReference::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                                 const std::function<void(size_t, Fields&)>& describe, std::string_view help) {
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

std::string FieldsReference::path_of(std::string_view key) const { return join_path(path_, key); }

std::string FieldsReference::markdown(size_t level) const {
  std::string out;
  if (!path_.empty()) out += fmt::format("{} {}\n\n{}.\n\n", std::string(level, '#'), code(path_), help_);
  if (!rows_.empty()) {
    out += "| key | value | default | meaning |\n|---|---|---|---|\n";
    for (const Row& row : rows_) {
      const bool required = std::find(required_.begin(), required_.end(), row.key) != required_.end();
      out += fmt::format("| {} | {} | {} | {} |\n", code(row.key), cell(row.type),
                         required ? "required" : cell(row.default_value), cell(row.help));
    }
    out += '\n';
  }
  for (const FieldsReference& section : sections_) out += section.markdown(level);
  return out;
}

}  // namespace oarlock
