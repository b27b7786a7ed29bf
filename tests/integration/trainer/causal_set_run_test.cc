// Whole runs of causal_set, as real processes: accuracy, any number of ranks, kill and resume, rejected input.
#include <gmock/gmock.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>

#include "common/files.h"
#include "tests/integration/trainer/run_support.h"
#include "workloads/causal_set/generator.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using test::trainer_options;
using test::TrainerRanks;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class CausalSetRun : public testing::Test {
 protected:
  void generate(int64_t samples, int64_t fewest = 12, int64_t most = 24) {
    const Result<void> written = causal_set::write_generated_store(
        store_, {.samples = samples, .min_elements = fewest, .max_elements = most, .seed = 5});
    ASSERT_TRUE(written) << written.error().message;
  }

  // Two heads: a class, and the number of elements. With SGD, because Adam would amplify the rounding errors in the
  // gradients of biases before a batch norm.
  std::string config(const std::string& cache) const {
    return "task: causal_set\nseed: 5\ndevice: cpu\n"
           "data: {paths: [" +
           store_.string() + "], cache: " + (directory_.path() / cache).string() +
           "}\n"
           "model:\n"
           "  blocks: [{conv: gcn, out: 8, dropout: 0}, {conv: gat, heads: 2, out: 8, dropout: 0}]\n"
           "  pooling: [mean, max, sum]\n"
           "  tasks: [{name: manifold_like, hidden: [6]}, {name: size, target: cset_size, loss: mse, outputs: 1, "
           "weight: 0.01}]\n"
           "batch: {size: 24, per: global, drop_last: true}\neval: {batch_size: 8}\ntesting: {batch_size: 8}\n"
           "optimizer: {name: sgd, lr: 0.02}\nddp: {sync_batch_norm: true}\nlog: {every_steps: 1}\n";
  }

  TemporaryDirectory directory_;
  fs::path store_ = directory_.path() / "sets.zarr";
};

std::string first_column(const std::string& csv, const std::string& name) {
  std::string out;
  size_t column = 0;
  for (const std::string& line : test::lines(csv)) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    if (out.empty()) {
      column = static_cast<size_t>(std::find(cells.begin(), cells.end(), name) - cells.begin());
      EXPECT_LT(column, cells.size()) << "no column " << name << " in " << line;
    }
    out += (column < cells.size() ? cells[column] : "") + "\n";
  }
  return out;
}

TEST_F(CausalSetRun, TheSameMetricsSplitAndOnePreparationForEveryWorldSize) {
  generate(160);
  std::map<std::string, double> alone;
  std::string samples_alone;
  for (const int world_size : {1, 2, 4}) {
    const fs::path csv = directory_.path() / ("test" + std::to_string(world_size) + ".csv");
    TrainerRanks ranks(world_size, trainer_options(config("cache" + std::to_string(world_size)) + "epochs: 3\n",
                                                   {"testing.predictions=" + csv.string()}));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    int conversions = 0;
    for (int rank = 0; rank < world_size; ++rank)
      for (const std::string& line : test::lines(ranks.rank(rank).err()))
        if (line.find("\"causal sets converted\"") != std::string::npos) ++conversions;
    EXPECT_EQ(conversions, 1);
    const nlohmann::json sizes = ranks.log_line(0, "samples");
    EXPECT_EQ(sizes["training"], 128);
    EXPECT_EQ(sizes["validation"], 16);
    EXPECT_EQ(sizes["test"], 16);
    std::map<std::string, double> metrics;
    for (const char* message : {"training is complete", "test"}) {
      const nlohmann::json line = ranks.log_line(0, message);
      for (const char* metric : {"loss", "loss_std", "manifold_like_loss", "manifold_like_accuracy", "manifold_like_f1",
                                 "size_mae", "size_rmse"}) {
        ASSERT_TRUE(line.contains(metric)) << message << " " << line;
        metrics[std::string(message) + " " + metric] = line[metric];
      }
    }
    const std::string samples = first_column(*read_file(csv), "sample");
    if (alone.empty()) {
      alone = metrics;
      samples_alone = samples;
    }
    for (const auto& [name, value] : metrics)
      EXPECT_NEAR(value, alone[name], 1e-3 * std::abs(alone[name]) + 1e-4) << name;
    EXPECT_EQ(samples, samples_alone) << "another split with " << world_size << " ranks";
    EXPECT_EQ(test::lines(samples).size(), 17U) << "16 of 160 and the header";
  }
}

TEST_F(CausalSetRun, KilledAndResumedItIsBitwiseTheSame) {
  generate(120);
  const test::TrainerOptions options =
      trainer_options(config("cache") + "epochs: 15\ncheckpoint: {every_steps: 3}\n", {"model.blocks[0].dropout=0.2"});
  test::expect_killed_run_equals(options, options, 8, 60);
}

// The trained model distinguishes sprinklings of a diamond from Kleitman-Rothschild orders.
TEST_F(CausalSetRun, TheTwoClassesAreSeparated) {
  generate(400, 24, 32);
  const TemporaryDirectory checkpoints;
  TrainerRanks ranks(
      1, trainer_options(
             "task: causal_set\nseed: 3\ndevice: cpu\nepochs: 6\n"
             "data: {paths: [" +
                 store_.string() +
                 "]}\n"
                 "model:\n"
                 "  blocks: [{conv: sage, root_weight: false, out: 16}, {conv: sage, root_weight: false, out: 16}]\n"
                 "  tasks: [{name: manifold_like, hidden: [8], outputs: 2}]\n"
                 "batch: {size: 32}\noptimizer: {name: adamw, lr: 0.005}\n"
                 "early_stopping: {patience: 5, metrics: [{name: manifold_like_f1, mode: max}]}\n",
             {"--checkpoint-dir", checkpoints.path().string()}));
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  const nlohmann::json test = ranks.log_line(0, "test");
  EXPECT_GE(test["manifold_like_accuracy"].get<double>(), 0.95) << test;
  EXPECT_GE(test["manifold_like_f1"].get<double>(), 0.95) << test;
  EXPECT_THAT(ranks.log_line(0, "loaded the weights of the best checkpoint")["step"].get<int64_t>(), testing::Ge(0));
}

TEST_F(CausalSetRun, AnInactiveTaskNeedsNoTargetAndDdpNoSearch) {
  generate(60);
  TrainerRanks ranks(2, trainer_options(config("cache") + "steps: 2\n",
                                        {"model.tasks[1].active=false", "model.tasks[1].target=not_there"}));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  const nlohmann::json end = ranks.log_line(0, "training is complete");
  EXPECT_TRUE(end.contains("manifold_like_accuracy"));
  EXPECT_FALSE(end.contains("size_mae"));
}

TEST_F(CausalSetRun, BadConfigurationsAndDataAreNamed) {
  generate(30);
  const auto ends_with = [&](const std::string& override_) {
    TrainerRanks ranks(1, trainer_options(config("cache") + "steps: 1\n", {override_}));
    const int code = ranks.wait()[0];
    return std::pair(code, ranks.rank(0).err());
  };
  EXPECT_THAT(ends_with("model.pooling=[median]"),
              testing::Pair(78, HasSubstr("'median' is none of mean, max and sum")));
  EXPECT_THAT(ends_with("model.blocks[1].heads=3"), testing::Pair(78, HasSubstr("8 is not a multiple of heads (3)")));
  EXPECT_THAT(ends_with("model.blocks[0].heads=3"), testing::Pair(78, HasSubstr("belongs to the convolution gat")));
  EXPECT_THAT(ends_with("model.tasks[1].name=manifold_like"), testing::Pair(78, HasSubstr("occurs twice")));
  EXPECT_THAT(ends_with("data.paths=[/nonexistent.h5]"), testing::Pair(66, HasSubstr("/nonexistent.h5")));
  EXPECT_THAT(ends_with("model.tasks[0].classes=[1, 2]"),
              testing::Pair(65, AllOf(HasSubstr("manifold_like: sample 1: 0 is none of the classes 1, 2"))));
  EXPECT_THAT(ends_with("data.split.train=1"), testing::Pair(78, HasSubstr("more than all samples")));
  fs::resize_file(store_ / "link_matrix/7.0.0", 30);
  EXPECT_THAT(ends_with("data.edges=links"),
              testing::Pair(65, AllOf(HasSubstr("link_matrix: chunk [7, 0, 0] ("), HasSubstr("is truncated"))));
}

}  // namespace
}  // namespace oarlock
