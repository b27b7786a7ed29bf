// The main function of the programs that write synthetic data for a task: parses the command line, runs, and reports a
// failure with one line and a documented exit code.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>

#include "common/error.h"

namespace oarlock {

// Calls `write` after the options are parsed, and returns the exit code of main(): 0 for success and --help, 64 for an
// invalid command line, the code of an Error, and 70 for an exception.
int run_generator(CLI::App& app, int argc, char** argv, const std::function<Result<void>()>& write);

}  // namespace oarlock
