// Tolerant access to JSON that another program wrote: a member that is missing or has another type reads as empty.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oarlock {

// Returns the member of an object; null if there is none or `json` is not an object.
inline const nlohmann::json& member(const nlohmann::json& json, const char* key) {
  static const nlohmann::json kNull;
  if (!json.is_object()) return kNull;
  const auto it = json.find(key);
  return it != json.end() ? *it : kNull;
}

// Returns a string member; "" for any other.
inline std::string text_at(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = member(json, key);
  return value.is_string() ? value.get<std::string>() : "";
}

// Whether the member is true.
inline bool true_at(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = member(json, key);
  return value.is_boolean() && value.get<bool>();
}

// Returns an array member; an empty array for any other.
inline const nlohmann::json& elements(const nlohmann::json& json, const char* key) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const nlohmann::json& value = member(json, key);
  return value.is_array() ? value : kEmpty;
}

}  // namespace oarlock
