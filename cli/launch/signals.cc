#include "cli/launch/signals.h"

#include <sys/signalfd.h>

#include <cerrno>

namespace oarlock::launch {

Result<SignalSource> SignalSource::take() {
  SignalSource source;
  sigset_t taken;
  ::sigemptyset(&taken);
  ::sigaddset(&taken, SIGCHLD);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&taken, signal);
  }
  struct sigaction ignore{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &source.old_pipe_action_);
  if (::sigprocmask(SIG_BLOCK, &taken, &source.old_mask_) != 0) return fail_errno(errno, "signals cannot be blocked");
  source.fd_ = FileDescriptor(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!source.fd_.open()) return fail_errno(errno, "signalfd cannot be opened");
  return source;
}

std::vector<int> SignalSource::read() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

void SignalSource::restore() const {
  ::sigaction(SIGPIPE, &old_pipe_action_, nullptr);
  ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

}  // namespace oarlock::launch
