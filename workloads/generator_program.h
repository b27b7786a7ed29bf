// The main function of the programs that write synthetic data for a task: parses the command line, runs, and reports a
// failure with one line and a documented exit code.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>

#include "common/error.h"

namespace oarlock {

// Calls `write` after the options are parsed, and returns the exit code of main(): 0 for success and --help, 64 for an
// invalid command line, the code of an Error, and 70 for an exception.
inline int run_generator(CLI::App& app, int argc, char** argv, const std::function<Result<void>()>& write) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "{0}: error: {1}; see {0} --help\n", app.get_name(), error.what());
    return to_int(ExitCode::kUsage);
  }
  try {
    const Result<void> written = write();
    if (written) return to_int(ExitCode::kOk);
    fmt::print(stderr, "{}: error: {}\n", app.get_name(), written.error().message);
    return to_int(written.error().code);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: error: {}; this is a bug, please report it\n", app.get_name(), error.what());
    return to_int(ExitCode::kSoftware);
  }
}

}  // namespace oarlock
