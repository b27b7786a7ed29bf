// JSON as YAML for people, in kubectl's style.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace oarlock::yaml {

// One document, ended by a newline. Strings that YAML could take for something else are in double quotes; a number that
// is not finite is .inf, -.inf or .nan. Keys in the alphabet's order, or in the order of their making.
std::string to_yaml(const nlohmann::json& value);
std::string to_yaml(const nlohmann::ordered_json& value);

}  // namespace oarlock::yaml
