#include "common/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

namespace oarlock {
namespace {

Result<LockOutcome> lock_outcome(int error_number, const std::filesystem::path& path) {
  switch (error_number) {
    case EWOULDBLOCK:
      return LockOutcome::kLockedByOther;
    case ENOSYS:
    case ENOLCK:
    case EOPNOTSUPP:  // on Linux, ENOTSUP is the same
    case EBADF:       // NFSv4: an exclusive lock of a file that is open for reading only
      return LockOutcome::kUnsupported;
    default:
      return fail_errno(error_number, fmt::format("{}: cannot be locked", path.string()));
  }
}

}  // namespace

Result<FileDescriptor> open_lock_file(const std::filesystem::path& path) {
  constexpr int kFlags = O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0644));
  const int error = errno;
  if (!file.open()) file = FileDescriptor(::open(path.c_str(), O_RDONLY | kFlags));
  if (!file.open()) return fail_errno(error, fmt::format("{}: cannot be created", path.string()));
  return file;
}

Result<LockOutcome> try_lock(int fd, LockMode mode, const std::filesystem::path& path) {
  const int operation = (mode == LockMode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (::flock(fd, operation) != 0) {
    if (errno != EINTR) return lock_outcome(errno, path);
  }
  return LockOutcome::kLocked;
}

}  // namespace oarlock
