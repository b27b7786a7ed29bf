// Training runs of the trainer program, as real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "ddp/distributed_sampler.h"
#include "tests/integration/trainer/run_support.h"
#include "trainer/data/data_loader.h"

namespace oarlock {
namespace {

using test::TemporaryDirectory;
using test::TrainerRanks;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(TrainerRun, TrainsAndLogsIt) {
  const TemporaryDirectory directory;
  TrainerRanks ranks(2, {.config = "task: tiny\nepochs: 12\nbatch: {size: 16}\noptimizer: {lr: 0.01}\n",
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(0, 0)) << ranks.rank(0).err();
  const nlohmann::json summary = ranks.log_line(0, "training is complete");
  ASSERT_FALSE(summary.empty()) << ranks.rank(0).err();
  EXPECT_EQ(summary["step"], 12 * 256 / 32);
  EXPECT_GT(summary["accuracy"], 0.6);  // three classes: 0.33 by chance
  EXPECT_EQ(summary["count"], 101);
  EXPECT_EQ(summary["parameters_bitwise_equal"], true);
  EXPECT_GT(summary["samples_per_second"], 0);
  EXPECT_EQ(summary["checkpoint"], find_latest_checkpoint(directory.path())->directory->string());
  for (const int rank : {0, 1}) {
    const TerminationMessage last = ranks.last_word(rank);
    EXPECT_EQ(last.rank, rank);
    EXPECT_EQ(last.reason, "Completed");
    EXPECT_EQ(last.step, 96);
    EXPECT_EQ(last.checkpoint_step, 96);
  }
  EXPECT_EQ(ranks.rank(1).err(), "") << "ranks above 0 only warn";

  TrainerRanks again(2, {.config = "task: tiny\nepochs: 12\nbatch: {size: 16}\noptimizer: {lr: 0.01}\n",
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(again.wait(), ElementsAre(0, 0));
  EXPECT_THAT(again.rank(0).err(), HasSubstr("training was complete already"));
}

TEST(TrainerRun, WithoutAnEnvironmentItIsASingleProcess) {
  TrainerRanks ranks(1, {.config = "task: tiny\nsteps: 5\n", .arguments = {}, .environment = {}, .directory = {}});
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "training is complete")["world_size"], 1);
}

TEST(TrainerRun, TheSameLossAndEvaluationForEveryWorldSize) {
  // Without dropout, and without batch norm's statistics of each rank's part, the result does not depend on how the
  // global batch is split.
  const std::string config =
      "task: tiny\nsteps: 20\nbatch: {size: 24, per: global}\nmodel: {dropout: 0, batch_norm: false}\n"
      "data: {samples: 240}\nlog: {every_steps: 1}\neval: {batch_size: 16}\noptimizer: {lr: 0.01}\n";
  std::vector<double> alone;
  for (const int world_size : {1, 2, 4}) {
    TrainerRanks ranks(world_size, {.config = config, .arguments = {}, .environment = {}, .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0));
    std::vector<double> losses;
    for (const std::string& line : test::lines(ranks.rank(0).err())) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (json["msg"] == "step" || json["msg"] == "training is complete") losses.push_back(json["loss"]);
    }
    ASSERT_EQ(losses.size(), 21U);
    EXPECT_LT(losses[19], 0.9 * losses[0]) << "it learns";
    if (alone.empty()) alone = losses;
    EXPECT_THAT(losses, testing::Pointwise(testing::DoubleNear(2e-6), alone)) << world_size << " ranks";
  }
}

// The losses of every step, and the metrics of the evaluation at the end.
std::vector<double> curve_of(TrainerRanks& ranks) {
  std::vector<double> out;
  for (const std::string& line : test::lines(ranks.rank(0).err())) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["msg"] == "step" || json["msg"] == "training is complete") out.push_back(json["loss"]);
    if (json["msg"] == "training is complete") out.push_back(json["accuracy"]);
  }
  return out;
}

// The same 24 samples per step, split over ranks and micro-batches. The log has six digits.
TEST(TrainerRun, AccumulationGivesTheSameLossAndEvaluationAsMoreRanks) {
  const std::string config =
      "task: tiny\nsteps: 20\nbatch: {size: 24, per: global}\nmodel: {dropout: 0, batch_norm: false}\n"
      "data: {samples: 240}\nlog: {every_steps: 1}\neval: {batch_size: 16}\noptimizer: {lr: 0.01}\n"
      "schedule: {name: cosine, warmup_steps: 5}\nema: {enabled: true, decay: 0.9}\n";
  std::vector<double> alone;
  for (const auto& [world_size, accumulation] : {std::pair{4, 1}, {2, 2}, {1, 4}, {2, 3}}) {
    const std::string gradient =
        "gradient: {clip_norm: 0.5, accumulation_steps: " + std::to_string(accumulation) + "}\n";
    TrainerRanks ranks(world_size, {.config = config + gradient, .arguments = {}, .environment = {}, .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_EQ(ranks.log_line(0, "batches and learning rate")["effective_batch"], 24);
    const std::vector<double> curve = curve_of(ranks);
    ASSERT_EQ(curve.size(), 22U);
    if (alone.empty()) alone = curve;
    EXPECT_THAT(curve, testing::Pointwise(testing::DoubleNear(2e-5), alone)) << world_size << " ranks";
  }
}

// The last step of an epoch is not full: 50 samples on one rank in steps of 2 x 8.
TEST(TrainerRun, EpochsEndInsideAStep) {
  for (const auto& [drop_last, steps] : {std::pair{false, 8}, {true, 6}}) {
    const std::string config =
        std::string("task: tiny\nepochs: 2\ndata: {samples: 50}\ngradient: {accumulation_steps: 2}\n") +
        "batch: {size: 8, drop_last: " + (drop_last ? "true" : "false") + "}\n";
    TrainerRanks ranks(1, {.config = config, .arguments = {}, .environment = {}, .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_EQ(ranks.log_line(0, "training is complete")["step"], steps);
  }
}

TEST(TrainerRun, ScalingIsAppliedAndLoggedOnce) {
  const std::string config =
      "task: tiny\nsteps: 8\nbatch: {size: 8}\noptimizer: {lr: 0.001}\nlog: {every_steps: 1}\n"
      "schedule: {warmup_steps: 2, warmup_start_factor: 0.5}\nscaling: {lr: linear, warmup: linear}\n";
  TrainerRanks ranks(2, {.config = config, .arguments = {}, .environment = {}, .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  const nlohmann::json plan = ranks.log_line(0, "batches and learning rate");
  EXPECT_EQ(plan["effective_batch"], 16);
  EXPECT_DOUBLE_EQ(plan["learning_rate"], 0.002);
  EXPECT_EQ(plan["warmup_steps"], 4);
  std::vector<double> rates;
  for (const std::string& line : test::lines(ranks.rank(0).err())) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["msg"] == "step") rates.push_back(json["learning_rate"]);
  }
  const std::vector<double> expected = {0.001, 0.00125, 0.0015, 0.00175, 0.002, 0.002, 0.002, 0.002};
  EXPECT_THAT(rates, testing::Pointwise(testing::DoubleNear(1e-9), expected));
}

// With a decay of 0, the average equals the last weights, and evaluations do not change. With a large one, it equals
// the initial weights.
TEST(TrainerRun, EvaluationsUseTheAverageAndTrainingDoesNot) {
  const std::string config = "task: tiny\nepochs: 6\nbatch: {size: 16}\noptimizer: {lr: 0.01}\nmodel: {dropout: 0}\n";
  const auto run = [&](const std::string& ema) {
    TrainerRanks ranks(2, {.config = config + ema + "\n", .arguments = {}, .environment = {}, .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_EQ(ranks.log_line(0, "training is complete")["parameters_bitwise_equal"], true);
    return ranks.log_line(0, "training is complete")["accuracy"].get<double>();
  };
  const double without = run("");
  EXPECT_EQ(run("ema: {enabled: true, decay: 0}"), without);
  EXPECT_EQ(run("ema: {enabled: true, decay: 0.999999, evaluate: false}"), without);
  EXPECT_LT(run("ema: {enabled: true, decay: 0.999999}"), without - 0.1);
}

TEST(TrainerRun, ALossThatIsNotFiniteIsSkippedByPolicyAndCounted) {
  const std::string config =
      "task: tiny\nsteps: 40\nbatch: {size: 16}\nlog: {every_steps: 5}\nnonfinite: {loss: skip}\n"
      "model: {fault: {kind: nan, rank: 1, step: 12}}\n";
  TrainerRanks ranks(2, {.config = config, .arguments = {}, .environment = {}, .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  const nlohmann::json summary = ranks.log_line(0, "training is complete");
  EXPECT_EQ(summary["step"], 40);
  EXPECT_EQ(summary["parameters_bitwise_equal"], true);
  EXPECT_TRUE(summary["loss"].is_number());
  EXPECT_EQ(ranks.log_line(1, "skipped steps with a non-finite loss or gradient").value("steps", 0), 0)
      << "ranks above 0 would repeat the same lines";
  const nlohmann::json skipped = ranks.log_line(0, "skipped steps with a non-finite loss or gradient");
  EXPECT_EQ(skipped["steps"], 1);
  EXPECT_EQ(skipped["first_step"], 13);
  EXPECT_EQ(ranks.log_line(0, "non-finite training loss")["first_step"], 13);
}

TEST(TrainerRun, ABatchAboveTheDataIsReportedWithTheSizeOfAStep) {
  TrainerRanks ranks(
      2,
      {.config = "task: tiny\nsteps: 2\nbatch: {size: 100000}\n", .arguments = {}, .environment = {}, .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_EQ(ranks.log_line(0, "batches and learning rate")["effective_batch"], 256);
  EXPECT_EQ(ranks.log_line(0,
                           "the batch is larger than the training data: every step takes all of them; lower "
                           "batch.size")["samples"],
            256);
}

// An equal metric does not count as an improvement: after the second evaluation the learning rate is close to 0.
TEST(TrainerRun, ThePlateausRateReachesTheOptimizer) {
  const TemporaryDirectory directory;
  const std::string config =
      "task: tiny\nsteps: 30\nbatch: {size: 16}\noptimizer: {name: sgd, lr: 0.1}\n"
      "eval: {every_epochs: 0, every_steps: 10}\ncheckpoint: {every_steps: 10, every_epochs: 0, keep: 0}\n"
      "schedule: {name: plateau, plateau: {metric: count, mode: max, patience: 0, factor: 1.0e-9}}\n";
  TrainerRanks ranks(2, {.config = config,
                         .arguments = {"--checkpoint-dir", directory.path().string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  const auto weight = [&](const char* step) {
    return read_checkpoint(directory.path() / step)->tensors.at(kModelTensors).at("fc1.weight");
  };
  const auto moved = [&](const char* from, const char* to) {
    return (weight(from) - weight(to)).abs().max().item<double>();
  };
  EXPECT_GT(moved("step-00000010", "step-00000020"), 1e-4);
  EXPECT_LT(moved("step-00000020", "step-00000030"), 1e-6);
}

// A cycle whose momentum is always 0.5 replaces the optimizer's momentum of 0.9.
TEST(TrainerRun, TheCyclesMomentumReachesTheOptimizer) {
  const auto trained = [](const std::string& momentum, const std::string& cycle) {
    const TemporaryDirectory directory;
    TrainerRanks ranks(1, {.config = "task: tiny\nsteps: 20\nbatch: {size: 16}\neval: {every_epochs: 0}\n"
                                     "optimizer: {name: sgd, lr: 0.1, momentum: " +
                                     momentum + "}\nschedule: {name: onecycle, " + cycle + "}\n",
                           .arguments = {"--checkpoint-dir", directory.path().string()},
                           .environment = {},
                           .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    return read_checkpoint(*find_latest_checkpoint(directory.path())->directory)
        ->tensors.at(kModelTensors)
        .at("fc1.weight")
        .clone();
  };
  const std::string half = "cycle_momentum: true, base_momentum: 0.5, max_momentum: 0.5";
  const at::Tensor expected = trained("0.5", "cycle_momentum: false");
  EXPECT_TRUE(at::equal(trained("0.9", half), expected));
  EXPECT_FALSE(at::equal(trained("0.9", "cycle_momentum: false"), expected)) << "momentum must matter";
}

// Returns the batches of one rank. One loader thread creates them, so that the file has them in the order of training.
std::vector<int64_t> trained_samples(const std::string& seed) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "ids").string();
  TrainerRanks ranks(1, {.config = "task: tiny\nepochs: 2\nbatch: {size: 64}\neval: {every_epochs: 0}\nseed: " + seed +
                                   "\nloader: {threads: 1}\ndata: {samples: 100, ids_file: " + file + "}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  std::vector<int64_t> out;
  std::istringstream text(test::content(file));
  for (int64_t id = 0; text >> id;) out.push_back(id);
  return out;
}

TEST(TrainerRun, TheConfiguredSeedShufflesEachEpoch) {
  for (const uint64_t seed : {3, 4}) {
    const auto sampler = DistributedSampler::create({.size = 100, .rank = 0, .world_size = 1, .seed = seed}).value();
    std::vector<int64_t> expected = sampler.indices(0, 0);
    const std::vector<int64_t> second = sampler.indices(1, 0);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(trained_samples(std::to_string(seed)), expected);
  }
}

TEST(TrainerRun, AScheduleByEpochsFollowsTheEpochs) {
  TrainerRanks ranks(1, {.config = "task: tiny\nepochs: 3\nbatch: {size: 128}\nlog: {every_steps: 1}\n"
                                   "optimizer: {lr: 0.01}\n"
                                   "schedule: {name: step, interval: epoch, step_size: 1, gamma: 0.5}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  std::vector<double> rates;
  for (const std::string& line : test::lines(ranks.rank(0).err())) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["msg"] == "step") rates.push_back(json["learning_rate"]);
  }
  EXPECT_THAT(rates, testing::Pointwise(testing::DoubleNear(1e-9),
                                        std::vector<double>{0.01, 0.01, 0.005, 0.005, 0.0025, 0.0025}));
}

// Augmentation takes its random numbers from the seed that every batch is made with.
TEST(TrainerRun, EachEpochMakesItsBatchesWithAnotherSeed) {
  const TemporaryDirectory directory;
  const std::string file = (directory.path() / "seeds").string();
  TrainerRanks ranks(2, {.config = "task: tiny\nepochs: 3\nbatch: {size: 64}\neval: {every_epochs: 0}\n"
                                   "data: {seeds_file: " +
                                   file + "}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  std::map<std::string, int> batches;  // by seed
  for (const std::string& line : test::lines(test::content(file))) ++batches[line];
  EXPECT_EQ(batches.size(), 3U) << "one seed per epoch, the same on both ranks";
  for (const auto& [seed, count] : batches) EXPECT_EQ(count, 2 * 2);
}

TEST(TrainerRun, BeginsWithPretrainedWeightsOnEveryRank) {
  const TemporaryDirectory directory;
  const std::string tiny = "task: tiny\nbatch: {size: 16}\noptimizer: {lr: 1e-30}\n";
  TrainerRanks first(1, {.config = tiny + "seed: 1\nsteps: 1\n",
                         .arguments = {"--checkpoint-dir", (directory.path() / "first").string()},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(first.wait(), Each(0)) << first.rank(0).err();
  const auto written = *find_latest_checkpoint(directory.path() / "first")->directory / "model.safetensors";
  TrainerRanks second(2, {.config = tiny + "seed: 2\nsteps: 1\npretrained: {path: " + written.string() + "}\n",
                          .arguments = {"--checkpoint-dir", (directory.path() / "second").string()},
                          .environment = {},
                          .directory = {}});
  EXPECT_THAT(second.wait(), Each(0)) << second.rank(0).err();
  const auto weights = [](const std::filesystem::path& path) {
    return read_safetensors(path).value().tensors.at("fc1.weight");
  };
  EXPECT_TRUE(at::equal(weights(*find_latest_checkpoint(directory.path() / "second")->directory / "model.safetensors"),
                        weights(written)));

  TrainerRanks wrong(2,
                     {.config = tiny + "steps: 1\nmodel: {hidden: 5}\npretrained: {path: " + written.string() + "}\n",
                      .arguments = {},
                      .environment = {},
                      .directory = {}});
  EXPECT_THAT(wrong.wait(), ElementsAre(65, 65));
  EXPECT_THAT(wrong.last_word(0).message, HasSubstr("does not fit the model"));
}

}  // namespace
}  // namespace oarlock
