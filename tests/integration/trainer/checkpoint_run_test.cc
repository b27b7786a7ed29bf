// Checkpoints of whole runs: the best one, changed world and batch sizes, sections that are added or removed, and disks
// that fail.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "tests/integration/trainer/run_support.h"
#include "trainer/checkpoint/directory.h"

namespace oarlock {
namespace {

using test::bits_of;
using test::eventually;
using test::kLong;
using test::TemporaryDirectory;
using test::TrainerRanks;
using test::undisturbed;
using test::wait_for_step;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

test::TrainerOptions in_directory(const std::string& config, const TemporaryDirectory& directory) {
  return {.config = config,
          .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
          .environment = {},
          .directory = {}};
}

// Without dropout, and without batch norm's statistics of each rank's part, a run does not depend on how the global
// batch is split, so a change of the world size affects the last bits only. Position and optimizer must be restored.
TEST(CheckpointRun, ResumesInsideAnEpochWithAnotherWorldSize) {
  const auto config = [](int steps) {
    return "task: tiny\nsteps: " + std::to_string(steps) +
           "\nbatch: {size: 24, per: global}\nmodel: {dropout: 0, batch_norm: false}\ndata: {samples: 240}\n"
           "ema: {enabled: true, decay: 0.9}\noptimizer: {lr: 0.01}\n";
  };
  const TemporaryDirectory alone;
  const TemporaryDirectory changing;
  undisturbed(1, config(37), alone.path());
  for (const auto& [world_size, steps] : std::vector<std::pair<int, int>>{{2, 13}, {3, 26}, {1, 37}}) {
    TrainerRanks ranks(world_size, in_directory(config(steps), changing));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    const auto saved = read_checkpoint(changing.path() / "last");
    ASSERT_TRUE(saved) << saved.error().message;
    EXPECT_EQ(saved->state.step, steps);
    EXPECT_EQ(saved->state.world_size, world_size);
    EXPECT_EQ(saved->state.epoch, steps / 10);
    EXPECT_EQ(saved->state.epoch_samples, steps % 10 * 24);
  }
  const auto expected = read_checkpoint(alone.path() / "last");
  const auto found = read_checkpoint(changing.path() / "last");
  for (const char* section : {"model", "optimizer", "ema"}) {
    ASSERT_FALSE(expected->tensors.at(section).empty());
    for (const auto& [name, tensor] : expected->tensors.at(section))
      EXPECT_TRUE(at::allclose(tensor, found->tensors.at(section).at(name), 1e-4, 1e-6)) << section << " " << name;
  }
}

// 240 samples: 3 steps of 24, then 168 samples in steps of 16, the last of them with 8; then a whole epoch.
TEST(CheckpointRun, AnotherBatchSizeInsideAnEpochUsesEverySampleOnce) {
  const TemporaryDirectory directory;
  const std::string data = "data: {samples: 240}\n";
  undisturbed(1, "task: tiny\nsteps: 3\nbatch: {size: 24}\n" + data, directory.path());
  TrainerRanks ranks(2, in_directory("task: tiny\nepochs: 2\nbatch: {size: 8}\n" + data, directory));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "training is complete")["step"], 3 + 11 + 15);
}

TEST(CheckpointRun, TheBestEvaluationIsKeptAndFoundByName) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nepochs: 12\nbatch: {size: 16}\noptimizer: {lr: 0.02}\n"
      "checkpoint: {every_epochs: 0, keep: 1, best: {metric: loss, mode: min}}\n";
  TrainerRanks ranks(2, in_directory(config, directory));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  double best = 1e9;
  int64_t step = -1;
  for (const std::string& line : test::lines(ranks.rank(0).err())) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["msg"] != "evaluation" || json["loss"] >= best) continue;
    best = json["loss"];
    step = json["step"];
  }
  const auto found = read_checkpoint(directory.path() / "best");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->state.step, step);
  EXPECT_NEAR(found->state.extra["best"]["value"], best, 1e-5);  // the log has six digits
  EXPECT_EQ(read_checkpoint(directory.path() / "last")->state.step, 96);

  // A resumed run compares its evaluations with the best one of the earlier processes.
  TrainerRanks more(1, in_directory("task: tiny\nepochs: 13\nbatch: {size: 16}\noptimizer: {lr: 10}\n"
                                    "checkpoint: {keep: 1, best: {metric: loss, mode: min}}\n",
                                    directory));
  EXPECT_THAT(more.wait(), Each(0)) << more.rank(0).err();
  EXPECT_EQ(read_checkpoint(directory.path() / "best")->state.step, step);
}

// The copy runs concurrently with forward and backward and takes longer than both. The next update must wait for it,
// and the running statistics, which the next forward pass changes, must have been copied before.
// The metric is the same in every evaluation, so the first one stays the best.
TEST(CheckpointRun, ABestEvaluationInsideAnEpochIsSavedAtItsStep) {
  const TemporaryDirectory directory;
  TrainerRanks ranks(2,
                     in_directory("task: tiny\nsteps: 20\nbatch: {size: 4}\neval: {every_epochs: 0, every_steps: 6}\n"
                                  "checkpoint: {every_epochs: 0, keep: 1, best: {metric: count, mode: max}}\n",
                                  directory));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  const auto found = read_checkpoint(directory.path() / "best");
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->state.step, 6);
}

TEST(CheckpointRun, AConcurrentCopyContainsTheStateOfItsStep) {
  const auto config = [](int steps) {
    return "task: tiny\nsteps: " + std::to_string(steps) +
           "\nbatch: {size: 4}\neval: {every_epochs: 0}\nmodel: {hidden: 40000}\nema: {enabled: true}\n"
           "checkpoint: {every_steps: 1, keep: 0}\n";
  };
  const TemporaryDirectory directory;
  undisturbed(2, config(6), directory.path());
  for (const int steps : {3, 5}) {
    const TemporaryDirectory shorter;
    const std::string expected = undisturbed(2, config(steps), shorter.path());
    EXPECT_EQ(bits_of(directory.path() / fmt::format("step-{:08}", steps)), expected);
  }
}

TEST(CheckpointRun, EvaluationsByStepsHappenOnceEach) {
  const TemporaryDirectory directory;
  const auto evaluated_at = [&](const std::string& config) {
    TrainerRanks ranks(2, in_directory("task: tiny\nbatch: {size: 16}\n" + config, directory));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    std::vector<int64_t> steps;
    for (const std::string& line : test::lines(ranks.rank(0).err())) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (json["msg"] == "evaluation") steps.push_back(json["step"]);
    }
    return steps;
  };
  EXPECT_THAT(evaluated_at("steps: 6\neval: {every_epochs: 0}\n"), ElementsAre(6));
  // As after a run that ended between a step and its evaluation: the evaluation precedes the next step.
  EXPECT_THAT(evaluated_at("steps: 12\neval: {every_epochs: 0, every_steps: 6}\n"), ElementsAre(6, 12));
  EXPECT_THAT(evaluated_at("steps: 20\neval: {every_epochs: 0, every_steps: 6}\n"), ElementsAre(18, 20));
}

TEST(CheckpointRun, AMetricThatTheEvaluationDoesNotGive) {
  const TemporaryDirectory directory;
  TrainerRanks ranks(2,
                     in_directory("task: tiny\nepochs: 1\ncheckpoint: {best: {metric: f1, mode: max}}\n", directory));
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kConfig)));
  EXPECT_THAT(ranks.last_word(1).message,
              AllOf(HasSubstr("checkpoint.best.metric"), HasSubstr("'f1'"), HasSubstr("accuracy, count, loss")));
}

TEST(CheckpointRun, SectionsComeAndGoWithTheConfiguration) {
  const TemporaryDirectory directory;
  const auto run = [&](const std::string& config) {
    auto ranks = std::make_unique<TrainerRanks>(2, in_directory("task: tiny\nbatch: {size: 16}\n" + config, directory));
    EXPECT_THAT(ranks->wait(), Each(0)) << ranks->rank(0).err();
    return ranks;
  };
  run("steps: 4\n");
  EXPECT_FALSE(read_checkpoint(directory.path() / "last")->tensors.contains("ema"));
  const auto with = run("steps: 5\nema: {enabled: true, decay: 0}\n");
  EXPECT_EQ(
      with->log_line(
          0, "the checkpoint has no such section, which the configuration now needs: it starts with its initial state")
          ["section"],
      "ema");
  const auto checkpoint = read_checkpoint(directory.path() / "last");
  for (const auto& [name, average] : checkpoint->tensors.at("ema"))  // decay 0: the weights of now
    EXPECT_TRUE(at::equal(average, checkpoint->tensors.at("model").at(name))) << name;
  const auto without = run("steps: 6\n");
  EXPECT_EQ(without->log_line(
                0, "the checkpoint has a section that the configuration does not use: it is ignored")["section"],
            "ema");
}

TEST(CheckpointRun, LostStepsAreReported) {
  const TemporaryDirectory directory;
  {
    TrainerRanks ranks(1, in_directory(std::string(kLong) + "checkpoint: {every_steps: 50}\n", directory));
    ASSERT_TRUE(eventually([&] { return read_high_water(directory.path()) > 60; }));
    ranks.rank(0).signal(SIGKILL);
    ranks.wait();
  }
  const int64_t reached = read_high_water(directory.path());
  const int64_t saved = find_latest_checkpoint(directory.path())->step;
  TrainerRanks ranks(1, in_directory(std::string(kLong) + "checkpoint: {every_steps: 50}\n", directory));
  ASSERT_TRUE(eventually([&] { return !ranks.log_line(0, "resuming from a checkpoint").empty(); }));
  EXPECT_EQ(ranks.log_line(0, "resuming from a checkpoint")["lost_steps"], std::max<int64_t>(reached - saved, 0));
}

// ---- disks that fail -----------------------------------------------------------------------------------------------

// A limit on the size of a process's files has the effect of a full disk, and can be set and lifted while it runs.
void limit_files(pid_t pid, rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(prlimit(pid, RLIMIT_FSIZE, &limit, nullptr), 0);
}
constexpr rlim_t kSmall = 64 << 10;

std::string wide(const std::string& policy) {  // a model of more than kSmall
  return "task: tiny\nsteps: 1000000\nbatch: {size: 4}\neval: {every_epochs: 0}\nlog: {every_steps: 1000000}\n"
         "model: {hidden: 4000}\ncheckpoint: {every_steps: 10, every_epochs: 0, on_error: " +
         policy + "}\n";
}

class DiskThatFails : public testing::Test {
 protected:
  DiskThatFails() { std::signal(SIGXFSZ, SIG_IGN); }  // inherited by the ranks, whose writes then fail instead
  ~DiskThatFails() override { std::signal(SIGXFSZ, SIG_DFL); }

  int64_t newest() const { return find_latest_checkpoint(directory_.path())->step; }
  bool is_failure_logged(const TrainerRanks& ranks) const {
    return !ranks.log_line(0, "a checkpoint could not be saved; the older ones are intact").empty();
  }
  void expect_intact(int64_t step) const {
    const auto search = find_latest_checkpoint(directory_.path());
    EXPECT_TRUE(search->skipped.empty());
    EXPECT_GE(search->step, step);
    EXPECT_TRUE(read_checkpoint(*search->directory));
  }

  TemporaryDirectory directory_;
};

TEST_F(DiskThatFails, TrainingContinuesAndSavesAgainWhenThereIsSpace) {
  TrainerRanks ranks(2, in_directory(wide("continue"), directory_));
  ASSERT_TRUE(eventually([&] { return newest() >= 10; }));
  limit_files(ranks.rank(0).pid(), kSmall);
  ASSERT_TRUE(eventually([&] { return is_failure_logged(ranks); })) << ranks.rank(0).err();
  const int64_t saved = newest();
  const auto metrics = test::http_get(ranks.metrics_port(0), kMetricsPath);
  EXPECT_THAT(metrics, HasSubstr("operation=\"save\",result=\"failure\""));
  ASSERT_TRUE(wait_for_step(ranks, saved + 30)) << "training did not continue";
  expect_intact(saved);
  limit_files(ranks.rank(0).pid(), RLIM_INFINITY);
  ASSERT_TRUE(eventually([&] { return newest() > saved; }));

  limit_files(ranks.rank(0).pid(), kSmall);
  ranks.rank(1).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), ElementsAre(75, 75));
  EXPECT_THAT(ranks.last_word(0).message, AllOf(HasSubstr("could not be saved"), HasSubstr("File too large")));
  expect_intact(saved + 1);
}

TEST_F(DiskThatFails, TrainingStopsOnAllRanks) {
  TrainerRanks ranks(2, in_directory(wide("stop"), directory_));
  ASSERT_TRUE(eventually([&] { return newest() >= 10; }));
  limit_files(ranks.rank(0).pid(), kSmall);
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kIoErr)));
  EXPECT_THAT(ranks.last_word(1).message, AllOf(HasSubstr("cannot be written"), HasSubstr("File too large")));
  expect_intact(10);
}

TEST_F(DiskThatFails, TheEndOfTheRunMustBeSaved) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{kSmall, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  TrainerRanks ranks(2, in_directory("task: tiny\nsteps: 3\nmodel: {hidden: 4000}\n", directory_));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kIoErr)));
  EXPECT_EQ(newest(), -1);
}

// The directory is replaced by a file.
TEST_F(DiskThatFails, ADirectoryThatCannotBeWrittenToAndComesBack) {
  const std::filesystem::path root = directory_.path() / "root";
  test::TrainerOptions options = in_directory(wide("continue"), directory_);
  options.arguments[1] = root.string();
  TrainerRanks ranks(1, options);
  ASSERT_TRUE(eventually([&] { return find_latest_checkpoint(root)->step >= 10; }));
  std::filesystem::rename(root, directory_.path() / "away");
  std::ofstream(root) << "a file";
  ASSERT_TRUE(eventually([&] { return is_failure_logged(ranks); })) << ranks.rank(0).err();
  std::filesystem::remove(root);
  std::filesystem::rename(directory_.path() / "away", root);
  const int64_t saved = find_latest_checkpoint(root)->step;
  ASSERT_TRUE(eventually([&] { return find_latest_checkpoint(root)->step > saved; }));
  ranks.rank(0).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
  EXPECT_TRUE(find_latest_checkpoint(root)->skipped.empty());
}

}  // namespace
}  // namespace oarlock
