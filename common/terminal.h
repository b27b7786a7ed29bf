// The standard streams of a program: setup, flushing and error messages; and terminals, with the progress lines that a
// launcher shows for the programs that it starts.
#pragma once

#include <string>
#include <string_view>

#include "common/error.h"

namespace oarlock {

// ---- Standard streams ------------------------------------------------------------------------------------------

// Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed (`prog >&-`), so that no other file receives
// that number. main() calls it first. Fails if /dev/null cannot be opened.
Result<void> open_standard_streams();

// Flushes standard output. Fails with kIoErr if anything written to it since the start of the program was lost.
Result<void> flush_standard_output();

// Writes `text` to standard output and flushes it.
Result<void> write_standard_output(std::string_view text);

// Writes `text` to standard error, with control characters other than the line feed escaped. Write errors are ignored.
void print_error(std::string_view text);

// Flushes standard output at the end of main() and returns the exit code of the program. If flushing fails, it prints
// an error and returns kIoErr instead of 0; other exit codes are returned unchanged.
int exit_code_after_flush(std::string_view program, int exit_code);

// ---- Terminals -------------------------------------------------------------------------------------------------

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
// and none for escape sequences (CSI). Sequences after the cut are kept, so that colors are reset.
std::string cut_to_width(std::string_view text, size_t columns);

}  // namespace oarlock
