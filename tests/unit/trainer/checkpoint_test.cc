// Checkpoints: round trips, detection of damage, retention, and fencing of older attempts.
#include "trainer/checkpoint/checkpoint.h"
#include "tests/support/paths.h"

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

void flip_byte(const fs::path& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  ASSERT_TRUE(file.good());
}

TEST(Checkpoint, RoundTrips) {
  const test::TemporaryDirectory directory;
  const auto store = open_store(directory.path() / "new" / "root", {.uid = "job-1", .attempt = 4});
  const Checkpoint saved = checkpoint_of(1234);
  const auto result = store->save(saved);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->directory, directory.path() / "new" / "root" / "step-00001234");
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(result->directory)) bytes += static_cast<int64_t>(entry.file_size());
  EXPECT_EQ(result->bytes, bytes);
  EXPECT_THAT(names_in(result->directory), ElementsAre("manifest.json", "model.safetensors", "noise.safetensors",
                                                       "optimizer.safetensors", "state.json"));

  const auto read = read_checkpoint(result->directory);
  ASSERT_TRUE(read) << read.error().message;
  expect_is(*read, 1234);
  EXPECT_EQ(read->state.epoch, 123);
  EXPECT_EQ(read->state.epoch_samples, 1234 * 64);
  EXPECT_EQ(read->state.world_size, 2);
  EXPECT_EQ(read->state.owner, (CheckpointOwner{.uid = "job-1", .attempt = 4}));
  EXPECT_EQ(read->state.high_water_step, 1239);
  EXPECT_EQ(read->state.sections, saved.state.sections);
  EXPECT_EQ(read->state.extra, saved.state.extra);
  EXPECT_TRUE(at::equal(read->tensors.at("noise").at("rank0.cpu"), at::arange(256).to(at::kByte)));
}

// tests/data/older_checkpoints was written by the sources of 2026-11-22 (7a58ea1): test::checkpoint_of() of the steps
// 10 and 20 with 8 elements, by attempt 2, and the first one is the best.
TEST(Checkpoint, ReadsDirectoryOfAnEarlierVersion) {
  const test::TemporaryDirectory directory;
  const fs::path root = directory.path() / "root";
  fs::copy(test::data_path("older_checkpoints"), root, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const LatestCheckpoint latest = must(read_latest_checkpoint(root));
  EXPECT_TRUE(latest.search.skipped.empty());
  ASSERT_TRUE(latest.checkpoint);
  const Checkpoint expected = checkpoint_of(20, 8);
  expect_is(*latest.checkpoint, 20);
  EXPECT_EQ(latest.checkpoint->state.epoch_samples, expected.state.epoch_samples);
  EXPECT_EQ(latest.checkpoint->state.high_water_step, expected.state.high_water_step);
  EXPECT_EQ(latest.checkpoint->state.owner, (CheckpointOwner{.uid = "job-uid-1", .attempt = 2}));
  EXPECT_EQ(latest.checkpoint->state.sections, expected.state.sections);
  EXPECT_EQ(latest.checkpoint->state.extra, expected.state.extra);
  expect_is(must(read_checkpoint(root / kBestLink)), 10);

  // Its fence, which has no generation, holds: an earlier attempt may not write, a later generation continues the
  // directory and fences off the one before it, and so does the next attempt.
  EXPECT_EQ(
      error_of(CheckpointStore::open({.root = root, .owner = {.uid = "job-uid-1", .attempt = 1}}, Logger::silent()))
          .code,
      ExitCode::kTempFail);
  const auto same = open_store(root, {.uid = "job-uid-1", .attempt = 2});
  open_store(root, {.uid = "job-uid-1", .attempt = 2, .generation = 1});
  EXPECT_FALSE(same->check_fence());
  must(open_store(root, {.uid = "job-uid-1", .attempt = 3}, 2)->save(checkpoint_of(30), 10));
  EXPECT_THAT(names_in(root), testing::IsSupersetOf({"step-00000010", "step-00000020", "step-00000030"}));
  expect_is(must(read_checkpoint(root / kLastLink)), 30);
}

void take(HostCopy& copy, const TensorSections& live) {
  copy.begin(live, {});
  copy.finish();
}

TEST(HostCopy, CopiesAndReusesItsMemory) {
  const at::Tensor original = at::arange(6).reshape({2, 3});
  HostCopy copy;
  copy.reserve({{"model", {{"t", original.t()}}}});
  const void* memory = copy.tensors().at("model").at("t").const_data_ptr();
  take(copy, {{"model", {{"t", original.t()}}}});
  const at::Tensor& t = copy.tensors().at("model").at("t");
  EXPECT_EQ(t.const_data_ptr(), memory);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(at::equal(t, original.t()));
  original.zero_();
  EXPECT_EQ(t.sum().item<int64_t>(), 15);
  take(copy, {{"model", {{"t", original.t()}}}, {"ema", {{"t", at::full({2}, 3)}}}});
  EXPECT_EQ(copy.tensors().at("model").at("t").const_data_ptr(), memory);
  EXPECT_EQ(copy.tensors().at("ema").at("t").sum().item<int64_t>(), 6);
  take(copy, {{"model", {{"u", at::full({1}, 7)}}}});
  EXPECT_EQ(copy.tensors().size(), 1U);
  EXPECT_FALSE(copy.tensors().at("model").contains("t"));
}

TEST(HostCopy, CopiesImmediateTensorsFirst) {
  const at::Tensor weight = at::full({1 << 20}, 1.0);
  const at::Tensor running_mean = at::full({4}, 1.0);
  HostCopy copy;
  EXPECT_TRUE(copy.released());
  for (int round = 1; round <= 20; ++round) {
    copy.begin({{"model", {{"weight", weight}, {"running_mean", running_mean}}}}, {"running_mean"});
    EXPECT_FALSE(copy.released());
    running_mean.add_(1);  // the next forward pass
    std::jthread writer([&] { copy.finish(); });
    copy.wait_for_release();
    weight.add_(1);  // the next update
    writer.join();
    EXPECT_TRUE(copy.released());
    EXPECT_TRUE(at::equal(copy.tensors().at("model").at("weight"), at::full({1 << 20}, static_cast<double>(round))));
    EXPECT_TRUE(at::equal(copy.tensors().at("model").at("running_mean"), at::full({4}, static_cast<double>(round))));
  }
}

TEST(HostCopy, ReleasesWhenCopyThrows) {
  HostCopy copy;
  const at::Tensor weight = at::full({4}, 1.0);
  copy.begin({{"model", {{"weight", weight}}}}, {});
  copy.tensors().at("model").at("weight").unsafeGetTensorImpl()->set_storage_access_should_throw();
  EXPECT_THROW(copy.finish(), c10::Error);
  EXPECT_TRUE(copy.released());
}

TEST(Checkpoint, DetectsEveryFlippedByte) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(7, /*floats=*/4)));
  const fs::path step = directory.path() / "step-00000007";
  for (const std::string& name : names_in(step)) {
    const std::string good = must(read_file(step / name));
    for (size_t at = 0; at < good.size(); ++at) {
      // White space in the manifest carries nothing, and may become other white space.
      if (name == kManifestFile && std::isspace(static_cast<unsigned char>(good[at])) != 0) continue;
      flip_byte(step / name, at);
      const auto valid = verify_checkpoint(step);
      ASSERT_FALSE(valid) << name << " byte " << at;
      EXPECT_THAT(valid.error().message, HasSubstr(step.string()));
      EXPECT_FALSE(read_checkpoint(step));
      flip_byte(step / name, at);
    }
  }
  EXPECT_TRUE(verify_checkpoint(step));
}

TEST(Checkpoint, NamesMissingAndShortFiles) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(7)));
  const fs::path step = directory.path() / "step-00000007";
  for (const std::string& name : names_in(step)) {
    const std::string good = must(read_file(step / name));
    fs::resize_file(step / name, good.size() - 1);
    if (name != kManifestFile) {  // the manifest's last byte is a line end
      EXPECT_THAT(error_of(verify_checkpoint(step)).message,
                  HasSubstr(name + ": expected " + std::to_string(good.size()) + " bytes, found"));
    }
    fs::remove(step / name);
    EXPECT_THAT(error_of(verify_checkpoint(step)).message, HasSubstr(name));
    std::ofstream(step / name, std::ios::binary) << good;
  }
  EXPECT_TRUE(verify_checkpoint(step));
}

TEST(CheckpointSearch, FindsNewestValidAndReportsSkipped) {
  const test::TemporaryDirectory directory;
  EXPECT_FALSE(must(find_latest_checkpoint(directory.path() / "none")).directory);
  EXPECT_FALSE(must(find_latest_checkpoint(directory.path())).directory);
  const auto store = open_store(directory.path());
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(store->save(checkpoint_of(step)));
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 40);

  flip_byte(directory.path() / "step-00000040" / "model.safetensors", 4000);
  fs::remove(directory.path() / "step-00000030" / kManifestFile);  // as if it had not been written to its end
  fs::copy(directory.path() / "step-00000010", directory.path() / "step-00000050");
  fs::create_directory(directory.path() / "step-60");  // not a name of ours
  fs::create_directory(directory.path() / ".writing-step-00000070-0-1");
  const auto search = must(find_latest_checkpoint(directory.path()));
  EXPECT_EQ(search.step, 20);
  EXPECT_EQ(search.directory, directory.path() / "step-00000020");
  ASSERT_EQ(search.skipped.size(), 3U);
  EXPECT_THAT(search.skipped[0].reason, HasSubstr("step-00000050: it contains step 10"));
  EXPECT_THAT(search.skipped[1].reason, HasSubstr("step-00000040/model.safetensors: expected checksum"));
  EXPECT_THAT(search.skipped[2].reason, HasSubstr("step-00000030: it has no manifest.json"));
}

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

TEST(HighWater, PersistsAndNeverDecreases) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(read_high_water(directory.path()), 0);
  {
    HighWater water(directory.path());
    water.raise(7);
    water.raise(1234567);
    EXPECT_EQ(read_high_water(directory.path()), 1234567);
  }
  HighWater(directory.path()).raise(8);
  EXPECT_EQ(read_high_water(directory.path()), 1234567);
  std::ofstream(directory.path() / "reached") << "nonsense";
  EXPECT_EQ(read_high_water(directory.path()), 0);
}

TEST(HighWater, IsNotLoweredByAnEarlierWriter) {
  const test::TemporaryDirectory directory;
  HighWater earlier(directory.path());
  earlier.raise(60);
  HighWater(directory.path()).raise(1400);
  earlier.raise(61);
  EXPECT_EQ(read_high_water(directory.path()), 1400);
}

TEST(HighWater, IgnoresAnythingElseInThePlaceOfItsFile) {
  const test::TemporaryDirectory directory;
  const fs::path file = directory.path() / "reached";
  const auto expect_ignored = [&] {
    HighWater(directory.path()).raise(7);
    EXPECT_EQ(read_high_water(directory.path()), 0);
    fs::remove(file);
  };
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);  // with neither a reader nor a writer
  expect_ignored();
  fs::create_symlink("/dev/zero", file);
  expect_ignored();
  fs::create_directory(file);
  expect_ignored();
}

TEST(AsyncHighWater, WritesTheMark) {
  const test::TemporaryDirectory directory;
  AsyncHighWater water(directory.path());
  EXPECT_TRUE(water.flush(std::chrono::minutes(1)));
  for (const int64_t step : {7, 1234567, 8}) water.raise(step);
  EXPECT_TRUE(water.flush(std::chrono::minutes(1)));
  EXPECT_EQ(read_high_water(directory.path()), 1234567);
}

TEST(AsyncHighWater, DoesNotWaitForAFileServer) {
  const test::TemporaryDirectory directory;
  HighWater(directory.path()).raise(3);
  std::optional<test::BlockedFile> blocked(directory.path() / "reached");
  AsyncHighWater water(directory.path());
  water.raise(7);
  EXPECT_FALSE(water.flush(std::chrono::milliseconds(1)));
  ASSERT_TRUE(blocked->wait_for_reader());
  blocked.reset();
  EXPECT_TRUE(water.flush(std::chrono::minutes(1)));
  EXPECT_EQ(read_high_water(directory.path()), 7);
}

TEST(AsyncHighWater, AbandonsAThreadThatIsBlocked) {
  const test::TemporaryDirectory directory;
  HighWater(directory.path()).raise(3);
  const test::BlockedFile blocked(directory.path() / "reached");
  const auto begin = std::chrono::steady_clock::now();
  {
    AsyncHighWater water(directory.path());
    water.raise(7);
    ASSERT_TRUE(blocked.wait_for_reader());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // a lease ends after 45 s
}

TEST(AsyncCheckpointStore, SavesInTheBackground) {
  const test::TemporaryDirectory directory;
  const RealClock clock;
  AsyncCheckpointStore store(open_store(directory.path()), clock);
  std::mutex gate;
  std::unique_lock closed(gate);
  store.start(checkpoint_of(1), std::nullopt, [&] { const std::lock_guard wait(gate); });
  EXPECT_TRUE(store.is_busy());
  EXPECT_FALSE(store.poll()) << "the writer waits at the gate";
  EXPECT_FALSE(store.wait(std::chrono::milliseconds(1)));
  EXPECT_THROW(store.start(checkpoint_of(2), std::nullopt), std::logic_error);
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, -1);
  closed.unlock();
  const auto saved = store.wait();
  ASSERT_TRUE(saved);
  ASSERT_TRUE(saved->result) << saved->result.error().message;
  EXPECT_EQ(saved->state.step, 1);
  EXPECT_FALSE(store.is_busy());
  EXPECT_FALSE(store.wait());
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 1);
}

TEST(AsyncCheckpointStore, ReportsFailureAndSavesAgain) {
  const test::TemporaryDirectory directory;
  const RealClock clock;
  AsyncCheckpointStore store(open_store(directory.path()), clock);
  Checkpoint bad = checkpoint_of(1);
  bad.tensors.erase(kModelTensors);
  store.start(std::move(bad), std::nullopt);
  EXPECT_FALSE(must(store.wait()).result);
  store.start(checkpoint_of(2), std::nullopt, [] { throw std::runtime_error("the copy failed"); });
  EXPECT_THAT(error_of(must(store.wait()).result).message, HasSubstr("the copy failed"));
  store.start(checkpoint_of(3), std::nullopt);
  EXPECT_TRUE(must(store.wait()).result);
}

TEST(AsyncCheckpointStore, CompletesSaveOnDestruction) {
  const test::TemporaryDirectory directory;
  const RealClock clock;
  AsyncCheckpointStore(open_store(directory.path()), clock).start(checkpoint_of(1), std::nullopt);
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 1);
}

// After step 40 was found damaged, the run resumes from 30. Step 40 must neither take precedence over the checkpoints
// that the run writes now, nor be destroyed by them.
TEST(CheckpointStore, DamagedNewerStepsDoNotDisplaceValidOnes) {
  const test::TemporaryDirectory directory;
  ASSERT_TRUE(open_store(directory.path())->save(checkpoint_of(40)));
  flip_byte(directory.path() / "step-00000040" / "state.json", 1);
  const auto store = open_store(directory.path(), {}, /*keep=*/1);
  ASSERT_TRUE(store->save(checkpoint_of(31)));
  ASSERT_TRUE(store->save(checkpoint_of(32)));
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 32);
  // The run reaches step 40 again.
  ASSERT_TRUE(store->save(checkpoint_of(40)));
  EXPECT_EQ(must(find_latest_checkpoint(directory.path())).step, 40);
  EXPECT_TRUE(must(find_latest_checkpoint(directory.path())).skipped.empty());
  EXPECT_THAT(names_in(directory.path()),
              ElementsAre(".lock", "damaged-step-00000040", "fence.json", "last", "step-00000040"));
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
