// Runs of the trainer program that are stopped and resume from their checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/integration/trainer/run_support.h"

namespace oarlock {
namespace {

using test::bits_of;
using test::eventually;
using test::kLong;
using test::seconds_of;
using test::TemporaryDirectory;
using test::TrainerRanks;
using test::undisturbed;
using test::wait_for_step;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Resume, ResumedAfterSigkillItEndsWithTheSameBits) {
  for (const int world_size : {1, 2}) {
    const std::string config =
        "task: tiny\nepochs: 30\nbatch: {size: 16}\ncheckpoint: {every_steps: 20, every_epochs: 0}\nseed: 3\n";
    const TemporaryDirectory whole;
    const TemporaryDirectory parts;
    const std::string expected = undisturbed(world_size, config, whole.path());
    const std::string arguments = parts.path().string();
    {
      TrainerRanks ranks(world_size, {.config = config + "# killed\n",
                                      .arguments = {"--checkpoint-dir", arguments},
                                      .environment = {},
                                      .directory = {}});
      ASSERT_TRUE(eventually([&] { return find_latest_checkpoint(parts.path())->step >= 20; }));
      ranks.rank(world_size - 1).signal(SIGKILL);
      const std::vector<int> codes = ranks.wait();
      EXPECT_EQ(codes.back(), 128 + SIGKILL) << "it must not have been over already";
    }
    const int64_t from = find_latest_checkpoint(parts.path())->step;
    TrainerRanks resumed(world_size, {.config = config,
                                      .arguments = {"--checkpoint-dir", arguments},
                                      .environment = {{"OARLOCK_ATTEMPT", "1"}},
                                      .directory = {}});
    EXPECT_THAT(resumed.wait(), Each(0)) << resumed.rank(0).err();
    EXPECT_EQ(resumed.log_line(0, "resuming from a checkpoint")["resumed_from_step"], from);
    EXPECT_EQ(bits_of(*find_latest_checkpoint(parts.path())->directory), expected);
  }
}

TEST(Resume, SigtermToOneRankSavesAndStopsAll) {
  for (const int world_size : {1, 3}) {
    const TemporaryDirectory directory;
    TrainerRanks ranks(world_size,
                       {.config = kLong,
                        .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
                        .environment = {},
                        .directory = {}});
    ASSERT_TRUE(wait_for_step(ranks, 5));
    const double seconds = seconds_of([&] {
      ranks.rank(world_size - 1).signal(SIGTERM);
      EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kTempFail)));
    });
    EXPECT_LT(seconds, 60) << "a part of the 1,000,000 steps";
    const int64_t saved = find_latest_checkpoint(directory.path())->step;
    EXPECT_GE(saved, 5);
    for (int rank = 0; rank < world_size; ++rank) {
      const TerminationMessage last = ranks.last_word(rank);
      EXPECT_EQ(last.reason, "Interrupted");
      EXPECT_EQ(last.step, saved);
      EXPECT_EQ(last.checkpoint_step, saved);
    }
  }
}

TEST(Resume, ResumedAfterSigtermItEndsWithTheSameBits) {
  const std::string config =
      "task: tiny\nsteps: 1500\nbatch: {size: 16}\neval: {every_epochs: 0}\ncheckpoint: {every_epochs: 0}\n";
  const TemporaryDirectory whole;
  const TemporaryDirectory parts;
  const std::string expected = undisturbed(2, config, whole.path());
  const std::vector<std::string> arguments = {"--checkpoint-dir", parts.path().string(), "--metrics-port", "auto"};
  TrainerRanks ranks(2, {.config = config, .arguments = arguments, .environment = {}, .directory = {}});
  ASSERT_TRUE(wait_for_step(ranks, 3));
  ranks.rank(0).signal(SIGTERM);
  ASSERT_THAT(ranks.wait(), ElementsAre(75, 75)) << "it must not have been over already";
  TrainerRanks resumed(2, {.config = config, .arguments = arguments, .environment = {}, .directory = {}});
  EXPECT_THAT(resumed.wait(), ElementsAre(0, 0)) << resumed.rank(0).err();
  EXPECT_EQ(bits_of(*find_latest_checkpoint(parts.path())->directory), expected);
}

TEST(Resume, ResumesWithAnotherWorldSize) {
  const std::string config = "task: tiny\nsteps: 40\nbatch: {size: 16}\ncheckpoint: {every_steps: 3}\n";
  const TemporaryDirectory directory;
  undisturbed(2, "task: tiny\nsteps: 21\nbatch: {size: 16}\n", directory.path());
  TrainerRanks ranks(3, {.config = config,
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "resuming from a checkpoint")["resumed_from_step"], 21);
  EXPECT_EQ(ranks.log_line(0, "training is complete")["step"], 40);
}

TEST(Resume, TheCheckpointDirectoryCannotBeWritten) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "not a directory";
  TrainerRanks ranks(2, {.config = kLong,
                         .arguments = {"--checkpoint-dir", (directory.path() / "file" / "ck").string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kCantCreate)));
  EXPECT_THAT(ranks.last_word(0).message, HasSubstr((directory.path() / "file").string()));
}

TEST(Resume, ANewerAttemptFencesAnOlderOneOff) {
  const TemporaryDirectory directory;
  const auto with_attempt = [&](const char* attempt) {
    return test::TrainerOptions{.config = kLong,
                                .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
                                .environment = {{"OARLOCK_UID", "u"}, {"OARLOCK_ATTEMPT", attempt}},
                                .directory = {}};
  };
  TrainerRanks zombie(1, with_attempt("0"));
  ASSERT_TRUE(wait_for_step(zombie, 1));
  TrainerRanks newer(1, with_attempt("1"));
  ASSERT_TRUE(wait_for_step(newer, 1));
  zombie.rank(0).signal(SIGTERM);  // it would save now
  EXPECT_EQ(zombie.rank(0).wait(), to_int(ExitCode::kTempFail));
  newer.rank(0).signal(SIGTERM);
  EXPECT_EQ(newer.rank(0).wait(), to_int(ExitCode::kTempFail));
  EXPECT_EQ(newer.last_word(0).checkpoint_step, find_latest_checkpoint(directory.path())->step);
  EXPECT_EQ(zombie.last_word(0).reason, "Replaced");
}

TEST(Resume, TheCheckpointOfAnotherSeedIsRefused) {
  const TemporaryDirectory directory;
  undisturbed(1, "task: tiny\nsteps: 2\nseed: 1\n", directory.path());
  TrainerRanks ranks(2, {.config = "task: tiny\nsteps: 4\nseed: 2\n",
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(78));
  EXPECT_THAT(ranks.last_word(1).message, AllOf(HasSubstr("seed 1"), HasSubstr("the configuration has 2")));
}

TEST(Resume, ChangedSettingsAreLogged) {
  const TemporaryDirectory directory;
  undisturbed(2, "task: tiny\nsteps: 3\nbatch: {size: 16}\noptimizer: {lr: 0.25}\n", directory.path());
  TrainerRanks ranks(1, {.config = "task: tiny\nsteps: 5\nbatch: {size: 16}\noptimizer: {lr: 0.5}\n",
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "the configuration changed since the checkpoint")["changes"],
            "optimizer.lr: 0.25 -> 0.5; ranks: 2 -> 1; steps: 3 -> 5");
  EXPECT_TRUE(ranks.log_line(0, "the data changed since the checkpoint").empty());
}

TEST(Resume, ChangedDataAreAWarningUnlessThePositionIsBehindTheirEnd) {
  const TemporaryDirectory directory;
  const auto resumed_with = [&](int samples) {
    return TrainerRanks(
        2, {.config = "task: tiny\nsteps: 8\nbatch: {size: 16}\ndata: {samples: " + std::to_string(samples) + "}\n",
            .arguments = {"--checkpoint-dir", directory.path().string()},
            .environment = {},
            .directory = {}});
  };
  undisturbed(2, "task: tiny\nsteps: 6\nbatch: {size: 16}\ndata: {samples: 240}\n", directory.path());
  TrainerRanks fewer = resumed_with(100);
  EXPECT_THAT(fewer.wait(), Each(65));
  EXPECT_THAT(fewer.last_word(1).message, AllOf(HasSubstr("trained on 192 samples"), HasSubstr("have 100")));
  TrainerRanks more = resumed_with(250);
  EXPECT_THAT(more.wait(), Each(0)) << more.rank(0).err();
  const std::string changes = more.log_line(0, "the data changed since the checkpoint").value("changes", "");
  EXPECT_THAT(changes, AllOf(HasSubstr("data.train.samples: 240 -> 250"), HasSubstr("data.train.fingerprint: ")));
  EXPECT_THAT(changes, testing::Not(HasSubstr("data.eval")));
}

TEST(Resume, ACorruptCheckpointIsSkippedForTheNewestThatIsWhole) {
  const TemporaryDirectory directory;
  const std::string config = "task: tiny\nsteps: 12\nbatch: {size: 16}\ncheckpoint: {every_steps: 4, keep: 0}\n";
  const std::string expected = undisturbed(2, config, directory.path());
  const std::filesystem::path newest = *find_latest_checkpoint(directory.path())->directory;
  std::filesystem::resize_file(newest / "model.safetensors", 100);
  TrainerRanks ranks(2, {.config = config,
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0));
  EXPECT_EQ(ranks.log_line(0, "resuming from a checkpoint")["resumed_from_step"], 8);
  EXPECT_EQ(ranks.log_line(0, "a checkpoint is not valid and was skipped")["directory"], newest.string());
  EXPECT_EQ(bits_of(*find_latest_checkpoint(directory.path())->directory), expected);
}

// Everything that a step keeps from one to the next: moments, moving average with warm-up, loss scale, plateau,
// accumulation, a schedule, random numbers.
TEST(Resume, WithEveryPartOnItEndsWithTheSameBits) {
  const std::string config =
      "task: tiny\nsteps: 300\nbatch: {size: 8}\nseed: 5\ncheckpoint: {every_steps: 20, every_epochs: 0}\n"
      "gradient: {accumulation_steps: 2, clip_norm: 1}\n"
      "amp: {enabled: true, dtype: fp16, init_scale: 4.0e+7, growth_interval: 5}\n"
      "ema: {enabled: true, decay: 0.99, warmup: true, buffers: true}\n"
      "schedule: {name: plateau, warmup_steps: 20, plateau: {patience: 0, factor: 0.7, min_lr: 1.0e-4}}\n"
      "optimizer: {name: adamw, lr: 0.01, amsgrad: true, groups: [{preset: no_decay}]}\n";
  const TemporaryDirectory whole;
  const TemporaryDirectory parts;
  const std::string expected = undisturbed(2, config, whole.path());
  EXPECT_THAT(expected,
              AllOf(HasSubstr("ema/fc1.weight"), HasSubstr("ema/norm.running_mean"), HasSubstr("grad-scaler/scale"),
                    HasSubstr("\"updates\":300"), HasSubstr("\"reductions\":")));
  EXPECT_THAT(expected, testing::Not(HasSubstr("\"reductions\":0"))) << "the plateau must have mattered";
  const std::vector<std::string> arguments = {"--checkpoint-dir", parts.path().string()};
  {
    TrainerRanks ranks(2, {.config = config, .arguments = arguments, .environment = {}, .directory = {}});
    ASSERT_TRUE(eventually([&] { return find_latest_checkpoint(parts.path())->step >= 60; }));
    ranks.rank(1).signal(SIGKILL);
    EXPECT_EQ(ranks.wait().back(), 128 + SIGKILL) << "it must not have been over already";
  }
  TrainerRanks resumed(
      2, {.config = config, .arguments = arguments, .environment = {{"OARLOCK_ATTEMPT", "1"}}, .directory = {}});
  EXPECT_THAT(resumed.wait(), ElementsAre(0, 0)) << resumed.rank(0).err();
  EXPECT_GE(resumed.log_line(0, "resuming from a checkpoint")["resumed_from_step"], 60);
  EXPECT_EQ(bits_of(*find_latest_checkpoint(parts.path())->directory), expected);
}

}  // namespace
}  // namespace oarlock
