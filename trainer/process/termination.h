// Termination of a rank: the flag that SIGTERM and other signals raise, blocking calls that the flag interrupts, the
// termination message in the file that the kubelet or the launcher reads, and the terminate handler.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/contract.h"

namespace oarlock {

// A flag that SIGTERM and other signals raise, and that the training loop checks between steps. Thread-safe.
class StopFlag {
 public:
  // Async-signal-safe. Only the first call has an effect.
  void raise(int signal_number) {
    int none = 0;
    signal_.compare_exchange_strong(none, signal_number, std::memory_order_relaxed);
  }

  bool is_raised() const { return signal_number() != 0; }
  int signal_number() const { return signal_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> signal_{0};
};

// Installs handlers for SIGTERM, SIGINT, and, unless they are ignored, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU, that raise
// the flag, which must remain valid until the process exits. Ignores SIGPIPE, and SIGXFSZ, so that write(2) fails. Must
// be called at most once per process, because a signal handler can reach its flag only through a global pointer.
void raise_on_termination_signals(StopFlag& flag);

// Runs `body` on a separate thread and returns its result, or throws its exception. Returns nullopt if `stop` is raised
// and `body` has not returned after `grace`, or if it has not returned after `limit`. The thread is then abandoned and
// may stay blocked until the process exits, so `body` must own everything that it uses, or use objects that exist as
// long as the process. For calls that do not check the flag, such as name resolution.
template <typename T>
std::optional<T> run_interruptibly(std::function<T()> body, const StopFlag& stop, std::chrono::milliseconds grace,
                                   std::chrono::milliseconds limit) {
  constexpr std::chrono::milliseconds kPollInterval{50};
  auto promise = std::make_shared<std::promise<T>>();
  std::future<T> result = promise->get_future();
  std::thread thread([promise, body = std::move(body)] {
    try {
      promise->set_value(body());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  });
  std::chrono::milliseconds waited{0};
  std::chrono::milliseconds waited_since_stop{0};
  while (result.wait_for(kPollInterval) != std::future_status::ready) {
    waited += kPollInterval;
    if (stop.is_raised()) waited_since_stop += kPollInterval;
    if (waited_since_stop <= grace && waited <= limit) continue;
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return result.get();
}

// ---- Termination message and terminate handler --------------------------------------------------------------------

// Returns the file named by $OARLOCK_TERMINATION_LOG, otherwise /dev/termination-log if it exists, otherwise nullopt.
std::optional<std::string> termination_log_path(const std::optional<std::string>& from_environment);

// Overwrites the file in place, because the kubelet bind-mounts it and a rename cannot replace it. Fails as write()
// does.
Result<void> write_termination_message(const std::string& path, const TerminationMessage& message);

// How the process exits.
struct ProcessExit {
  ExitCode code = ExitCode::kSoftware;
  TerminationMessage message;
};
using ExceptionHandler = std::function<ProcessExit(const std::exception_ptr&)>;

struct TerminateHandlerOptions {
  std::optional<std::string> path;  // file of the termination message
  int rank = 0;
  std::string line_prefix;  // printed in brackets before the line on stderr, such as "RANK 3"; may be empty
};

// Installs a std::terminate handler for uncaught exceptions, such as those on a library's thread, and a handler for
// SIGBUS, which the kernel sends on an access to a mapped file that was truncated or cannot be read. Instead of dumping
// core, the process writes one line and the termination message, and exits with the code that `handler` returns
// (without a handler: kSoftware for an exception). Must be called at most once per process.
void install_terminate_handler(TerminateHandlerOptions options, ExceptionHandler handler = {});

// The default reason in the termination message for an exit code: "ConfigInvalid", "PeerLost", ...
std::string exit_reason(ExitCode code);

}  // namespace oarlock
