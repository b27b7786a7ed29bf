#include "fields/yaml_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock {
namespace {

template <typename Value>
bool read(yaml::MapReader& reader, std::string_view key, Value& target) {
  return reader.read(key, target);
}
bool read(yaml::MapReader& reader, std::string_view key, SystemTime& target) {
  std::string text;
  if (!reader.read(key, text)) return false;
  if (from_rfc3339(text, target)) return true;
  reader.problem(key, "expected a time as 2026-11-21T10:11:12Z");
  return false;
}
bool read(yaml::MapReader& reader, std::string_view key, std::optional<SystemTime>& target) {
  SystemTime time;
  if (!read(reader, key, time)) return false;
  target = time;
  return true;
}

std::optional<std::string> problem_of(const Limits& limits, const std::string& value) {
  // The system takes what precedes it as the name of a file, and as the value of a variable.
  if (value.find('\0') != std::string::npos) return fmt::format("'{}' contains a NUL character", shortened(value));
  return check_limits(limits, value);
}
std::optional<std::string> problem_of(const Limits& limits, double value) { return check_limits(limits, value); }

// Reports the values outside of the limits.
void check(yaml::MapReader&, std::string_view, const Limits&, bool) {}
void check(yaml::MapReader&, std::string_view, const Limits&, SystemTime) {}
void check(yaml::MapReader& reader, std::string_view key, const Limits& limits, const std::string& value) {
  if (const auto problem = problem_of(limits, value)) reader.problem(key, *problem);
}
template <typename Number>
  requires std::is_arithmetic_v<Number>
void check(yaml::MapReader& reader, std::string_view key, const Limits& limits, Number value) {
  if (const auto problem = check_limits(limits, static_cast<double>(value))) reader.problem(key, *problem);
}
template <typename Value>
void check(yaml::MapReader& reader, std::string_view key, const Limits& limits, const std::optional<Value>& value) {
  check(reader, key, limits, *value);
}
template <typename Value>
void check(yaml::MapReader& reader, std::string_view key, const Limits& limits, const std::vector<Value>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (const auto problem = problem_of(limits, values[i])) {
      reader.problem(key, fmt::format("element {}: {}", i, *problem));
    }
  }
}
void check(yaml::MapReader& reader, std::string_view key, const Limits& limits, const std::vector<int64_t>& values) {
  check(reader, key, limits, std::vector<double>(values.begin(), values.end()));
}

}  // namespace

YamlFieldsReader::YamlFieldsReader(const yaml::Node& node, const std::string& path, yaml::Problems& problems,
                                   LimitChecks limit_checks)
    : reader_(node, path, problems), limit_checks_(limit_checks) {}

void YamlFieldsReader::visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view) {
  std::visit(
      [&](auto* target) {
        if (read(reader_, key, *target) && limit_checks_ == LimitChecks::kOn) check(reader_, key, limits, *target);
      },
      value);
}

bool YamlFieldsReader::visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                                    std::string_view) {
  std::vector<std::pair<std::string_view, size_t>> names;
  names.reserve(choices.size());
  for (const std::string_view choice : choices) names.emplace_back(choice, names.size());
  return reader_.read<size_t>(key, chosen, names);
}

void YamlFieldsReader::section(std::string_view key, const Describe& describe, std::string_view) {
  YamlFieldsReader inner(reader_.take(key).value_or(yaml::empty_map()), path_of(key), reader_.problems(),
                         limit_checks_);
  describe(inner);
  inner.finish();
}

void YamlFieldsReader::visit_optional(std::string_view key, bool, const Describe& describe, std::string_view help) {
  if (has(key)) {
    section(key, describe, help);
  } else {
    skip(key);
  }
}

void YamlFieldsReader::number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name,
                                      const Limits& limits, std::string_view help) {
  const std::optional<yaml::Node> value = reader_.take(key);
  if (!value || value->kind() == yaml::Node::Kind::kNull) {
    form = NumberForm::kAbsent;
  } else if (value->kind() == yaml::Node::Kind::kScalar && value->text() == name) {
    form = NumberForm::kName;
  } else if (value->kind() == yaml::Node::Kind::kScalar && !value->is_quoted() && value->value().is_string()) {
    reader_.problem(key, fmt::format("expected an integer or {}, got '{}'", name, shortened(value->text())));
  } else {
    form = NumberForm::kNumber;
    field(key, number, limits, help);
  }
}

void YamlFieldsReader::raw_object(std::string_view key, std::string& text, std::string_view) {
  const std::optional<yaml::Node> value = reader_.take(key);
  if (!value || value->kind() == yaml::Node::Kind::kNull) return;
  if (value->kind() != yaml::Node::Kind::kMap) {
    const bool is_list = value->kind() == yaml::Node::Kind::kSequence;
    const std::string given = is_list ? "a list" : fmt::format("'{}'", shortened(value->text()));
    return reader_.problem(key, fmt::format("expected a map, got {}", given));
  }
  text = dump_json(value->to_json());
}

void YamlFieldsReader::only_if(std::string_view key, bool condition, std::string_view why_not) {
  if (!condition && has(key)) problem(key, why_not);
}

void YamlFieldsReader::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                                  const std::function<void(size_t, Fields&)>& describe, const Limits&,
                                  std::string_view) {
  const std::optional<yaml::Node> node = reader_.take(key);
  std::vector<yaml::Node> items(size, yaml::empty_map());  // the default items
  if (node && node->kind() != yaml::Node::Kind::kNull && node->kind() != yaml::Node::Kind::kSequence) {
    reader_.problem(key, "expected a list of maps");
    return;
  }
  if (node && node->kind() == yaml::Node::Kind::kSequence) items = node->items();
  resize(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    YamlFieldsReader inner(items[i], fmt::format("{}[{}]", path_of(key), i), reader_.problems(), limit_checks_);
    describe(i, inner);
    inner.finish();
  }
}

std::string YamlFieldsReader::path_of(std::string_view key) const {
  return reader_.path().empty() ? std::string(key) : fmt::format("{}.{}", reader_.path(), key);
}

}  // namespace oarlock
