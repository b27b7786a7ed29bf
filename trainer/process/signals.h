// SIGTERM and SIGINT as a flag that the training loop looks at between steps.
#pragma once

#include <atomic>

namespace oarlock {

class StopFlag {
 public:
  // Async-signal-safe. Only the first call counts.
  void raise(int signal_number) {
    int none = 0;
    signal_.compare_exchange_strong(none, signal_number, std::memory_order_relaxed);
  }

  bool raised() const { return signal_number() != 0; }
  int signal_number() const { return signal_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> signal_{0};
};

// Makes SIGTERM and SIGINT raise the flag, which must live until the process ends, and SIGPIPE do nothing. Once per
// process: a signal handler has no other way to its flag than a global pointer.
void raise_on_termination_signals(StopFlag& flag);

}  // namespace oarlock
