// How a process ended.
#pragma once

#include <string>

namespace oarlock::launch {

struct ExitStatus {
  int code = 0;    // what it passed to exit(); 0 when a signal ended it
  int signal = 0;  // the signal that ended it; 0: it exited by itself

  static ExitStatus from_wait(int wait_status);  // of waitpid(2), for a process that is gone

  bool ok() const { return code == 0 && signal == 0; }
  int exit_code() const { return signal != 0 ? 128 + signal : code; }  // as a shell reports it
  bool operator==(const ExitStatus&) const = default;
};

// "signal 9 (SIGKILL)" or "exit code 65".
std::string describe(const ExitStatus& status);
std::string signal_name(int signal);  // "SIGKILL"

}  // namespace oarlock::launch
