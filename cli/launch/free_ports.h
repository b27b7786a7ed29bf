// Ports that nobody uses at the moment.
#pragma once

#include <vector>

#include "common/error.h"

namespace oarlock::launch {

// The first ports of `ranges` ranges of `length` TCP ports each, all of them free on 127.0.0.1 and different. Another
// program may take one before it is used: whoever binds it reports that.
Result<std::vector<int>> free_port_ranges(int ranges, int length);

}  // namespace oarlock::launch
