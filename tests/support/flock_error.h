// Replaces flock(2) of a test program. Include it in one file of the program.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace oarlock::test {

// The errno with which flock(2) fails; 0: it works.
inline std::atomic<int> flock_errno = 0;

// flock(2) fails while this object exists.
class FlockFailure {
 public:
  explicit FlockFailure(int error_number) { flock_errno = error_number; }
  ~FlockFailure() { flock_errno = 0; }
  FlockFailure(const FlockFailure&) = delete;
  FlockFailure& operator=(const FlockFailure&) = delete;
};

}  // namespace oarlock::test

extern "C" int flock(int fd, int operation) noexcept {
  if (const int error = oarlock::test::flock_errno; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}
