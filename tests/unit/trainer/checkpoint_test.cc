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

}  // namespace
}  // namespace oarlock
