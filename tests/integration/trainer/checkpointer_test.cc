// Runs whose saves fail, with each policy of checkpoint.on_error.
#include "trainer/engine/checkpointer.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace oarlock {
namespace {

using test::eventually;

constexpr int64_t kBlockedStep = 10;

// A run of one rank whose save at kBlockedStep fails: a checkpoint of another release has that name.
class CheckpointerErrors : public testing::Test {
 protected:
  std::unique_ptr<Checkpointer> open(CheckpointErrors on_error) {
    const std::filesystem::path in_the_way = folder_.path() / checkpoint_folder_name(kBlockedStep);
    std::filesystem::create_directory(in_the_way);
    std::ofstream(in_the_way / kManifestFile) << R"({"format": "oarlock-checkpoint", "version": 99})";
    auto opened = Checkpointer::open({.store = {.root = folder_.path(), .owner = {}, .keep = 0},
                                      .identity = {},
                                      .on_error = on_error,
                                      .on_all_damaged = AllDamaged::kStop,
                                      .best = std::nullopt},
                                     group_, stops_, telemetry_, clock_);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }

  Result<void> save(Checkpointer& checkpointer, int64_t step, SaveUntil until) {
    return checkpointer.save({.step = step}, *model_, {}, until);
  }

  // Waits until the failure of the started save was detected.
  bool wait_for_failure(Checkpointer& checkpointer) {
    return eventually([&] { return checkpointer.poll(kBlockedStep + 1); });
  }

  const test::TemporaryFolder folder_;
  const ProcessGroup group_;
  const RealClock clock_;
  const StopFlag stop_;
  StopAgreement stops_{stop_, group_, clock_};
  Telemetry telemetry_{{}, Logger::silent(), clock_};
  std::unique_ptr<DistributedDataParallel> model_ =
      std::move(*DistributedDataParallel::create(torch::nn::Linear(2, 2).ptr(), group_, {}, [] {}));
};

// The failure may be detected after the ranks' last agreement to stop.
TEST_F(CheckpointerErrors, StopEndsTheRunAtTheNextSave) {
  const auto checkpointer = open(CheckpointErrors::kStop);
  ASSERT_TRUE(save(*checkpointer, kBlockedStep, SaveUntil::kStarted));
  ASSERT_TRUE(wait_for_failure(*checkpointer));
  const Result<void> last = save(*checkpointer, kBlockedStep + 2, SaveUntil::kOnDisk);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, ExitCode::kCheckpoint);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / checkpoint_folder_name(kBlockedStep + 2)));
}

TEST_F(CheckpointerErrors, StopEndsTheRunAtTheAgreement) {
  const auto checkpointer = open(CheckpointErrors::kStop);
  ASSERT_TRUE(save(*checkpointer, kBlockedStep, SaveUntil::kStarted));
  ASSERT_TRUE(wait_for_failure(*checkpointer));
  const Result<void> agreed = checkpointer->agree_on_failure();
  ASSERT_FALSE(agreed);
  EXPECT_EQ(agreed.error().code, ExitCode::kCheckpoint);
}

TEST_F(CheckpointerErrors, ContinueSavesTheNextPosition) {
  const auto checkpointer = open(CheckpointErrors::kContinue);
  ASSERT_TRUE(save(*checkpointer, kBlockedStep, SaveUntil::kStarted));
  EXPECT_TRUE(save(*checkpointer, kBlockedStep + 2, SaveUntil::kOnDisk));
  EXPECT_FALSE(checkpointer->poll(kBlockedStep + 3));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / checkpoint_folder_name(kBlockedStep + 2)));
}

// The ranks may have agreed to stop while they waited for the last save.
TEST_F(CheckpointerErrors, TheBestCheckpointIsNotReadAfterAnAgreementToStop) {
  const auto checkpointer = open(CheckpointErrors::kContinue);
  ASSERT_TRUE(save(*checkpointer, kBlockedStep + 2, SaveUntil::kOnDisk));
  ASSERT_TRUE(stops_.agree(/*wish=*/true));
  const Result<std::optional<int64_t>> best = checkpointer->restore_best(*model_, {});
  ASSERT_FALSE(best);
  EXPECT_EQ(best.error().code, ExitCode::kTempFail);
}

// A rank that replaces a lost one, when a file has the place of the folder.
class ReplacedWriter : public CheckpointerErrors {
 protected:
  Result<std::unique_ptr<Checkpointer>> replace(CheckpointErrors on_error, int attempt = 0) {
    return Checkpointer::open({.store = {.root = root_, .owner = {.uid = "job", .attempt = attempt}, .keep = 0},
                               .identity = {},
                               .on_error = on_error,
                               .on_all_damaged = AllDamaged::kStop,
                               .best = std::nullopt,
                               .is_replacement = true},
                              group_, stops_, telemetry_, clock_);
  }

  const std::filesystem::path root_ = folder_.path() / "checkpoints";
};

TEST_F(ReplacedWriter, SavesWhenTheFolderIsAvailableAgain) {
  std::ofstream(root_) << "in the way";
  const auto checkpointer = replace(CheckpointErrors::kContinue);
  ASSERT_TRUE(checkpointer) << checkpointer.error().message;
  const Result<bool> joined = (*checkpointer)->join(/*is_new=*/true, *model_, {});
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_TRUE(save(**checkpointer, 3, SaveUntil::kStarted));
  EXPECT_FALSE(save(**checkpointer, 4, SaveUntil::kOnDisk));
  std::filesystem::remove(root_);
  EXPECT_TRUE(save(**checkpointer, 5, SaveUntil::kOnDisk));
  EXPECT_EQ(find_latest_checkpoint(root_)->step, 5);
}

TEST_F(ReplacedWriter, EndsWithThePolicyStop) {
  std::ofstream(root_) << "in the way";
  EXPECT_FALSE(replace(CheckpointErrors::kStop));
}

TEST_F(ReplacedWriter, EndsIfANewerAttemptOwnsTheFolder) {
  ASSERT_TRUE(replace(CheckpointErrors::kContinue, 2));
  const auto older = replace(CheckpointErrors::kContinue, 1);
  ASSERT_FALSE(older);
  EXPECT_TRUE(is_fenced_off(older.error())) << older.error().message;
}

}  // namespace
}  // namespace oarlock
