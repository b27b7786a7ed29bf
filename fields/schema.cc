#include "fields/schema.h"

#include <limits>

namespace oarlock {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Overloads for each type of field: its schema, and its default, which is null if the field is then absent.
OrderedJson schema_of(const bool*) { return {{"type", "boolean"}}; }
OrderedJson schema_of(const int*) { return {{"type", "integer"}, {"format", "int32"}}; }
OrderedJson schema_of(const int64_t*) { return {{"type", "integer"}, {"format", "int64"}}; }
OrderedJson schema_of(const double*) { return {{"type", "number"}}; }
OrderedJson schema_of(const std::string*) { return {{"type", "string"}}; }
OrderedJson schema_of(const SystemTime*) { return {{"type", "string"}, {"format", "date-time"}}; }
template <typename Value>
OrderedJson schema_of(const std::optional<Value>*) {
  return schema_of(static_cast<const Value*>(nullptr));
}

template <typename Value>
OrderedJson default_of(const Value& value) {
  return value;
}
OrderedJson default_of(const std::string& value) { return value.empty() ? OrderedJson() : OrderedJson(value); }
OrderedJson default_of(SystemTime) { return {}; }
template <typename Value>
OrderedJson default_of(const std::optional<Value>& value) {
  return value ? default_of(*value) : OrderedJson();
}
template <typename Value>
OrderedJson default_of(const std::vector<Value>& values) {
  return values.empty() ? OrderedJson() : OrderedJson(values);
}

OrderedJson bound(double value, bool is_integer) {
  return is_integer ? OrderedJson(static_cast<int64_t>(value)) : OrderedJson(value);
}

// Adds the limits of a number or a string.
void limit_value(OrderedJson& schema, const Limits& limits) {
  const bool is_integer = schema["type"] == "integer";
  if (limits.is_bounded()) schema["minimum"] = bound(limits.low, is_integer);
  if (limits.low_is_open) schema["exclusiveMinimum"] = true;
  if (limits.high < std::numeric_limits<double>::infinity()) schema["maximum"] = bound(limits.high, is_integer);
  if (limits.high_is_open) schema["exclusiveMaximum"] = true;
  if (limits.min_length > 0) schema["minLength"] = limits.min_length;
  if (limits.max_length > 0) schema["maxLength"] = limits.max_length;
  if (*limits.pattern != '\0') schema["pattern"] = limits.pattern;
}

OrderedJson array_of(OrderedJson items, const Limits& limits) {
  OrderedJson schema = {{"type", "array"}};
  if (limits.min_items > 0) schema["minItems"] = limits.min_items;
  if (limits.max_items > 0) schema["maxItems"] = limits.max_items;
  if (*limits.list_type != '\0') schema["x-kubernetes-list-type"] = limits.list_type;
  if (*limits.map_key != '\0') schema["x-kubernetes-list-map-keys"] = OrderedJson::array({limits.map_key});
  schema["items"] = std::move(items);
  return schema;
}

template <typename Value>
OrderedJson limited_schema_of(const Value* value, const Limits& limits) {
  OrderedJson schema = schema_of(value);
  limit_value(schema, limits);
  return schema;
}
template <typename Value>
OrderedJson limited_schema_of(const std::vector<Value>*, const Limits& limits) {
  return array_of(limited_schema_of(static_cast<const Value*>(nullptr), limits), limits);
}

}  // namespace

void FieldsSchema::add(std::string_view key, OrderedJson schema, const OrderedJson& default_value,
                       std::string_view help) {
  if (defaults_ == Defaults::kYes && !default_value.is_null()) schema["default"] = default_value;
  schema["description"] = help;
  if (schema.contains("items")) {  // the description of a list is easier to find before its items
    OrderedJson items = std::move(schema["items"]);
    schema.erase("items");
    schema["items"] = std::move(items);
  }
  properties_[std::string(key)] = std::move(schema);
}

FieldsSchema::Json FieldsSchema::schema(std::string_view description) const {
  OrderedJson out = {{"type", "object"}};
  if (!description.empty()) out["description"] = description;
  if (!required_.empty()) out["required"] = required_;
  out["properties"] = properties_;
  for (const std::string& key : required_) out["properties"][key].erase("default");
  return out;
}

void FieldsSchema::visit(std::string_view key, FieldValue value, const Limits& limits, std::string_view help) {
  std::visit([&](const auto* field) { add(key, limited_schema_of(field, limits), default_of(*field), help); }, value);
}

bool FieldsSchema::visit_choice(std::string_view key, size_t& chosen, const std::vector<std::string_view>& choices,
                                std::string_view help) {
  add(key, {{"type", "string"}, {"enum", choices}},
      chosen < choices.size() ? OrderedJson(choices[chosen]) : OrderedJson(), help);
  return false;
}

void FieldsSchema::section(std::string_view key, const Describe& describe, std::string_view help) {
  FieldsSchema inner(defaults_);
  describe(inner);
  OrderedJson schema = inner.schema(help);
  // The API server sets the defaults of the members only if the map exists.
  if (defaults_ == Defaults::kYes) schema["default"] = OrderedJson::object();
  properties_[std::string(key)] = std::move(schema);
}

void FieldsSchema::visit_optional(std::string_view key, bool, const Describe& describe, std::string_view help) {
  FieldsSchema inner(defaults_);
  describe(inner);
  properties_[std::string(key)] = inner.schema(help);
}

void FieldsSchema::number_or_name(std::string_view key, int& number, NumberForm&, std::string_view name,
                                  const Limits& limits, std::string_view help) {
  OrderedJson schema = {{"x-kubernetes-int-or-string", true}};
  const OrderedJson integer = limited_schema_of(&number, limits);
  for (const char* bound : {"minimum", "maximum"}) {
    if (integer.contains(bound)) schema[bound] = integer[bound];
  }
  schema["pattern"] = "^" + std::string(name) + "$";
  add(key, std::move(schema), {}, help);
}

void FieldsSchema::raw_object(std::string_view key, std::string&, std::string_view help) {
  properties_[std::string(key)] = {
      {"type", "object"}, {"description", help}, {"x-kubernetes-preserve-unknown-fields", true}};
}

void FieldsSchema::visit_list(std::string_view key, size_t size, const std::function<void(size_t)>& resize,
                              const std::function<void(size_t, Fields&)>& describe, const Limits& limits,
                              std::string_view help) {
  FieldsSchema inner(defaults_);
  resize(1);
  describe(0, inner);
  resize(size);
  add(key, array_of(inner.schema(""), limits), {}, help);
}

}  // namespace oarlock
