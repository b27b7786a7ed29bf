// Whole runs of protein_diffusion, as real processes: accuracy, any number of ranks, kill and resume, samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <map>

#include "common/files.h"
#include "tests/integration/trainer/run_support.h"
#include "tests/support/paths.h"
#include "tests/support/protein_directory.h"

namespace oarlock {
namespace {

using test::kTrainer;
using test::ProteinDirectory;
using test::TemporaryDirectory;
using test::trainer_options;
using test::TrainerRanks;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::string data_of(const ProteinDirectory& directory) {
  return "data: {path: " + directory.file("train.fasta") + ", eval_path: " + directory.file("eval.fasta") +
         ", max_length: 64}\n";
}

constexpr char kTiny[] =
    "task: protein_diffusion\nseed: 5\n"
    "model: {tokens: 25, length: 32, hidden_size: 16, cond_dim: 8, n_blocks: 2, n_heads: 2, dropout: 0}\n"
    "batch: {size: 24, per: global}\neval: {batch_size: 16}\n"
    "optimizer: {name: adamw, lr: 0.003, betas: [0.9, 0.999], weight_decay: 0.01}\ngradient: {clip_norm: 1}\n"
    "schedule: {name: cosine, warmup_steps: 4}\nema: {enabled: true, decay: 0.9995, warmup: true}\n"
    "curriculum: {enabled: true, preschool_time: 10}\nlog: {every_steps: 1}\n";

std::string samples_into(const std::filesystem::path& directory) {
  return "sampling: {samples: 5, batch_size: 2, steps: 6, every_steps: 8, folder: " + directory.string() + "}\n";
}

std::map<std::string, std::string> files_of(const std::filesystem::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    out[entry.path().filename()] = *read_file(entry.path());
  return out;
}

TEST(ProteinDiffusionRun, TheSameLossEvaluationAndSamplesForEveryWorldSize) {
  const ProteinDirectory directory;
  directory.write("train.fasta", 240, 20, 60, 1);
  directory.write("eval.fasta", 45, 20, 60, 2);
  std::vector<double> alone;
  std::map<std::string, std::string> samples_alone;
  for (const int world_size : {1, 2, 4}) {
    const TemporaryDirectory samples;
    TrainerRanks ranks(world_size,
                       trainer_options(kTiny + data_of(directory) + "steps: 20\n" + samples_into(samples.path())));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    std::vector<double> losses;
    for (const std::string& line : test::lines(ranks.rank(0).err())) {
      const nlohmann::json json = nlohmann::json::parse(line);
      if (json["msg"] == "step") losses.push_back(json["loss"]);
      if (json["msg"] != "training is complete") continue;
      for (const char* metric : {"loss", "token_loss", "residue_loss"}) losses.push_back(json[metric]);
    }
    ASSERT_EQ(losses.size(), 23U);
    // The weights of two world sizes differ in their last bits, so a residue may differ in rare cases.
    const auto files = files_of(samples.path());
    EXPECT_EQ(files.size(), 3U) << "after 8 and 16 steps and at the end";
    EXPECT_TRUE(files.contains("step-20.fasta"));
    if (alone.empty()) {
      alone = losses;
      samples_alone = files;
    }
    EXPECT_THAT(losses, testing::Pointwise(testing::DoubleNear(1e-4), alone)) << world_size << " ranks";
    EXPECT_EQ(files, samples_alone) << world_size << " ranks";
  }
}

TEST(ProteinDiffusionRun, KilledAndResumedItIsBitwiseTheSame) {
  const ProteinDirectory directory;
  directory.write("train.fasta", 200, 20, 60, 3);
  directory.write("eval.fasta", 20, 20, 60, 4);
  const auto sampling_into = [&](const TemporaryDirectory& samples) {
    return trainer_options(
        kTiny + data_of(directory) + "steps: 60\ncheckpoint: {every_steps: 5}\n" + samples_into(samples.path()),
        {"model.dropout=0.1"});
  };
  const TemporaryDirectory samples_of_undisturbed;
  const TemporaryDirectory samples_of_killed;
  test::expect_killed_run_equals(sampling_into(samples_of_undisturbed), sampling_into(samples_of_killed), 12, 60);
  EXPECT_EQ(files_of(samples_of_killed.path()), files_of(samples_of_undisturbed.path()));
}

// The lowest loss for independent residues is the entropy of their frequencies, (1 - eps) H(p) nats each. The samples
// of a model that reaches it have these frequencies.
TEST(ProteinDiffusionRun, IndependentResiduesAreLearnedDownToTheirEntropy) {
  const ProteinDirectory directory;
  directory.write("train.fasta", 4000, 64, 64, 5);
  directory.write("eval.fasta", 2000, 64, 64, 6);
  const TemporaryDirectory samples;
  TrainerRanks ranks(
      1, trainer_options(
             "task: protein_diffusion\nseed: 2\nsteps: 250\nbatch: {size: 32}\n"
             "model: {tokens: 25, length: 64, hidden_size: 32, cond_dim: 16, n_blocks: 1, n_heads: 2, dropout: 0}\n"
             "optimizer: {name: adamw, lr: 0.005}\nschedule: {name: cosine, warmup_steps: 20}\n"
             "gradient: {clip_norm: 1}\nema: {enabled: true, decay: 0.99}\neval: {batch_size: 100, every_epochs: 0}\n"
             "sampling: {samples: 100, batch_size: 100, steps: 30, every_steps: 0, folder: " +
             samples.path().string() + "}\n" + data_of(directory)));
  EXPECT_THAT(ranks.wait(), ElementsAre(0)) << ranks.rank(0).err();
  double entropy = 0;
  for (const double share : test::residue_shares()) entropy -= share * std::log(share);
  const double floor = 0.999 * entropy;
  const nlohmann::json end = ranks.log_line(0, "training is complete");
  EXPECT_NEAR(end["residue_loss"].get<double>(), floor, 0.02 * floor);
  EXPECT_LT(floor, 0.9 * std::log(25)) << "it had to be learned";
  const nlohmann::json sampled = ranks.log_line(0, "samples");
  EXPECT_LT(sampled["frequency_distance"].get<double>(), 0.05) << sampled;
  EXPECT_NEAR(sampled["mean_length"].get<double>(), 64, 1);
}

TEST(ProteinDiffusionRun, TheExamplesConfigurationsAreAccepted) {
  int examples = 0;
  for (const auto& file : std::filesystem::directory_iterator(test::source_path("examples/protein_diffusion"))) {
    if (file.path().extension() != ".yaml") continue;
    ++examples;
    test::Program trainer({kTrainer, "--config", file.path().string(), "--print-config"});
    EXPECT_EQ(trainer.wait(), 0) << trainer.err();
    EXPECT_THAT(trainer.out(), HasSubstr("task: protein_diffusion"));
  }
  EXPECT_EQ(examples, 2);
}

TEST(ProteinDiffusionRun, BadConfigurationsAndDataAreNamed) {
  const ProteinDirectory directory;
  directory.write("train.fasta", 10, 20, 30, 1);
  const auto ends_with = [&](const std::string& config) {
    TrainerRanks ranks(1, trainer_options("task: protein_diffusion\nsteps: 1\n" + config));
    const int code = ranks.wait()[0];
    return std::pair(code, ranks.rank(0).err());
  };
  EXPECT_THAT(ends_with("model: {n_heads: 7}\n"),
              testing::Pair(78, AllOf(HasSubstr("model.hidden_size"), HasSubstr("not a multiple of 2 * n_heads"))));
  EXPECT_THAT(ends_with("noise: {type: sine}\n"), testing::Pair(78, HasSubstr("loglinear")));
  EXPECT_THAT(ends_with("data: {path: /nonexistent.fasta}\n"), testing::Pair(66, HasSubstr("/nonexistent.fasta")));
  EXPECT_THAT(ends_with("model: {length: 8, hidden_size: 8, n_heads: 1, n_blocks: 1}\n"
                        "sampling: {samples: 1, steps: 1, folder: /proc/nowhere}\n"
                        "data: {eval_path: " +
                        directory.file("train.fasta") + ", path: " + directory.file("train.fasta") + "}\n"),
              testing::Pair(testing::Ne(0), HasSubstr("/proc/nowhere")));
}

}  // namespace
}  // namespace oarlock
