#include "common/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace oarlock {
namespace {

TEST(Files, AtomicWriteReplacesAndLeavesNothingElse) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "a";
  ASSERT_TRUE(write_file_atomically(path, "one"));
  ASSERT_TRUE(write_file_atomically(path, std::string(1 << 20, 'x')));
  EXPECT_EQ(read_file(path)->size(), 1u << 20);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, MissingFileNamesItself) {
  const auto result = read_file("/nonexistent/file");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ExitCode::kNoInput);
  EXPECT_NE(result.error().message.find("/nonexistent/file"), std::string::npos);
}

TEST(Files, AFailedWriteKeepsTheOldContent) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "a";
  ASSERT_TRUE(write_file_atomically(path, "old"));
  ASSERT_TRUE(std::filesystem::create_directory(path.string() + ".tmp-" + std::to_string(getpid())));  // in the way
  EXPECT_FALSE(write_file_atomically(path, "new"));
  EXPECT_EQ(*read_file(path), "old");
}

TEST(Files, AFolderUnderAFileCannotBeMade) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomically(folder.path() / "a", ""));
  const auto result = make_writable_folder(folder.path() / "a" / "b");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ExitCode::kCantCreate);
  EXPECT_TRUE(make_writable_folder(folder.path() / "c" / "d"));
  EXPECT_TRUE(make_writable_folder(folder.path() / "c" / "d"));
}

TEST(Errors, ErrnoMapsToTheDocumentedCode) {
  EXPECT_EQ(fail_errno(ENOSPC, "x").value().code, ExitCode::kIoErr);
  EXPECT_EQ(fail_errno(EACCES, "x").value().code, ExitCode::kNoPermission);
  EXPECT_EQ(fail_errno(ENOENT, "x").value().code, ExitCode::kNoInput);
  EXPECT_NE(fail_errno(ENOENT, "here").value().message.find("here: "), std::string::npos);
}

}  // namespace
}  // namespace oarlock
