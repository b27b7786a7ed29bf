// Recovery without a checkpoint: a rank is killed, the others keep their state, and the run with its replacement ends
// with the bits of an undisturbed one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "common/files.h"
#include "tests/integration/trainer/recovery_job.h"
#include "tests/integration/trainer/run_support.h"
#include "tests/support/blocked_file.h"
#include "tests/support/trainer_program/file_channel.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::bits_of;
using test::Job;
using test::kConfig;
using test::Kill;
using test::kOverGloo;
using test::print_times;
using test::TemporaryDirectory;
using test::undisturbed;

TEST(Recovery, AChannelChangesNoBit) {
  for (const int world_size : {2, 4}) {
    Job job(world_size, kConfig);
    EXPECT_TRUE(job.run()) << job.all_logs();
    EXPECT_EQ(job.bits(), undisturbed(world_size));
    EXPECT_EQ(job.recoveries(), 0);
  }
}

class KilledRank : public testing::TestWithParam<Kill> {};

TEST_P(KilledRank, ChangesNoBitAndLosesNoStep) {
  const Kill& kill = GetParam();
  Job job(kill.world_size, kConfig, kill.settings());
  ASSERT_TRUE(job.run()) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.starts(), kill.world_size + 1);
  EXPECT_EQ(job.bits(), undisturbed(kill.world_size, kConfig + kill.more));
  const std::vector<nlohmann::json> recovered = job.recovery_lines();
  ASSERT_EQ(recovered.size(), 1U) << job.all_logs();
  EXPECT_EQ(recovered[0]["ranks"], std::to_string(kill.rank));
  EXPECT_GE(recovered[0]["step"], kill.step);
  EXPECT_LE(recovered[0]["step"], kill.step + 7) << "the evaluation after the step is the latest point of these kills";
  if (kill.kind == "kill_update") {  // after the last collective of the step, which others may have completed, or not
    EXPECT_LE(recovered[0]["step"], kill.step + 1);
    EXPECT_EQ(test::content(job.once()), "in the update");
  }
  print_times(job);
}
INSTANTIATE_TEST_SUITE_P(
    EachPhase, KilledRank,
    testing::Values(Kill{.kind = "kill_forward", .world_size = 2, .rank = 0, .step = 0},
                    Kill{.kind = "kill_forward", .world_size = 2, .rank = 1, .step = 23},
                    Kill{.kind = "kill_forward", .world_size = 4, .rank = 0, .step = 13, .more = kOverGloo},
                    Kill{.kind = "kill_backward", .world_size = 2, .rank = 0, .step = 17},
                    Kill{.kind = "kill_backward", .world_size = 4, .rank = 2, .step = 1, .more = kOverGloo},
                    Kill{.kind = "kill_backward", .world_size = 4, .rank = 3, .step = 31},
                    Kill{.kind = "kill_update", .world_size = 2, .rank = 0, .step = 9},
                    Kill{.kind = "kill_update", .world_size = 2, .rank = 1, .step = 26},
                    Kill{.kind = "kill_update", .world_size = 4, .rank = 0, .step = 33, .more = kOverGloo},
                    Kill{.kind = "kill_update", .world_size = 4, .rank = 1, .step = 0},
                    Kill{.kind = "kill_update", .world_size = 4, .rank = 3, .step = 41, .more = kOverGloo},
                    Kill{.kind = "kill_eval", .world_size = 2, .rank = 1, .step = 20},
                    Kill{.kind = "kill_eval", .world_size = 4, .rank = 0, .step = 27}),
    [](const testing::TestParamInfo<Kill>& test_case) {
      const Kill& kill = test_case.param;
      return fmt::format("{}_of_rank_{}_of_{}_in_step_{}{}", kill.kind, kill.rank, kill.world_size, kill.step,
                         kill.more.empty() ? "" : "_over_gloo");
    });

// ---- a signal in a recovery -----------------------------------------------------------------------------------------

class StoppedRecovery : public testing::TestWithParam<Kill> {};

// Every rank receives a signal while it waits for the next group. Rank 0 saves its state alone, and a run that resumes
// from it ends with the bits of an undisturbed one.
TEST_P(StoppedRecovery, LosesNoStep) {
  const Kill& kill = GetParam();
  Job job(kill.world_size, kConfig, kill.settings());
  job.limit_groups(1);
  job.do_not_replace({1, 2, 3});
  job.run([&](Job& running) {
    if (!running.is_absent(kill.rank) || !running.is_waiting(0)) return;
    for (int rank = 0; rank < kill.world_size; ++rank) {
      if (!running.is_absent(rank)) running.rank(rank).signal(SIGTERM);
    }
  });
  EXPECT_EQ(job.rank(0).wait(), to_int(ExitCode::kTempFail)) << job.all_logs();
  for (int rank = 1; rank < kill.world_size; ++rank)
    EXPECT_EQ(job.rank(rank).wait(), rank == kill.rank ? 128 + SIGKILL : to_int(ExitCode::kPeerLost)) << job.all_logs();
  const int64_t saved = find_latest_checkpoint(job.checkpoints())->step;
  EXPECT_GE(saved, kill.step) << job.all_logs();
  EXPECT_THAT(job.all_logs(), testing::HasSubstr(fmt::format("interrupted by a signal at step {}; saved", saved)));
  Job resumed(kill.world_size, kConfig, kill.more, /*with_channel=*/false, 0, job.checkpoints());
  ASSERT_TRUE(resumed.run()) << resumed.all_logs();
  EXPECT_EQ(resumed.bits(), undisturbed(kill.world_size, kConfig + kill.more));
}

// With three ranks, the bits depend on the buckets, which the checkpoint must contain.
constexpr char kManyBuckets[] = "ddp: {shared_memory: false, bucket_cap_mb: 0.001}\n";

INSTANTIATE_TEST_SUITE_P(
    EachPhase, StoppedRecovery,
    testing::Values(Kill{.kind = "kill_forward", .world_size = 2, .rank = 1, .step = 23},
                    Kill{.kind = "kill_backward", .world_size = 3, .rank = 2, .step = 2, .more = kManyBuckets},
                    Kill{.kind = "kill_update", .world_size = 2, .rank = 1, .step = 26},
                    Kill{.kind = "kill_update", .world_size = 3, .rank = 1, .step = 33, .more = kManyBuckets},
                    Kill{.kind = "kill_eval", .world_size = 2, .rank = 1, .step = 20}),
    [](const testing::TestParamInfo<Kill>& test_case) {
      const Kill& kill = test_case.param;
      return fmt::format("{}_of_rank_{}_of_{}_in_step_{}", kill.kind, kill.rank, kill.world_size, kill.step);
    });

// The signal arrives first, and the ranks cannot agree on it, because one of them does not respond.
TEST(Recovery, SignalBeforeALossLosesNoStep) {
  Job job(2, kConfig);
  job.limit_groups(1);
  job.do_not_replace({1});
  bool is_stopped = false;
  job.run([&](Job& running) {
    if (is_stopped || !running.is_saving()) return;
    is_stopped = true;
    running.rank(1).signal(SIGSTOP);
    running.rank(0).signal(SIGTERM);
    running.rank(1).signal(SIGKILL);
  });
  EXPECT_EQ(job.rank(0).wait(), to_int(ExitCode::kTempFail)) << job.all_logs();
  Job resumed(2, kConfig, "", /*with_channel=*/false, 0, job.checkpoints());
  ASSERT_TRUE(resumed.run()) << resumed.all_logs();
  EXPECT_EQ(resumed.bits(), undisturbed(2));
}

// Rank 0 does not save what the others would have to complete: the buckets after the first step, and weights that are
// not finite.
TEST(Recovery, SignalSavesOnlyACompleteState) {
  const std::string config =
      "task: tiny\nsteps: 100000\nbatch: {size: 16}\ndata: {samples: 208}\nthreads: 1\nlog: {every_steps: 50000}\n"
      "eval: {every_epochs: 0}\ncheckpoint: {every_epochs: 0, best: {save: false}}\n";
  for (const bool is_first : {true, false}) {
    Job job(2, config,
            is_first ? "model: {fault: {kind: kill_update, rank: 1}}\n"
                     : "model: {fault: {kind: nan_from, rank: 1, step: 5}}\n");
    job.limit_groups(1);
    job.do_not_replace({0, 1});
    job.run([&](Job& running) {
      if (!is_first && running.all_logs().find("\"step\":8") != std::string::npos) running.rank(1).signal(SIGKILL);
      if (running.is_absent(1) && running.is_waiting(0)) running.rank(0).signal(SIGTERM);
    });
    EXPECT_EQ(job.rank(0).wait(), to_int(ExitCode::kPeerLost)) << job.all_logs();
    EXPECT_FALSE(fs::exists(job.checkpoints() / "last"));
  }
}

class HungRank : public testing::TestWithParam<const char*> {};

TEST_P(HungRank, IsReplacedAfterTheTimeout) {
  Job job(2, kConfig, fmt::format("distributed: {{timeout_seconds: 1.5}}\n{}", GetParam()));
  bool stopped = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (!stopped && running.is_saving()) {
      running.rank(1).signal(SIGSTOP);
      stopped = true;
    }
    // A launcher does the same with a rank that has not left the group when the others have.
    if (stopped && running.others_have_left(1) && running.starts() == 2) running.rank(1).signal(SIGKILL);
  })) << job.all_logs();
  EXPECT_EQ(job.bits(), undisturbed(2));
  const std::vector<nlohmann::json> recovered = job.recovery_lines();
  ASSERT_EQ(recovered.size(), 1U) << job.all_logs();
  EXPECT_EQ(recovered[0]["ranks"], "1");
  EXPECT_THAT(recovered[0]["reason"].get<std::string>(), testing::HasSubstr("rank 1 does not respond"));
  print_times(job);
}

INSTANTIATE_TEST_SUITE_P(EachTransport, HungRank, testing::Values("", kOverGloo), [](const auto& test_case) {
  return std::string(*test_case.param == '\0' ? "shared_memory" : "gloo");
});

// Kills also hit ranks that start, wait for the others, or send or receive state. If no rank has state left, the new
// processes start from the newest checkpoint.
TEST(Recovery, RepeatedKillsChangeNoBit) {
  const std::string config =
      "task: tiny\nsteps: 400\nbatch: {size: 16}\ndata: {samples: 208, eval_samples: 33}\n"
      "optimizer: {name: adamw, lr: 0.003}\nema: {enabled: true, decay: 0.9}\neval: {every_steps: 25}\n"
      "checkpoint: {every_steps: 20, keep: 0}\nseed: 3\nthreads: 1\n";
  constexpr int kKills = 8;
  std::mt19937 random(7);
  Job job(3, config);
  int kills = 0;
  auto next = std::chrono::steady_clock::time_point::max();
  EXPECT_TRUE(job.run([&](Job& running) {
    if (kills == 0 && running.is_saving()) next = std::chrono::steady_clock::now();
    // A rank that is lost when others have exited already cannot be replaced.
    const bool is_enough = kills == kKills || kills >= 2 * (running.recoveries() + 1) ||
                           fs::exists(running.checkpoints() / checkpoint_directory_name(300));
    if (is_enough || std::chrono::steady_clock::now() < next) return;
    const int victim = static_cast<int>(random() % 3);
    if (!test::alive(running.rank(victim).pid())) return;
    running.rank(victim).signal(SIGKILL);
    ++kills;
    next = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 700);
  })) << job.all_logs();
  EXPECT_GE(kills, 1);
  EXPECT_EQ(job.bits(), undisturbed(3, config)) << job.all_logs();
  std::printf("%d kills, %d groups\n", kills, job.recoveries() + 1);
  print_times(job);
}

// ---- another number of ranks ---------------------------------------------------------------------------------------

// The rates and the batches depend on the number of ranks, and the epochs define the length of the run.
constexpr char kScaled[] =
    "task: tiny\nepochs: 5\ndata: {samples: 208, eval_samples: 33}\n"
    "optimizer: {name: adamw, lr: 0.003, groups: [{preset: no_decay, lr: 0.001}]}\nema: {enabled: true, decay: 0.9}\n"
    "schedule: {name: cosine, warmup_steps: 10}\n"
    "gradient: {accumulation_steps: 2, clip_norm: 1.0}\n"
    "checkpoint: {every_steps: 6, every_epochs: 0, best: {save: false}, keep: 0}\nlog: {every_steps: 5}\nseed: "
    "3\nthreads: 1\n";

struct Shrink {
  std::string name;
  int world_size = 3;
  int ranks_per_node = 1;
  std::set<int> lost = {};
  std::string batch = "batch: {size: 8}\nscaling: {lr: linear, warmup: linear}\n";
};

std::ostream& operator<<(std::ostream& out, const Shrink& shrink) { return out << shrink.name; }

class FewerRanks : public testing::TestWithParam<Shrink> {};

// Stops all ranks after step 6, whose checkpoint is the last one, and resumes it with fewer.
std::string bits_of_resumed_run(const Shrink& shrink) {
  constexpr char kStop[] = "model: {fault: {kind: kill_forward, rank: 1, step: 9}}\n";
  Job stopped(shrink.world_size, kScaled, shrink.batch + kStop, /*with_channel=*/false, shrink.ranks_per_node);
  std::set<int> all;
  for (int rank = 0; rank < shrink.world_size; ++rank) all.insert(rank);
  stopped.do_not_replace(all);
  EXPECT_TRUE(stopped.run()) << stopped.all_logs();
  EXPECT_EQ(find_latest_checkpoint(stopped.checkpoints())->step, 6) << stopped.all_logs();
  Job resumed(shrink.world_size - static_cast<int>(shrink.lost.size()), kScaled, shrink.batch, /*with_channel=*/false,
              shrink.ranks_per_node, stopped.checkpoints());
  EXPECT_TRUE(resumed.run()) << resumed.all_logs();
  return resumed.bits();
}

TEST_P(FewerRanks, ContinueAsARunThatIsResumedWithFewer) {
  const Shrink& shrink = GetParam();
  const int first = *shrink.lost.begin();
  Job job(shrink.world_size, kScaled,
          fmt::format("{}model: {{fault: {{kind: kill_forward, rank: {}, step: 6}}}}\n", shrink.batch, first),
          /*with_channel=*/true, shrink.ranks_per_node);
  job.do_not_replace(shrink.lost);
  ASSERT_TRUE(job.run([&](Job& running) {
    if (!running.is_absent(first)) return;
    for (const int rank : shrink.lost) {
      if (test::alive(running.rank(rank).pid())) running.rank(rank).signal(SIGKILL);
    }
  })) << job.all_logs();
  EXPECT_EQ(job.starts(), shrink.world_size) << "the other ranks are the same processes";
  EXPECT_THAT(job.all_logs(), testing::HasSubstr("training continues with fewer ranks, without a checkpoint"));
  EXPECT_EQ(job.bits(), bits_of_resumed_run(shrink)) << job.all_logs();
}

INSTANTIATE_TEST_SUITE_P(
    EachSize, FewerRanks,
    testing::Values(
        Shrink{.name = "two_of_three", .lost = {2}}, Shrink{.name = "without_rank_1", .lost = {1}},
        Shrink{.name = "one_of_two", .world_size = 2, .lost = {1}},
        Shrink{.name = "one_node_of_two", .world_size = 4, .ranks_per_node = 2, .lost = {2, 3}},
        Shrink{.name = "global_batch", .world_size = 4, .lost = {1, 3}, .batch = "batch: {size: 32, per: global}\n"}),
    [](const auto& test_case) { return test_case.param.name; });

// A rank that is started again joins the group between two steps. The run ends as one that was stopped at both steps
// and resumed each time with the other number of ranks.
TEST(MoreRanks, ContinueAsARunThatIsResumedWithMore) {
  const auto config = [](int64_t steps) {
    return fmt::format(
        "task: tiny\nsteps: {}\nbatch: {{size: 8}}\ndata: {{samples: 208, eval_samples: 33}}\nseed: 3\nthreads: 1\n"
        "optimizer: {{name: adamw, lr: 0.001}}\nschedule: {{warmup_steps: 10}}\nema: {{enabled: true, decay: 0.9}}\n"
        "scaling: {{lr: linear, warmup: linear}}\neval: {{every_epochs: 0}}\nlog: {{every_steps: 50}}\n",
        steps);
  };
  constexpr int64_t kSteps = 1000;
  for (const int world_size : {2, 3}) {
    const int lost = world_size - 1;
    Job job(world_size, config(kSteps),
            fmt::format("model: {{fault: {{kind: kill_forward, rank: {}, step: 6}}}}\n", lost));
    job.do_not_replace({lost});
    // The others are stopped while the process starts, because they would finish meanwhile.
    enum class Lost { kRuns, kStarts, kJoins } state = Lost::kRuns;
    ASSERT_TRUE(job.run([&](Job& running) {
      const auto signal_others = [&](int number) {
        for (int rank = 0; rank < lost; ++rank) running.rank(rank).signal(number);
      };
      if (state == Lost::kRuns && running.is_absent(lost) && running.recoveries() >= 1) {
        signal_others(SIGSTOP);
        running.bring_back(lost);
        state = Lost::kStarts;
      } else if (state == Lost::kStarts && running.is_waiting(lost)) {
        signal_others(SIGCONT);
        state = Lost::kJoins;
      }
    })) << job.all_logs();
    const std::vector<nlohmann::json> fewer = job.lines_of("training continues with fewer ranks, without a checkpoint");
    const std::vector<nlohmann::json> more = job.lines_of("training continues with more ranks, without a checkpoint");
    ASSERT_EQ(fewer.size(), 1U) << job.all_logs();
    ASSERT_EQ(more.size(), 1U) << job.all_logs();
    EXPECT_EQ(fewer[0]["step"], 6);
    EXPECT_EQ(fewer[0]["world_size"], world_size - 1);
    EXPECT_EQ(more[0]["world_size"], world_size);
    const auto run_until = [&](int ranks, int64_t steps, const fs::path& checkpoints) {
      Job part(ranks, config(steps), "", /*with_channel=*/false, 0, checkpoints);
      EXPECT_TRUE(part.run()) << part.all_logs();
    };
    const TemporaryDirectory parts;
    run_until(world_size, 6, parts.path());
    run_until(world_size - 1, more[0]["step"], parts.path());
    run_until(world_size, kSteps, parts.path());
    EXPECT_EQ(job.bits(), bits_of(parts.path() / "last")) << job.all_logs();
  }
}

// The kills occur in the forward and backward pass, the all-reduce, the optimizer, and between steps.
TEST(Recovery, KillsAtRandomTimesChangeNoBit) {
  std::mt19937 random(20261123);
  for (const int world_size : {2, 4}) {
    for (int round = 0; round < 4; ++round) {
      const int rank = static_cast<int>(random() % static_cast<unsigned>(world_size));
      const int step = static_cast<int>(random() % 55);
      const int delay = 1 + static_cast<int>(random() % 4000);
      const std::string config = std::string(kConfig) + (round % 2 == 0 ? "" : kOverGloo);
      Job job(
          world_size, config,
          fmt::format("model: {{fault: {{kind: kill_later, rank: {}, step: {}, delay: {}}}}}\n", rank, step, delay));
      EXPECT_TRUE(job.run()) << job.all_logs();
      EXPECT_EQ(job.bits(), undisturbed(world_size, config))
          << "rank " << rank << " of " << world_size << ", step " << step << ", " << delay << " us\n"
          << job.all_logs();
      print_times(job);
    }
  }
}

}  // namespace
}  // namespace oarlock
