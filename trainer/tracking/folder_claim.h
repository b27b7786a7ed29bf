// The right to write the files of a run's tracking folder, which at most one process has at a time: two attempts of a
// job are alive together if the pod of the older one is still terminating, or cannot be reached.
//
// A new process writes its name to <folder>/owner.json. The older process reads the file from time to time, finds that
// it was superseded, ends its deliveries, and releases the lock that it holds on <folder>/.lock (flock(2), which Linux
// passes on to an NFS server). Only then the new process begins. File systems without locks have the file alone.
#pragma once

#include <filesystem>
#include <string>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// Thread-compatible: the caller serializes the calls.
class FolderClaim {
 public:
  // `uid` is that of the TrainingJob, or empty.
  FolderClaim(std::filesystem::path folder, std::string uid, int attempt);

  // Makes this process the owner, unless the owner is a later attempt of the same job. Creates the folder. Fails with
  // kTempFail in that case, and otherwise as files do.
  Result<void> claim();

  // Whether this process holds the lock afterwards, or the file system has no locks. Does not wait.
  bool try_lock();

  // Whether another process has claimed the folder since, other than an earlier attempt of the same job, from which
  // this call takes it back. A folder that cannot be read has the owner that it had before.
  bool is_superseded();

  // Ends the right to write. Also done by the destructor, and by the end of the process.
  void release() { lock_file_.close(); }

 private:
  std::filesystem::path owner_path() const { return folder_ / "owner.json"; }

  const std::filesystem::path folder_;
  const std::string uid_;
  const int attempt_;
  const std::string process_;  // a random name
  bool has_claimed_ = false;
  FileDescriptor lock_file_;
};

}  // namespace oarlock
