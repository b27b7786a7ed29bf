// Files of --log-dir on a disk that is full for a while.
#include "cli/launch/log_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "common/files.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LogFileTest : public testing::Test {
 protected:
  std::string content() const { return *read_file(path_); }

  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "rank_0" / "stdout.log";
};

TEST_F(LogFileTest, AppendsToAnExistingFile) {
  for (int start = 0; start < 2; ++start) {
    LogFile file = LogFile::open(path_).value();
    EXPECT_TRUE(file.is_open());
    EXPECT_EQ(file.write("line\n"), std::nullopt);
  }
  EXPECT_EQ(content(), "line\nline\n");
  EXPECT_FALSE(LogFile().is_open());
}

TEST_F(LogFileTest, StatesWhatIsMissingWhenThereIsSpaceAgain) {
  LogFile file = LogFile::open(path_).value();
  EXPECT_EQ(file.write("before\n"), std::nullopt);
  {
    const test::FullDisk full(7);
    const std::optional<std::string> problem = file.write("12345");
    ASSERT_TRUE(problem);
    EXPECT_THAT(*problem,
                AllOf(HasSubstr(path_.string() + ": cannot be written: "), HasSubstr("until there is space")));
    EXPECT_EQ(file.write("67890"), std::nullopt) << "reported once";
  }
  EXPECT_EQ(file.write("after\n"), std::nullopt);
  EXPECT_EQ(content(), "before\n\n[up to 10 bytes of output are missing here]\nafter\n");
}

// A launcher that waited for a reader could not be stopped.
TEST_F(LogFileTest, NamedPipeIsNotWaitedFor) {
  std::filesystem::create_directory(path_.parent_path());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const Result<LogFile> without_reader = LogFile::open(path_);
  ASSERT_FALSE(without_reader);
  EXPECT_EQ(without_reader.error().code, ExitCode::kCantCreate);
  EXPECT_THAT(without_reader.error().message, HasSubstr(path_.string() + ": is a named pipe that no process reads"));
  const FileDescriptor reader(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  LogFile file = LogFile::open(path_).value();
  EXPECT_TRUE(file.write(std::string(1 << 20, 'x'))) << "the pipe is full";
}

}  // namespace
}  // namespace oarlock::launch
