// Cache folders that several processes build at the same time. Locks of a file that two threads have opened exclude
// each other as those of two processes do.
#include "trainer/data/cache_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "common/files.h"
#include "tests/support/temporary_folder.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using testing::HasSubstr;

// Standard error, until it goes out of scope.
class StandardErrorPipe {
 public:
  StandardErrorPipe() : previous_(::dup(STDERR_FILENO)) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    reader_ = FileDescriptor(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ~StandardErrorPipe() { ::dup2(previous_.get(), STDERR_FILENO); }
  StandardErrorPipe(const StandardErrorPipe&) = delete;
  StandardErrorPipe& operator=(const StandardErrorPipe&) = delete;

  // Waits until something is written.
  std::string read() const {
    char text[4096];
    const ssize_t length = ::read(reader_.get(), text, sizeof text);
    return {text, length > 0 ? static_cast<size_t>(length) : 0};
  }

 private:
  FileDescriptor previous_;
  FileDescriptor reader_;
};

TEST(CacheFolder, OneProcessBuildsAndTheOthersReportThatTheyWait) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "cache" / "data";
  const Logger log(LogFormat::kText, LogLevel::kInfo);
  std::thread second;
  Result<void> seen;
  std::string reported;
  const Result<void> built = build_cache_folder(folder, log, [&](const fs::path& part) -> Result<void> {
    const StandardErrorPipe standard_error;
    second = std::thread([&] {
      seen = build_cache_folder(folder, log, [](const fs::path&) { return fail(ExitCode::kSoftware, "built twice"); });
    });
    reported = standard_error.read();
    std::ofstream(part / "file") << "content";
    return {};
  });
  second.join();
  EXPECT_TRUE(built) << built.error().message;
  EXPECT_TRUE(seen) << seen.error().message;
  EXPECT_THAT(reported, HasSubstr("waiting for another process that converts data"));
  EXPECT_THAT(reported, HasSubstr((folder.parent_path() / "lock").string()));
  EXPECT_TRUE(fs::exists(folder / "file"));
}

TEST(CacheFolder, AFolderIsAbsentOrComplete) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "data";
  const fs::path left = temporary.path() / "other.part";  // of a process that was killed
  fs::create_directory(left);
  const Result<void> failed = build_cache_folder(folder, Logger::silent(), [&](const fs::path& part) -> Result<void> {
    EXPECT_FALSE(fs::exists(left));
    std::ofstream(part / "file") << "half";
    return fail(ExitCode::kDataErr, "no data");
  });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no data");
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(folder.string() + ".part"));
}

}  // namespace
}  // namespace oarlock
