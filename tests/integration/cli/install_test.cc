// oarlock install, which puts the launcher into a volume of a pod.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/program.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(Install, CopyRunsAndReplacesAnEarlierOne) {
  const TemporaryDirectory directory;
  const fs::path installed = directory.path() / "oarlock";
  const mode_t umask_before = ::umask(0077);
  for (int i = 0; i < 2; ++i) {
    Program install({oarlock(), "install", directory.path().string()});
    EXPECT_EQ(install.wait(), 0) << install.err();
    Program version({installed.string(), "--version"});  // of a file that is executed, write(2) would fail
    EXPECT_EQ(version.wait(), 0) << version.err();
    EXPECT_THAT(version.out(), HasSubstr("oarlock "));
  }
  ::umask(umask_before);
  EXPECT_EQ(fs::status(installed).permissions(), fs::perms(0755));
  EXPECT_EQ(fs::file_size(installed), fs::file_size(oarlock()));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()), 1);
}

TEST(Install, NamesADirectoryThatItCannotUse) {
  Program missing({oarlock(), "install", "/proc/no/such"});
  EXPECT_NE(missing.wait(), 0);
  EXPECT_THAT(missing.err(), HasSubstr("/proc/no/such/.oarlock.new"));
  Program none({oarlock(), "install"});
  EXPECT_EQ(none.wait(), 64);
}

}  // namespace
}  // namespace oarlock::test
