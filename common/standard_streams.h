// Standard input, output and error of a program, from its first to its last statement.
#pragma once

#include <string_view>

#include "common/error.h"

namespace oarlock {

// Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed (`prog >&-`), so that no other file gets that
// number. Call it first in main(). Fails if /dev/null cannot be opened.
Result<void> open_standard_streams();

// Flushes standard output. Fails with kIoErr if anything written to it since the start of the program was lost.
Result<void> flush_standard_output();

// Writes `text` to standard error, with control characters other than the line feed escaped. A failure is ignored, as
// there is no other place to report it.
void print_error(std::string_view text);

// The last statement of main(): flushes standard output, and if that fails, reports it on standard error and returns
// kIoErr in place of a 0 in `exit_code`.
int exit_code_after_flush(std::string_view program, int exit_code);

}  // namespace oarlock
