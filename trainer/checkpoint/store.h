// The folder with a job's checkpoints, step-00001234/ each, and the links "best" and "last": finding the newest that is
// whole, and being its one writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock {

// ---- reading: any process, no lock ---------------------------------------------------------------------------------

struct SkippedCheckpoint {
  std::filesystem::path folder;
  std::string reason;  // one line
};

struct CheckpointSearch {
  std::optional<std::filesystem::path> folder;  // the newest valid one (largest step); none: start from nothing
  int64_t step = -1;                            // of it
  std::vector<SkippedCheckpoint> skipped;       // newer ones, which are damaged, newest first
};

// Verifies from the newest down until one is valid. Only damaged checkpoints are skipped: one that cannot be read for
// another reason may be whole, so that the search fails there (kCheckpoint, kNoPermission, kTempFail; see
// read_manifest()), as it does where the root cannot be listed. A `root` that does not exist holds none.
Result<CheckpointSearch> find_latest_checkpoint(const std::filesystem::path& root);

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // of search.folder
  CheckpointSearch search;
};

// find_latest_checkpoint() and read_checkpoint() in one: reads each byte of the checkpoint once.
Result<LatestCheckpoint> read_latest_checkpoint(const std::filesystem::path& root);

// step-00001234 of this step.
std::string checkpoint_folder_name(int64_t step);

// ---- writing: rank 0 ----------------------------------------------------------------------------------------------

struct StoreOptions {
  std::filesystem::path root;
  CheckpointOwner owner{};
  int keep = 3;  // newest checkpoints that stay after a save, besides the best; 0: all
};

struct SavedCheckpoint {
  std::filesystem::path folder;
  int64_t bytes = 0;
};

// Makes the root its owner's: a fence file there names the job and attempt that may write. A writer of an older attempt
// of the same job, and one of a job that another has displaced, is refused with kTempFail, at open() and at every
// save(): its group has been replaced, nothing of it is wrong, and it must not be blamed. Everything it saved before
// stays.
class CheckpointStore {
 public:
  // Creates the root, takes the fence, removes what crashed writers left. kCantCreate: the root cannot be created or
  // written to. kTempFail: fenced off, or the root cannot be read at present. kDataErr: the fence file is damaged.
  static Result<std::unique_ptr<CheckpointStore>> open(const StoreOptions& options, const Logger& logger);

  // Renames a damaged checkpoint to damaged-step-<step>, so that no save writes over it: what became of it is for
  // people to find out. Gives its new path. kTempFail: fenced off; kIoErr.
  Result<std::filesystem::path> set_aside(const std::filesystem::path& folder) const;

  // Writes root/step-<step>/ so that a crash at any instant leaves either no such checkpoint or a whole one, and never
  // touches another one before the new one is durable. Then points the links "last" to it and "best" to the checkpoint
  // of `best_step` (this or an older one), and removes all but the newest `keep` and the best. Replaces a valid
  // checkpoint of the same step in one rename; sets a damaged one aside; fails where there is one that it cannot read,
  // and never removes one whose manifest it cannot read. kIoErr (disk full included), kCantCreate, kCheckpoint,
  // kTempFail: the older ones are intact, and a later save may work. Uses nothing but its arguments and the file
  // system: may run on any one thread at a time.
  Result<SavedCheckpoint> save(Checkpoint checkpoint, std::optional<int64_t> best_step = std::nullopt);

  // Whether the owner may still write: kTempFail when a newer attempt has taken over.
  Result<void> check_fence() const;

 private:
  CheckpointStore(const StoreOptions& options, const Logger& logger);
  Result<void> take_fence();
  void remove_leftovers() const;
  void set_links(int64_t step, std::optional<int64_t> best_step);
  Result<void> make_way(const std::filesystem::path& folder);
  void prune(int64_t newest_step, std::optional<int64_t> best_step);
  bool may_remove(const std::filesystem::path& folder);

  StoreOptions options_;
  Logger logger_;
  bool lock_warned_ = false;
  bool links_warned_ = false;
  std::set<std::filesystem::path> written_;     // by this object
  std::set<std::filesystem::path> left_alone_;  // not removed, and reported
};

}  // namespace oarlock
