// The fence of a checkpoint root: only the newest attempt of the newest job that claimed it may write. The file
// fence.json is described in docs/checkpoint-format.md.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock {

inline constexpr char kFenceFile[] = "fence.json";

// Serializes writers while the fence is read and changed, and while a checkpoint is renamed to its final name. It is an
// advisory lock (flock) on root/.lock. A holder that is stopped or disconnected must not block its successor, and some
// file systems do not support locks. So the constructor waits a few seconds at most, and the caller then continues
// without the lock.
class FenceLock {
 public:
  explicit FenceLock(const std::filesystem::path& root);
  ~FenceLock();
  FenceLock(const FenceLock&) = delete;
  FenceLock& operator=(const FenceLock&) = delete;

  bool held() const { return held_; }

 private:
  int fd_;
  bool held_ = false;
};

// Makes `owner` the writer of the root. Writes nothing if it already is. The caller holds the lock. Returns kTempFail
// if a newer attempt or job has claimed the fence, kDataErr if the fence file is damaged, kIoErr, or kNoPermission.
Result<void> claim_fence(const std::filesystem::path& root, const CheckpointOwner& owner);

// Returns whether the error of claim_fence() or check_fence() states that another attempt or job has claimed the root.
bool is_fenced_off(const Error& error);

// Returns the same errors as claim_fence(), but does not claim the fence.
Result<void> check_fence(const std::filesystem::path& root, const CheckpointOwner& owner);

}  // namespace oarlock
