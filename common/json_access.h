// Conversion of JSON to text, and tolerant access to JSON that another program wrote: a member that is missing or has
// another type reads as empty. `Json` is nlohmann::json or nlohmann::ordered_json. References are valid as long as
// `json` is not changed.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "common/text.h"

namespace oarlock {

// Returns the text of a value, in one line unless an indentation is given. Bytes of strings that are not well-formed
// UTF-8 are replaced by U+FFFD; Json::dump() throws for them.
inline std::string dump_json(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
template <std::same_as<nlohmann::ordered_json> Json>
std::string dump_json(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Parses JSON that another process sent. The result is_discarded() if the text is not JSON, is larger than `max_bytes`,
// or is nested more deeply than `max_depth` levels: a parsed text may take a hundred times its size.
inline nlohmann::json parse_untrusted_json(std::string_view text, size_t max_bytes = 1 << 20, int max_depth = 64) {
  if (text.size() > max_bytes || json_depth(text) > max_depth)
    return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text, nullptr, false);
}

// Returns the member of an object; null if there is none or `json` is not an object.
template <typename Json>
const Json& member(const Json& json, std::string_view key) {
  static const Json kNull;
  if (!json.is_object()) return kNull;
  const auto it = json.find(key);
  return it != json.end() ? *it : kNull;
}

// Returns a string member; "" for any other.
template <typename Json>
std::string text_at(const Json& json, std::string_view key) {
  const Json& value = member(json, key);
  return value.is_string() ? value.template get<std::string>() : "";
}

// Returns an integer member that fits; `fallback` for any other.
template <typename Integer, typename Json>
Integer integer_at(const Json& json, std::string_view key, Integer fallback) {
  const Json& value = member(json, key);
  if (value.is_number_unsigned()) {
    const auto number = value.template get<uint64_t>();
    return std::in_range<Integer>(number) ? static_cast<Integer>(number) : fallback;
  }
  if (!value.is_number_integer()) return fallback;
  const auto number = value.template get<int64_t>();
  return std::in_range<Integer>(number) ? static_cast<Integer>(number) : fallback;
}

// Whether the member is true.
template <typename Json>
bool true_at(const Json& json, std::string_view key) {
  const Json& value = member(json, key);
  return value.is_boolean() && value.template get<bool>();
}

// Returns an array member; an empty array for any other.
template <typename Json>
const Json& elements(const Json& json, std::string_view key) {
  static const Json kEmpty = Json::array();
  const Json& value = member(json, key);
  return value.is_array() ? value : kEmpty;
}

// Returns the first object of a list whose string member `key` has this value; null if there is none.
template <typename Json>
const Json* find_item(const Json& list, std::string_view key, std::string_view value) {
  for (const Json& item : list) {
    if (text_at(item, key) == value) return &item;
  }
  return nullptr;
}

// Returns the array object[key], or the object object[key]. Creates it, or replaces a value of another type, if
// necessary.
template <typename Json>
Json& list_in(Json& object, const char* key) {
  Json& list = object[key];
  if (!list.is_array()) list = Json::array();
  return list;
}
template <typename Json>
Json& map_in(Json& object, const char* key) {
  Json& map = object[key];
  if (!map.is_object()) map = Json::object();
  return map;
}

}  // namespace oarlock
