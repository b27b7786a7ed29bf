// Output of the launcher: the standard streams behind queues, line prefixes for the output of ranks, and torchrun's
// --redirects, --tee and --local-ranks-filter, which select the output of ranks that goes to files and to the console.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/process.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// Splits the output of a rank into lines and adds a prefix to each. It changes nothing else in the bytes, except that
// it adds a newline to an incomplete last line, and splits lines longer than kMaxLineBytes, so that a rank that never
// writes a newline cannot exhaust the memory.
//
// On a terminal, a lone "\r" also ends a line, which is then a progress line: the next line replaces it. It is cut to
// the width of the terminal, because a line that wraps cannot be replaced, and the progress lines of all streams but
// one are omitted, because they would replace each other.
class LinePrefixer {
 public:
  static constexpr size_t kMaxLineBytes = size_t{16} << 20;

  enum class ProgressLines { kShow, kLeaveOut };

  // `columns` is the width of the terminal; 0 for any other file, in which "\r" is a character like any other.
  explicit LinePrefixer(std::string prefix, int columns = 0, ProgressLines progress_lines = ProgressLines::kShow)
      : prefix_(std::move(prefix)), columns_(columns), progress_lines_(progress_lines) {}

  // Appends the complete lines to `out`.
  void feed(std::string_view bytes, std::string& out);
  // Appends the incomplete last line. Call it once, at the end of the stream.
  void finish(std::string& out);

 private:
  size_t line_end(std::string_view bytes) const;
  void emit(std::string_view rest_of_line, std::string& out);
  void emit_to_terminal(std::string& out);

  std::string prefix_;
  int columns_;
  ProgressLines progress_lines_;
  std::string pending_;  // the beginning of an incomplete line
};

// How long the launcher waits for a reader of its output that may have stopped reading, when nothing else is left to
// do.
inline constexpr auto kFlushTimeout = std::chrono::seconds(2);

// How long a reader of the output may read nothing before output is discarded, so that it does not stop the training.
inline constexpr auto kReaderTimeout = std::chrono::seconds(3);
inline constexpr auto kReaderTimeoutWhileStopping = std::chrono::milliseconds(500);

// How long the launcher waits for such a reader at its end, unless a user may be paging through the output.
inline constexpr auto kAbandonedTimeout = std::chrono::seconds(60);

// Buffers text for a descriptor that may be slow, such as a pipe to a pager or to the log of a container runtime. The
// descriptor stays in blocking mode, because other programs may share it. Instead, a pipe or a terminal is opened again
// in non-blocking mode, a socket is written without blocking, and to a pipe that cannot be opened again no write(2) is
// larger than what it accepts without blocking after poll(2) has reported it writable.
class OutputQueue {
 public:
  explicit OutputQueue(int fd);

  void push(std::string_view text);
  void write_some(SteadyTime now);  // call it once when poll(2) reports fd() writable

  // Discards text instead of pushing it. A line states the number of missing bytes as soon as there is space for more.
  void discard(std::string_view text);

  // Updates waiting_since(). Call it before each poll(2).
  void observe(SteadyTime now);
  // Since when the text in the queue waits for the reader, which has read nothing since then; nullopt if it does not
  // wait.
  std::optional<SteadyTime> waiting_since() const { return waiting_since_; }

  int fd() const { return reopened_.open() ? reopened_.get() : fd_; }
  bool empty() const { return written_ == text_.size(); }
  size_t lines() const { return lines_; }                        // that were pushed since the construction
  bool full() const { return text_.size() - written_ > kFull; }  // producers should pause, or discard their text
  bool closed() const { return closed_; }                        // a write failed; further text is discarded
  int error() const { return error_; }                           // errno of the failed write; 0 if none failed
  bool is_terminal() const { return terminal_; }
  // Returns the width of the terminal; 0 if it is not a terminal, or does not support escape sequences (TERM=dumb).
  int columns() const;

 private:
  static constexpr size_t kFull = size_t{1} << 20;

  ssize_t write_without_blocking(std::string_view text) const;

  int fd_;
  FileDescriptor reopened_;  // the same pipe or terminal in non-blocking mode
  bool terminal_;
  size_t largest_write_;
  std::string text_;
  size_t written_ = 0;
  size_t lines_ = 0;
  size_t missing_ = 0;  // bytes discarded since the last line that stated their number
  std::optional<SteadyTime> waiting_since_;
  bool closed_ = false;
  int error_ = 0;
};

// Returns true if both descriptors refer to the same file, so that one queue must serve both to keep lines intact.
bool same_file(int a, int b);

// Standard output and standard error of the launcher.
class Console {
 public:
  // `program` is the prefix of print_line(), such as "oarlock launch".
  explicit Console(std::string program);

  OutputQueue& out() { return out_; }
  OutputQueue& err() { return shared_ ? out_ : err_; }

  // The queues: one if both streams are the same file.
  std::vector<OutputQueue*> queues();

  // Queues one line of the launcher for standard error.
  void print_line(std::string_view line);

  // Queues a line for the terminal of standard error that the next line replaces; an empty line erases it. Does nothing
  // if standard error is not a terminal.
  void show_progress(std::string_view line);

  // Fails with kIoErr if output was lost because a stream could not be written, for example to a full device. A reader
  // that closed its end (EPIPE) is not an error.
  Result<void> written() const;

  // Writes all queued text. Returns early when a signal arrives, with that signal, or when the deadline passes, since
  // the reader may have stopped reading. Without a deadline, it gives up a reader that reads nothing for
  // kAbandonedTimeout, unless standard input is a terminal, because a user may then be paging through the output.
  std::optional<int> flush(const SignalSource& signals, const Clock& clock, std::optional<SteadyTime> deadline);

 private:
  std::string program_;
  OutputQueue out_;
  OutputQueue err_;
  bool shared_;
};

// Returns the timeout for poll(2) until `deadline` in milliseconds; -1 (no timeout) without a deadline.
int poll_timeout(std::optional<SteadyTime> deadline, SteadyTime now);

// ---- Options of torchrun -----------------------------------------------------------------------------------------

// The streams of a process, as torchrun numbers them: 1 is stdout, 2 is stderr, 3 is both, and 0 is neither.
inline constexpr int kStdoutStream = 1;
inline constexpr int kStderrStream = 2;

// Parses a value of --redirects or --tee: "3" for all local ranks, or "0:3,1:1" for some. Returns the streams by local
// rank. An empty value selects none. Fails with kUsage, naming `option`, for anything else. Pure.
Result<std::vector<int>> streams_by_rank(const std::string& option, const std::string& value, int ranks);

// Parses the local ranks of --local-ranks-filter, such as "0,2". Returns for each rank whether the console shows it; an
// empty value selects all. Fails with kUsage. Pure.
Result<std::vector<bool>> shown_ranks(const std::string& value, int ranks);

}  // namespace oarlock::launch
