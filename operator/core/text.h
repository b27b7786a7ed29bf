// Other programs' words, made fit for a condition: one line, valid UTF-8, bounded.
#pragma once

#include <string>
#include <string_view>

namespace oarlock::control {

// Line breaks and other control characters become spaces, damaged UTF-8 becomes '?'; what is longer than `limit` bytes
// is cut between characters and ends in "...".
std::string one_line(std::string_view text, size_t limit = 400);

// The last line that is not empty.
std::string last_line(std::string_view text);

}  // namespace oarlock::control
