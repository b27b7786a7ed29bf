// Recovery of a rank that was lost in a save, or whose checkpoints are not available; what a replaced rank 0 reports.
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
using test::Job;
using test::kConfig;
using test::print_times;
using test::Program;
using test::undisturbed;

TEST(Recovery, RankZeroInASave) {
  Job job(2, kConfig);
  bool killed = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (killed || !running.is_saving()) return;
    killed = true;
    running.rank(0).signal(SIGKILL);
  })) << job.all_logs();
  EXPECT_TRUE(killed);
  EXPECT_EQ(job.bits(), undisturbed(2));
  print_times(job);
}

// The names in a checkpoint directory, with the targets of links.
std::map<std::string, std::string> names_of(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(directory))
    out[entry.path().filename().string()] = entry.is_symlink() ? fs::read_symlink(entry.path()).string() : "";
  return out;
}

// Rank 0 is cut off and replaced. It returns when the run is complete, receives a signal, and tries to save its state.
TEST(Recovery, RankZeroThatWasCutOffDoesNotSave) {
  Job job(2, kConfig);
  std::unique_ptr<Program> old;
  ASSERT_TRUE(job.run([&](Job& running) {
    // The save has ended: a process that is stopped in it holds the lock of the directory, and each save of its
    // successor waits for the lock.
    if (old || running.rank(0).err().find("checkpoint saved") == std::string::npos) return;
    running.rank(0).signal(SIGSTOP);
    old = running.cut_off(0);
  })) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  const auto names = names_of(job.checkpoints());
  const int64_t reached = read_high_water(job.checkpoints());
  old->signal(SIGTERM);
  old->signal(SIGCONT);
  EXPECT_EQ(old->wait(), to_int(ExitCode::kTempFail)) << old->err();
  EXPECT_THAT(old->err(), testing::HasSubstr("generation 0 of attempt 0 of this job may not write here any more: "
                                             "generation 1 has taken over"));
  EXPECT_EQ(names_of(job.checkpoints()), names);
  EXPECT_EQ(read_high_water(job.checkpoints()), reached);
  EXPECT_EQ(job.bits(), undisturbed(2));
}

nlohmann::json state_of(const fs::path& checkpoint) {
  return nlohmann::json::parse(test::content(checkpoint / kStateFile));
}

// The save of the best weights is lost with rank 0. The others still have these weights.
void expect_best_checkpoint_survives(std::string config) {
  const std::string keep = "keep: 0";
  config.replace(config.find(keep), keep.size(), "keep: 0, best: {metric: loss, mode: max}");  // the first evaluation
  Job plain(2, config);
  EXPECT_TRUE(plain.run()) << plain.all_logs();
  const nlohmann::json best = state_of(plain.checkpoints() / "last").at("extra").at("best");
  ASSERT_EQ(best.at("step"), 7);
  Job job(2, config, "model: {fault: {kind: kill_forward, rank: 0, step: 7}}\n");
  EXPECT_TRUE(job.run()) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(state_of(job.checkpoints() / "last").at("extra").at("best"), best);
  EXPECT_EQ(job.bits(), plain.bits());
}

TEST(Recovery, RankZeroInTheSaveOfTheBestCheckpoint) { expect_best_checkpoint_survives(kConfig); }

// Step 7 is the last one of the epoch, and is saved first without the mark, because every_steps is 7, too.
TEST(Recovery, RankZeroInTheSecondSaveOfAStep) {
  expect_best_checkpoint_survives(
      "task: tiny\nsteps: 40\nbatch: {size: 16}\ndata: {samples: 224, eval_samples: 33}\nseed: 3\nthreads: 1\n"
      "optimizer: {name: adamw, lr: 0.003}\neval: {every_epochs: 1}\nlog: {every_steps: 5}\n"
      "checkpoint: {every_steps: 7, every_epochs: 0, keep: 0}\n");
}

// The others have the state, so that they do not need a checkpoint.
TEST(Recovery, TheNewestCheckpointIsDamagedWhenRankZeroIsLost) {
  for (const bool is_removed : {false, true}) {
    Job job(2, kConfig);
    fs::path damaged;
    EXPECT_TRUE(job.run([&](Job& running) {
      if (!damaged.empty() || !fs::exists(running.checkpoints() / "last")) return;
      running.rank(0).signal(SIGKILL);
      running.rank(0).wait();
      damaged = list_checkpoints(running.checkpoints()).value().front().path;
      if (is_removed) {
        fs::remove_all(damaged);
      } else {
        fs::resize_file(damaged / kStateFile, 0);
      }
    })) << job.all_logs();
    EXPECT_EQ(job.recoveries(), 1);
    EXPECT_EQ(job.bits(), undisturbed(2));
    EXPECT_EQ(job.lines_of("a checkpoint is damaged; the ranks continue from memory").size(), is_removed ? 0 : 1);
  }
}

// The others have the state and continue without saves, and so does the rank that replaces rank 0, until the directory
// is available again. `block` makes its path unusable.
void lose_rank_zero_without_directory(const std::function<void(const fs::path& directory)>& block) {
  Job plain(2, kConfig);
  ASSERT_TRUE(plain.run()) << plain.all_logs();
  Job job(2, kConfig, "model: {fault: {kind: slow, rank: 1}}\n");  // each step takes at least 200 ms
  const fs::path away = job.checkpoints().string() + "-away";
  bool is_back = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (is_back) return;
    if (!fs::exists(away)) {
      if (!fs::exists(running.checkpoints() / "last")) return;
      running.rank(0).signal(SIGKILL);
      running.rank(0).wait();  // it writes no further file
      fs::rename(running.checkpoints(), away);
      block(running.checkpoints());
    } else if (!running.recovery_lines().empty()) {
      fs::remove(running.checkpoints());
      fs::rename(away, running.checkpoints());
      is_back = true;
    }
  })) << job.all_logs();
  EXPECT_TRUE(is_back);
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.bits(), plain.bits());
  EXPECT_EQ(state_of(job.checkpoints() / "last").at("extra").at("best"),
            state_of(plain.checkpoints() / "last").at("extra").at("best"));
  EXPECT_EQ(job.lines_of("the checkpoint directory is not available; the next save tries again").size(), 1U)
      << job.all_logs();
}

TEST(Recovery, TheDirectoryIsNotAvailableWhenRankZeroIsLost) {
  lose_rank_zero_without_directory([](const fs::path& directory) { std::ofstream(directory) << "in the way"; });
}

// A directory that does not exist is not one without checkpoints, whose best one may be removed.
TEST(Recovery, TheDirectoryIsMissingWhenRankZeroIsLost) {
  lose_rank_zero_without_directory([](const fs::path& directory) { fs::create_symlink("not-mounted", directory); });
}

// A replaced rank 0 counts the steps that were skipped before it was started.
TEST(Recovery, SkippedStepsOfALostRankCount) {
  const std::string config =
      "task: tiny\nsteps: 400\nbatch: {size: 16}\ndata: {samples: 208, eval_samples: 33}\nseed: 3\nthreads: 1\n"
      "optimizer: {name: adamw, lr: 0.003}\neval: {every_epochs: 0}\nlog: {every_steps: 1000}\n"
      "nonfinite: {loss: skip, gradient: skip, max_share: 0.5}\n"
      "checkpoint: {every_steps: 1000, every_epochs: 0, best: {save: false}}\n"
      "model: {fault: {kind: nan, rank: 1, step: 12}}\n";
  Job job(2, config);
  bool killed = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (killed || running.all_logs().find("\"step\":16") == std::string::npos) return;
    killed = true;
    running.rank(0).signal(SIGKILL);
  })) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(state_of(job.checkpoints() / "last").at("sections").at("nonfinite").at("skipped"), 1);
}

// The rank 0 that replaces the killed one has the state, but another rank is killed before the group is complete. The
// new rank 0 is then the donor, although it has never trained.
TEST(Recovery, AnotherLossWhileTheNewRankZeroJoins) {
  const std::string config = std::string(kConfig) + "ddp: {shared_memory: false, bucket_cap_mb: 0.001}\n";
  Job job(4, config);
  std::optional<test::BlockedFile> marks;  // which the new rank 0 reads after it has received the state
  bool is_other_killed = false;
  bool done = false;
  EXPECT_TRUE(job.run([&](Job& running) {
    if (done) return;
    if (!marks) {
      if (!fs::exists(running.checkpoints() / "last")) return;
      running.rank(0).signal(SIGKILL);
      running.rank(0).wait();  // it writes no further checkpoint
      marks.emplace(list_checkpoints(running.checkpoints()).value().front().path / kManifestFile);
    } else if (!is_other_killed) {
      if (running.recoveries() < 1 || !marks->has_reader()) return;
      running.rank(3).signal(SIGKILL);
      is_other_killed = true;
    } else if (running.others_have_left(0)) {
      marks.reset();
      done = true;
    }
  })) << job.all_logs();
  EXPECT_TRUE(done);
  EXPECT_EQ(job.recoveries(), 2);
  EXPECT_EQ(job.starts(), 4 + 2);
  const std::vector<nlohmann::json> recoveries = job.recovery_lines();
  ASSERT_EQ(recoveries.size(), 1U) << job.all_logs();
  EXPECT_EQ(recoveries[0]["rank"], 0) << "the donor";
  EXPECT_EQ(job.bits(), undisturbed(4, config));
}

// The steps of each tag in TensorBoard's files, in their order.
std::map<std::string, std::vector<int64_t>> reported_steps(const fs::path& directory) {
  std::set<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) files.insert(entry.path());
  std::map<std::string, std::vector<int64_t>> out;
  for (const fs::path& file : files) {
    const Result<std::string> content = read_file(file);
    std::string_view left = content ? std::string_view(*content) : std::string_view();
    while (const auto record = next_record(source_of(left))) {
      const auto points = read_points(*record);
      EXPECT_TRUE(points);
      if (!points) continue;
      for (const std::string& tag : points->tags) out[tag].push_back(points->step);
    }
  }
  return out;
}

// The destinations get each point once, from the rank 0 that was killed or from the one that replaced it.
TEST(Recovery, AReplacedRankZeroReportsTheRun) {
  // Each step takes at least 200 ms, so that rank 0 is killed long before the next point.
  Job job(2, kConfig,
          "tracking: {histograms_every_steps: 20, tensorboard: {enabled: true}, wandb: {enabled: true}}\n"
          "model: {fault: {kind: slow, rank: 0}}\n");
  bool is_killed = false;
  ASSERT_TRUE(job.run([&](Job& running) {
    if (is_killed || reported_steps(running.checkpoints() / "tensorboard")["loss"].size() < 5) return;
    running.rank(0).signal(SIGKILL);
    is_killed = true;
  })) << job.all_logs();
  EXPECT_EQ(job.recoveries(), 1);
  EXPECT_EQ(job.bits(), undisturbed(2));
  std::map<std::string, std::vector<int64_t>> steps = reported_steps(job.checkpoints() / "tensorboard");
  EXPECT_THAT(steps["loss"], testing::ElementsAre(5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60));
  int histograms = 0;
  for (const auto& [tag, at] : steps) {
    if (!tag.starts_with("gradients/")) continue;
    ++histograms;
    EXPECT_THAT(at, testing::ElementsAre(20, 40, 60)) << tag;
  }
  EXPECT_GT(histograms, 0);
  WandbContents contents;
  for (const auto& entry : fs::recursive_directory_iterator(job.checkpoints() / "wandb")) {
    if (entry.path().extension() != ".wandb") continue;
    const std::string content = *read_file(entry.path());
    std::string_view left = content;
    read_wandb_contents(source_of(left), contents);
  }
  ASSERT_TRUE(contents.newest.contains("loss"));
  EXPECT_EQ(contents.newest["loss"].step, 60);
}

}  // namespace
}  // namespace oarlock
