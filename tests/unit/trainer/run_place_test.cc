// Copies of a checkpoint directory.
#include "trainer/tracking/run_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

TEST(RunPlace, NamesTheDirectory) {
  const test::TemporaryDirectory directory;
  fs::create_directory(directory.path() / "a");
  const std::string place = place_of(directory.path() / "a");
  EXPECT_EQ(place.substr(place.find(' ') + 1), fs::canonical(directory.path() / "a").string());
  fs::create_directory_symlink("a", directory.path() / "link");
  EXPECT_EQ(place_of(directory.path() / "link"), place);
  fs::rename(directory.path() / "a", directory.path() / "b");
  EXPECT_EQ(place_of(directory.path() / "b").substr(0, place.find(' ')), place.substr(0, place.find(' ')));
  EXPECT_EQ(place_of(directory.path() / "a"), "");
}

TEST(RunPlace, RecognizesCopies) {
  const RunPlace original{.directory = "7 /data/a", .uid = "uid-1"};
  const struct {
    const char* what;
    RunPlace place;
    bool is_copy;
  } kCases[] = {
      {.what = "the same directory", .place = original, .is_copy = false},
      {.what = "renamed, or mounted elsewhere", .place = {"7 /data/b", "uid-1"}, .is_copy = false},
      {.what = "restored for its job", .place = {"8 /data/a", "uid-1"}, .is_copy = false},
      {.what = "restored without an operator", .place = {"8 /data/a", ""}, .is_copy = false},
      {.what = "used by the next job of the same name", .place = {"7 /data/a", "uid-2"}, .is_copy = false},
      {.what = "a copy at another path", .place = {"8 /data/b", "uid-1"}, .is_copy = true},
      {.what = "a copy that another job mounts at the same path", .place = {"8 /data/a", "uid-2"}, .is_copy = true},
      {.what = "not known", .place = {"", "uid-2"}, .is_copy = false},
  };
  for (const auto& row : kCases) EXPECT_EQ(is_copied(original, row.place), row.is_copy) << row.what;
  EXPECT_FALSE(is_copied({.directory = "", .uid = "uid-1"}, {.directory = "8 /data/a", .uid = "uid-2"}));
  EXPECT_FALSE(is_copied({.directory = "7 /data/a", .uid = ""}, {.directory = "8 /data/a", .uid = "uid-2"}));
}

}  // namespace
}  // namespace oarlock
