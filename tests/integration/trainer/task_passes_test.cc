// The additional passes of a task: when they run, with which weights, and that all ranks end if one fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/rank_harness.h"
#include "trainer/checkpoint/checkpoint.h"

namespace oarlock::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// steps, rows, accuracy, weight
struct PassLine {
  int64_t steps = 0;
  int64_t rows = 0;
  std::string accuracy;
  std::string weight;
};

class TaskPasses : public testing::Test {
 protected:
  TrainerRanks start(int world_size, const std::string& config) {
    TrainerOptions options;
    options.config = "task: tiny\nbatch: {size: 24, per: global}\n" + config;
    options.directory = directory_.path();
    return TrainerRanks(world_size, options);
  }

  static std::string data(const std::string& file, int64_t every, int64_t eval_samples = 31) {
    return "data: {samples: 96, eval_samples: " + std::to_string(eval_samples) + ", pass_file: " + file +
           ", pass_every: " + std::to_string(every) + "}\n";
  }

  std::vector<PassLine> lines(const std::string& file) const {
    std::vector<PassLine> out;
    std::ifstream stream(directory_.path() / file);
    for (PassLine line; stream >> line.steps >> line.rows >> line.accuracy >> line.weight;) out.push_back(line);
    return out;
  }

  std::vector<int64_t> steps(const std::string& file) const {
    std::vector<int64_t> out;
    for (const PassLine& line : lines(file)) out.push_back(line.steps);
    return out;
  }

  TemporaryDirectory directory_;
};

TEST_F(TaskPasses, RunEverySoManyStepsAndWhereTheRunEnds) {
  EXPECT_THAT(start(1, "steps: 10\n" + data("one", 4)).wait(), Each(0));
  EXPECT_THAT(steps("one"), ElementsAre(4, 8, 10));
  for (const PassLine& line : lines("one")) EXPECT_EQ(line.rows, 31);
  EXPECT_THAT(start(1, "steps: 8\n" + data("even", 4)).wait(), Each(0));
  EXPECT_THAT(steps("even"), ElementsAre(4, 8)) << "once where both are at the same step";
  EXPECT_THAT(start(1, "steps: 8\n" + data("end", 0)).wait(), Each(0));
  EXPECT_THAT(steps("end"), ElementsAre(8));
}

TEST_F(TaskPasses, EachSampleOnceOnAnyNumberOfRanks) {
  for (const int world_size : {1, 3}) {
    const std::string file = "of" + std::to_string(world_size);
    EXPECT_THAT(
        start(world_size, "steps: 1\noptimizer: {lr: 1e-30}\nmodel: {batch_norm: false}\n" + data(file, 0)).wait(),
        Each(0));
  }
  ASSERT_EQ(lines("of1").size(), 1U);
  ASSERT_EQ(lines("of3").size(), 1U);
  EXPECT_EQ(lines("of3")[0].rows, 31);
  EXPECT_EQ(lines("of3")[0].accuracy, lines("of1")[0].accuracy);
}

TEST_F(TaskPasses, UseTheAveragedWeightsOfTheEvaluation) {
  const std::string run = "steps: 6\n";
  EXPECT_THAT(start(1, run + data("live", 0)).wait(), Each(0));
  EXPECT_THAT(start(1, run + "ema: {enabled: true, decay: 0.9}\n" + data("averaged", 0)).wait(), Each(0));
  ASSERT_EQ(lines("live").size(), 1U);
  ASSERT_EQ(lines("averaged").size(), 1U);
  EXPECT_NE(lines("live")[0].weight, lines("averaged")[0].weight);
}

// A learning rate with which the model becomes worse: its best evaluation is not its last.
constexpr char kWorsening[] =
    "steps: 12\noptimizer: {name: sgd, lr: 30}\neval: {every_steps: 3}\ncheckpoint: {dir: ck, keep: 2}\n";

TEST_F(TaskPasses, MayLookAtTheBestModelWhenTheRunIsOver) {
  for (const int world_size : {1, 2}) {
    for (const bool averaged : {false, true}) {
      const std::string name = std::to_string(world_size) + (averaged ? "averaged" : "live");
      std::string config = std::string(kWorsening) + (averaged ? "ema: {enabled: true, decay: 0.5}\n" : "");
      config.replace(config.find("dir: ck"), 7, "dir: ck" + name);
      std::string with_pass = data(name, 3);
      with_pass.insert(with_pass.find('}'), ", pass_best: true");
      EXPECT_THAT(start(world_size, config + with_pass).wait(), Each(0));
      const Result<Checkpoint> best = read_checkpoint(directory_.path() / ("ck" + name) / "best");
      ASSERT_TRUE(best) << best.error().message;
      ASSERT_LT(best->state.step, 12) << "this test requires a run whose loss increases";
      ASSERT_THAT(steps(name), ElementsAre(best->state.step)) << name;
      const TensorMap& weights = best->tensors.at(averaged ? "ema" : kModelTensors);
      EXPECT_NEAR(std::stod(lines(name)[0].weight), weights.at("fc1.weight").abs().sum().item<double>(), 1e-4);
      EXPECT_EQ(std::stod(lines(name)[0].accuracy), best->state.extra["best"]["value"].get<double>()) << name;
    }
  }
}

TEST_F(TaskPasses, WithoutCheckpointsTheBestWeightsAreTheLast) {
  std::string with_pass = data("none", 0);
  with_pass.insert(with_pass.find('}'), ", pass_best: true");
  EXPECT_THAT(start(1, "steps: 4\n" + with_pass).wait(), Each(0));
  EXPECT_THAT(steps("none"), ElementsAre(4));
}

TEST_F(TaskPasses, AResumedRunDoesNotRepeatThem) {
  const std::string config = "checkpoint: {dir: ck, every_steps: 4}\n" + data("resumed", 4);
  EXPECT_THAT(start(2, "steps: 4\n" + config).wait(), Each(0));
  EXPECT_THAT(start(2, "steps: 9\n" + config).wait(), Each(0));
  EXPECT_THAT(steps("resumed"), ElementsAre(4, 8, 9));
}

TEST_F(TaskPasses, OneThatFailsEndsAllRanksWithItsReason) {
  TrainerRanks ranks = start(2, "steps: 9\n" + data("no/such/directory", 4));
  EXPECT_THAT(ranks.wait(), ElementsAre(74, 74));
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.last_word(rank).message, HasSubstr("cannot write no/such/directory"));
}

}  // namespace
}  // namespace oarlock::test
