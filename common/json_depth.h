// Nesting of JSON text, measured without parsing it: what copies, compares or prints a tree needs stack for each level.
#pragma once

#include <string_view>

namespace oarlock {

// The number of levels of objects and arrays, 0 for a scalar. Thread-safe. For text that is not JSON, it is at least
// the depth at which a parser would stop.
int json_depth(std::string_view json);

}  // namespace oarlock
