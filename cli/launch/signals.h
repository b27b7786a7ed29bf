// Signals as data: blocked in this process and read from a descriptor, so that one poll() loop sees everything.
#pragma once

#include <csignal>
#include <vector>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace oarlock::launch {

class SignalSource {
 public:
  // Takes SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, except those that were ignored when this
  // program began (nohup), and ignores SIGPIPE. Once per process.
  static Result<SignalSource> take();

  int fd() const { return fd_.get(); }
  std::vector<int> read() const;  // those that arrived, SIGCHLD left out; never waits

  // For a child between fork and exec: everything as this program found it.
  void restore() const;

 private:
  SignalSource() = default;

  FileDescriptor fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_action_{};
};

}  // namespace oarlock::launch
