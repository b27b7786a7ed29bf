// Tolerant access to JSON that another program wrote: a member that is missing or has another type reads as empty.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

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

// Returns an integer member that fits; `fallback` for any other.
template <typename Integer>
Integer integer_at(const nlohmann::json& json, const char* key, Integer fallback) {
  const nlohmann::json& value = member(json, key);
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return std::in_range<Integer>(number) ? static_cast<Integer>(number) : fallback;
  }
  if (!value.is_number_integer()) return fallback;
  const auto number = value.get<int64_t>();
  return std::in_range<Integer>(number) ? static_cast<Integer>(number) : fallback;
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
