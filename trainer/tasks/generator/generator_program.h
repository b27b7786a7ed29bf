// What the small programs that write a task's example data do alike: read the command line, run, and end with one line
// and a documented exit code.
#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "common/error.h"

namespace oarlock {

// `write` sees the parsed options. Returns the exit code of main(): --help is 0, a wrong command line 64, an Error its
// own code, an exception 70.
int run_generator(CLI::App& app, int argc, char** argv, const std::function<Result<void>()>& write);

}  // namespace oarlock
