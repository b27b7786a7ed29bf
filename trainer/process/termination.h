// Termination of a rank: the signals that raise its StopFlag, the termination message in the file that the kubelet or
// the launcher reads, and the terminate handler.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "common/contract.h"
#include "common/stop_flag.h"

namespace oarlock {

// Installs handlers for SIGTERM, SIGINT, and, unless they are ignored, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU, that raise
// the flag, which must remain valid until the process exits. Ignores SIGPIPE, and SIGXFSZ, so that write(2) fails. Must
// be called at most once per process, because a signal handler can reach its flag only through a global pointer.
void raise_on_termination_signals(StopFlag& flag);

// ---- Termination message and terminate handler --------------------------------------------------------------------

// Returns the file named by $OARLOCK_TERMINATION_LOG, otherwise /dev/termination-log if it exists, otherwise nullopt.
std::optional<std::string> termination_log_path(const std::optional<std::string>& from_environment);

// Overwrites the file in place, because the kubelet bind-mounts it and a rename cannot replace it. Fails as write()
// does.
Result<void> write_termination_message(const std::string& path, const TerminationMessage& message);

// How the process exits.
struct ProcessExit {
  ExitCode code = ExitCode::kSoftware;
  TerminationMessage message;
};
using ExceptionHandler = std::function<ProcessExit(const std::exception_ptr&)>;

struct TerminateHandlerOptions {
  std::optional<std::string> path;  // file of the termination message
  int rank = 0;
  std::string line_prefix;  // printed in brackets before the line on stderr, such as "RANK 3"; may be empty
};

// Installs a std::terminate handler for uncaught exceptions, such as those on a library's thread, and a handler for
// SIGBUS, which the kernel sends on an access to a mapped file that was truncated or cannot be read. Instead of dumping
// core, the process writes one line and the termination message, and exits with the code that `handler` returns
// (without a handler: kSoftware for an exception). Must be called at most once per process.
void install_terminate_handler(TerminateHandlerOptions options, ExceptionHandler handler = {});

// The default reason in the termination message for an exit code: "ConfigInvalid", "PeerLost", ...
std::string exit_reason(ExitCode code);

}  // namespace oarlock
