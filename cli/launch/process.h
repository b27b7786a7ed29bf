// Processes of the launcher: the signals that it receives, and the environment, start and exit status of its children.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// ---- Signals ---------------------------------------------------------------------------------------------------

// Signals as a descriptor: they are blocked and read with signalfd(2), so that one poll(2) loop handles all events.
class SignalSource {
 public:
  // Blocks SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU and SIGTSTP, except those that were
  // ignored when this program started (nohup), and ignores SIGPIPE and SIGXFSZ. REQUIRES: restore() was called for an
  // earlier object.
  static Result<SignalSource> take();

  int fd() const { return fd_.get(); }
  // Returns the signals that have arrived, without SIGCHLD. Does not block.
  std::vector<int> read() const;
  // The same without SIGTSTP, for which it calls suspend(). For callers that have no other processes to stop.
  std::vector<int> read_and_suspend() const;
  // Stops this process as SIGTSTP (Ctrl-Z) does by default, and with `of_group` all processes of its process group.
  // Returns when SIGCONT continues it; immediately if nothing could continue it, as in a container or without a shell.
  void suspend(bool of_group = false) const;

  // Restores the original signal state: in a child between fork and exec, or when this object is no longer used. A
  // signal that was not read then has its usual effect.
  void restore() const;

 private:
  SignalSource() = default;

  FileDescriptor fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_action_{};
  struct sigaction old_size_action_{};
};

// ---- Environment -----------------------------------------------------------------------------------------------

using Environment = std::map<std::string, std::string>;  // by name of the variable

// Returns the value of the variable; empty if it is not set.
inline std::string value_of(const Environment& environment, const std::string& name) {
  const auto it = environment.find(name);
  return it == environment.end() ? std::string() : it->second;
}

// Parses "NAME=VALUE" strings that end with a null pointer, such as environ(7).
Environment environment_of(const char* const* entries);

// Returns "NAME=VALUE" strings, sorted by name.
std::vector<std::string> to_entries(const Environment& environment);

// Returns the value of an environment variable of this process; "" if it is not set.
std::string environment_variable(const char* name);

// ---- Exit status -----------------------------------------------------------------------------------------------

// How a process ended.
struct ExitStatus {
  int code = 0;    // its exit code; 0 if a signal ended it
  int signal = 0;  // the signal that ended it; 0 if it exited

  // Converts a status of waitpid(2) for a process that has ended.
  static ExitStatus from_wait(int wait_status);

  bool ok() const { return code == 0 && signal == 0; }
  int exit_code() const { return signal != 0 ? 128 + signal : code; }  // as a shell reports it
  bool operator==(const ExitStatus&) const = default;
};

// Formats a status for messages: "signal 9 (SIGKILL)" or "exit code 65".
std::string describe(const ExitStatus& status);

// Returns the name of a signal, such as "SIGKILL".
std::string signal_name(int signal);

// ---- Start -----------------------------------------------------------------------------------------------------

struct Command {
  std::vector<std::string> argv;           // argv[0] is searched for in the PATH of this process
  Environment environment;                 // the complete environment
  std::vector<int> cpus = {};              // CPU affinity; empty: that of this process
  std::optional<rlim_t> descriptors = {};  // soft limit on open descriptors; empty: that of this process
  int inherited = -1;                      // a descriptor that the program inherits; -1: none
};

enum class Stdio {
  kForeground,  // inherits the streams of this process, and becomes the foreground process group of the terminal
  kForegroundErrorPipe,  // as kForeground, but stderr is a pipe
  kForegroundPipes,      // as kForeground, but stdout and stderr are pipes
  kOutput,               // stdin is /dev/null; inherits stdout and stderr
  kErrors,               // stdin and stdout are /dev/null; inherits stderr
  kErrorPipe,            // stdin and stdout are /dev/null; stderr is a pipe
  kPipes,                // stdin is /dev/null; stdout and stderr are pipes
};

// Whether a process becomes the foreground process group of the terminal, if there is one.
inline bool is_foreground(Stdio stdio) {
  return stdio == Stdio::kForeground || stdio == Stdio::kForegroundErrorPipe || stdio == Stdio::kForegroundPipes;
}

struct Child {
  pid_t pid = -1;      // also the id of its process group
  FileDescriptor out;  // non-blocking reading ends of its pipes; closed without a pipe
  FileDescriptor err;
};

struct Pipe {
  FileDescriptor reader;
  FileDescriptor writer;
};

// Creates a pipe that started programs do not inherit.
Result<Pipe> make_pipe();

// Starts a process in a new process group. It receives SIGKILL when this process dies. Fails with kNoInput if the
// program does not exist, with kNoPermission if it is not executable, and with kDataErr if it has an invalid format.
Result<Child> spawn(const Command& command, Stdio stdio, const SignalSource& signals);

// Whether a signal such as SIGSTOP has stopped the process. Returns false if that cannot be determined.
bool is_stopped(pid_t pid);

// Checks that a program exists and is executable, without starting it. Fails as spawn() does. `path` is a PATH.
Result<void> find_executable(const std::string& program, const std::string& path);

// Raises the soft limit on open descriptors of this process to the hard limit, since each rank needs several, and
// returns the previous soft limit; an empty value if the limit cannot be read.
std::optional<rlim_t> raise_descriptor_limit();

// Returns the CPUs that this process may use.
std::vector<int> usable_cores();

// Makes the process group of this process the foreground group of the terminal again, after a kForeground child.
void take_back_terminal();

// Makes another process group the foreground group of the terminal if this process is in the foreground.
void give_terminal_to(pid_t group);

}  // namespace oarlock::launch
