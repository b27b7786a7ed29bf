// The store: which checkpoints it keeps, who may write, and links.
#include "tests/support/paths.h"
#include "trainer/checkpoint/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/files.h"
#include "tests/support/blocked_file.h"
#include "tests/support/checkpoints.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/async_store.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/checkpoint/store.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::checkpoint_of;
using test::error_of;
using test::expect_is;
using test::in_child;
using test::must;
using test::names_in;
using test::open_store;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(CheckpointStore, KeepsTheNewest) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path(), {}, /*keep=*/2);
  for (const int64_t step : {1, 2, 3, 4}) ASSERT_TRUE(store->save(checkpoint_of(step)));
  EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "fence.json", "last", "step-00000003", "step-00000004"));
}

std::string target_of(const fs::path& link) { return fs::read_symlink(link).string(); }

TEST(CheckpointStore, NeverPrunesTheBest) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path(), {}, /*keep=*/1);
  ASSERT_TRUE(store->save(checkpoint_of(1), 1));
  EXPECT_EQ(target_of(directory.path() / "best"), "step-00000001");
  for (const int64_t step : {2, 3}) ASSERT_TRUE(store->save(checkpoint_of(step), 1));
  EXPECT_THAT(names_in(directory.path()),
              ElementsAre(".lock", "best", "fence.json", "last", "step-00000001", "step-00000003"));
  EXPECT_EQ(target_of(directory.path() / "last"), "step-00000003");
  expect_is(must(read_checkpoint(directory.path() / "best")), 1);

  ASSERT_TRUE(store->save(checkpoint_of(4), 4));  // better
  EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "best", "fence.json", "last", "step-00000004"));
  EXPECT_EQ(target_of(directory.path() / "best"), "step-00000004");

  ASSERT_TRUE(store->save(checkpoint_of(5)));  // a run that has no best any more
  EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "fence.json", "last", "step-00000005"));
}

TEST(CheckpointStore, NextWriterRemovesLeftovers) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(1)));
  // The possible leftovers of a crash: a partly written directory, a partly removed one, a temporary fence file and, on
  // file systems that cannot exchange names, a replaced checkpoint whose successor was not renamed yet.
  fs::create_directory(directory.path() / ".writing-step-00000002-0-77");
  std::ofstream(directory.path() / ".writing-step-00000002-0-77" / "model.safetensors") << "half";
  fs::create_directory(directory.path() / ".removed-step-00000000");
  std::ofstream(directory.path() / "fence.json.tmp-77") << "{";
  std::ofstream(directory.path() / "fence.json.tmp-77-0a1b2c3d") << "{";
  fs::create_symlink("step-00000002", directory.path() / ".link-last-77-0a1b2c3d");
  fs::create_directory(directory.path() / "report");
  for (const char* name : {"history.json.tmp-77", "history.json.tmp-77-0a1b2c3d", "history.json.tmp-mine"})
    std::ofstream(directory.path() / "report" / name) << "{";
  fs::rename(directory.path() / "step-00000001", directory.path() / ".replaced-step-00000001");
  must(CheckpointStore::open({.root = directory.path(), .other_files = {"report/history.json"}}, Logger::silent()));
  EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "fence.json", "last", "report", "step-00000001"));
  EXPECT_THAT(names_in(directory.path() / "report"), ElementsAre("history.json.tmp-mine"));
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 1);
}

TEST(CheckpointStore, FencesOlderAttempts) {
  const test::TemporaryDirectory directory;
  const auto first = open_store(directory.path(), {.uid = "a", .attempt = 0});
  ASSERT_TRUE(first->save(checkpoint_of(1)));
  EXPECT_TRUE(first->check_fence());
  const auto second = open_store(directory.path(), {.uid = "a", .attempt = 1});

  const auto refused = first->save(checkpoint_of(2));
  EXPECT_EQ(error_of(refused).code, ExitCode::kTempFail);
  EXPECT_THAT(error_of(refused).message,
              HasSubstr("attempt 0 of this job may not write here any more: attempt 1 has taken over"));
  EXPECT_FALSE(first->check_fence());
  EXPECT_THAT(names_in(directory.path()), ElementsAre(".lock", "fence.json", "last", "step-00000001"));
  const auto reopened =
      CheckpointStore::open({.root = directory.path(), .owner = {.uid = "a", .attempt = 0}}, Logger::silent());
  EXPECT_EQ(error_of(reopened).code, ExitCode::kTempFail);

  EXPECT_TRUE(second->save(checkpoint_of(2)));
  EXPECT_TRUE(open_store(directory.path(), {.uid = "a", .attempt = 1})->save(checkpoint_of(3)))
      << "the same attempt again";
}

struct Successor {
  std::string name;
  CheckpointOwner old_owner;
  CheckpointOwner new_owner;
  std::string message;  // of the old one's error; empty: it may still write
};

std::ostream& operator<<(std::ostream& out, const Successor& successor) { return out << successor.name; }

class FencedGeneration : public testing::TestWithParam<Successor> {};

// The old writer changes no name of the root after its successor has claimed it.
TEST_P(FencedGeneration, ChangesNothing) {
  const Successor& successor = GetParam();
  const test::TemporaryDirectory directory;
  const auto old_store = open_store(directory.path(), successor.old_owner, /*keep=*/1);
  must(old_store->save(checkpoint_of(20), 20));
  const auto new_store = open_store(directory.path(), successor.new_owner, /*keep=*/2);
  for (const int64_t step : {200, 1400}) must(new_store->save(checkpoint_of(step), 200));
  const std::vector<std::string> names = names_in(directory.path());
  const auto saved = old_store->save(checkpoint_of(61), 20);
  const Result<void> repaired = old_store->repair_links(20, 20);
  if (successor.message.empty()) {
    EXPECT_TRUE(saved);
    return;
  }
  EXPECT_EQ(error_of(saved).code, ExitCode::kTempFail);
  EXPECT_THAT(error_of(saved).message, HasSubstr(successor.message));
  EXPECT_TRUE(is_fenced_off(error_of(repaired)));
  EXPECT_FALSE(CheckpointStore::open({.root = directory.path(), .owner = successor.old_owner}, Logger::silent()));
  EXPECT_EQ(names_in(directory.path()), names);
  EXPECT_EQ(target_of(directory.path() / "last"), "step-00001400");
  EXPECT_EQ(target_of(directory.path() / "best"), "step-00000200");
  must(new_store->save(checkpoint_of(1500), 200));
}

INSTANTIATE_TEST_SUITE_P(
    CheckpointStore, FencedGeneration,
    testing::Values(
        Successor{.name = "LaterGeneration",
                  .old_owner = {.uid = "a", .attempt = 0, .generation = 0},
                  .new_owner = {.uid = "a", .attempt = 0, .generation = 1},
                  .message = "generation 0 of attempt 0 of this job may not write here any more: generation 1 has "
                             "taken over"},
        Successor{.name = "LaterAttempt",
                  .old_owner = {.uid = "a", .attempt = 0, .generation = 7},
                  .new_owner = {.uid = "a", .attempt = 1, .generation = 0},
                  .message = "attempt 0 of this job may not write here any more: attempt 1 has taken over"},
        Successor{.name = "SameGeneration",
                  .old_owner = {.uid = "a", .attempt = 0, .generation = 2},
                  .new_owner = {.uid = "a", .attempt = 0, .generation = 2},
                  .message = ""},
        // Each launch without a UID begins with generation 0.
        Successor{.name = "NextLaunchWithoutUid",
                  .old_owner = {.uid = "", .attempt = 0, .generation = 3},
                  .new_owner = {.uid = "", .attempt = 0, .generation = 0},
                  .message = ""}),
    [](const auto& test_case) { return test_case.param.name; });

// Two coordinators have formed groups of one generation: the first that claims the fence keeps it.
TEST(CheckpointStore, OneOfTwoGroupsOfAGenerationHoldsTheFence) {
  const test::TemporaryDirectory directory;
  const CheckpointOwner first{.uid = "a", .attempt = 0, .generation = 2, .group = "oarlock/2/a"};
  CheckpointOwner second = first;
  second.group = "oarlock/2/b";
  const auto store = open_store(directory.path(), first);
  const Error refused = error_of(CheckpointStore::open({.root = directory.path(), .owner = second}, Logger::silent()));
  EXPECT_EQ(refused.code, ExitCode::kTempFail);
  EXPECT_THAT(refused.message, HasSubstr("generation 2 of attempt 0 of this job may not write here any more: another "
                                         "group of generation 2 has taken over"));
  EXPECT_TRUE(is_fenced_off(refused));
  must(store->save(checkpoint_of(20), 20));
}

// A rank 0 that remains in the next group keeps the root.
TEST(CheckpointStore, ClaimsTheFenceForItsNextGeneration) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path(), {.uid = "a", .attempt = 0, .generation = 0});
  store->set_group(2, "group");
  ASSERT_TRUE(store->claim());
  EXPECT_TRUE(is_fenced_off(error_of(CheckpointStore::open(
      {.root = directory.path(), .owner = {.uid = "a", .attempt = 0, .generation = 1}}, Logger::silent()))));
}

// Trainers of earlier releases read these members, and ignore the others.
TEST(CheckpointStore, EarlierReleasesReadTheFence) {
  const test::TemporaryDirectory directory;
  open_store(directory.path(), {.uid = "a", .attempt = 2, .generation = 3});
  EXPECT_EQ(nlohmann::json::parse(must(read_file(directory.path() / "fence.json"))),
            nlohmann::json({{"uid", "a"}, {"attempt", 2}, {"generation", 3}, {"displaced", nlohmann::json::array()}}));
}

// As after a crash between the rename of a checkpoint and the update of the links.
TEST(CheckpointStore, RepairsLinks) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path());
  for (const int64_t step : {2, 4}) must(store->save(checkpoint_of(step), step));
  for (const char* link : {"last", "best"}) {
    fs::remove(directory.path() / link);
    fs::create_symlink("step-00000002", directory.path() / link);
    ASSERT_TRUE(store->repair_links(4, 4));
    EXPECT_EQ(target_of(directory.path() / link), "step-00000004");
    fs::remove(directory.path() / link);
    ASSERT_TRUE(store->repair_links(4, 4));
    EXPECT_EQ(target_of(directory.path() / link), "step-00000004");
  }
  ASSERT_TRUE(store->repair_links(4, 3)) << "the best checkpoint was removed";
  EXPECT_EQ(target_of(directory.path() / "best"), "step-00000004");
}

// A tool that follows links copies a checkpoint into the place of each link.
TEST(CheckpointStore, SetsAsideDirectoryInPlaceOfLink) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path());
  must(store->save(checkpoint_of(1), 1));
  for (const int64_t step : {2, 3}) {
    for (const char* link : {"last", "best"}) {
      fs::remove(directory.path() / link);
      fs::copy(directory.path() / "step-00000001", directory.path() / link);
    }
    ASSERT_TRUE(step == 2 ? store->repair_links(1, 1) : must(store->save(checkpoint_of(step), step)).links);
    for (const char* link : {"last", "best"}) {
      EXPECT_EQ(target_of(directory.path() / link), step == 2 ? "step-00000001" : "step-00000003");
      EXPECT_EQ(verify_checkpoint(directory.path() / ("copied-" + std::string(link) + (step == 2 ? "" : "-2"))), 1);
    }
  }
}

TEST(CheckpointStore, ReportsLinkThatCannotBeSet) {
  for (const char* link : {"last", "best"}) {
    const test::TemporaryDirectory directory;
    const auto store = open_store(directory.path(), {}, /*keep=*/1);
    fs::create_directories(directory.path() / link / "in the way");
    for (const int64_t step : {1, 2}) {
      const SavedCheckpoint saved = must(store->save(checkpoint_of(step), step));
      EXPECT_EQ(error_of(saved.links).code, ExitCode::kIoErr);
      EXPECT_THAT(error_of(saved.links).message, HasSubstr(std::string(link) + ": the link to step-0000000"));
    }
    EXPECT_EQ(error_of(store->repair_links(2, 2)).code, ExitCode::kIoErr);
    EXPECT_FALSE(fs::exists(directory.path() / "step-00000001")) << "old checkpoints are removed nevertheless";
    fs::remove_all(directory.path() / link);
    ASSERT_TRUE(store->repair_links(2, 2));
    EXPECT_EQ(target_of(directory.path() / link), "step-00000002");
  }
}

TEST(CheckpointStore, FencesDisplacedJob) {
  const test::TemporaryDirectory directory;
  const auto old_job = open_store(directory.path(), {.uid = "old", .attempt = 9});
  const auto new_job = open_store(directory.path(), {.uid = "new", .attempt = 0});
  const auto refused = old_job->save(checkpoint_of(1));
  EXPECT_EQ(error_of(refused).code, ExitCode::kTempFail);
  EXPECT_THAT(error_of(refused).message, HasSubstr("job \"new\" has taken over"));
  EXPECT_TRUE(new_job->save(checkpoint_of(1)));
}

TEST(CheckpointStore, RunsWithoutUidDisplaceEachOther) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(1)));
  ASSERT_TRUE(open_store(directory.path(), {.uid = "a"})->save(checkpoint_of(2)));
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(3)));
}

TEST(CheckpointStore, KeepsDamagedFence) {
  const test::TemporaryDirectory directory;
  // The regroup protocol has no such generation: a rank that reported it would not be in a group.
  constexpr char kHugeGeneration[] = R"({"uid":"a","attempt":0,"generation":9223372036854775807,"displaced":[]})";
  for (const char* text : {"{\"uid\": \"a\"}", kHugeGeneration}) {
    SCOPED_TRACE(text);
    std::ofstream(directory.path() / "fence.json") << text;
    const auto store = CheckpointStore::open({.root = directory.path()}, Logger::silent());
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, ExitCode::kDataErr);
    EXPECT_THAT(store.error().message, HasSubstr("fence.json: not a fence file; remove it"));
    EXPECT_EQ(claimed_generation(directory.path(), {.uid = "a"}), -1);
  }
}

TEST(CheckpointStore, RecreatesRemovedRoot) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path() / "root");
  fs::remove_all(directory.path() / "root");
  EXPECT_TRUE(store->save(checkpoint_of(1)));
}

TEST(CheckpointStore, ReportsUnwritableDirectories) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "";
  const auto under_a_file = CheckpointStore::open({.root = directory.path() / "file" / "root"}, Logger::silent());
  ASSERT_FALSE(under_a_file);
  EXPECT_EQ(under_a_file.error().code, ExitCode::kCantCreate);
  EXPECT_THAT(under_a_file.error().message, HasSubstr("file/root"));

  ASSERT_TRUE(open_store(directory.path() / "root")->save(checkpoint_of(1)));
  fs::permissions(directory.path(), fs::perms(0755));
  fs::permissions(directory.path() / "root", fs::perms(0555));
  const int code = in_child([&] {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 200;
    const auto store = CheckpointStore::open({.root = directory.path() / "root"}, Logger::silent());
    return store ? 0 : to_int(store.error().code);
  });
  EXPECT_EQ(code, to_int(ExitCode::kCantCreate));
  fs::permissions(directory.path() / "root", fs::perms(0755));
  EXPECT_EQ(must(find_latest_checkpoint(directory.path() / "root")).step, 1);
}

}  // namespace
}  // namespace oarlock
