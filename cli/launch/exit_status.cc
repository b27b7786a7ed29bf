#include "cli/launch/exit_status.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>

namespace oarlock::launch {

ExitStatus ExitStatus::from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) return {.code = 0, .signal = WTERMSIG(wait_status)};
  return {.code = WEXITSTATUS(wait_status), .signal = 0};
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("SIG{}", signal);
}

std::string describe(const ExitStatus& status) {
  if (status.signal != 0) return fmt::format("signal {} ({})", status.signal, signal_name(status.signal));
  return fmt::format("exit code {}", status.code);
}

}  // namespace oarlock::launch
