// A helper process that ends what the ranks have started when the launcher itself is killed. PR_SET_PDEATHSIG reaches
// the ranks only: the python behind a `bash -c` would go on, and keep its GPU.
#pragma once

#include <sys/types.h>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace oarlock::launch {

class Guard {
 public:
  // As PID 1 there is nothing to guard: the kernel ends the whole container. The guard is then not started.
  static Result<Guard> start();
  ~Guard();  // the guard ends; groups that were not removed get SIGKILL
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) noexcept = delete;

  void add(pid_t group);
  void remove(pid_t group);
  pid_t pid() const { return pid_; }  // -1: not started

 private:
  Guard() = default;
  void send(pid_t message);

  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace oarlock::launch
