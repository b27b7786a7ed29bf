// Sets of node ranks as text, in the format of completedIndexes of a Job: ascending, runs as "first-last".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace oarlock::control {

// {true, true, true, false, false, true} is "0-2,5"; "" for an empty set. At most about 10 KB for 4,096 ranks.
std::string format_rank_set(const std::vector<bool>& ranks);

// Ranks below `size`. Items that are not well formed and ranks that do not exist are ignored: taking a finished rank
// for an unfinished one costs a restart, the opposite would complete a job that is not.
std::vector<bool> parse_rank_set(std::string_view text, size_t size);

}  // namespace oarlock::control
