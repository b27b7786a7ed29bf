// The directory that contains the checkpoints of a job ("root"): step-00001234/ for each checkpoint, the links "best"
// and "last", and the high-water mark. docs/checkpoint-format.md describes the files. Any process may read a root
// without a lock; see store.h for writing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock {

// ---- checkpoints ---------------------------------------------------------------------------------------------------

// Returns the name of the directory of a step's checkpoint, for example step-00001234.
std::string checkpoint_directory_name(int64_t step);

struct StepDirectory {
  int64_t step = 0;
  std::filesystem::path path;
};

// Lists the checkpoint directories of a root, newest step first, without reading them. A root that does not exist has
// none. Returns the codes of read_manifest() if the root cannot be listed.
Result<std::vector<StepDirectory>> list_checkpoints(const std::filesystem::path& root);

struct SkippedCheckpoint {
  std::filesystem::path directory;
  std::string reason;  // one line
};

struct CheckpointSearch {
  std::optional<std::filesystem::path> directory;  // the newest valid checkpoint; empty if there is none
  int64_t step = -1;                               // its step
  std::vector<SkippedCheckpoint> skipped;          // newer, damaged checkpoints, newest first
};

// Finds the newest valid checkpoint by verifying checkpoints from the newest step downwards. Only damaged checkpoints
// are skipped. A checkpoint that cannot be read for another reason may be intact, so the search then fails with
// kCheckpoint, kNoPermission or kTempFail (see read_manifest()). It also fails if the root cannot be listed.
Result<CheckpointSearch> find_latest_checkpoint(const std::filesystem::path& root);

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // the content of search.directory
  CheckpointSearch search;
};

// Finds and reads the newest valid checkpoint. Each byte of it is read once.
Result<LatestCheckpoint> read_latest_checkpoint(const std::filesystem::path& root);

struct LatestState {
  std::optional<CheckpointState> state;  // of search.directory
  CheckpointSearch search;
};

// As read_latest_checkpoint(), but of each checkpoint only the manifest and the state are read and verified.
Result<LatestState> read_latest_state(const std::filesystem::path& root);

// ---- links ---------------------------------------------------------------------------------------------------------

inline constexpr char kBestLink[] = "best";
inline constexpr char kLastLink[] = "last";

// Points the link root/<name> to `target`, the name of a checkpoint in root, and replaces an older link atomically. A
// link is a symbolic link or, on a file system without symbolic links, a file that contains the name. Calls `may_write`
// immediately before the replacement and returns its error. Does nothing if the link is correct. Otherwise fails with
// kIoErr or another code of fail_errno().
Result<void> set_link(const std::filesystem::path& root, const std::string& name, const std::string& target,
                      const std::function<Result<void>()>& may_write);

// Returns the target of a link, or nothing if there is no link or it does not contain the name of a checkpoint.
std::optional<std::string> link_target(const std::filesystem::path& root, const std::string& name);

// ---- high-water mark -----------------------------------------------------------------------------------------------

// Records the highest step that the job ever reached, whether or not it was saved, so that the number of steps lost in
// a crash is known. The mark is the file "reached" in the root. It is written without fsync: it survives a crash of the
// process, but not always one of the machine. Write errors are ignored, and so is a file of another type in its place.
// A mark that cannot be read is not changed. The methods block while a file server does not respond; see
// AsyncHighWater.
class HighWater {
 public:
  explicit HighWater(const std::filesystem::path& root);
  ~HighWater();
  HighWater(const HighWater&) = delete;
  HighWater& operator=(const HighWater&) = delete;

  // Raises the mark to `step`. Does nothing if the mark is not lower. Another process may have raised it meanwhile, so
  // the file is read first: a process that was cut off does not lower the mark of its successor.
  void raise(int64_t step);

 private:
  std::filesystem::path root_;
  int fd_;
  int64_t step_;
};

// Returns the mark, or 0 if there is none or it cannot be read.
int64_t read_high_water(const std::filesystem::path& root);

}  // namespace oarlock
