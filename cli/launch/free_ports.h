// Ports that nobody uses at the moment.
#pragma once

#include <vector>

#include "common/error.h"

namespace oarlock::launch {

// TCP ports that are free on 127.0.0.1, all different. Another program may take one before it is used: whoever binds it
// reports that.
Result<std::vector<int>> free_ports(int count);

// The first port of `count` free ones in a row.
Result<int> free_port_range(int count);

}  // namespace oarlock::launch
