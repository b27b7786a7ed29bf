// SIGTERM in every long phase of a run besides training itself: all ranks end within seconds with exit code 75, no step
// is lost, and a new start repeats what was interrupted and ends with the same bits.
#include "trainer/engine/stop_agreement.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include "tests/integration/trainer/run_support.h"
#include "tests/support/blocked_file.h"

namespace oarlock {
namespace {

using test::bits_of;
using test::BlockedFile;
using test::content;
using test::eventually;
using test::lines;
using test::run_ranks;
using test::seconds_of;
using test::TemporaryDirectory;
using test::TrainerOptions;
using test::TrainerRanks;
using test::undisturbed;
using testing::Each;
using testing::HasSubstr;

// The grace period of a pod is 30 s by default; the machine of the tests is busy.
constexpr double kGraceSeconds = 15;

struct Interruption {
  std::string name;
  std::string fault;   // that makes the phase longer than the grace period
  std::string config;  // 16 steps per epoch
  int64_t saved_step = 0;
};

// Each takes 101 batches: 50 s on one rank, 25 s on two.
const Interruption kInterruptions[] = {
    {.name = "evaluation after a step",
     .fault = "slow_eval",
     .config = "steps: 25\neval: {every_epochs: 0, every_steps: 20, batch_size: 1}\n",
     .saved_step = 20},
    {.name = "evaluation after an epoch",
     .fault = "slow_eval",
     .config = "epochs: 3\neval: {batch_size: 1}\nschedule: {name: plateau, plateau: {patience: 0}}\n",
     .saved_step = 16},
    {.name = "last evaluation",
     .fault = "slow_eval",
     .config = "steps: 25\neval: {every_epochs: 0, batch_size: 1}\nema: {enabled: true}\n",
     .saved_step = 25},
    {.name = "pass after a step",
     .fault = "slow_pass",
     .config = "steps: 25\neval: {every_epochs: 0}\ndata: {eval_samples: 301, pass_file: FILE, pass_every: 20}\n",
     .saved_step = 20},
    {.name = "pass where the run ends",
     .fault = "slow_pass",
     .config = "steps: 25\neval: {every_epochs: 0}\ndata: {eval_samples: 301, pass_file: FILE}\n",
     .saved_step = 25},
    {.name = "pass of the best weights",
     .fault = "slow_pass",
     .config = "steps: 25\neval: {every_epochs: 0, every_steps: 5}\noptimizer: {name: sgd, lr: 30}\n"
               "data: {eval_samples: 301, pass_file: FILE, pass_best: true}\n",
     .saved_step = 25},
};

std::string with_file(std::string config, const TemporaryDirectory& directory) {
  if (const size_t at = config.find("FILE"); at != std::string::npos)
    config.replace(at, 4, (directory.path() / "passes").string());
  return "task: tiny\nbatch: {size: 16, per: global}\ncheckpoint: {every_epochs: 0}\n" + config;
}

bool wait_for_fault(TrainerRanks& ranks, const std::string& fault) {
  return eventually([&] { return ranks.rank(0).err().find("the fault '" + fault + "' begins") != std::string::npos; });
}

// The tests vary these two options. Without a directory, nothing is saved.
TrainerOptions options(std::string config, const TemporaryDirectory* checkpoints = nullptr) {
  std::vector<std::string> arguments;
  if (checkpoints != nullptr) arguments = {"--checkpoint-dir", checkpoints->path().string()};
  return {.config = std::move(config), .arguments = std::move(arguments), .environment = {}, .directory = {}};
}

// The last rank receives SIGTERM: all end within the grace period, with a message that contains `message`.
void expect_all_stop(TrainerRanks& ranks, int world_size, const std::string& message) {
  const double seconds = seconds_of([&] {
    ranks.rank(world_size - 1).signal(SIGTERM);
    EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kTempFail)));
  });
  EXPECT_LT(seconds, kGraceSeconds);
  for (int rank = 0; rank < world_size; ++rank) {
    EXPECT_EQ(ranks.last_word(rank).reason, "Interrupted");
    EXPECT_THAT(ranks.last_word(rank).message, HasSubstr(message));
  }
}

// The run that was stopped after `step` resumes there, and ends with the bits `expected`.
void expect_resumes(int world_size, const std::string& config, const TemporaryDirectory& directory, int64_t step,
                    const std::string& expected) {
  EXPECT_EQ(find_latest_checkpoint(directory.path())->step, step);
  TrainerRanks resumed(world_size, options(config, &directory));
  EXPECT_THAT(resumed.wait(), Each(0)) << resumed.rank(0).err();
  EXPECT_EQ(resumed.log_line(0, "resuming from a checkpoint")["resumed_from_step"], step);
  EXPECT_EQ(bits_of(*find_latest_checkpoint(directory.path())->directory), expected);
}

class Stop : public testing::TestWithParam<int> {};

TEST_P(Stop, SigtermInEvaluationsAndPassesLosesNoStep) {
  const int world_size = GetParam();
  for (const Interruption& interruption : kInterruptions) {
    SCOPED_TRACE(interruption.name);
    const TemporaryDirectory whole;
    const TemporaryDirectory parts;
    const std::string expected = undisturbed(world_size, with_file(interruption.config, whole), whole.path());
    const std::string config = with_file(interruption.config, parts);
    {
      TrainerRanks ranks(world_size, options(config + "model: {fault: {kind: " + interruption.fault + "}}\n", &parts));
      ASSERT_TRUE(wait_for_fault(ranks, interruption.fault));
      expect_all_stop(ranks, world_size, "interrupted by a signal");
      for (int rank = 0; rank < world_size; ++rank) {
        const TerminationMessage last = ranks.last_word(rank);
        EXPECT_EQ(last.step, interruption.saved_step);
        EXPECT_EQ(last.checkpoint_step, interruption.saved_step);
      }
    }
    expect_resumes(world_size, config, parts, interruption.saved_step, expected);
    EXPECT_EQ(content(parts.path() / "passes"), content(whole.path() / "passes"));
  }
}

// A step of 64 micro-batches takes 32 s. Its forward passes change the statistics of batch norm.
TEST_P(Stop, SigtermBetweenMicroBatchesLosesNoStep) {
  const int world_size = GetParam();
  const std::string config =
      "task: tiny\nsteps: 3\nbatch: {size: 256, per: global}\ngradient: {accumulation_steps: 64}\n"
      "data: {samples: 512}\neval: {every_epochs: 0}\ncheckpoint: {every_epochs: 0}\n";
  const TemporaryDirectory whole;
  const TemporaryDirectory parts;
  const std::string expected = undisturbed(world_size, config, whole.path());
  {
    TrainerRanks ranks(world_size, options(config + "model: {fault: {kind: slow_forward, step: 1}}\n", &parts));
    ASSERT_TRUE(wait_for_fault(ranks, "slow_forward"));
    expect_all_stop(ranks, world_size, "interrupted by a signal");
    EXPECT_EQ(ranks.last_word(0).step, 1);
  }
  expect_resumes(world_size, config, parts, /*step=*/1, expected);
}

TEST_P(Stop, SigtermInTheFirstOfManyMicroBatchesEndsTheRun) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nsteps: 1\nbatch: {size: 256, per: global}\ngradient: {accumulation_steps: 64}\n"
      "model: {fault: {kind: slow_forward}}\n";
  TrainerRanks ranks(GetParam(), options(config, &directory));
  ASSERT_TRUE(wait_for_fault(ranks, "slow_forward"));
  expect_all_stop(ranks, GetParam(), "during the first step");
}

TEST_P(Stop, SigtermWhileTheDataArePreparedEndsTheRun) {
  const int world_size = GetParam();
  for (const std::string fault : {"long_prepare_data", "long_prepare"}) {
    SCOPED_TRACE(fault);
    TrainerRanks ranks(world_size, options("task: tiny\nsteps: 1\nmodel: {fault: {kind: " + fault + "}}\n"));
    ASSERT_TRUE(wait_for_fault(ranks, fault));
    expect_all_stop(ranks, world_size, "while the data were prepared");
  }
}

// One rank receives SIGTERM while rank 0 reads the file: all ranks end.
void expect_stop_while_reading(const std::filesystem::path& file, int world_size, const TrainerOptions& options,
                               const std::string& message) {
  const BlockedFile blocked(file);
  TrainerRanks ranks(world_size, options);
  ASSERT_TRUE(blocked.wait_for_reader()) << ranks.rank(0).err();
  expect_all_stop(ranks, world_size, message);
}

TEST_P(Stop, SigtermWhileACheckpointIsRestoredEndsTheRun) {
  const TemporaryDirectory directory;
  const std::string config = "task: tiny\nsteps: 5\neval: {every_epochs: 0}\n";
  const std::string expected = undisturbed(GetParam(), config, directory.path());
  const std::filesystem::path newest = *find_latest_checkpoint(directory.path())->directory;
  for (const std::filesystem::path& file :
       {directory.path() / "fence.json", newest / "manifest.json", newest / "model.safetensors"}) {
    expect_stop_while_reading(file, GetParam(), options(config, &directory), "while checkpoints were read");
  }
  EXPECT_EQ(undisturbed(GetParam(), config, directory.path()), expected);
}

TEST_P(Stop, SigtermWhileTheHighWaterMarkIsReadEndsTheRun) {
  const TemporaryDirectory directory;
  const std::string config = "task: tiny\nsteps: 5\neval: {every_epochs: 0}\n";
  undisturbed(GetParam(), config, directory.path());
  expect_stop_while_reading(directory.path() / "reached", GetParam(), options(config, &directory),
                            "while checkpoints were read");
}

TEST_P(Stop, SigtermWhileADamagedCheckpointIsSetAsideEndsTheRun) {
  const TemporaryDirectory directory;
  const std::string config = "task: tiny\nbatch: {size: 16}\neval: {every_epochs: 0}\ncheckpoint: {every_steps: 2}\n";
  undisturbed(GetParam(), config + "steps: 4\n", directory.path());
  const std::filesystem::path newest = *find_latest_checkpoint(directory.path())->directory;
  std::ofstream(newest / "model.safetensors") << "damage";
  std::optional<BlockedFile> reading(newest.parent_path() / "step-00000002" / "model.safetensors");
  TrainerRanks ranks(GetParam(), options(config + "steps: 1000000\n", &directory));
  ASSERT_TRUE(reading->wait_for_reader()) << ranks.rank(0).err();
  const BlockedFile blocked(directory.path() / "fence.json");  // which rank 0 has read before
  reading.reset();
  ASSERT_TRUE(blocked.wait_for_reader()) << ranks.rank(0).err();
  expect_all_stop(ranks, GetParam(), "while checkpoints were read");
  EXPECT_TRUE(std::filesystem::exists(newest));
}

TEST_P(Stop, SigtermWhileTheBestCheckpointIsReadEndsTheRun) {
  const TemporaryDirectory directory;
  const std::string config = with_file(
      "steps: 25\neval: {every_epochs: 0, every_steps: 5}\noptimizer: {name: sgd, lr: 30}\n"
      "data: {eval_samples: 101, pass_file: FILE, pass_best: true}\n",
      directory);
  undisturbed(GetParam(), config, directory.path());
  const std::filesystem::path best = std::filesystem::canonical(directory.path() / "best");
  ASSERT_NE(best, std::filesystem::canonical(directory.path() / "last"));
  expect_stop_while_reading(best / "manifest.json", GetParam(), options(config, &directory),
                            "while checkpoints were read");
}

// Returns how often the main thread of a process has waited for something.
int64_t waits_of(const test::Program& program) {
  const std::string status = content(fmt::format("/proc/{}/status", program.pid()));
  for (const std::string& line : lines(status)) {
    if (const std::string name = "voluntary_ctxt_switches:"; line.starts_with(name))
      return std::stoll(line.substr(name.size()));
  }
  return -1;
}

// The ranks agree to stop while rank 0 waits for the last save, which then succeeds.
TEST_P(Stop, SigtermDuringTheLastSaveLeavesThePassesOfTheBestWeights) {
  constexpr int64_t kWaits = 20;  // of several agreements
  const int world_size = GetParam();
  const TemporaryDirectory directory;
  const std::string config = with_file(
      "eval: {every_epochs: 0, every_steps: 5}\noptimizer: {name: sgd, lr: 30}\n"
      "data: {eval_samples: 101, pass_file: FILE, pass_best: true}\n",
      directory);
  undisturbed(world_size, config + "steps: 25\n", directory.path());
  const std::filesystem::path passes = directory.path() / "passes";
  const std::string before = content(passes);
  {
    const std::filesystem::path newest = *find_latest_checkpoint(directory.path())->directory;
    std::optional<BlockedFile> reading(newest / "model.safetensors");
    TrainerRanks ranks(world_size, options(config + "steps: 26\n", &directory));
    ASSERT_TRUE(reading->wait_for_reader()) << ranks.rank(0).err();
    std::optional<BlockedFile> saving(directory.path() / "fence.json");  // which rank 0 has read before
    reading.reset();
    ASSERT_TRUE(saving->wait_for_reader()) << ranks.rank(0).err();
    ranks.rank(world_size - 1).signal(SIGTERM);
    const int64_t waits = waits_of(ranks.rank(0));
    ASSERT_TRUE(eventually([&] { return waits_of(ranks.rank(0)) >= waits + kWaits; }));
    saving.reset();
    EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kTempFail)));
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(ranks.last_word(rank).reason, "Interrupted");
      EXPECT_EQ(ranks.last_word(rank).checkpoint_step, 26);
    }
    EXPECT_EQ(content(passes), before);
  }
  TrainerRanks resumed(world_size, options(config + "steps: 26\n", &directory));
  EXPECT_THAT(resumed.wait(), Each(0)) << resumed.rank(0).err();
  EXPECT_EQ(lines(content(passes)).size(), lines(before).size() + 1);
}

TEST_P(Stop, SigtermWhilePretrainedWeightsAreReadEndsTheRun) {
  const TemporaryDirectory directory;
  undisturbed(1, "task: tiny\nsteps: 1\n", directory.path());
  const std::filesystem::path weights = directory.path() / "last" / "model.safetensors";
  const std::string config = "task: tiny\nsteps: 1\npretrained: {path: " + weights.string() + "}\n";
  expect_stop_while_reading(weights, GetParam(), options(config), "while the pretrained weights were read");
}

// The next save begins while the one before has not ended: rank 0 waits for it, and the other ranks for rank 0.
TEST(StopWhileASaveIsBlocked, SigtermEndsTheRunWithinTheGracePeriod) {
  constexpr double kGraceOfAPod = 30;
  const TemporaryDirectory directory;
  TrainerRanks ranks(2, options("task: tiny\nsteps: 1000000\nbatch: {size: 16}\neval: {every_epochs: 0}\n"
                                "checkpoint: {every_steps: 50}\n",
                                &directory));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(directory.path() / "last"); })) << ranks.rank(0).err();
  const BlockedFile blocked(directory.path() / "fence.json");
  ASSERT_TRUE(blocked.wait_for_reader()) << ranks.rank(0).err();
  const double seconds = seconds_of([&] {
    ranks.rank(1).signal(SIGTERM);
    EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kTempFail)));
  });
  EXPECT_LT(seconds, kGraceOfAPod);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks.last_word(rank).reason, "Interrupted");
    EXPECT_THAT(ranks.last_word(rank).message, HasSubstr(directory.path().string() + " does not respond"));
  }
}

TEST(StopBeforeTheRanksMeet, SigtermWhileTheConfigurationIsReadEndsTheRun) {
  const TemporaryDirectory directory;
  const std::filesystem::path config = directory.path() / "trainer.yaml";
  const std::filesystem::path last = directory.path() / "last";
  std::ofstream(config) << "task: tiny\nsteps: 1\n";
  const BlockedFile blocked(config);
  test::Program rank({test::test_trainer(), "--config", config.string()},
                     {.environment = {{kEnvTerminationLog, last.string()}}, .directory = {}});
  ASSERT_TRUE(blocked.wait_for_reader()) << rank.err();
  const double seconds = seconds_of([&] {
    rank.signal(SIGTERM);
    EXPECT_EQ(rank.wait(), to_int(ExitCode::kTempFail));
  });
  EXPECT_LT(seconds, kGraceSeconds);
  const auto message = termination_message_from_json(content(last));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->reason, "Interrupted");
  EXPECT_THAT(message->message, HasSubstr("while the configuration was read"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Stop, testing::Values(1, 2));

// A clock that advances only while a thread waits for the device, as an agreement does: the host's own work takes no
// time, as if it only enqueued steps.
class DeviceClock final : public Clock {
 public:
  SystemTime now() const override { return {}; }
  SteadyTime steady() const override {
    now_ += std::chrono::duration_cast<SteadyTime::duration>(enqueued_);
    enqueued_ = {};
    return now_;
  }
  void enqueue(std::chrono::duration<double> work) { enqueued_ += work; }

 private:
  mutable SteadyTime now_;
  mutable std::chrono::duration<double> enqueued_{};
};

// Returns the delay between the signal of one rank and the stop of all, in units of work. A unit takes `later` from the
// signal on.
int64_t delay_of_stop(const ProcessGroup& group, std::chrono::duration<double> unit,
                      std::chrono::duration<double> later) {
  StopFlag flag;
  DeviceClock clock;
  StopAgreement agreement(flag, group, clock);
  StopPace pace(agreement);
  constexpr int64_t kSignalAt = 520;
  for (int64_t i = 0;; ++i) {
    clock.enqueue(i < kSignalAt ? unit : later);
    if (i == kSignalAt && group.rank() == 1) flag.raise(SIGTERM);
    if (pace.after_unit()) return i - kSignalAt;
  }
}

int64_t delay_of_stop(const ProcessGroup& group, std::chrono::duration<double> unit) {
  return delay_of_stop(group, unit, unit);
}

TEST(StopPace, StopsWithinASecondOfTheDevicesTime) {
  run_ranks(2, [](const ProcessGroup& group) {
    EXPECT_LE(delay_of_stop(group, std::chrono::milliseconds(200)), 2);
    EXPECT_LE(delay_of_stop(group, std::chrono::seconds(5)), 1);
    const int64_t quick = delay_of_stop(group, std::chrono::milliseconds(10));
    EXPECT_GT(quick, 2) << "an agreement after every step costs time";
    EXPECT_LE(quick, 50);
  });
}

// Such as when the data of the steps are no longer in a cache.
TEST(StopPace, StopsWithinTheGracePeriodIfUnitsBecomeSlower) {
  run_ranks(2, [](const ProcessGroup& group) {
    for (const auto unit : {std::chrono::microseconds(1), std::chrono::microseconds(1000)})
      EXPECT_LE(delay_of_stop(group, unit, std::chrono::seconds(1)), 20);
  });
}

TEST(StopPace, AnotherReasonOfOneRankStopsAll) {
  run_ranks(3, [](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement agreement(flag, group, clock);
    StopPace pace(agreement);
    EXPECT_FALSE(pace.after_unit());
    EXPECT_FALSE(agreement.agreed());
    EXPECT_TRUE(pace.after_unit(/*wish=*/group.rank() == 2));
    EXPECT_TRUE(agreement.agreed());
    EXPECT_FALSE(agreement.requested());
  });
}

TEST(StopAgreement, ARequestForACheckpointOfOneRankConcernsAllOnce) {
  run_ranks(3, [](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement agreement(flag, group, clock);
    bool is_requested = group.rank() == 1;
    agreement.watch_save_requests([&] { return std::exchange(is_requested, false); });
    EXPECT_FALSE(agreement.take_save_request());
    EXPECT_FALSE(agreement.agree()) << "it does not stop the ranks";
    EXPECT_TRUE(agreement.take_save_request());
    EXPECT_FALSE(agreement.take_save_request());
    // Of a group that the ranks leave before the save, it is agreed on again.
    is_requested = group.rank() == 2;
    agreement.agree();
    agreement.restart();
    EXPECT_FALSE(agreement.take_save_request());
    agreement.agree();
    EXPECT_TRUE(agreement.take_save_request());
    agreement.agree();
    EXPECT_FALSE(agreement.take_save_request());
  });
}

TEST(RunOnAllRanks, RunsNothingAfterAnAgreementToStop) {
  run_ranks(2, [](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement agreement(flag, group, clock);
    EXPECT_TRUE(agreement.agree(/*wish=*/group.rank() == 1));
    const auto work = []() -> Result<void> { throw std::logic_error("the work runs"); };
    const Result<void> done = run_on_all_ranks(work, group, agreement, "a test ran");
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ExitCode::kTempFail);
    EXPECT_EQ(done.error().message, "interrupted by a signal while a test ran");
  });
}

TEST(RunOnAllRanks, ComparesTheNumbersOfAllRanks) {
  struct Row {
    std::array<int64_t, 3> numbers;  // by rank
    bool are_equal;
  };
  run_ranks(3, [](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement agreement(flag, group, clock);
    for (const Row& row :
         {Row{.numbers = {7, 7, 7}, .are_equal = true},
          Row{.numbers = {kMaxComparedNumber, kMaxComparedNumber, kMaxComparedNumber}, .are_equal = true},
          Row{.numbers = {7, 7, 8}, .are_equal = false},
          Row{.numbers = {kMaxComparedNumber - 1, kMaxComparedNumber, kMaxComparedNumber}, .are_equal = false}}) {
      const auto work = [&] { return Result<int64_t>(row.numbers[static_cast<size_t>(group.rank())]); };
      EXPECT_EQ(*run_and_compare(work, group, agreement, "a test ran"), row.are_equal) << row.numbers[0];
    }
    const auto fails_on_rank_1 = [&]() -> Result<int64_t> {
      if (group.rank() == 1) return fail(ExitCode::kNoInput, "no file");
      return 7;
    };
    const Result<bool> compared = run_and_compare(fails_on_rank_1, group, agreement, "a test ran");
    EXPECT_EQ(compared.has_value(), group.rank() != 1);
    EXPECT_FALSE(compared.value_or(false));
  });
}

// Ranks that recover from the loss of one do not stop because of a pod that is deleted.
TEST(StopAgreement, QuorumOfAllWaitsForEverySignal) {
  run_ranks(3, [](const ProcessGroup& group) {
    StopFlag flag;
    const RealClock clock;
    StopAgreement agreement(flag, group, clock);
    agreement.set_quorum(StopQuorum::kAll);
    EXPECT_FALSE(agreement.agree());
    if (group.rank() == 1) flag.raise(SIGTERM);
    EXPECT_FALSE(agreement.requested());
    EXPECT_FALSE(agreement.agree());
    if (group.rank() != 1) flag.raise(SIGTERM);
    EXPECT_TRUE(agreement.agree());
    agreement.restart();
    EXPECT_FALSE(agreement.agreed());
  });
}

TEST(StopAgreement, QuorumOfAllStopsAtTheWishOfOneRank) {
  run_ranks(2, [](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement agreement(flag, group, clock);
    agreement.set_quorum(StopQuorum::kAll);
    EXPECT_TRUE(agreement.agree(/*wish=*/group.rank() == 0));
  });
}

}  // namespace
}  // namespace oarlock
