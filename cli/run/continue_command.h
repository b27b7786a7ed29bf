// The commands that `oarlock run` suggests when it ends: one continues the run, the other trains longer.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace oarlock::run {

// The options of a run that its continuation needs, too.
struct RunCommand {
  std::string file;  // "-" for standard input
  std::string name{};
  std::string workdir{};  // empty: the default
  std::optional<int> nodes{};
  std::optional<int> nproc{};
  std::vector<std::string> settings{};
};

// Returns the command line, quoted for a shell. Pure.
std::string command_line(const RunCommand& command);

// Returns the command that trains twice as long as spec.trainer (JSON) and the settings specify; nullopt if they do not
// specify a length. Pure.
std::optional<std::string> longer_command(const RunCommand& command, const std::string& trainer);

}  // namespace oarlock::run
