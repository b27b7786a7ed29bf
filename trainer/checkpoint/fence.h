// The fence of a checkpoint directory ("root"): the file fence.json names the process that may write there, by its job,
// attempt, generation and group. docs/checkpoint-format.md describes the file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock {

inline constexpr char kFenceFile[] = "fence.json";
inline constexpr size_t kMaxFenceBytes = size_t{1} << 20;

// Serializes writers while the fence is read and changed, and while names in the root are changed. It is an advisory
// lock (flock) on root/.lock. A holder that is stopped or disconnected must not block its successor, and some file
// systems do not support locks. So the constructor waits a few seconds at most, and the caller then continues without
// the lock.
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
// if a newer generation, attempt or job, or another group of the generation, has claimed the fence, kDataErr if the
// fence file is damaged, kTempFail or kNoPermission if it cannot be read, and kIoErr or kCantCreate if it cannot be
// written. See is_fenced_off().
Result<void> claim_fence(const std::filesystem::path& root, const CheckpointOwner& owner);

// Returns the same errors as claim_fence(), but does not claim the fence.
Result<void> check_fence(const std::filesystem::path& root, const CheckpointOwner& owner);

// Returns the generation of the fence, if a process of the same job and attempt as `owner` has claimed it; otherwise
// -1, also if the fence cannot be read, or if the owner has no UID, which does not distinguish launches.
int64_t claimed_generation(const std::filesystem::path& root, const CheckpointOwner& owner);

// Returns whether the error of claim_fence() or check_fence() states that another process has claimed the root.
bool is_fenced_off(const Error& error);

// ---- the rules, without files ----------------------------------------------------------------------------------

struct Fence {
  bool exists = false;  // otherwise no process has claimed the root
  CheckpointOwner owner;
  std::vector<std::string> displaced;  // UIDs of the previous owners, latest last
};

// Returns the kTempFail of claim_fence() if the fence excludes `owner`. Pure.
Result<void> admit(const Fence& fence, const std::filesystem::path& root, const CheckpointOwner& owner);

// Returns the fence after a claim of `owner`, whom it admits. Pure.
Fence claimed_by(Fence fence, const CheckpointOwner& owner);

}  // namespace oarlock
