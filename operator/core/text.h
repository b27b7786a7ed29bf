// Text formats of the status: sanitized text from other programs, and sets of node ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace oarlock::control {

// ---- Text from other programs, made safe for conditions, events, logs and labels -----------------------------------

// Returns `text` as a single line of valid UTF-8. Replaces control characters (is_control_character() in
// common/text.h) by spaces and invalid UTF-8 by '?'. Text longer than `limit` bytes is cut between two characters
// and ends with "...".
std::string sanitize_line(std::string_view text, size_t limit = 400);

// Returns `text` if it is a valid machine-readable reason, that is one CamelCase word of at most 60 characters;
// otherwise an empty string.
std::string to_reason(std::string_view text);

// Returns the last line of `text` that is not empty.
std::string last_line(std::string_view text);

// ---- Sets of node ranks, in the format of completedIndexes of a Job -------------------------------------------------

// Formats a set in ascending order with runs as "first-last": {true, true, true, false, false, true} becomes "0-2,5".
// An empty set is "". The result has at most about 10 KB for 4,096 ranks.
std::string format_rank_set(const std::vector<bool>& ranks);

// Returns the ranks below `size` that `text` contains. Malformed items and ranks that do not exist are ignored:
// treating a finished rank as unfinished costs a restart, while the opposite would complete an incomplete job.
std::vector<bool> parse_rank_set(std::string_view text, size_t size);

}  // namespace oarlock::control
