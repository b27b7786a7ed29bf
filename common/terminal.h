// Terminals, and the progress lines that a launcher shows for the programs that it starts.
#pragma once

#include <string>
#include <string_view>

namespace oarlock {

// Set by a launcher that reads the output of this process from a pipe and shows its progress lines on a terminal. A
// progress line ends with "\r" instead of "\n".
inline constexpr char kEnvProgressLines[] = "OARLOCK_PROGRESS_LINES";

// Returns the width of the terminal; 0 if the descriptor is not a terminal, or one that does not understand escape
// sequences (TERM=dumb).
int terminal_columns(int fd);

// Returns whether this process should write progress lines to standard error, because it is a terminal, or a pipe to a
// launcher that shows them (kEnvProgressLines).
bool shows_progress_lines();

// Returns the beginning of `text` that takes at most `columns` columns of a terminal, counting one for each character
// and none for escape sequences (CSI). Sequences behind the cut are kept, so that colors end.
std::string cut_to_width(std::string_view text, size_t columns);

}  // namespace oarlock
