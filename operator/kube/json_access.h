// Reading what others have written as JSON: what is not there, or of another type, is empty.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oarlock::kube {

inline const nlohmann::json& member(const nlohmann::json& json, const char* key) {
  static const nlohmann::json kNothing;
  const auto it = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && it != json.end() ? *it : kNothing;
}

inline std::string text_at(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = member(json, key);
  return value.is_string() ? value.get<std::string>() : "";
}

inline bool true_at(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = member(json, key);
  return value.is_boolean() && value.get<bool>();
}

// The elements of an array; nothing of anything else.
inline const nlohmann::json& elements(const nlohmann::json& json, const char* key) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const nlohmann::json& value = member(json, key);
  return value.is_array() ? value : kNone;
}

}  // namespace oarlock::kube
