// The right to write the files of a run's tracking directory.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/files.h"
#include "tests/support/temporary_directory.h"
#include "trainer/tracking/directory_claim.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

TEST(DirectoryClaim, LaterProcessWaitsForTheLock) {
  const TemporaryDirectory directory;
  DirectoryClaim earlier(directory.path() / "tracking", "uid", 1);
  ASSERT_TRUE(earlier.claim());
  EXPECT_TRUE(earlier.try_lock());
  EXPECT_FALSE(earlier.is_superseded());
  DirectoryClaim later(directory.path() / "tracking", "uid", 2);
  ASSERT_TRUE(later.claim());
  EXPECT_FALSE(later.try_lock());
  EXPECT_TRUE(earlier.is_superseded());
  earlier.release();
  EXPECT_TRUE(later.try_lock());
  EXPECT_FALSE(later.is_superseded());
}

TEST(DirectoryClaim, RemovesTemporaryFilesOfKilledProcesses) {
  const TemporaryDirectory directory;
  DirectoryClaim claim(directory.path(), "uid", 1);
  ASSERT_TRUE(claim.claim());
  ASSERT_TRUE(claim.try_lock());
  const std::filesystem::path left = directory.path() / "released.json.tmp-77-0a1b2c3d";
  std::ofstream(left.c_str()) << "{";
  claim.begin();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST(DirectoryClaim, EarlierAttemptThatStartsLateIsRejected) {
  const TemporaryDirectory directory;
  DirectoryClaim later(directory.path(), "uid", 2);
  ASSERT_TRUE(later.claim());
  DirectoryClaim earlier(directory.path(), "uid", 1);
  const Result<void> claimed = earlier.claim();
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().code, ExitCode::kTempFail);
  EXPECT_FALSE(later.is_superseded());
  EXPECT_TRUE(DirectoryClaim(directory.path(), "uid", 2).claim());  // a replaced process of the same attempt
  EXPECT_TRUE(later.is_superseded());
}

// The earlier process has read the owner before the later one claimed the directory, and was stopped then.
TEST(DirectoryClaim, FindsALaterAttemptThatHasEnded) {
  const TemporaryDirectory directory;
  DirectoryClaim later(directory.path(), "uid", 2);
  ASSERT_TRUE(later.claim());
  ASSERT_TRUE(later.try_lock());
  EXPECT_FALSE(later.has_later_attempt_begun());
  later.begin();
  later.release();
  fs::remove(directory.path() / "owner.json");
  const auto is_outdated = [&](const char* uid, int attempt) {
    DirectoryClaim process(directory.path(), uid, attempt);
    EXPECT_TRUE(process.claim());
    EXPECT_TRUE(process.try_lock());
    const bool out = process.has_later_attempt_begun();
    process.release();
    fs::remove(directory.path() / "owner.json");
    return out;
  };
  EXPECT_TRUE(is_outdated("uid", 1));
  EXPECT_FALSE(is_outdated("uid", 2));
  EXPECT_FALSE(is_outdated("uid", 3));
  EXPECT_FALSE(is_outdated("uid of another job", 1));
  std::ofstream(directory.path() / ".lock") << "damaged";
  EXPECT_FALSE(is_outdated("uid", 1));
}

TEST(DirectoryClaim, TakesBackTheClaimOfAnEarlierAttempt) {
  const TemporaryDirectory directory;
  DirectoryClaim earlier(directory.path(), "uid", 1);
  ASSERT_TRUE(earlier.claim());
  const std::string owner = *read_file(directory.path() / "owner.json");
  DirectoryClaim later(directory.path(), "uid", 2);
  ASSERT_TRUE(later.claim());
  std::ofstream(directory.path() / "owner.json") << owner;  // both claimed at the same time
  EXPECT_FALSE(later.is_superseded());
  EXPECT_TRUE(earlier.is_superseded());
  std::ofstream(directory.path() / "owner.json") << "damaged";
  EXPECT_FALSE(later.is_superseded());
  EXPECT_TRUE(DirectoryClaim(directory.path(), "uid of another job", 0).claim());
  EXPECT_TRUE(later.is_superseded());
}

TEST(DirectoryClaim, RecognizesAWriterOfAnotherMachine) {
  const TemporaryDirectory directory;
  DirectoryClaim first(directory.path(), "uid", 1);
  ASSERT_TRUE(first.claim());
  EXPECT_FALSE(first.may_have_hidden_writer());
  first.begin();
  DirectoryClaim neighbor(directory.path(), "uid", 2);
  ASSERT_TRUE(neighbor.claim());
  EXPECT_FALSE(neighbor.may_have_hidden_writer());  // the lock shows it
  std::ofstream(directory.path() / "owner.json") << R"({"process": "other", "machine": "another", "uid": "uid"})";
  DirectoryClaim later(directory.path(), "uid", 3);
  ASSERT_TRUE(later.claim());
  EXPECT_TRUE(later.may_have_hidden_writer());
  first.release();
  EXPECT_TRUE(later.may_have_hidden_writer());
  std::ofstream(directory.path() / "released.json") << R"({"process": "other"})";
  EXPECT_FALSE(later.may_have_hidden_writer());
}

TEST(DirectoryClaim, ReplacesPipesAndLinks) {
  for (const bool is_pipe : {true, false}) {
    const TemporaryDirectory directory;
    std::ofstream(directory.path() / "target") << "content";
    for (const char* name : {"owner.json", "released.json", ".lock"}) {
      const fs::path path = directory.path() / name;
      if (is_pipe) {
        ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
      } else {
        fs::create_symlink("target", path);
      }
    }
    DirectoryClaim earlier(directory.path(), "uid", 1);
    ASSERT_TRUE(earlier.claim());
    EXPECT_TRUE(earlier.try_lock());
    EXPECT_FALSE(earlier.may_have_hidden_writer());
    earlier.begin();
    DirectoryClaim later(directory.path(), "uid", 2);
    ASSERT_TRUE(later.claim());
    EXPECT_TRUE(earlier.is_superseded());
    earlier.release();
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(directory.path() / "released.json")));
    EXPECT_EQ(*read_file(directory.path() / "target"), "content");
  }
}

TEST(DirectoryClaim, RespectsTheLockOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::all);
  DirectoryClaim earlier(directory.path(), "uid", 1);
  ASSERT_TRUE(earlier.claim());
  EXPECT_TRUE(earlier.try_lock());
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(kNobody), 0);
  DirectoryClaim later(directory.path(), "uid", 2);
  const Result<void> claimed = later.claim();
  const bool is_locked = !later.try_lock();
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(claimed) << claimed.error().message;
  EXPECT_TRUE(is_locked);
  EXPECT_TRUE(earlier.is_superseded());
  earlier.release();
  EXPECT_TRUE(later.try_lock());
}

TEST(DirectoryClaim, NamesADirectoryThatCannotBeClaimed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const mode_t mode : {mode_t{01777}, mode_t{0755}}) {  // others' files cannot be replaced; read-only
    const TemporaryDirectory directory;
    ASSERT_TRUE(DirectoryClaim(directory.path(), "uid", 1).claim());
    ASSERT_EQ(chmod(directory.path().c_str(), mode), 0);
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(seteuid(kNobody), 0);
    DirectoryClaim later(directory.path(), "uid", 2);
    const Result<void> claimed = later.claim();
    const bool is_superseded = later.is_superseded();
    ASSERT_EQ(seteuid(0), 0);
    ASSERT_FALSE(claimed) << mode;
    EXPECT_NE(claimed.error().code, ExitCode::kTempFail);
    EXPECT_THAT(claimed.error().message, testing::HasSubstr(directory.path().string()));
    EXPECT_FALSE(is_superseded);  // reports without a claim
  }
}

TEST(DirectoryClaim, AcceptsAUidThatIsNotUtf8) {
  const TemporaryDirectory directory;
  DirectoryClaim earlier(directory.path(), "caf\xe9", 1);
  ASSERT_TRUE(earlier.claim());
  EXPECT_FALSE(earlier.is_superseded());
  DirectoryClaim later(directory.path(), "caf\xe9", 2);
  ASSERT_TRUE(later.claim());
  EXPECT_EQ(DirectoryClaim(directory.path(), "caf\xe9", 1).claim().error().code, ExitCode::kTempFail);
}

}  // namespace
}  // namespace oarlock
