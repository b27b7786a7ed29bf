// The single writer of a checkpoint root (see directory.h). Used by rank 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory.h"

namespace oarlock {

struct StoreOptions {
  std::filesystem::path root;
  CheckpointOwner owner{};
  int keep = 3;  // number of newest checkpoints that are kept after a save, in addition to the best one; 0: all
  // Other files, relative to the root, that only its owner writes, with write_file_atomically().
  std::vector<std::filesystem::path> other_files{};
};

struct SavedCheckpoint {
  std::filesystem::path directory;
  int64_t bytes = 0;
  Result<void> links;  // why "last" or "best" could not be set, although the checkpoint is saved
};

// Claims the root for its owner: a fence file in the root names the job, attempt and generation that may write (see
// fence.h). For a writer of an older generation or attempt of the same job, and of a job that another job has
// displaced, open() and every save() return kTempFail, because it was replaced. The checkpoints that it saved before
// remain. The fence is checked, under its lock, immediately before each name of the root is changed.
class CheckpointStore {
 public:
  // Creates the root, claims the fence, and removes the temporary files of crashed writers. Returns kCantCreate if the
  // root cannot be created or written to, kIoErr if writing fails, kTempFail if the fence belongs to another writer or
  // the root cannot be read at present, kNoPermission if the fence may not be read, and kDataErr if it is damaged.
  static Result<std::unique_ptr<CheckpointStore>> open(const StoreOptions& options, const Logger& logger);

  // For a root that is not available at present: does not access it. The first save() that succeeds claims the fence.
  static std::unique_ptr<CheckpointStore> open_unclaimed(const StoreOptions& options, const Logger& logger);

  // This process now belongs to a later group of its attempt, as does a save in flight. The caller then calls claim().
  // May be called concurrently with other methods.
  void set_group(int64_t generation, const std::string& group);

  // Claims the fence for the owner; the root must exist. Returns the errors of claim_fence(). May be called
  // concurrently with other methods.
  Result<void> claim() const;

  // Renames a damaged checkpoint to damaged-step-<step>, so that no save overwrites it and it can be examined. Returns
  // its new path, kTempFail if the fence belongs to another writer, or kIoErr.
  Result<std::filesystem::path> set_aside(const std::filesystem::path& directory) const;

  // Writes root/step-<step>/. A crash at any time leaves either no such checkpoint or a complete one, and no other
  // checkpoint is touched before the new one is durable. Then points the link "last" to it, and "best" to the
  // checkpoint of `best_step` (this one or an older one), and removes all but the newest `keep` checkpoints and the
  // best one. A link that cannot be set is reported in the result.
  //
  // A valid checkpoint of the same step is replaced in one rename, and a damaged one is set aside. The save fails if
  // the existing one cannot be read. Checkpoints whose manifest cannot be read are never removed.
  //
  // Returns kIoErr (including a full disk), kCantCreate, kNoPermission, kCheckpoint, kDataErr (the fence file is
  // damaged), or kTempFail only if the fence belongs to another writer. In each case the older checkpoints
  // are intact, and a later save may succeed. May be called from any thread, but not concurrently.
  Result<SavedCheckpoint> save(Checkpoint checkpoint, std::optional<int64_t> best_step = std::nullopt);

  // Sets the links for the newest checkpoint, `step`, as save() does: a crash may have prevented it. Accesses no other
  // file if they are correct. Returns kTempFail if the fence belongs to another writer, or kIoErr or kCantCreate.
  Result<void> repair_links(int64_t step, std::optional<int64_t> best_step) const;

  // Returns kTempFail if another writer has claimed the fence.
  Result<void> check_fence() const;

 private:
  CheckpointStore(const StoreOptions& options, const Logger& logger);
  Result<void> claim_root();
  void remove_leftovers() const;
  Result<void> clear_target(const std::filesystem::path& directory);
  Result<void> may_write() const;
  Result<void> publish_if_admitted(const std::filesystem::path& written, const std::filesystem::path& target,
                                   const std::filesystem::path& replaced) const;
  Result<void> make_way_for_link(const std::filesystem::path& link) const;
  Result<void> set_links(int64_t step, std::optional<int64_t> best_step) const;
  std::vector<std::filesystem::path> prune(int64_t newest_step, std::optional<int64_t> best_step);
  bool may_remove(const std::filesystem::path& directory);

  CheckpointOwner owner() const;

  StoreOptions options_;
  Logger logger_;
  mutable std::mutex mutex_;  // protects options_.owner
  bool lock_warned_ = false;
  std::set<std::filesystem::path> written_;     // checkpoints that this object wrote
  std::set<std::filesystem::path> unreadable_;  // old checkpoints that were reported and not removed
};

}  // namespace oarlock
