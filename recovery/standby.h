// A standby process: a program that was started ahead of time, has loaded its libraries, and waits to become a rank. A
// launcher that replaces a lost rank by it saves the time of that load (docs/recovery.md).
#pragma once

#include <map>
#include <string>

#include "common/error.h"

namespace oarlock::recovery {

// The descriptor of the connection to the launcher, in the environment of a standby process.
inline constexpr char kEnvStandbyFd[] = "OARLOCK_STANDBY_FD";

// The data with which a standby process becomes a rank. The process already has the arguments, working directory and
// standard input of the rank.
struct RankStart {
  std::map<std::string, std::string> environment;  // the complete environment
  // Descriptors of the caller. The rank receives duplicates.
  int out = -1;      // standard output
  int err = -1;      // standard error
  int regroup = -1;  // the connection whose number kEnvRegroupFd has in the environment; -1: none
};

// Called by the launcher, with the other end of the connection. Does not block. Fails if the process has ended or does
// not receive; the caller must then kill it. Afterwards, the process closes its end of the connection as soon as it has
// received the data, so that the socket becomes readable.
Result<void> send_start(int socket, const RankStart& start);

// Called first in main(), before threads exist and before the environment is read. Returns immediately unless the
// environment has kEnvStandbyFd. Otherwise waits for the launcher, takes over the environment and the descriptors,
// closes the connection and returns. Exits with 0 when the launcher closes the connection, and with kFailure after an
// invalid message.
//
// The environment stays readable as the content of a descriptor, /proc/PID/fd/N -> /memfd:oarlock-environment, because
// /proc/PID/environ remains that of the standby process.
void wait_for_start();

}  // namespace oarlock::recovery
