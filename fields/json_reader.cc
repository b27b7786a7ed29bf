#include "fields/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/json_access.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

std::string short_text(const Json& value) {
  std::string text = dump_json(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

// Returns the value of a number without a fraction in any notation; nullopt if it is not representable.
std::optional<int64_t> integer_of(const Json& value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(number >= -kExact && number <= kExact)) return std::nullopt;
  const auto integer = static_cast<int64_t>(number);
  return static_cast<double>(integer) == number ? std::optional(integer) : std::nullopt;
}

// Each overload assigns a value of the right type to `target`, or returns which type was expected.
const char* convert(const Json& value, bool& target) {
  if (!value.is_boolean()) return "true or false";
  target = value.get<bool>();
  return nullptr;
}
const char* convert(const Json& value, int64_t& target) {
  const std::optional<int64_t> integer = integer_of(value);
  if (!integer) return "an integer";
  target = *integer;
  return nullptr;
}
const char* convert(const Json& value, int& target) {
  const std::optional<int64_t> wide = integer_of(value);
  if (!wide) return "an integer";
  if (*wide < INT32_MIN || *wide > INT32_MAX) return "an integer of 32 bits";
  target = static_cast<int>(*wide);
  return nullptr;
}
const char* convert(const Json& value, double& target) {
  if (!value.is_number()) return "a number";
  target = value.get<double>();
  return nullptr;
}
const char* convert(const Json& value, std::string& target) {
  if (!value.is_string()) return "a string";
  target = value.get_ref<const std::string&>();
  return nullptr;
}
const char* convert(const Json& value, SystemTime& target) {
  if (!value.is_string()) return "a time";
  return from_rfc3339(value.get_ref<const std::string&>(), target) ? nullptr : "a time as 2026-11-21T10:11:12Z";
}

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;
template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;

}  // namespace

JsonFieldsReader::JsonFieldsReader(const Json& node, const FieldPath& path, UnknownFields unknown_fields,
                                   ReadFindings& findings)
    : node_(node), path_(path), unknown_fields_(unknown_fields), findings_(findings) {
  visited_.reserve(16);
  if (!node_.is_object() && !node_.is_null()) report(path_, "an object", node_);
}

void JsonFieldsReader::finish() {
  if (unknown_fields_ != UnknownFields::kReport || !node_.is_object()) return;
  for (const auto& [key, value] : node_.items()) {
    if (!was_visited(key)) findings_.unknown.push_back(FieldPath{&path_, key}.text() + ": unknown field");
  }
}

void JsonFieldsReader::unknown_members(std::string& text) {
  if (!node_.is_object()) return;
  Json rest;
  for (const auto& [key, value] : node_.items()) {
    if (!was_visited(key)) rest[key] = value;
  }
  if (!rest.empty()) text = dump_json(rest);
}

bool JsonFieldsReader::has(std::string_view key) const {
  if (!node_.is_object()) return false;
  const auto it = node_.find(key);
  return it != node_.end() && !it->is_null();
}

bool JsonFieldsReader::was_visited(std::string_view key) const {
  return std::find(visited_.begin(), visited_.end(), key) != visited_.end();
}

const Json* JsonFieldsReader::find(std::string_view key) {
  visited_.push_back(key);
  if (!node_.is_object()) return nullptr;
  const auto it = node_.find(key);
  return it == node_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonFieldsReader::report(const FieldPath& path, std::string_view expected, const Json& value) {
  findings_.problems.push_back(fmt::format("{}: expected {}, got {}", path.text(), expected, short_text(value)));
  return false;
}

template <typename Value>
bool JsonFieldsReader::take(const FieldPath& path, const Json& value, Value& target) {
  const char* expected = convert(value, target);
  return expected == nullptr || report(path, expected, value);
}

void JsonFieldsReader::visit(std::string_view key, FieldValue target, const Limits&, std::string_view) {
  const Json* value = find(key);
  if (value == nullptr) return;
  std::visit(
      [&]<typename Value>(Value* field) {
        if constexpr (kIsList<Value>) {
          if (!value->is_array()) {
            report({&path_, key}, "a list", *value);
            return;
          }
          field->clear();
          for (size_t i = 0; i < value->size(); ++i) {
            take({&path_, key, static_cast<std::ptrdiff_t>(i)}, (*value)[i], field->emplace_back());
          }
        } else if constexpr (kIsOptional<Value>) {
          take({&path_, key}, *value, field->emplace());
        } else {
          take({&path_, key}, *value, *field);
        }
      },
      target);
}

bool JsonFieldsReader::visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                                    std::string_view) {
  const Json* value = find(key);
  if (value == nullptr) return false;
  if (!value->is_string()) return report({&path_, key}, "a string", *value);
  const auto found = std::find(choices.begin(), choices.end(), value->get_ref<const std::string&>());
  if (found == choices.end()) {
    findings_.unknown.push_back(fmt::format("{}: unknown value {}", FieldPath{&path_, key}.text(), short_text(*value)));
    return false;
  }
  chosen = static_cast<size_t>(found - choices.begin());
  return true;
}

void JsonFieldsReader::section(std::string_view key, UnknownFields unknown_fields, const Describe& describe) {
  const Json* value = find(key);
  if (value == nullptr) return;
  JsonFieldsReader inner(*value, {&path_, key}, unknown_fields, findings_);
  describe(inner);
  inner.finish();
}

void JsonFieldsReader::section(std::string_view key, const Describe& describe, std::string_view) {
  section(key, unknown_fields_, describe);
}

void JsonFieldsReader::visit_optional(std::string_view key, bool, const Describe& describe, std::string_view) {
  section(key, unknown_fields_, describe);
}

void JsonFieldsReader::number_or_name(std::string_view key, int& number, NumberForm& form, std::string_view name,
                                      const Limits&, std::string_view) {
  const Json* value = find(key);
  if (value == nullptr) {
    form = NumberForm::kAbsent;
  } else if (value->is_string() && value->get_ref<const std::string&>() == name) {
    form = NumberForm::kName;
  } else if (value->is_string()) {
    findings_.unknown.push_back(
        fmt::format("{}: expected an integer or {}, got {}", FieldPath{&path_, key}.text(), name, short_text(*value)));
  } else {
    form = NumberForm::kNumber;
    take({&path_, key}, *value, number);
  }
}

void JsonFieldsReader::raw_object(std::string_view key, std::string& text, std::string_view) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (value->is_binary()) {  // the original JSON text
    text.assign(value->get_binary().begin(), value->get_binary().end());
  } else if (value->is_object()) {
    text = dump_json(*value);
  } else {
    report({&path_, key}, "an object", *value);
  }
}

void JsonFieldsReader::visit_list(std::string_view key, size_t, const std::function<void(size_t)>& resize,
                                  const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                                  std::string_view) {
  const Json* value = find(key);
  if (value == nullptr) return;
  if (!value->is_array()) {
    report({&path_, key}, "a list", *value);
    return;
  }
  resize(value->size());  // allocates the memory of all items, and not more
  resize(0);
  size_t kept = 0;
  for (size_t i = 0; i < value->size(); ++i) {
    const size_t unknown = findings_.unknown.size();
    resize(kept + 1);
    JsonFieldsReader inner((*value)[i], {&path_, key, static_cast<std::ptrdiff_t>(i)}, unknown_fields_, findings_);
    describe(kept, inner);
    inner.finish();
    if (limits.drops_unknown && findings_.unknown.size() > unknown) {
      resize(kept);
    } else {
      ++kept;
    }
  }
}

}  // namespace oarlock
