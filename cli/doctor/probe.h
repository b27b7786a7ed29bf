// Measures the facts that `oarlock doctor` assesses. Each measurement that may block (name lookups, libraries of
// drivers, file systems, other programs) runs in a child process with a time limit.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/assess.h"
#include "common/error.h"

namespace oarlock::doctor {

struct ProbeOptions {
  std::string version;                    // of this program
  std::string checkpoint_dir;             // empty: OARLOCK_CHECKPOINT_DIR, else the current directory
  std::string server;                     // URL of an API server; empty: that of the pod, if this runs in one
  std::chrono::milliseconds limit{3000};  // for each measurement that may block
};

// Measures everything. Takes at most a few multiples of the limit, even if operations hang. Call it from a process with
// one thread, because it forks.
Facts probe(const ProbeOptions& options);

// Checks the operations of a save in a directory, and removes what it created. `limit` is for all of them together.
DirectoryFact probe_directory(const std::string& path, bool is_given, std::chrono::milliseconds limit);

// Returns why a port cannot be bound on all addresses, or "".
std::string probe_port(int port);

// Parses the "Date:" line of HTTP headers; seconds since 1970.
std::optional<int64_t> date_of_headers(const std::string& headers);

}  // namespace oarlock::doctor
