// Setup, flushing and error reporting for the standard streams of a program.
#pragma once

#include <string_view>

#include "common/error.h"

namespace oarlock {

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

}  // namespace oarlock
