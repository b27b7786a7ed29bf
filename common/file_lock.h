// Advisory locks on whole files with flock(2), which Linux forwards to an NFS server. Some file systems do not support
// locks (Lustre without the mount option flock, some NFS and FUSE mounts); callers distinguish that from a lock that
// another process holds.
#pragma once

#include <filesystem>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

enum class LockMode { kShared, kExclusive };

enum class LockOutcome {
  kLocked,         // this descriptor holds the lock until it is closed
  kLockedByOther,  // another descriptor holds a lock that excludes this one
  kUnsupported,    // the file system does not support locks, or not this one of a file of another user
};

// Opens a lock file, and creates it if it does not exist. The file of another user is opened for reading only. Fails as
// fail_errno().
Result<FileDescriptor> open_lock_file(const std::filesystem::path& path);

// Locks an open file, or changes the mode of its lock. Does not wait. Fails as fail_errno() for other reasons, such as
// an input or output error; the message names `path`.
Result<LockOutcome> try_lock(int fd, LockMode mode, const std::filesystem::path& path);

}  // namespace oarlock
