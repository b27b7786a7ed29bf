// The members of a group, which are ranks with their descendants, and their output: from their pipes, with prefixes to
// the console, and unchanged to files of --log-dir. The bytes of a single member without a prefix pass
// unchanged and immediately, such as a progress bar without a newline; on a terminal, whole lines do.
#pragma once

#include <poll.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/launch/console.h"
#include "cli/launch/line_splitter.h"
#include "cli/launch/log_file.h"
#include "cli/launch/process.h"
#include "cli/launch/rank_errors.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

class Progress;

// Where the output of members goes, as torchrun's --redirects and --tee.
enum class LogMode {
  kConsoleAndFiles,
  kFiles  // only
};

struct Member {
  Command command;
  std::string name;    // for messages, such as "rank 3"
  std::string prefix;  // "[RANK 3] ", before each line that comes from a pipe
  // Files of an earlier start of this member, which a restart removes first.
  std::vector<std::filesystem::path> stale_files = {};
  // The termination message of the pod, if the member writes it itself; a restart empties it. Empty: none.
  std::filesystem::path pod_message = {};
  // With Stdio::kPipes: the directory of attempt_<attempt or restarts>/<name>/stdout.log and stderr.log; empty: none.
  std::filesystem::path log_directory = {};
  LogMode out = LogMode::kConsoleAndFiles;  // with a log_directory
  LogMode err = LogMode::kConsoleAndFiles;
  bool on_console = true;  // with Stdio::kPipes; false: its output goes to files only, or nowhere
};

// Returns the commands of the members, which must outlive the result.
std::vector<const Command*> commands_of(const std::vector<Member>& members);

// Members are numbers from 0. Not thread-safe.
class MemberOutput {
 public:
  // The arguments must outlive it. `progress`, which may be null, searches the lines of the members.
  MemberOutput(const std::vector<Member>& members, const Clock& clock, Console& console, Progress* progress)
      : members_(members), clock_(clock), console_(console), progress_(progress), errors_(members.size()) {}

  // Reads the pipes of a new process from now on. Fails if a file cannot be created, except after a restart: a full
  // disk must not stop the training, which has begun. `attempt` is a part of the names of the files.
  Result<void> add(size_t member, Child child, int64_t attempt, bool is_restart);

  // Adds a fixed number of descriptors until the next call of handle(), which receives them after poll(2).
  // `reader_timeout`: how long the reader of the console may read nothing before output is discarded.
  void add_descriptors(SteadyTime now, std::chrono::milliseconds reader_timeout, std::vector<pollfd>& out);
  void handle(std::span<const pollfd> polled);
  // When to call add_descriptors() again without an event; nullopt: never.
  std::optional<SteadyTime> deadline(SteadyTime now) const;

  // Reads what a member has written before its end to its standard error. Other processes may still write.
  void read_errors(size_t member);
  // Reads the remaining output. All writers have ended.
  void drain(std::chrono::milliseconds reader_timeout);

  // Returns why a member has failed, as its standard error since its start states it, if that is a pipe.
  std::string failure_reason(size_t member) const { return errors_[member].reason(); }
  // See GroupResult::lost_output.
  const std::string& lost_output() const { return lost_output_; }

 private:
  struct Stream {  // a pipe from a member
    FileDescriptor from;
    OutputQueue* to;
    std::optional<LinePrefixer> prefixer;  // absent: the bytes pass unchanged
    LogFile file;                          // receives a copy, if open
    bool on_console = true;
    size_t member = 0;
    bool is_error = false;    // standard error
    bool is_earlier = false;  // of a process that was replaced, whose lines are not searched
    LineSplitter lines;
  };

  Result<LogFile> open_log(const Member& member, int64_t attempt, const char* name) const;
  bool read_some(Stream& stream);
  void close(Stream& stream);
  // Whether output is discarded, because a member that waits for the reader can neither continue nor react to a signal.
  bool discards(const OutputQueue& queue, SteadyTime now) const;

  const std::vector<Member>& members_;
  const Clock& clock_;
  Console& console_;
  Progress* progress_;
  std::chrono::milliseconds reader_timeout_{kReaderTimeout};
  std::vector<Stream> streams_;
  std::vector<RankErrors> errors_;  // by member
  std::string lost_output_;
};

}  // namespace oarlock::launch
