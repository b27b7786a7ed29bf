// Command lines that start ranks: torchrun, accelerate launch and mpirun, converted to the command of a container whose
// ranks Oarlock numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/convert/report.h"
#include "common/error.h"

namespace oarlock::convert {

enum class LauncherKind { kNone, kTorchrun, kAccelerate, kMpirun };

// Returns the launcher that a command runs directly, without a shell.
LauncherKind launcher_of(const std::vector<std::string>& words);
// Returns whether the words, which may be a shell script, name a program that starts several ranks.
bool mentions_launcher(const std::vector<std::string>& words);

// Returns a command in which torchrun starts `words`, a Python script with its interpreter or any other program.
std::vector<std::string> with_torchrun(const std::vector<std::string>& words);

// A command line in the terms of a TrainingJob.
struct LaunchCommand {
  LauncherKind launcher = LauncherKind::kNone;
  std::vector<std::string> words;  // the command of the container; empty fields below were not given
  std::optional<int64_t> nodes;
  std::optional<int64_t> min_nodes;        // of an elastic torchrun, whose maximum is `nodes`
  std::string processes;                   // ranks on each node: a number, "auto", or "" if not given
  std::optional<int64_t> total_processes;  // of accelerate and mpirun, which count the ranks of all nodes
  std::optional<int64_t> max_restarts;
  std::optional<int64_t> port;
  std::map<std::string, std::string> environment;  // of `env NAME=value` and `mpirun -x NAME=value`
};

// Converts a command that runs a launcher directly; any other command is returned unchanged. Options that the operator
// replaces are removed with a note. `nodes` and `processes` are those of the job if they are known from elsewhere, for
// the options that depend on them. Fails with kUsage for an option that the launcher does not have, an option without
// its value, a value that is not valid, and a launcher without a program; the message names the option.
Result<LaunchCommand> convert_command(std::vector<std::string> words, std::optional<int64_t> nodes,
                                      const NoteSink& note);

}  // namespace oarlock::convert
