// Child processes with a time limit, for operations that may block: driver libraries, name lookups, file systems and
// other programs. Call these functions from a process with one thread, because they fork.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace oarlock::doctor {

// Runs a function in a child process and returns the text that it returned. Kills the child if it has not ended within
// the limit, or if the caller has blocked SIGTERM, SIGINT, SIGHUP or SIGQUIT and this signal is pending. Returns
// nullopt in these cases, and if the child could not be started or crashed.
std::optional<std::string> run_with_limit(const std::function<std::string()>& function,
                                          std::chrono::milliseconds limit);

// Runs a program in the same way, with a pipe as its standard output and standard error, and returns the output.
// `exit_code` is -1 if the program did not end in time.
std::string program_output(const std::vector<std::string>& argv, std::chrono::milliseconds limit, int& exit_code);

}  // namespace oarlock::doctor
