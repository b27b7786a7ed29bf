#include "cli/launch/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "common/number.h"
#include "common/terminal.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

constexpr char kEraseLine[] = "\x1b[K";  // from the cursor to the end of the line

// Opens a pipe or terminal a second time, in non-blocking mode. Returns a closed descriptor for any other file, for a
// pipe that no process reads, and for one that belongs to another user.
FileDescriptor open_again(int fd) {
  struct stat file{};
  const bool is_pipe = ::fstat(fd, &file) == 0 && S_ISFIFO(file.st_mode);
  if (!is_pipe && ::isatty(fd) != 1) return {};
  constexpr int kFlags = O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
  return FileDescriptor(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), kFlags));
}

// `blocks`: whether a write(2) waits for space. A pipe that poll(2) reports writable has room for PIPE_BUF bytes.
size_t largest_write(int fd, bool blocks) {
  struct stat file{};
  const bool is_pipe_or_device = ::fstat(fd, &file) == 0 && (S_ISFIFO(file.st_mode) || S_ISCHR(file.st_mode));
  return blocks && is_pipe_or_device ? PIPE_BUF : size_t{1} << 20;
}

}  // namespace

// Returns the index after the end of the first line, or npos. "\r\n" is one line end, so a final "\r" is incomplete.
size_t LinePrefixer::line_end(std::string_view bytes) const {
  const size_t newline = bytes.find('\n');
  if (columns_ > 0) {
    const size_t carriage_return = bytes.substr(0, newline).find('\r');
    if (carriage_return != std::string_view::npos && carriage_return + 1 < bytes.size() &&
        carriage_return + 1 != newline) {
      return carriage_return + 1;
    }
  }
  return newline == std::string_view::npos ? newline : newline + 1;
}

void LinePrefixer::emit(std::string_view rest_of_line, std::string& out) {
  if (columns_ == 0) {
    out += prefix_;
    out += pending_;
    out += rest_of_line;
  } else {
    pending_ += rest_of_line;
    emit_to_terminal(out);
  }
  pending_.clear();
}

void LinePrefixer::emit_to_terminal(std::string& out) {
  if (!pending_.ends_with('\r')) {
    out += kEraseLine;  // of a progress line, after which the cursor is at the start of the line
    out += prefix_;
    out += pending_;
    return;
  }
  const std::string_view text = trim(pending_, "\r");
  if (progress_lines_ == ProgressLines::kLeaveOut || text.empty()) return;
  // The last column stays free: some terminals wrap when it is written.
  out += cut_to_width(prefix_ + std::string(text), static_cast<size_t>(std::max(columns_ - 1, 1)));
  out += kEraseLine;
  out += '\r';
}

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  if (columns_ > 0 && pending_.ends_with('\r') && !bytes.empty() && bytes.front() != '\n') emit("", out);
  for (size_t end; (end = line_end(bytes)) != std::string_view::npos; bytes.remove_prefix(end)) {
    emit(bytes.substr(0, end), out);
  }
  pending_ += bytes;
  if (pending_.size() >= kMaxLineBytes) {
    pending_ += '\n';
    emit("", out);
  }
}

void LinePrefixer::finish(std::string& out) {
  if (pending_.empty()) return;
  pending_ += '\n';
  emit("", out);
}

int OutputQueue::columns() const { return terminal_columns(fd_); }

OutputQueue::OutputQueue(int fd)
    : fd_(fd),
      reopened_(open_again(fd)),
      terminal_(::isatty(fd) == 1),
      largest_write_(largest_write(fd, !reopened_.open())) {}

void OutputQueue::push(std::string_view text) {
  lines_ += static_cast<size_t>(std::ranges::count(text, '\n'));
  if (!closed_) text_ += text;
}

void OutputQueue::discard(std::string_view text) {
  if (!closed_) missing_ += text.size();
}

void OutputQueue::observe(SteadyTime now) {
  if (empty()) {
    waiting_since_.reset();
  } else if (!waiting_since_) {
    waiting_since_ = now;
  }
}

void OutputQueue::write_some(SteadyTime now) {
  const size_t size = std::min(text_.size() - written_, largest_write_);
  const ssize_t put = write_without_blocking(std::string_view(text_).substr(written_, size));
  if (put > 0) {
    written_ += static_cast<size_t>(put);
    waiting_since_ = now;
  }
  if (put < 0 && errno != EINTR && errno != EAGAIN) {
    closed_ = true;
    error_ = errno;
    written_ = text_.size();
  }
  // Compact the buffer only now and then, to limit both memory and copying.
  if (written_ == text_.size() || written_ > kFull) {
    text_.erase(0, written_);
    written_ = 0;
  }
  if (missing_ > 0 && !full() && !closed_) {
    text_ += fmt::format("{}[{} bytes of output are missing here, because they were not read]\n",
                         columns() > 0 ? kEraseLine : "", missing_);
    missing_ = 0;
  }
}

// Another program that writes to the same file may have taken the space that poll(2) reported.
ssize_t OutputQueue::write_without_blocking(std::string_view text) const {
  if (reopened_.open()) return ::write(reopened_.get(), text.data(), text.size());
  const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? ::write(fd_, text.data(), text.size()) : sent;
}

bool same_file(int a, int b) {
  struct stat first{};
  struct stat second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino && first.st_rdev == second.st_rdev;
}

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

std::vector<OutputQueue*> Console::queues() {
  if (shared_) return {&out_};
  return {&out_, &err_};
}

void Console::print_line(std::string_view line) {
  err().push(fmt::format("{}: {}\n", program_, printable_lines(line)));
}

void Console::show_progress(std::string_view line) {
  const int columns = err().columns();
  if (columns == 0) return;
  const std::string text = line.empty() ? "" : fmt::format("{}: {}", program_, printable(line));
  err().push(fmt::format("{}{}\r", cut_to_width(text, static_cast<size_t>(std::max(columns - 1, 1))), kEraseLine));
}

Result<void> Console::written() const {
  for (const OutputQueue* queue : {&out_, &err_}) {
    if (queue->error() == 0 || queue->error() == EPIPE) continue;
    return fail(ExitCode::kIoErr,
                fmt::format("standard {} cannot be written: {}; output of the ranks is lost",
                            queue == &out_ ? "output" : "error", std::generic_category().message(queue->error())));
  }
  return {};
}

std::optional<int> Console::flush(const SignalSource& signals, const Clock& clock, std::optional<SteadyTime> deadline) {
  const bool gives_up = !deadline && ::isatty(STDIN_FILENO) != 1;
  while (!out_.empty() || !err_.empty()) {
    pollfd fds[] = {{out_.empty() ? -1 : out_.fd(), POLLOUT, 0},
                    {err_.empty() ? -1 : err_.fd(), POLLOUT, 0},
                    {signals.fd(), POLLIN, 0}};
    const SteadyTime now = clock.steady();
    for (OutputQueue* queue : {&out_, &err_}) queue->observe(now);
    if (gives_up) deadline = std::max(out_.waiting_since(), err_.waiting_since()).value_or(now) + kAbandonedTimeout;
    if (deadline && *deadline <= now) return std::nullopt;
    if (::poll(fds, 3, poll_timeout(deadline, now)) < 0) continue;
    if (fds[0].revents != 0) out_.write_some(clock.steady());
    if (fds[1].revents != 0) err_.write_some(clock.steady());
    if (fds[2].revents == 0) continue;
    if (const std::vector<int> arrived = signals.read_and_suspend(); !arrived.empty()) return arrived.front();
  }
  return std::nullopt;
}

// ---- Options of torchrun -----------------------------------------------------------------------------------------

namespace {

std::optional<int> number_below(std::string_view text, int limit) {
  const std::optional<int> value = parse_integer<int>(text);
  return value && *value >= 0 && *value < limit ? value : std::nullopt;
}

}  // namespace

Result<std::vector<int>> streams_by_rank(const std::string& option, const std::string& value, int ranks) {
  constexpr int kStreams = 4;
  std::vector<int> out(static_cast<size_t>(ranks), 0);
  if (value.empty()) return out;
  if (const auto streams = number_below(value, kStreams)) {
    out.assign(out.size(), *streams);
    return out;
  }
  std::istringstream entries(value);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t colon = entry.find(':');
    const std::string_view text = entry;
    const auto rank = number_below(text.substr(0, colon), ranks);
    const auto streams = colon == std::string::npos ? std::nullopt : number_below(text.substr(colon + 1), kStreams);
    if (!rank || !streams) {
      return fail(
          ExitCode::kUsage,
          fmt::format("{}={} is neither 0 to 3 (1: stdout, 2: stderr, 3: both) nor a list of LOCAL_RANK:N, such "
                      "as 0:3,1:1, with local ranks below {}",
                      option, shortened(value), ranks));
    }
    out[static_cast<size_t>(*rank)] = *streams;
  }
  return out;
}

Result<std::vector<bool>> shown_ranks(const std::string& value, int ranks) {
  std::vector<bool> out(static_cast<size_t>(ranks), value.empty());
  std::istringstream entries(value);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const auto rank = number_below(entry, ranks);
    if (!rank) {
      return fail(ExitCode::kUsage, fmt::format("--local-ranks-filter={} is not a list of local ranks below {}",
                                                shortened(value), ranks));
    }
    out[static_cast<size_t>(*rank)] = true;
  }
  return out;
}

}  // namespace oarlock::launch
