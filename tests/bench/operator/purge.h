// Removes everything that lists hold, with several requests in flight.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/operator/server.h"

namespace oarlock::bench {

// List after list, each until it is empty; controllers may still be adding to one. Throws after `kPurgeRounds` rounds.
inline constexpr int kPurgeRounds = 200;
void purge(Server& server, const std::vector<std::string>& lists, int concurrency);

}  // namespace oarlock::bench
