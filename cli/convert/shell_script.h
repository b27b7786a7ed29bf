// A reader for simple shell scripts: the commands of a job script with their variables expanded, without running them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"

namespace oarlock::convert {

// A word of a command. `text` is expanded as far as the script determines it; `unknown` names the variable or the
// command substitution whose value is known only when the script runs, and is empty if there is none. The text has
// "$NAME" or "$(...)" in its place.
struct ShellWord {
  std::string text;
  std::string unknown;
};

struct ShellCommand {
  int line = 0;  // from 1
  std::vector<ShellWord> words;
  std::map<std::string, ShellWord> exported;  // variables that the script had exported before this command
  bool is_conditional = false;                // in the body of if, for, while, case or a function
};

// Limits of one script.
inline constexpr size_t kMaxScriptBytes = size_t{1} << 20;
inline constexpr size_t kMaxExpandedBytes = size_t{8} << 20;

// Reads a script of bash or sh. `variables` are those that exist before it runs; a value that begins with "$(" refers
// to a variable of a container and is kept as it is. Understands quotes, comments, continued lines, here-documents
// (which are skipped), assignments, export, ${NAME:-default} and $((products and sums)). The value of a variable that
// is assigned in a condition or by a command is unknown. Fails with kConfig, with the line, for an unclosed quote or a
// script beyond the limits.
Result<std::vector<ShellCommand>> read_shell_script(const std::string& script, const std::string& file,
                                                    const std::map<std::string, std::string>& variables);

}  // namespace oarlock::convert
