#include "trainer/process/signals.h"

#include <csignal>

namespace oarlock {
namespace {

std::atomic<StopFlag*> handler_flag{nullptr};
static_assert(std::atomic<StopFlag*>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void handle(int signal_number) { handler_flag.load(std::memory_order_relaxed)->raise(signal_number); }

}  // namespace

void raise_on_termination_signals(StopFlag& flag) {
  handler_flag = &flag;
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace oarlock
