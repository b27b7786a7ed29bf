// Whole runs of oarlock-trainer on images, as the guide "Multi-GPU Distributed Training" does them: CIFAR's files, its
// ResNet-like network, crop and flip, synchronized batch norm, mixed precision, EMA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/integration/trainer/run_support.h"
#include "tests/support/cifar_directory.h"
#include "tests/support/paths.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::CifarDirectory;
using test::TemporaryDirectory;
using test::TrainerRanks;
using testing::DoubleNear;
using testing::Each;
using testing::Pointwise;

constexpr char kCompleteAlready[] =
    "training was complete already: evaluated the checkpoint; raise epochs or steps, or use another checkpoint.dir, to "
    "train more";
constexpr int kPerFile = 48;  // 240 images to train on, 48 to evaluate

// A narrow network, but otherwise the guide's training.
std::string config_of(const CifarDirectory& data, const std::string& more) {
  return "task: image_classification\nseed: 3\n"
         "data: {path: " +
         data.path().string() +
         ", augment: {crop_padding: 4, flip: true}}\n"
         "model: {name: resnet_like, width: 8}\n"
         "batch: {size: 24, per: global}\neval: {batch_size: 16}\n"
         "optimizer: {name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 0.0001}\n"
         "ddp: {sync_batch_norm: true}\nlog: {every_steps: 1}\n" +
         more;
}

test::TrainerOptions options_of(const std::string& config, const fs::path& checkpoints = {}) {
  if (checkpoints.empty()) return test::trainer_options(config);
  return test::trainer_options(config, {"--checkpoint-dir", checkpoints.string()});
}

std::vector<double> losses_of(TrainerRanks& ranks) {
  std::vector<double> losses;
  for (const std::string& line : test::lines(ranks.rank(0).err())) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("msg", "") == "step") losses.push_back(json["loss"]);
  }
  return losses;
}

nlohmann::json summary_of(TrainerRanks& ranks) {
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  return ranks.log_line(0, "training is complete");
}

TEST(ImageRun, EveryWorldSizeTrainsAlike) {
  const CifarDirectory data(kPerFile);
  std::vector<double> alone;
  for (const int world_size : {1, 2, 4}) {
    TrainerRanks ranks(world_size, options_of(config_of(data, "epochs: 2\n")));
    const nlohmann::json summary = summary_of(ranks);
    std::vector<double> curve = losses_of(ranks);
    ASSERT_EQ(curve.size(), 20U);
    EXPECT_LT(curve.back(), 0.8 * curve.front()) << "it learns";
    curve.push_back(summary["loss"]);
    if (alone.empty()) alone = curve;
    EXPECT_THAT(curve, Pointwise(DoubleNear(2e-4), alone)) << world_size << " ranks";
  }
}

// The evaluation of the same weights is bitwise equal for every number of ranks.
TEST(ImageRun, EveryWorldSizeEvaluatesTheSame) {
  const CifarDirectory data(kPerFile);
  const std::string config = config_of(data, "epochs: 1\nema: {enabled: true, decay: 0.9}\n");
  const TemporaryDirectory trained;
  nlohmann::json expected;
  {
    TrainerRanks ranks(1, options_of(config, trained.path()));
    expected = summary_of(ranks);
  }
  ASSERT_TRUE(expected.contains("top5")) << expected.dump();
  for (const int world_size : {1, 2, 4}) {
    TrainerRanks ranks(world_size, options_of(config, trained.path()));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    const nlohmann::json again = ranks.log_line(0, kCompleteAlready);
    for (const char* metric : {"loss", "accuracy", "top5"}) EXPECT_EQ(again[metric], expected[metric]) << world_size;
  }
}

// Batch norm, the average of the weights, momentum and augmentation resume from their saved state.
TEST(ImageRun, KilledAndResumedItEndsWithTheSameBits) {
  const CifarDirectory data(kPerFile);
  const std::string config =
      config_of(data,
                "epochs: 8\nema: {enabled: true, decay: 0.99}\ncheckpoint: {every_steps: 7}\n"
                "schedule: {name: multistep, interval: epoch, milestones: [3, 6], gamma: 0.2}\n");
  const TemporaryDirectory whole;
  std::string expected;
  {
    TrainerRanks ranks(2, options_of(config, whole.path()));
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    expected = test::bits_of(whole.path() / "last");
  }
  const TemporaryDirectory killed;
  int64_t resumed_at = -1;
  for (const int64_t step : {10, 38}) {
    test::TrainerOptions options = options_of(config, killed.path());
    options.arguments.insert(options.arguments.end(), {"--metrics-port", "auto"});
    TrainerRanks ranks(2, options);
    EXPECT_TRUE(test::wait_for_step(ranks, step));
    ranks.rank(1).signal(SIGKILL);
    ranks.rank(0).signal(SIGKILL);
    ranks.wait();
    resumed_at = find_latest_checkpoint(killed.path())->step;
  }
  TrainerRanks ranks(2, options_of(config, killed.path()));
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_GT(resumed_at, 0);
  EXPECT_EQ(test::bits_of(killed.path() / "last"), expected);
}

// Memorizes 512 images with random labels: the training data is also the test data.
TEST(ImageRun, TheGuidesNetworkLearns512ImagesByHeart) {
  const TemporaryDirectory directory;
  const std::string images = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";
  const std::string labels = "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz";
  for (const std::string split : {"train", "t10k"}) {
    fs::create_symlink(images, directory.path() / (split + "-images-idx3-ubyte.gz"));
    fs::create_symlink(labels, directory.path() / (split + "-labels-idx1-ubyte.gz"));
  }
  TrainerRanks ranks(1, options_of("task: image_classification\nepochs: 14\nseed: 1\n"
                                   "data: {path: " +
                                   directory.path().string() +
                                   ", train_samples: 512, eval_samples: 512}\n"
                                   "model: {name: resnet_like}\nbatch: {size: 32}\neval: {every_epochs: 0}\n"
                                   "optimizer: {name: sgd, lr: 0.03, momentum: 0.9, weight_decay: 0.0001}\n"
                                   "schedule: {name: onecycle}\n"));
  const nlohmann::json summary = summary_of(ranks);
  EXPECT_EQ(summary["accuracy"], 1.0) << summary.dump();
}

// Mixed precision, EMA, clipping, accumulation, and early stopping.
TEST(ImageRun, TheEnginesOptionsWorkTogether) {
  const CifarDirectory data(kPerFile, 4);
  const TemporaryDirectory directory;
  const std::string config =
      config_of(data,
                "epochs: 60\namp: {enabled: true, dtype: bf16}\nema: {enabled: true, decay: 0.8}\n"
                "gradient: {clip_norm: 1.0, accumulation_steps: 2}\n"
                "early_stopping: {patience: 2, metric: loss, mode: min, min_delta: 0.01}\n"
                "checkpoint: {best: {metric: loss, mode: min}}\n"
                "report: {history: history.json, curves: curves.svg}\n");
  TrainerRanks ranks(2, options_of(config, directory.path()));
  const nlohmann::json summary = summary_of(ranks);
  EXPECT_GT(summary["accuracy"], 0.95) << summary.dump();
  EXPECT_EQ(summary["top5"], 1.0) << "four classes";
  EXPECT_LT(summary["step"], 600) << "it stopped early";
  EXPECT_TRUE(fs::is_symlink(directory.path() / "best"));
  const nlohmann::json history = nlohmann::json::parse(std::ifstream(directory.path() / "history.json"));
  ASSERT_GE(history["epoch"].size(), 3U);
  EXPECT_LT(history["train_loss"].back(), 0.5 * history["train_loss"].front().get<double>());
  EXPECT_DOUBLE_EQ(history["val_accuracy"].back(), summary["accuracy"]);
  EXPECT_EQ(history["val_top5"].size(), history["epoch"].size());
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The files as they are, with less data.
TEST(ImageRun, TheExamplesRun) {
  const CifarDirectory data(kPerFile);
  const fs::path examples = test::source_path("examples/image_classification");
  const std::vector<std::pair<std::string, std::vector<std::string>>> runs = {
      {"cifar10.yaml", {"data.path=" + data.path().string(), "batch.size=20", "model.width=8"}},
      {"fashion_mnist.yaml", {"data.train_samples=128", "data.eval_samples=50", "batch.size=16", "model.width=8"}}};
  for (const auto& [file, arguments] : runs) {
    SCOPED_TRACE(file);
    const TemporaryDirectory directory;
    test::TrainerOptions options = options_of(text_of(examples / file), directory.path());
    options.arguments.insert(options.arguments.end(), {"epochs=1", "log.every_steps=1"});
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    TrainerRanks ranks(2, options);
    EXPECT_GT(summary_of(ranks)["step"], 0);
    EXPECT_TRUE(fs::exists(directory.path() / "history.json"));
    EXPECT_TRUE(fs::exists(directory.path() / "curves.svg"));
  }
}

TEST(ImageRun, DamagedDataEndsTheRunWithOneLineOnEveryRank) {
  const CifarDirectory data(kPerFile);
  fs::resize_file(data / "data_batch_2.bin", 3073 * 5 + 100);
  TrainerRanks ranks(2, options_of(config_of(data, "epochs: 1\n")));
  EXPECT_THAT(ranks.wait(), Each(static_cast<int>(ExitCode::kDataErr)));
  const TerminationMessage last = ranks.last_word(0);
  EXPECT_THAT(last.message, testing::HasSubstr("data_batch_2.bin: 15465 bytes are not a multiple of 3073"));
}

}  // namespace
}  // namespace oarlock
