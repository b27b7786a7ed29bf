// Whole runs of gears, as real processes, on cells with planted effects: accuracy, any number of ranks, kill and
// resume, predictions from weights alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>

#include "common/files.h"
#include "tests/integration/trainer/run_support.h"
#include "tests/support/paths.h"
#include "workloads/gears/generator.h"

namespace oarlock {
namespace {

using test::kTrainer;
using test::TemporaryDirectory;
using test::trainer_options;
using test::TrainerRanks;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

// With GEARS' optimizer; small.
constexpr char kModel[] =
    "task: gears\nseed: 3\nmodel: {hidden_size: 16, coexpress_threshold: 0.3}\n"
    "optimizer: {name: adam, lr: 0.003, weight_decay: 5e-4}\ngradient: {clip_value: 1.0}\nlog: {every_steps: 5}\n";

class PlantedRun : public ::testing::Test {
 protected:
  std::string data(const std::string& more = "") const {
    return "data: {path: " + file("cells.h5ad") + ", gene2go: " + file("gene2go.json") + more + "}\n";
  }
  std::string file(const std::string& name) const { return (directory_.path() / name).string(); }
  void plant(const gears::PlantedOptions& options) {
    planted_ = gears::write_planted_cells(directory_.path(), options);
  }

  TemporaryDirectory directory_;
  gears::Planted planted_;
};

// A line of a name and numbers.
std::map<std::string, std::vector<double>> rows_of(const std::string& csv) {
  std::map<std::string, std::vector<double>> rows;
  std::ifstream in(csv);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::string name;
    std::getline(cells, name, ',');
    for (std::string cell; std::getline(cells, cell, ',');) rows[name].push_back(std::stod(cell));
  }
  return rows;
}

TEST_F(PlantedRun, RecoversPlantedEffectsBetterThanTheMeanBaseline) {
  plant({.cells = 40});
  TrainerRanks ranks(
      1, trainer_options(std::string(kModel) + data() + "steps: 400\nbatch: {size: 32}\neval: {every_epochs: 2}\n" +
                             "schedule: {name: cosine}\ntest: {file: " + file("test_res.csv") + "}\n",
                         {"--checkpoint-dir", file("checkpoints")}));
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  const nlohmann::json test = ranks.log_line(0, "test");
  std::printf("test mse_de %f, baseline %f; pearson_delta %f, baseline %f\n", test["mse_de"].get<double>(),
              test["baseline_mse_de"].get<double>(), test["pearson_delta"].get<double>(),
              test["baseline_pearson_delta"].get<double>());
  EXPECT_LT(test["mse_de"].get<double>(), 0.6 * test["baseline_mse_de"].get<double>()) << test;
  EXPECT_GT(test["pearson_delta"].get<double>(), 0.2 + test["baseline_pearson_delta"].get<double>()) << test;
  EXPECT_LT(test["unseen_single_mse_de"].get<double>(), test["unseen_single_baseline_mse_de"].get<double>()) << test;
  EXPECT_THAT(read_file(file("test_res.csv")).value(),
              AllOf(StartsWith("condition,subgroup,cells,mse"), HasSubstr(",unseen_single,")));
}

TEST_F(PlantedRun, TheSameSplitPreparationAndMetricsForEveryWorldSize) {
  plant({.pairs = 8, .cells = 10, .control_cells = 40});
  const std::string checkpoints = file("checkpoints");
  {
    TrainerRanks ranks(1, trainer_options(std::string(kModel) + data() + "steps: 8\nbatch: {size: 16}\n",
                                          {"--checkpoint-dir", checkpoints}));
    EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  }
  const std::string weights = (*find_latest_checkpoint(checkpoints)->directory / "model.safetensors").string();
  std::vector<double> alone;
  std::string test_alone;
  for (const int world_size : {1, 2, 4}) {
    const std::string test_file = file("test-" + std::to_string(world_size) + ".csv");
    TrainerRanks ranks(world_size, trainer_options(std::string(kModel) + data(", test_batch_size: 4") +
                                                   "steps: 0\nbatch: {size: 4}\npretrained: {path: " + weights +
                                                   "}\ntest: {file: " + test_file + "}\n"));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    const nlohmann::json end = ranks.log_line(0, "evaluation");
    std::vector<double> metrics;
    for (const char* name : {"mse", "pearson", "mse_de", "pearson_de", "baseline_mse_de"})
      metrics.push_back(end.at(name));
    if (alone.empty()) {
      alone = metrics;
      test_alone = read_file(test_file).value();
    }
    EXPECT_EQ(metrics, alone) << world_size << " ranks";
    EXPECT_EQ(read_file(test_file).value(), test_alone) << world_size << " ranks: the same conditions, bit for bit";
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_THAT(ranks.rank(rank).err(), testing::Not(HasSubstr("cells converted"))) << "it was done before";
    }
  }
}

TEST_F(PlantedRun, TwoRanksPrepareOnceAndKeepEqualParameters) {
  plant({.pairs = 8, .cells = 10, .control_cells = 40});
  TrainerRanks ranks(2, trainer_options(std::string(kModel) + data() +
                                        "steps: 12\nbatch: {size: 8}\nddp: {sync_batch_norm: true}\n"
                                        "distributed: {check_parameters_every: 3}\n"));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err() << ranks.rank(1).err();
  EXPECT_THAT(ranks.rank(0).err(), HasSubstr("cells converted"));
  EXPECT_THAT(ranks.rank(1).err(), testing::Not(HasSubstr("cells converted")));
}

TEST_F(PlantedRun, KilledAndResumedItIsBitwiseTheSame) {
  plant({.pairs = 8, .cells = 10, .control_cells = 40});
  const test::TrainerOptions options =
      trainer_options(std::string(kModel) + data() + "steps: 60\nbatch: {size: 8}\ncheckpoint: {every_steps: 5}\n");
  test::expect_killed_run_equals(options, options, 12, 60);
}

TEST_F(PlantedRun, UncertaintyPredictionsAndInteractionsFromWeightsAlone) {
  plant({.pairs = 8, .cells = 10, .control_cells = 40});
  const std::string checkpoints = file("checkpoints");
  const std::string model = std::string(kModel);
  const std::string uncertain = "model.uncertainty=true";
  {
    TrainerRanks ranks(1, trainer_options(model + data() + "steps: 20\nbatch: {size: 16}\n",
                                          {"--checkpoint-dir", checkpoints, uncertain}));
    EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  }
  const std::string weights = (*find_latest_checkpoint(checkpoints)->directory / "model.safetensors").string();
  const std::string predict =
      "predict: {perturbations: [G01, G02+G07], file: " + file("predictions.csv") +
      ", control_cells: 50, interactions: [G03+G04], interactions_file: " + file("interactions.csv") + "}\n";
  TrainerRanks ranks(
      1, trainer_options(model + data() + "steps: 0\nbatch: {size: 4}\npretrained: {path: " + weights + "}\n" + predict,
                         {uncertain}));
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  const auto predictions = rows_of(file("predictions.csv"));
  ASSERT_THAT(predictions, ElementsAre(Pair("G01", testing::SizeIs(61)), Pair("G02+G07", testing::SizeIs(61))));
  EXPECT_GT(predictions.at("G01").front(), 0) << "the certainty";
  const auto interactions = rows_of(file("interactions.csv"));
  ASSERT_THAT(interactions, ElementsAre(Pair("G03+G04", testing::SizeIs(10))));
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isfinite(interactions.at("G03+G04")[i])) << i;
}

// A perturbation that does nothing: the mean prediction is the mean of the control cells.
TEST_F(PlantedRun, WithoutPerturbationTheOutputIsTheInput) {
  plant({.pairs = 8, .cells = 10, .control_cells = 40});
  TrainerRanks ranks(1, trainer_options(std::string(kModel) + data() +
                                            "steps: 0\nbatch: {size: 4}\npredict: {perturbations: [G01, G02], file: " +
                                            file("predictions.csv") + "}\n",
                                        {"model.no_perturb=true"}));
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  const auto predictions = rows_of(file("predictions.csv"));
  EXPECT_EQ(predictions.at("G01"), predictions.at("G02"));
}

TEST_F(PlantedRun, TheExampleIsAccepted) {
  test::Program trainer({kTrainer, "--config", test::source_path("examples/gears/simulation.yaml"), "--print-config"});
  EXPECT_EQ(trainer.wait(), 0) << trainer.err();
  EXPECT_THAT(trainer.out(), HasSubstr("task: gears"));
}

TEST_F(PlantedRun, BadConfigurationsAndDataAreNamed) {
  plant({.pairs = 8, .cells = 10, .control_cells = 40});
  const auto run = [&](const std::string& config) {
    TrainerRanks ranks(1, trainer_options(std::string(kModel) + "steps: 1\n" + config));
    const int code = ranks.wait()[0];
    return std::pair(code, ranks.rank(0).err());
  };
  EXPECT_THAT(run(""), Pair(78, HasSubstr("data.path")));
  EXPECT_THAT(run("data: {path: /nonexistent.h5ad}\n"), Pair(66, HasSubstr("/nonexistent.h5ad")));
  EXPECT_THAT(run(data(", split: combo_seen3")), Pair(78, HasSubstr("combo_seen2")));
  EXPECT_THAT(run(data(", split: custom")), Pair(78, HasSubstr("split_dict_path")));
  EXPECT_THAT(run(data() + "predict: {perturbations: [TP53], file: /tmp/x.csv}\n"),
              Pair(78, AllOf(HasSubstr("predict.perturbations"), HasSubstr("TP53"))));
  std::filesystem::resize_file(file("cells.h5ad"), std::filesystem::file_size(file("cells.h5ad")) - 500);
  EXPECT_THAT(run(data()), Pair(65, AllOf(HasSubstr("cells.h5ad"), HasSubstr("truncated"))));
}

}  // namespace
}  // namespace oarlock
