// The right to write the files of a run's tracking folder, which at most one process has at a time: two attempts of a
// job are alive together if the pod of the older one is still terminating, or cannot be reached.
//
// A new process writes its name to <folder>/owner.json. The older process reads the file from time to time, finds that
// it was superseded, ends its deliveries, releases the lock that it holds on <folder>/.lock (flock(2), which Linux
// passes on to an NFS server), and records that in <folder>/released.json. Only then does the new process begin.
//
// On a file system whose locks are valid on one machine only (NFS with local_lock, some CSI drivers), or without locks,
// a free lock proves nothing about a process of another machine. The new process then begins when that process has
// recorded its end, or after a time in which it must have read the claim, if the file system shows a new file by then.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// Thread-compatible: the caller serializes the calls.
class FolderClaim {
 public:
  // `uid` is that of the TrainingJob, or empty.
  FolderClaim(std::filesystem::path folder, std::string_view uid, int attempt);

  // Makes this process the owner, unless the owner is a later attempt of the same job. Creates the folder. Fails with
  // kTempFail in that case, and otherwise as files do.
  Result<void> claim();

  // Whether this process holds the lock afterwards, or the file system has no locks. Does not wait.
  bool try_lock();

  // Whether the owner before the claim may still write although the lock is free: it ran on another machine, and has
  // not recorded its end. It may have been killed, so the caller waits for a limited time.
  bool may_have_hidden_writer() const;

  // Called when this process begins to write.
  void begin() { has_begun_ = true; }

  // Whether another process has claimed the folder since, other than an earlier attempt of the same job, from which
  // this call takes it back. A folder that cannot be read has the owner that it had before.
  bool is_superseded();

  // Ends the right to write, and records that for a process on another machine. The end of the process, and the
  // destructor, release the lock only.
  void release();

 private:
  std::filesystem::path owner_path() const { return folder_ / "owner.json"; }
  std::filesystem::path released_path() const { return folder_ / "released.json"; }

  const std::filesystem::path folder_;
  const std::string uid_;
  const int attempt_;
  const std::string process_;  // a random name
  std::string machine_;        // its boot id, and the device of the folder; empty: not known
  std::string hidden_writer_;  // the process that owned the folder before, on another machine; may be empty
  bool has_claimed_ = false;
  bool has_begun_ = false;
  FileDescriptor lock_file_;
};

}  // namespace oarlock
