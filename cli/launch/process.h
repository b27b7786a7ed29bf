// Starting a process in a process group of its own that cannot outlive this one.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "cli/launch/environment.h"
#include "cli/launch/signals.h"
#include "common/error.h"
#include "common/file_descriptor.h"

namespace oarlock::launch {

struct Command {
  std::vector<std::string> argv;           // argv[0] is looked up in this process's PATH
  Environment environment;                 // the whole of it
  std::vector<int> cpus = {};              // the cores that it may use; empty: those of this process
  std::optional<rlim_t> descriptors = {};  // its soft limit on open descriptors; nothing: that of this process
};

enum class Stdio {
  kForeground,  // this process's own, and the foreground of the terminal where there is one
  kOutput,      // stdin is /dev/null, stdout and stderr are this process's own
  kErrors,      // stdin and stdout are /dev/null, stderr is this process's own
  kPipes,       // stdin is /dev/null, stdout and stderr are pipes
};

struct Child {
  pid_t pid = -1;      // also the id of its process group
  FileDescriptor out;  // reading ends, non-blocking; only with kPipes
  FileDescriptor err;
};

// The child gets SIGKILL when this process dies. A program that is not there is kNoInput, one that may not be executed
// kNoPermission, one that is none kDataErr.
Result<Child> spawn(const Command& command, Stdio stdio, const SignalSource& signals);

// Fails as spawn() does for a program that is not there or may not be executed, without starting it.
Result<void> find_executable(const std::string& program, const std::string& path);

// Raises this process's soft limit on open descriptors to the hard limit, since each rank takes several, and returns
// the soft limit from before; nothing if the limit cannot be read.
std::optional<rlim_t> raise_descriptor_limit();

// The cores that this process may use.
std::vector<int> usable_cores();

// After a kForeground child: makes this process's group the terminal's foreground again.
void take_back_terminal();

}  // namespace oarlock::launch
