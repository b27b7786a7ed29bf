// A helper process that kills the ranks of a launcher which is killed itself.
#pragma once

#include <sys/types.h>

#include <string>

#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// A variable of the members and their descendants, whose value only this launcher's have.
inline constexpr char kEnvLaunch[] = "OARLOCK_LAUNCH";

// The helper kills the process groups of the ranks, and their descendants in other sessions, when the launcher ends
// without having removed the groups. PR_SET_PDEATHSIG kills only the ranks: a python process behind `bash -c` would
// continue to run and keep its GPU. Not thread-safe.
class Guard {
 public:
  // Starts the helper process, except if this process is PID 1: the kernel then kills the whole container with it.
  // `launch` is the value of kEnvLaunch. Fails if no pipe or process can be created.
  static Result<Guard> start(const std::string& launch);
  ~Guard();  // kills the groups that were not removed
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) noexcept = delete;

  void add(pid_t group);
  void remove(pid_t group);
  pid_t pid() const { return pid_; }  // -1 if not started

 private:
  Guard() = default;
  void send(pid_t message);

  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace oarlock::launch
