// torchrun's --redirects, --tee and --local-ranks-filter: which output of a rank goes to files and to the console.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/group.h"
#include "common/error.h"

namespace oarlock::launch {

// The streams of a process, as torchrun numbers them: 1 is stdout, 2 is stderr, 3 is both, and 0 is none.
inline constexpr int kStdoutStream = 1;
inline constexpr int kStderrStream = 2;

// Parses a value of --redirects or --tee: "3" for all local ranks, or "0:3,1:1" for some. Returns the streams by local
// rank. An empty value selects none. Fails with kUsage, naming `option`, for anything else. Pure.
Result<std::vector<int>> streams_by_rank(const std::string& option, const std::string& value, int ranks);

// Parses the local ranks of --local-ranks-filter, such as "0,2". Returns for each rank whether the console shows it; an
// empty value selects all. Fails with kUsage. Pure.
Result<std::vector<bool>> shown_ranks(const std::string& value, int ranks);

}  // namespace oarlock::launch
