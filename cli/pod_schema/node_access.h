// Tolerant access to the members of a YAML map: a member that is missing or has another type reads as empty.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "yaml/reader.h"

namespace oarlock::cli {

// Returns whether the map has the member with a value other than null.
inline bool is_given(const yaml::Node& object, std::string_view key) {
  const std::optional<yaml::Node> value = object.find(key);
  return value && value->kind() != yaml::Node::Kind::kNull;
}

// Returns the text of a node that is a string; "" for any other.
inline std::string string_of(const yaml::Node& node) {
  return node.kind() == yaml::Node::Kind::kScalar && node.value().is_string() ? node.text() : "";
}

inline std::string string_at(const yaml::Node& object, std::string_view key) {
  const std::optional<yaml::Node> value = object.find(key);
  return value ? string_of(*value) : "";
}

// Returns a member that is a string.
inline std::optional<yaml::Node> string_node_at(const yaml::Node& object, std::string_view key) {
  std::optional<yaml::Node> value = object.find(key);
  const bool is_string = value && value->kind() == yaml::Node::Kind::kScalar && value->value().is_string();
  return is_string ? value : std::nullopt;
}

// Returns the value of a node that is a whole number.
inline std::optional<int64_t> number_of(const yaml::Node& node) {
  if (node.kind() != yaml::Node::Kind::kScalar) return std::nullopt;
  const nlohmann::json number = node.value();
  return number.is_number_integer() ? std::optional(number.get<int64_t>()) : std::nullopt;
}

inline std::optional<int64_t> number_at(const yaml::Node& object, std::string_view key) {
  const std::optional<yaml::Node> value = object.find(key);
  return value ? number_of(*value) : std::nullopt;
}

inline std::optional<bool> boolean_at(const yaml::Node& object, std::string_view key) {
  const std::optional<yaml::Node> value = object.find(key);
  if (!value || value->kind() != yaml::Node::Kind::kScalar || !value->value().is_boolean()) return std::nullopt;
  return value->value().get<bool>();
}

// Returns the items of a member that is a list.
inline std::vector<yaml::Node> list_at(const yaml::Node& object, std::string_view key) {
  const std::optional<yaml::Node> value = object.find(key);
  return value ? value->items() : std::vector<yaml::Node>();
}

// Returns a member that is a map.
inline std::optional<yaml::Node> map_at(const yaml::Node& object, std::string_view key) {
  std::optional<yaml::Node> value = object.find(key);
  return value && value->kind() == yaml::Node::Kind::kMap ? value : std::nullopt;
}

}  // namespace oarlock::cli
