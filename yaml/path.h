// Places in a tree of YAML nodes by path.
#pragma once

#include <string_view>

#include "yaml/reader.h"

namespace oarlock::yaml {

struct Place {
  Mark mark;              // of the deepest node that exists on the path
  bool is_whole = false;  // whether all of the path exists
};

// Returns the place of a path such as "spec.containers[0].env". A key may contain periods: the rest of the path is
// tried as a key first.
Place find_place(Node root, std::string_view path);

}  // namespace oarlock::yaml
