// JSON as YAML for people, in kubectl's style.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace oarlock::cli {

// One document, ended by a newline. Strings that YAML could take for something else are in double quotes.
std::string to_yaml(const nlohmann::json& value);

}  // namespace oarlock::cli
