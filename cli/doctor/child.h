// Child processes with a time limit, for what may block: libraries of drivers, name lookups, file systems, programs.
// Call these functions from a process with one thread, because they fork.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace oarlock::doctor {

// Runs a function in a child process and returns the text that it returned. Returns an empty value if the child did not
// end within the limit, in which case it is killed, or if it crashed.
std::optional<std::string> run_with_limit(const std::function<std::string()>& function,
                                          std::chrono::milliseconds limit);

// Runs a program with its standard output and error in a pipe, like run_with_limit(). The text is the output.
// `exit_code` is -1 if it did not end in time.
std::string program_output(const std::vector<std::string>& argv, std::chrono::milliseconds limit, int& exit_code);

}  // namespace oarlock::doctor
