// Exclusive ownership of a run's tracking directory. Two attempts of a job can run at the same time if the pod of the
// older one is still terminating, or is on a node that cannot be reached.
//
// A new process writes its name to <directory>/owner.json. The older process polls the file, detects that it was
// superseded, ends its deliveries, releases its lock on <directory>/.lock (flock(2), which Linux forwards to an NFS
// server), and records the release in <directory>/released.json. Only then does the new process begin to write. The
// lock file contains the last attempt that began: a process that was stopped before its claim may replace the claim of
// a later attempt that has ended.
//
// If locks are valid on one machine only (NFS with local_lock, some CSI drivers), or are not supported, a free lock
// does not show that a process on another machine has stopped. The new process then begins when that process has
// recorded its release, or after the time within which it must have read the claim, provided that the file system shows
// it new files by then.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// Thread-compatible: the caller serializes the calls.
class DirectoryClaim {
 public:
  // `uid` is that of the TrainingJob, or empty.
  DirectoryClaim(std::filesystem::path directory, std::string_view uid, int attempt);

  // Makes this process the owner, unless the owner is a later attempt of the same job. Creates the directory. Fails
  // with kTempFail in that case, and otherwise as files do.
  Result<void> claim();

  // Returns whether this process now holds the lock, or the file system does not support locks. Does not wait.
  bool try_lock();

  // Whether the previous owner may still write although the lock is free: it ran on another machine, and has not
  // recorded its release. It may have been killed, so the caller waits for a limited time.
  bool may_have_hidden_writer() const;

  // Whether a later attempt of the same job has begun to write. Called with the lock.
  bool has_later_attempt_begun() const;

  // Called when this process begins to write. Removes the temporary files of earlier processes, also that of a process
  // that is stopped in its claim(), which then reads the owner again.
  void begin();

  // Whether another process has claimed the directory since claim(). If that is an earlier attempt of the same job,
  // this call claims the directory again instead. The owner of a directory that cannot be read is taken to be
  // unchanged.
  bool is_superseded();

  // Ends the ownership, and records the release for a process on another machine. The end of the process and the
  // destructor release the lock only.
  void release();

 private:
  std::filesystem::path owner_path() const { return directory_ / "owner.json"; }
  std::filesystem::path released_path() const { return directory_ / "released.json"; }

  // Claims the directory, or fails if a process that begins removes the temporary file.
  Result<void> try_claim();

  const std::filesystem::path directory_;
  const std::string uid_;
  const int attempt_;
  const std::string process_;  // a random name
  std::string machine_;        // its boot id, and the device of the directory; empty: not known
  std::string hidden_writer_;  // the process that owned the directory before, on another machine; may be empty
  bool has_claimed_ = false;
  bool has_begun_ = false;
  FileDescriptor lock_file_;
};

}  // namespace oarlock
