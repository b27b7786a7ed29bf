// A standby process of a node (common/recovery/standby.h): a program of a rank that was started ahead of time, so that
// the replacement of a lost rank does not wait until its libraries are loaded.
#pragma once

#include <sys/types.h>

#include "cli/launch/process.h"
#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// Whether `pid` executes the program that `argv[0]` names, so that a second process of the same command is the same
// program, and no script with further effects. Returns false if that cannot be determined.
bool executes(pid_t pid, const Command& command);

// Not thread-safe.
class Standby {
 public:
  // The process of a rank that was a standby process.
  struct HandOver {
    Child child;
    // Becomes readable when the process has received the data of its rank, or has ended. A process that is stopped, or
    // that waits for a file server, does neither; the caller kills it after a while and starts another process.
    FileDescriptor confirmation;
  };

  // Starts the command of a rank as a standby process, without the variables that `others`, the commands of the ranks
  // of this node, do not have in common, and without those of its position. Fails as spawn() does.
  static Result<Standby> start(const Command& command, const std::vector<const Command*>& others,
                               const SignalSource& signals);

  // Also the id of its process group. The caller kills and reaps it.
  pid_t pid() const { return pid_; }

  // Makes it the process of `command`, as spawn() with Stdio::kPipes starts one. The object must not be used again.
  // Fails if the command has other arguments or another limit of descriptors, or if the process has ended; the caller
  // then kills it and starts another process.
  Result<HandOver> become(const Command& command);

 private:
  Standby(pid_t pid, FileDescriptor socket, Command command);

  pid_t pid_;
  FileDescriptor socket_;
  Command command_;
};

}  // namespace oarlock::launch
