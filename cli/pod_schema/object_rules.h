// Rules of the API server for single objects of a pod template: ranges of numbers, choices of members, and members that
// require or exclude each other.
#pragma once

#include <string>
#include <string_view>

#include "yaml/reader.h"

namespace oarlock::cli {

// Adds a problem for each violation in an object of a type of the pod schema, without its nested objects, except that
// some rules read the members of a nested object. `path` is that of the object. Values of a wrong type are ignored.
void check_object_rules(std::string_view type, const yaml::Node& object, const std::string& path,
                        yaml::Problems& problems);

}  // namespace oarlock::cli
