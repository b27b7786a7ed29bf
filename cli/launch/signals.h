// Signals as a descriptor: they are blocked and read with signalfd(2), so that one poll(2) loop handles all events.
#pragma once

#include <csignal>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

class SignalSource {
 public:
  // Blocks SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2, except those that were ignored when this
  // program started (nohup), and ignores SIGPIPE. Call it once per process.
  static Result<SignalSource> take();

  int fd() const { return fd_.get(); }
  // Returns the signals that have arrived, without SIGCHLD. Does not block.
  std::vector<int> read() const;

  // Restores the original signal state, for a child between fork and exec.
  void restore() const;

 private:
  SignalSource() = default;

  FileDescriptor fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_action_{};
};

}  // namespace oarlock::launch
