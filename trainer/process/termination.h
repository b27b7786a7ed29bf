// The last word of a rank: the termination message in the file where the kubelet (or the launcher) looks for it.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "common/contract.h"

namespace oarlock {

// The file named by $OARLOCK_TERMINATION_LOG, else /dev/termination-log where there is one, else nothing.
std::optional<std::string> termination_log_path(const std::optional<std::string>& from_environment);

// Overwrites the file in place: the kubelet bind-mounts it, so it cannot be replaced by a rename. Fails as write()
// does.
Result<void> write_termination_message(const std::string& path, const TerminationMessage& message);

// How the process ends after an exception that nobody caught.
struct LastWord {
  ExitCode code = ExitCode::kSoftware;
  TerminationMessage message;
};
using ExplainException = std::function<LastWord(const std::exception_ptr&)>;

struct LastWordPlace {
  std::optional<std::string> path;  // of the termination message
  int rank = 0;
  std::string line_prefix;  // "RANK 3", in brackets before the line on stderr; may be empty
};

// Makes std::terminate (an exception on a thread of a library) leave with the code of `explain`, else kSoftware, one
// line and the termination message instead of a core dump. Once per process.
void exit_on_terminate(LastWordPlace place, ExplainException explain = {});

// The reason word for an exit code, where the place of failure knows no better one: "ConfigInvalid", "PeerLost" ...
std::string reason_of(ExitCode code);

}  // namespace oarlock
