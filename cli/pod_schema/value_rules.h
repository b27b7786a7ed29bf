// Rules of the API server for the strings of a pod template: names, keys, paths, addresses and values of labels.
#pragma once

#include <string>
#include <string_view>

#include "yaml/reader.h"

namespace oarlock::cli {

// Adds a problem for each string member of an object of a type of the pod schema, and each string in its lists, that
// has not the form that the API server requires. Nested objects are not checked, except the terms of a node selector
// and the field of a variable. `path` is that of the object. Values of a wrong type, and empty strings, are ignored.
void check_value_rules(std::string_view type, const yaml::Node& object, const std::string& path,
                       yaml::Problems& problems);

}  // namespace oarlock::cli
