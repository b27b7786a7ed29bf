// The environment of a process as a value.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace oarlock::launch {

using Environment = std::map<std::string, std::string>;

Environment environment_of(const char* const* entries);               // "NAME=VALUE" strings, ended by a null pointer
std::vector<std::string> to_entries(const Environment& environment);  // the reverse, sorted by name

}  // namespace oarlock::launch
