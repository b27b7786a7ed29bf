// oarlock: the command for people. One file per subcommand; each returns the exit code or one Error, printed here.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "cli/command.h"

namespace oarlock::cli {
namespace {

int report(const std::string& command, const Error& error) {
  fmt::print(stderr, "{}: error: {}\n", command, error.message);
  return to_int(error.code);
}

int run_main(Words words) {
  std::optional<Words> after_marker;
  if (const auto marker = std::find(words.begin(), words.end(), "--");
      marker != words.end() && words.front() == "launch") {
    after_marker.emplace(marker + 1, words.end());
    words.erase(marker, words.end());
  }
  CLI::App app("Distributed training on Kubernetes and on this machine.", "oarlock");
  app.set_version_flag("--version", "oarlock " OARLOCK_VERSION);
  app.require_subcommand(1);
  app.footer(
      "\nexamples:\n  oarlock launch --nproc 2 -- python3 train.py\n\nExit codes are explained in docs/exit-codes.md.");
  Chosen chosen;
  add_launch(app, after_marker, chosen);

  std::string command = "oarlock";
  try {
    std::reverse(words.begin(), words.end());  // as CLI11 wants it
    app.parse(std::move(words));
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
    return report(command, {ExitCode::kUsage, fmt::format("{}; see {} --help", error.what(), command)});
  }
  for (const CLI::App* sub : app.get_subcommands()) command += " " + sub->get_name();
  const Result<int> exit_code = chosen();
  return exit_code ? *exit_code : report(command, exit_code.error());
}

}  // namespace
}  // namespace oarlock::cli

int main(int argc, char** argv) {
  try {
    return oarlock::cli::run_main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "oarlock: error: {}; this is a bug, please report it\n", error.what());
    return oarlock::to_int(oarlock::ExitCode::kSoftware);
  }
}
