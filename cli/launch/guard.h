// A helper process that kills the process groups of the ranks if the launcher itself is killed. PR_SET_PDEATHSIG kills
// only the ranks: a python process behind `bash -c` would continue to run and keep its GPU.
#pragma once

#include <sys/types.h>

#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

class Guard {
 public:
  // Starts the helper process, except if this process is PID 1: the kernel then kills the whole container with it.
  static Result<Guard> start();
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
