#include "cli/cluster/waiting_line.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>

#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

constexpr auto kInterval = std::chrono::seconds(1);

void show(const std::function<std::string()>& text, int columns, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  bool is_shown = false;
  while (!stopped.wait_for(lock, stop, kInterval, [&] { return stop.stop_requested(); })) {
    const std::string line = cut_to_width(printable(text()), static_cast<size_t>(columns - 1));
    std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);
    is_shown = true;
  }
  if (is_shown) std::fputs("\r\x1b[K", stderr);
}

}  // namespace

WaitingLine::WaitingLine(std::function<std::string()> text) {
  const int columns = terminal_columns(STDERR_FILENO);
  if (columns <= 0) return;
  thread_ = std::jthread([text = std::move(text), columns](const std::stop_token& stop) { show(text, columns, stop); });
}

}  // namespace oarlock::cli
