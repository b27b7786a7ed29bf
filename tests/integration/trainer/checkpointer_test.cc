// Runs whose saves fail, with each policy of checkpoint.on_error.
#include "trainer/engine/checkpointer.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/fence.h"

namespace oarlock {
namespace {

using test::eventually;

constexpr int64_t kBlockedStep = 10;

// A run of one rank whose save at kBlockedStep fails: a checkpoint of another release has that name.
class CheckpointerErrors : public testing::Test {
 protected:
  std::unique_ptr<Checkpointer> open(CheckpointErrors on_error) {
    const std::filesystem::path in_the_way = directory_.path() / checkpoint_directory_name(kBlockedStep);
    std::filesystem::create_directory(in_the_way);
    std::ofstream(in_the_way / kManifestFile) << R"({"format": "oarlock-checkpoint", "version": 99})";
    return open_directory(on_error);
  }

  std::unique_ptr<Checkpointer> open_directory(CheckpointErrors on_error) {
    auto opened = Checkpointer::open({.store = {.root = directory_.path(), .owner = {}, .keep = 0},
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

  const test::TemporaryDirectory directory_;
  const ProcessGroup group_;
  const RealClock clock_;
  const StopFlag stop_;
  StopAgreement stops_{stop_, group_, clock_};
  Telemetry telemetry_{{}, Logger::silent(), clock_};
  std::unique_ptr<DistributedDataParallelBase> model_ =
      std::move(*DistributedDataParallelBase::create(torch::nn::Linear(2, 2).ptr(), group_, {}, [] {}));
};

// The failure may be detected after the ranks' last agreement to stop.
TEST_F(CheckpointerErrors, StopEndsTheRunAtTheNextSave) {
  const auto checkpointer = open(CheckpointErrors::kStop);
  ASSERT_TRUE(save(*checkpointer, kBlockedStep, SaveUntil::kStarted));
  ASSERT_TRUE(wait_for_failure(*checkpointer));
  const Result<void> last = save(*checkpointer, kBlockedStep + 2, SaveUntil::kOnDisk);
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().code, ExitCode::kCheckpoint);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / checkpoint_directory_name(kBlockedStep + 2)));
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
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / checkpoint_directory_name(kBlockedStep + 2)));
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

// ---- links ---------------------------------------------------------------------------------------------------------

class CheckpointerLinks : public CheckpointerErrors {
 protected:
  std::string target(const char* link) const { return link_target(directory_.path(), link).value_or("none"); }
};

// A crash between the rename of a checkpoint and the update of the links leaves them as they were.
TEST_F(CheckpointerLinks, RestoreSetsThem) {
  for (const int64_t step : {2, 4})
    ASSERT_TRUE(save(*open_directory(CheckpointErrors::kStop), step, SaveUntil::kOnDisk));
  std::filesystem::remove(directory_.path() / kLastLink);
  std::filesystem::create_symlink(checkpoint_directory_name(2), directory_.path() / kLastLink);
  ASSERT_TRUE(open_directory(CheckpointErrors::kStop)->restore(*model_, {}));
  EXPECT_EQ(target(kLastLink), checkpoint_directory_name(4));
}

TEST_F(CheckpointerLinks, FailureEndsARestoreWithThePolicyStop) {
  ASSERT_TRUE(save(*open_directory(CheckpointErrors::kStop), 2, SaveUntil::kOnDisk));
  std::filesystem::remove(directory_.path() / kLastLink);
  std::filesystem::create_directories(directory_.path() / kLastLink / "in the way");
  const auto restored = open_directory(CheckpointErrors::kStop)->restore(*model_, {});
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, ExitCode::kIoErr);
}

// With the policy `continue`, the last save of a run sets the links, or fails, also if the checkpoint is saved already.
TEST_F(CheckpointerLinks, CompletionSetsThemOrFails) {
  ASSERT_TRUE(save(*open_directory(CheckpointErrors::kContinue), 2, SaveUntil::kOnDisk));
  std::filesystem::remove(directory_.path() / kLastLink);
  std::filesystem::create_directories(directory_.path() / kLastLink / "in the way");
  const auto checkpointer = open_directory(CheckpointErrors::kContinue);
  ASSERT_TRUE(checkpointer->restore(*model_, {}));
  for (const int64_t step : {2, 4}) {
    const Result<void> saved = save(*checkpointer, step, SaveUntil::kOnDisk);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, ExitCode::kIoErr);
    EXPECT_NE(saved.error().message.find("last: the link to"), std::string::npos) << saved.error().message;
    EXPECT_TRUE(std::filesystem::exists(directory_.path() / checkpoint_directory_name(step)));
  }
  std::filesystem::remove_all(directory_.path() / kLastLink);
  ASSERT_TRUE(save(*checkpointer, 4, SaveUntil::kOnDisk));
  EXPECT_EQ(target(kLastLink), checkpoint_directory_name(4));
}

// A rank that replaces a lost one, when a file has the place of the directory.
class ReplacedWriter : public CheckpointerErrors {
 protected:
  Result<std::unique_ptr<Checkpointer>> replace(CheckpointErrors on_error, int attempt = 0, int64_t generation = 0) {
    return Checkpointer::open(
        {.store = {.root = root_, .owner = {.uid = "job", .attempt = attempt, .generation = generation}, .keep = 0},
         .identity = {},
         .on_error = on_error,
         .on_all_damaged = AllDamaged::kStop,
         .best = std::nullopt,
         .is_replacement = true},
        group_, stops_, telemetry_, clock_);
  }

  const std::filesystem::path root_ = directory_.path() / "checkpoints";
};

TEST_F(ReplacedWriter, SavesWhenTheDirectoryIsAvailableAgain) {
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

TEST_F(ReplacedWriter, EndsIfANewerAttemptOwnsTheDirectory) {
  ASSERT_TRUE(replace(CheckpointErrors::kContinue, 2));
  const auto older = replace(CheckpointErrors::kContinue, 1);
  ASSERT_FALSE(older);
  EXPECT_TRUE(is_fenced_off(older.error())) << older.error().message;
}

// A rank 0 that was cut off neither saves nor writes other files of the run. One that remains in the next group has
// claimed the directory for it before it trains, also while a save is in flight.
TEST_F(ReplacedWriter, EndsIfALaterGenerationOwnsTheDirectory) {
  for (const bool remains : {false, true}) {
    const auto first = replace(CheckpointErrors::kContinue, 0, 0);
    ASSERT_TRUE(first);
    ASSERT_TRUE(save(**first, 61, SaveUntil::kOnDisk));
    EXPECT_TRUE((*first)->writer_check()());
    if (remains) {
      ASSERT_TRUE(save(**first, 62, SaveUntil::kStarted));
      ASSERT_TRUE((*first)->claim(2, "group"));
    }
    const auto second = replace(CheckpointErrors::kContinue, 0, 1);
    EXPECT_EQ(second.has_value(), !remains);
    if (!remains) {
      EXPECT_FALSE((*first)->claim(0, "another group"));
      ASSERT_TRUE(save(**second, 1400, SaveUntil::kOnDisk));
    }
    const Result<void> late = save(**first, 63, SaveUntil::kOnDisk);
    EXPECT_EQ(late.has_value(), remains);
    EXPECT_EQ((*first)->writer_check()().has_value(), remains);
    EXPECT_EQ(link_target(root_, kLastLink), checkpoint_directory_name(remains ? 63 : 1400));
    if (!late) {
      EXPECT_TRUE(is_fenced_off(late.error())) << late.error().message;
    }
    std::filesystem::remove_all(root_);
  }
}

}  // namespace
}  // namespace oarlock
