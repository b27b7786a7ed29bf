// Whole runs of comformer, as real processes: accuracy, any number of ranks, kill and resume, both kinds of files, and
// parameters that get no gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "common/files.h"
#include "tests/integration/trainer/run_support.h"
#include "workloads/comformer/generator.h"

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

class CrystalDirectory {
 public:
  CrystalDirectory(comformer::CrystalFamily family, int64_t count, uint64_t seed) {
    std::ofstream out(path("crystals.extxyz"));
    for (int64_t i = 0; i < count; ++i)
      out << comformer::extxyz_frame(comformer::generated_crystal(family, i, seed), "energy");
  }
  fs::path path(const std::string& name) const { return directory_.path() / name; }
  std::string data(const std::string& more = "") const {
    return "data: {path: " + path("crystals.extxyz").string() + ", target_property: energy, max_neighbors: 6" + more +
           "}\n";
  }

 private:
  TemporaryDirectory directory_;
};

// BatchNorm over all ranks' batches, so that metrics do not depend on their number.
constexpr char kTiny[] =
    "task: comformer\nseed: 5\n"
    "model: {conv_layers: 2, node_features: 8, edge_features: 8, fc_features: 8}\n"
    "batch: {size: 16, per: global}\neval: {batch_size: 8}\n"
    "optimizer: {name: adamw, lr: 0.004, weight_decay: 1.0e-5, groups: [{preset: no_decay}]}\n"
    "schedule: {name: onecycle, pct_start: 0.3}\nlog: {every_steps: 1}\n"
    "ddp: {find_unused_parameters: true, sync_batch_norm: true}\n";

TEST(ComformerRun, TheSameMetricsForEveryWorldSizeFromGraphsThatAreBuiltOnce) {
  std::vector<double> alone;
  std::string predictions_alone;
  for (const int world_size : {1, 2, 4}) {
    const CrystalDirectory directory(comformer::CrystalFamily::kTriclinic, 100, 1);
    TrainerRanks ranks(world_size,
                       trainer_options(kTiny + directory.data() + "epochs: 3\ntest: {batch_size: 3, predictions: " +
                                       directory.path("p.csv").string() + "}\n"));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    std::vector<double> numbers;
    int built = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      for (const std::string& line : test::lines(ranks.rank(rank).err())) {
        const nlohmann::json json = nlohmann::json::parse(line);
        if (json["msg"] == "crystal graphs built") ++built;
        if (rank > 0) continue;
        if (json["msg"] == "step") numbers.push_back(json["loss"]);
        if (json["msg"] != "training is complete" && json["msg"] != "test") continue;
        for (const char* metric : {"mae", "rmse", "mean_baseline_mae"}) numbers.push_back(json[metric]);
      }
    }
    EXPECT_EQ(built, 1);
    ASSERT_EQ(numbers.size(), 15U + 6U);
    if (alone.empty()) alone = numbers;
    // Sums in another order; the running statistics of so few steps, which evaluation uses, make more of it.
    for (size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(numbers[i], alone[i], (i < 15 ? 1e-4 : 3e-3) * alone[i]) << world_size << " ranks, number " << i;
    // Each structure of the test set once, in the same order.
    const auto predictions = test::lines(*read_file(directory.path("p.csv")));
    ASSERT_EQ(predictions.size(), 11U);
    EXPECT_EQ(predictions[0], "id,target,prediction");
    std::string ids;
    for (const std::string& line : predictions) ids += line.substr(0, line.rfind(',')) + "\n";
    if (predictions_alone.empty()) predictions_alone = ids;
    EXPECT_EQ(ids, predictions_alone);
  }
}

TEST(ComformerRun, KilledAndResumedItIsBitwiseTheSame) {
  const CrystalDirectory directory(comformer::CrystalFamily::kTriclinic, 60, 2);
  const auto writing = [&](const std::string& predictions) {
    return trainer_options(kTiny + directory.data() + "epochs: 20\ncheckpoint: {every_steps: 5}\ntest: {predictions: " +
                           directory.path(predictions).string() + "}\n");
  };
  test::expect_killed_run_equals(writing("undisturbed.csv"), writing("killed.csv"), 12, 60);
  EXPECT_EQ(*read_file(directory.path("killed.csv")), *read_file(directory.path("undisturbed.csv")));
}

// The labels contain no noise, so the whole remaining error is that of the model. Predicting the mean of the training
// labels has a mean absolute error of about 3.4; the test requires a quarter of it (with twice the data and epochs, a
// fourteenth is reached).
TEST(ComformerRun, LearnsAPropertyOfCrystalsMuchBetterThanTheirMean) {
  const CrystalDirectory directory(comformer::CrystalFamily::kTriclinic, 400, 3);
  TrainerRanks ranks(
      1,
      trainer_options(
          "task: comformer\nseed: 1\nepochs: 20\n"
          "model: {conv_layers: 2, node_features: 24, edge_features: 32, triplet_input_features: 16, fc_features: 24}\n"
          "batch: {size: 16}\noptimizer: {name: adamw, lr: 0.006, weight_decay: 1.0e-5, groups: [{preset: no_decay}]}\n"
          "schedule: {name: onecycle}\nlog: {every_steps: 1000}\n" +
          directory.data() + "checkpoint: {dir: " + directory.path("checkpoints").string() + "}\n"));
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  const nlohmann::json end = ranks.log_line(0, "test");
  EXPECT_LT(end["mae"].get<double>(), end["mean_baseline_mae"].get<double>() / 4) << end;
  EXPECT_GT(end["r2"].get<double>(), 0.9) << end;
  EXPECT_FALSE(ranks.log_line(0, "loaded the weights of the best checkpoint").empty());
}

TEST(ComformerRun, NamesParametersWithoutGradient) {
  const CrystalDirectory directory(comformer::CrystalFamily::kTriclinic, 40, 4);
  TrainerRanks ranks(2,
                     trainer_options(kTiny + directory.data() + "epochs: 2\n", {"ddp.find_unused_parameters=false"}));
  EXPECT_THAT(ranks.wait(), Each(testing::Ne(0)));
  EXPECT_THAT(ranks.rank(0).err(),
              AllOf(HasSubstr("'edge_update_layer.lemb.weight', 'edge_update_layer.lin_edge_len.weight', "
                              "'edge_update_layer.lin_edge_len.bias'"),
                    HasSubstr("set ddp.find_unused_parameters to true")));
}

// eComFormer has none.
TEST(ComformerRun, TheEquivariantModelTrainsFromAListOfStructures) {
  const CrystalDirectory directory(comformer::CrystalFamily::kTriclinic, 1, 5);
  nlohmann::json list = nlohmann::json::array();
  for (int64_t i = 0; i < 30; ++i) {
    const comformer::GeneratedCrystal one = comformer::generated_crystal(comformer::CrystalFamily::kTriclinic, i, 5);
    list.push_back({{"lattice", one.crystal.lattice},
                    {"numbers", one.crystal.numbers},
                    {"cart_coords", one.crystal.positions},
                    {"energy", one.label}});
  }
  std::ofstream(directory.path("list.json")) << list;
  TrainerRanks ranks(2, trainer_options(kTiny + directory.data() + "epochs: 2\n",
                                        {"data.path=" + directory.path("list.json").string(), "model.name=eComformer",
                                         "ddp.find_unused_parameters=false"}));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_TRUE(ranks.log_line(0, "training is complete")["parameters_bitwise_equal"].get<bool>());
  EXPECT_EQ(ranks.log_line(0, "crystal graphs built")["structures"], 30);
}

TEST(ComformerRun, BadConfigurationsAndDataAreNamed) {
  const CrystalDirectory directory(comformer::CrystalFamily::kCubic, 20, 6);
  const auto ends_with = [&](const std::string& config, std::vector<std::string> arguments = {}) {
    TrainerRanks ranks(1, trainer_options(kTiny + config + "steps: 1\n", std::move(arguments)));
    const int code = ranks.wait()[0];
    return std::pair(code, ranks.rank(0).err());
  };
  EXPECT_THAT(ends_with(""), testing::Pair(78, HasSubstr("data.path")));
  EXPECT_THAT(ends_with(directory.data(", use_angle: true")), testing::Pair(78, HasSubstr("data.use_angle")));
  EXPECT_THAT(ends_with(directory.data(", index: a")), testing::Pair(78, HasSubstr("data.index")));
  EXPECT_THAT(ends_with("data: {path: /nonexistent.extxyz}\n"), testing::Pair(66, HasSubstr("/nonexistent.extxyz")));
  EXPECT_THAT(ends_with(directory.data(), {"data.target_property=band_gap"}),
              testing::Pair(65, AllOf(HasSubstr("crystals.extxyz:2 (frame 0)"), HasSubstr("no 'band_gap'"))));
  EXPECT_THAT(ends_with(directory.data(", index: \":8\"")), testing::Pair(65, HasSubstr("8 structures give")));
}

}  // namespace
}  // namespace oarlock
