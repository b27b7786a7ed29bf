// Early failures: errors of a program that a restart repeats, such as an unknown argument or an exception before the
// first step. The launchers restart such a program once, and end when it fails in the same way again.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "common/clock.h"

namespace oarlock::launch {

// A process that has run for longer may have made progress that it does not report.
inline constexpr std::chrono::seconds kEarlyFailureTime{30};

// The end of the rank whose failure ended the group.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;                 // as a shell reports it
  SteadyTime::duration lifetime{0};  // of its process
  bool has_progress = false;         // a step or a checkpoint since the start of the process
  std::string last_line = {};        // on standard error; empty if it is not known
};

// Returns whether the process ended within kEarlyFailureTime without progress, and with an exit code that only its
// program defines. Ends by a signal, such as for lack of memory, and codes with a meaning in docs/exit-codes.md, such
// as 75 after a time-out of the rendezvous, are none: they pass, or are permanent by themselves.
bool is_early_failure(const RankEnd& end);

// Returns whether both are early failures with one exit code, of one rank or with one last line: if all ranks fail in
// the same way, any of them may be the first.
bool is_repeated(const RankEnd& earlier, const RankEnd& later);

// Describes a repeated early failure of a rank with this name for users: "rank 1 ended with exit code 2 again ...".
std::string describe_repeated(const std::string& name, const RankEnd& end);

// Returns whether a termination message reports a step or a checkpoint.
bool reports_progress(const std::string& message);

// Returns the newest modification of the entries of a directory; empty if it has none, or does not exist.
std::optional<std::filesystem::file_time_type> newest_change(const std::filesystem::path& directory);

}  // namespace oarlock::launch
