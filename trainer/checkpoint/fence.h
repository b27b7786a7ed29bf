// Who may write to a checkpoint root: the newest attempt of the newest job that opened it. docs/checkpoint-format.md.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock {

inline constexpr char kFenceFile[] = "fence.json";

// Held while the fence is read and changed, and while a checkpoint gets its name: no other writer comes between.
// An advisory lock (flock) on root/.lock. A holder that is stopped or cut off must not block its successor, and some
// file systems have no locks: after a few seconds the lock is given up and the work done without it.
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

// Makes `owner` the one that may write, unless a newer one is: kTempFail. Nothing is written when it is already. The
// caller holds the lock. kDataErr: the fence file is damaged. kIoErr, kNoPermission.
Result<void> claim_fence(const std::filesystem::path& root, const CheckpointOwner& owner);

// Whether the error states that another attempt or job has taken the root over.
bool is_fenced_off(const Error& error);

// claim_fence without the claim.
Result<void> check_fence(const std::filesystem::path& root, const CheckpointOwner& owner);

}  // namespace oarlock
