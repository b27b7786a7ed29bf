// A file whose readers block, as on a file server that does not respond.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "common/files.h"
#include "tests/support/program.h"

namespace oarlock::test {

// A lease on the file blocks every process that opens it, for /proc/sys/fs/lease-break-time (45 s), or until the object
// is destroyed.
class BlockedFile {
 public:
  explicit BlockedFile(const std::filesystem::path& path) : file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    EXPECT_EQ(::fcntl(file_.get(), F_SETSIG, SIGURG), 0);  // which is ignored
    EXPECT_EQ(::fcntl(file_.get(), F_SETLEASE, F_WRLCK), 0) << std::strerror(errno);
  }

  // Whether a process is blocked.
  bool has_reader() const { return ::fcntl(file_.get(), F_GETLEASE) != F_WRLCK; }
  // Waits until a process is blocked. Returns false after the timeout of eventually().
  bool wait_for_reader() const {
    return eventually([&] { return has_reader(); });
  }

 private:
  FileDescriptor file_;
};

}  // namespace oarlock::test
