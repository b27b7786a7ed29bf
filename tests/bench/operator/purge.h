// Deletes all objects of several lists, with several requests in flight.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/operator/server.h"

namespace oarlock::bench {

// Empties one list after another. Repeats this while controllers add objects; throws after `kPurgeRounds` rounds.
inline constexpr int kPurgeRounds = 200;
void purge(Server& server, const std::vector<std::string>& lists, int concurrency);

}  // namespace oarlock::bench
