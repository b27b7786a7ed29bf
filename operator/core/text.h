// Text of other programs, made safe for conditions, events, logs and labels: one line, valid UTF-8, bounded.
#pragma once

#include <string>
#include <string_view>

namespace oarlock::control {

// Replaces control characters (is_control_character() of common/printable.h) by spaces and invalid UTF-8 by '?'. Text
// longer than `limit` bytes is cut between characters and ends in "...".
std::string one_line(std::string_view text, size_t limit = 400);

// A reason for programs: the text where it is one CamelCase word of at most 60 characters; otherwise empty.
std::string reason_word(std::string_view text);

// The last line that is not empty.
std::string last_line(std::string_view text);

}  // namespace oarlock::control
