#include "trainer/tasks/generator_program.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

namespace oarlock {

int run_generator(CLI::App& app, int argc, char** argv, const std::function<Result<void>()>& write) {
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
