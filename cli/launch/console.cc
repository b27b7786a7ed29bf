#include "cli/launch/console.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "common/printable.h"

namespace oarlock::launch {

int poll_timeout(std::optional<SteadyTime> deadline, SteadyTime now) {
  if (!deadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

Console::Console(std::string program)
    : program_(std::move(program)),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      shared_(same_file(STDOUT_FILENO, STDERR_FILENO)) {}

void Console::say(std::string_view line) { err().push(fmt::format("{}: {}\n", program_, printable_lines(line))); }

Result<void> Console::written() const {
  for (const OutputQueue* queue : {&out_, &err_}) {
    if (queue->error() == 0 || queue->error() == EPIPE) continue;
    return fail(ExitCode::kIoErr,
                fmt::format("standard {} cannot be written: {}; what the ranks wrote is lost",
                            queue == &out_ ? "output" : "error", std::generic_category().message(queue->error())));
  }
  return {};
}

std::optional<int> Console::flush(const SignalSource& signals, const Clock& clock, std::optional<SteadyTime> deadline) {
  while (!out_.empty() || !err_.empty()) {
    pollfd fds[] = {{out_.empty() ? -1 : out_.fd(), POLLOUT, 0},
                    {err_.empty() ? -1 : err_.fd(), POLLOUT, 0},
                    {signals.fd(), POLLIN, 0}};
    const SteadyTime now = clock.steady();
    if (deadline && *deadline <= now) return std::nullopt;
    if (::poll(fds, 3, poll_timeout(deadline, now)) < 0) continue;
    if (fds[0].revents != 0) out_.write_some();
    if (fds[1].revents != 0) err_.write_some();
    if (fds[2].revents == 0) continue;
    if (const std::vector<int> arrived = signals.read(); !arrived.empty()) return arrived.front();
  }
  return std::nullopt;
}

}  // namespace oarlock::launch
