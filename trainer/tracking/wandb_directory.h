// The directories of a W&B run, DIR/wandb/offline-run-TIME-ID: one for each attempt, which `wandb sync` uploads.
#pragma once

#include <ctime>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "trainer/tracking/sink.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {

inline constexpr char kWandbNewLogSuffix[] = ".new";  // of a log without a record, for which `wandb sync` would fail

// The directory of the current attempt, which is created with its first file. Used by one thread.
class WandbDirectory {
 public:
  // `parent` is DIR.
  WandbDirectory(const std::filesystem::path& parent, const Logger& logger)
      : parent_(parent / "wandb"), logger_(logger) {}

  void set_guard(WriteGuard may_write) { may_write_ = std::move(may_write); }

  // Replaces the log of the newest attempt of the run by a copy, so that writes of an earlier process have no effect.
  // The parent may have directories of other runs, too.
  Result<void> fence_earlier_process(const std::string& run_id) const;

  // Begins an attempt, which has no directory yet. Calls `read` with the contents of the log of each earlier attempt of
  // the run. A log that a killed process has left incomplete is repaired before.
  void begin(const std::string& run_id, SystemTime start, const std::function<void(WandbContents&)>& read);

  // Creates the directory, unless there is one.
  Result<void> make();

  // Removes the directory if it has no files: without a log, `wandb sync` would fail for it.
  void remove_if_empty();

  // Continues in a new directory if the log exists, with a part of a record; otherwise as remove_if_empty().
  void leave_after_failure();

  bool exists() const { return !path_.empty(); }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log() const { return log_in(path_); }

  // Whether the directory of an attempt exists that has this name.
  bool has_attempt(const std::string& name) const;

  // Makes the name of the directory survive a failure of the node.
  Result<void> sync();

 private:
  std::filesystem::path log_in(const std::filesystem::path& directory) const;
  void read_earlier_attempt(const std::filesystem::path& directory, const std::function<void(WandbContents&)>& read);
  void repair_log(const std::filesystem::path& log, const WandbLogEnd& end) const;

  const std::filesystem::path parent_;
  Logger logger_;
  WriteGuard may_write_ = may_always_write;
  std::string run_id_;
  SystemTime start_;
  std::filesystem::path path_;  // empty: not created
  bool is_synced_ = true;
  std::time_t newest_ = 0;  // start of the latest earlier attempt, by the name of its directory
};

// The files of images and texts, which wait in memory within a limit while they cannot be written. Used by one thread.
class WandbMedia {
 public:
  WandbMedia(WandbDirectory& directory, const Logger& logger) : directory_(directory), logger_(logger) {}

  void set_guard(WriteGuard may_write) { may_write_ = std::move(may_write); }

  // Writes the file, or keeps it. `path` is relative to the run's directory "files". Returns false, and logs the first
  // case, if too many wait: the file is dropped.
  bool add(std::string path, std::string content);

  // Writes the files that wait, in their order, until a failure.
  Result<void> flush();

  // Logs how many files that wait are lost, and forgets them.
  void drop_waiting();

 private:
  struct File {
    std::string path;
    std::string content;
  };

  Result<void> write(const File& file);

  WandbDirectory& directory_;
  Logger logger_;
  WriteGuard may_write_ = may_always_write;
  std::deque<File> waiting_;
  bool has_dropped_ = false;  // which was logged
};

}  // namespace oarlock
