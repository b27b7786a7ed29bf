// Jobs in which a rank fails, hangs or is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/integration/trainer/run_support.h"

namespace oarlock {
namespace {

using test::eventually;
using test::kLong;
using test::seconds_of;
using test::TemporaryDirectory;
using test::TrainerRanks;
using test::wait_for_step;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Seconds that are too few for the default timeout of a collective, 600 s, and enough for a busy machine.
constexpr double kSoon = 100;

TEST(Failure, AKilledRankIsDetectedImmediately) {
  for (const int victim : {0, 2}) {
    TrainerRanks ranks(3,
                       {.config = kLong, .arguments = {"--metrics-port", "auto"}, .environment = {}, .directory = {}});
    ASSERT_TRUE(wait_for_step(ranks, 5));
    const double seconds = seconds_of([&] {
      ranks.rank(victim).signal(SIGKILL);
      const std::vector<int> codes = ranks.wait();
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(codes[static_cast<size_t>(rank)], rank == victim ? 128 + SIGKILL : to_int(ExitCode::kPeerLost))
            << rank;
      }
    });
    EXPECT_LT(seconds, kSoon);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks.last_word(rank).reason, "PeerLost");
      EXPECT_GE(ranks.last_word(rank).step, 5);
      EXPECT_THAT(ranks.rank(rank).err(), HasSubstr("another rank was lost"));
    }
  }
}

TEST(Failure, AMasterThatIsLostBeforeAllHaveMetReleasesTheOthers) {
  TrainerRanks ranks(2, {.config = kLong,
                         .arguments = {},
                         .environment = {{"WORLD_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "3"}},
                         .directory = {}});
  ASSERT_TRUE(eventually([&] {
    return ranks.log_line(0, "rendezvous: waiting for ranks").value("missing", "") == "2";
  })) << ranks.rank(0).err();
  const double seconds = seconds_of([&] {
    ranks.rank(0).signal(SIGKILL);
    EXPECT_THAT(ranks.wait(), ElementsAre(128 + SIGKILL, to_int(ExitCode::kPeerLost)));
  });
  EXPECT_LT(seconds, kSoon);
  EXPECT_THAT(ranks.last_word(1).message, HasSubstr("rank 0 at 127.0.0.1:"));
}

TEST(Failure, AHangingRankEndsTheOthersAtTheTimeOut) {
  const std::string config = std::string(kLong) + "distributed: {timeout_seconds: 3}\n";
  TrainerRanks ranks(2,
                     {.config = config, .arguments = {"--metrics-port", "auto"}, .environment = {}, .directory = {}});
  ASSERT_TRUE(wait_for_step(ranks, 5));
  const double seconds = seconds_of([&] {
    ranks.rank(1).signal(SIGSTOP);
    EXPECT_EQ(ranks.rank(0).wait(), to_int(ExitCode::kPeerLost));
  });
  EXPECT_LT(seconds, kSoon);
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr("timed out"), HasSubstr("distributed.timeout_seconds")));
}

TEST(Failure, ARanksOwnFailureKeepsItsCode) {
  TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: throw, rank: 1, step: 6}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kPeerLost), to_int(ExitCode::kSoftware)));
  EXPECT_THAT(ranks.last_word(1).message, HasSubstr("the fault 'throw'"));
  EXPECT_EQ(ranks.last_word(1).step, 6);
}

TEST(Failure, MissingDataFailsItsRankAndReleasesTheOthers) {
  TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: prepare, rank: 0}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(to_int(ExitCode::kNoInput), to_int(ExitCode::kPeerLost)));
}

TEST(Failure, AModelThatDiffersStopsAllWithItsName) {
  TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: shape, rank: 1}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(78, 78));
  EXPECT_THAT(ranks.last_word(1).message, HasSubstr("'fc1.weight'"));
}

// Runs the trainer with an additional argument, or other environment variables, on rank 1.
class OtherArgument {
 public:
  explicit OtherArgument(const std::string& argument) {
    const std::string change = argument.starts_with("export ") ? argument : "set -- \"$@\" '" + argument + "'";
    std::ofstream(path()) << "#!/bin/sh\nif [ \"$RANK\" = 1 ]; then " << change << "; fi\nexec '"
                          << test::test_trainer() << "' \"$@\"\n";
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }
  std::string path() const { return (directory_.path() / "trainer").string(); }

 private:
  TemporaryDirectory directory_;
};

TEST(Failure, SettingsThatDifferStopAllWithTheirValues) {
  struct Row {
    std::string argument;
    std::string message;
  };
  for (const Row& row : {Row{.argument = "seed=5", .message = "seed is 5 on rank 1, but 0 on rank 0; "},
                         Row{.argument = "ema.enabled=true", .message = "ema.enabled is true on rank 1, but false"},
                         Row{.argument = "optimizer.lr=0.25", .message = "optimizer.lr is 0.25 on rank 1, but 0.001 "},
                         Row{.argument = "steps=7", .message = "steps is 7 on rank 1, but 1000000 on rank 0"},
                         Row{.argument = "export LOCAL_WORLD_SIZE=1 LOCAL_RANK=0",
                             .message = "LOCAL_WORLD_SIZE is less than WORLD_SIZE on rank 1, but WORLD_SIZE on rank 0"},
                         Row{.argument = "report.history=/dev/null", .message = "report.history is set on rank 1"},
                         Row{.argument = "--checkpoint-dir=/tmp/x", .message = "checkpoint.dir is set on rank 1"}}) {
    const OtherArgument trainer(row.argument);
    TrainerRanks ranks(
        2, {.config = kLong, .arguments = {}, .environment = {}, .directory = {}, .program = trainer.path()});
    EXPECT_THAT(ranks.wait(), Each(78)) << row.argument;
    for (const int rank : {0, 1}) {
      EXPECT_THAT(ranks.last_word(rank).message, HasSubstr(row.message));
      EXPECT_EQ(ranks.last_word(rank).reason, kReasonConfigInvalid);
    }
  }
}

TEST(Failure, SettingsOfARankMayDiffer) {
  const OtherArgument trainer("loader={threads: 0, prefetch: 5}");
  TrainerRanks ranks(2, {.config = "task: tiny\nsteps: 5\nbatch: {size: 16}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {},
                         .program = trainer.path()});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(1).err();
}

TEST(Failure, DataThatDifferStopAllWithTheirValues) {
  struct Row {
    std::string fault;
    std::string message;
  };
  for (const Row& row : {Row{.fault = "less_data", .message = "data.train.samples is 128 on rank 1, but 256 on rank 0"},
                         Row{.fault = "other_data", .message = "data.train.fingerprint is "}}) {
    TrainerRanks ranks(2, {.config = std::string(kLong) + "model: {fault: {kind: " + row.fault + ", rank: 1}}\n",
                           .arguments = {},
                           .environment = {},
                           .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(65)) << row.fault;
    for (const int rank : {0, 1}) {
      EXPECT_THAT(ranks.last_word(rank).message, AllOf(HasSubstr(row.message), HasSubstr("give all ranks the same")));
      EXPECT_EQ(ranks.last_word(rank).reason, kReasonDataInvalid);
    }
  }
}

TEST(Failure, ALossThatIsNotFiniteStopsAllAndIsNeverSaved) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nsteps: 1000\nbatch: {size: 16}\nlog: {every_steps: 1000}\ncheckpoint: {every_steps: 5, "
      "every_epochs: 0}\n"
      "eval: {every_epochs: 0}\nmodel: {fault: {kind: nan, rank: 1, step: 12}}\n";
  TrainerRanks ranks(2, {.config = config,
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kDataErr)));
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.last_word(rank).reason, "NonFiniteLoss");
  EXPECT_THAT(ranks.last_word(0).message,
              AllOf(HasSubstr("nan at step 15"), HasSubstr("at step 13 first"), HasSubstr("optimizer.lr")));
  EXPECT_EQ(find_latest_checkpoint(directory.path())->step, 10);
}

TEST(Failure, AGradientThatIsNotFiniteStopsAllByPolicy) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nsteps: 1000\nbatch: {size: 16}\nlog: {every_steps: 10}\ncheckpoint: {every_steps: 5, every_epochs: "
      "0}\neval: {every_epochs: 0}\nnonfinite: {loss: skip, gradient: stop}\n"
      "model: {fault: {kind: inf, rank: 1, step: 12}}\n";
  TrainerRanks ranks(2, {.config = config,
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kDataErr)));
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.last_word(rank).reason, "NonFiniteGradient");
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr("1 of the steps up to 15"), HasSubstr("nonfinite.gradient")));
  EXPECT_EQ(find_latest_checkpoint(directory.path())->step, 10);
}

// The loss is that of the weights before the update.
TEST(Failure, WeightsThatAreNotFiniteAreNeverSaved) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nsteps: 20\nbatch: {size: 16}\nlog: {every_steps: 1000}\neval: {every_epochs: 0}\n"
      "checkpoint: {every_steps: 1, every_epochs: 0}\n";
  const std::vector<std::string> arguments = {"--checkpoint-dir", directory.path().string()};
  {
    TrainerRanks ranks(2, {.config = config + "model: {fault: {kind: nan_gradient, rank: 1, step: 12}}\n",
                           .arguments = arguments,
                           .environment = {},
                           .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kDataErr)));
    for (const int rank : {0, 1}) EXPECT_EQ(ranks.last_word(rank).reason, "NonFiniteGradient");
    EXPECT_THAT(ranks.last_word(0).message,
                AllOf(HasSubstr("weights are not finite after step 13"), HasSubstr("nonfinite.gradient")));
    EXPECT_EQ(find_latest_checkpoint(directory.path())->step, 12);
  }
  TrainerRanks resumed(2, {.config = config, .arguments = arguments, .environment = {}, .directory = {}});
  EXPECT_THAT(resumed.wait(), Each(0)) << resumed.rank(0).err();
  EXPECT_EQ(find_latest_checkpoint(directory.path())->step, 20);
}

TEST(Failure, ARunThatSkippedMostOfItsStepsIsNotComplete) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nsteps: 50\nbatch: {size: 16}\nnonfinite: {loss: skip}\n"
      "model: {fault: {kind: nan_from, rank: 0, step: 1}}\n";
  TrainerRanks ranks(2, {.config = config,
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kDataErr)));
  for (const int rank : {0, 1})
    EXPECT_THAT(ranks.last_word(rank).message, AllOf(HasSubstr("49 of the 50 steps"), HasSubstr("max_share")));
  EXPECT_EQ(ranks.log_line(0, "skipped steps with a non-finite loss or gradient")["steps"].is_number(), true);
}

TEST(Failure, TooManySkippedStepsInARowStopAll) {
  const std::string config =
      "task: tiny\nsteps: 1000\nbatch: {size: 16}\nlog: {every_steps: 5}\neval: {every_epochs: 0}\n"
      "nonfinite: {loss: skip, max_consecutive: 4}\n"
      "model: {fault: {kind: nan_from, rank: 0, step: 12}}\n";
  TrainerRanks ranks(2, {.config = config, .arguments = {}, .environment = {}, .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kDataErr)));
  EXPECT_THAT(ranks.last_word(1).message, AllOf(HasSubstr("last 8 steps up to 20"), HasSubstr("max_consecutive is 4")));
}

}  // namespace
}  // namespace oarlock
