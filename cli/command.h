// What the subcommands of `oarlock` have in common.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock::cli {

// A subcommand adds its options to the application and sets `chosen` when it is the one that was typed. The result is
// the exit code of the program.
using Chosen = std::function<Result<int>()>;
using Words = std::vector<std::string>;

// `after_marker`: the words after the first "--", which CLI11 does not see. Both references must live until the end.
void add_launch(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen);
void add_run(CLI::App& app, Chosen& chosen);
void add_validate(CLI::App& app, Chosen& chosen);
void add_render(CLI::App& app, Chosen& chosen);
void add_convert(CLI::App& app, Chosen& chosen);

}  // namespace oarlock::cli
