// Conversion of JSON to YAML in the style of kubectl: lists are not indented below their key, and strings are quoted
// only where YAML requires it. (YAML::Emitter indents lists, and does not escape bidirectional control characters.)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace oarlock::yaml {

// Returns one document that ends in a newline. Strings that YAML would parse as another type are in double quotes.
// Non-finite numbers are .inf, -.inf or .nan. Keys are sorted, or keep the order of insertion for ordered_json.
std::string to_yaml(const nlohmann::json& value);
std::string to_yaml(const nlohmann::ordered_json& value);

}  // namespace oarlock::yaml
