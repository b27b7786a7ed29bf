// Where a launcher writes: its own stdout and stderr, behind queues.
#pragma once

#include <unistd.h>

#include <optional>
#include <string_view>

#include "cli/launch/output_queue.h"
#include "cli/launch/signals.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::launch {

class Console {
 public:
  explicit Console(std::string program);  // "oarlock launch": the beginning of its own lines

  OutputQueue& out() { return out_; }
  OutputQueue& err() { return shared_ ? out_ : err_; }

  void say(std::string_view line);  // one line of the launcher itself, on stderr

  // Fails with kIoErr if output was lost because a stream could not be written to: its device is full, say. The end of
  // its reader is no failure.
  Result<void> written() const;

  // Writes everything. Ends early when a signal arrives, which it returns, or the deadline passes: the reader may have
  // stopped reading.
  std::optional<int> flush(const SignalSource& signals, const Clock& clock, std::optional<SteadyTime> deadline);

 private:
  std::string program_;
  OutputQueue out_;
  OutputQueue err_;
  bool shared_;
};

// The timeout for poll(2) until then: -1 is for ever.
int poll_timeout(std::optional<SteadyTime> deadline, SteadyTime now);

}  // namespace oarlock::launch
