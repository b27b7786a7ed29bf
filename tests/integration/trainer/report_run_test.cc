// The history files of a run do not depend on killed ranks or on the world size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>

#include "tests/integration/trainer/run_support.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using test::TrainerRanks;
using testing::Each;
using testing::HasSubstr;

constexpr char kConfig[] =
    "task: tiny\nepochs: 10\nbatch: {size: 24, per: global}\nmodel: {dropout: 0, batch_norm: false}\n"
    "data: {samples: 240}\neval: {batch_size: 16}\noptimizer: {lr: 0.01}\nschedule: {name: cosine}\n"
    "checkpoint: {every_steps: 3}\nreport: {history: report/history.json, curves: curves.svg}\n";

nlohmann::json read_json(const fs::path& path) {
  return nlohmann::json::parse(std::ifstream(path), nullptr, /*allow_exceptions=*/false);
}

// All columns but the seconds.
void expect_same(const nlohmann::json& actual, const nlohmann::json& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected.items()) {
    if (name == "seconds") continue;
    ASSERT_EQ(actual[name].size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(actual[name][i].get<double>(), values[i].get<double>(), tolerance) << name << " " << i;
  }
}

nlohmann::json history_of_run(int world_size, const fs::path& directory) {
  TrainerRanks ranks(
      world_size,
      {.config = kConfig, .arguments = {"--checkpoint-dir", directory.string()}, .environment = {}, .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  return read_json(directory / "report/history.json");
}

TEST(ReportRun, HasALinePerEvaluation) {
  const TemporaryDirectory directory;
  const nlohmann::json history = history_of_run(1, directory.path());
  EXPECT_EQ(history["epoch"], nlohmann::json({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(history["step"], nlohmann::json({10, 20, 30, 40, 50, 60, 70, 80, 90, 100}));
  EXPECT_LT(history["train_loss"][9], history["train_loss"][0]);
  EXPECT_NEAR(history["learning_rate"][4].get<double>(), 0.01 * (1 + std::cos(M_PI * 0.49)) / 2, 1e-9);
  for (size_t i = 1; i < 10; ++i) EXPECT_GE(history["seconds"][i], history["seconds"][i - 1]);
  for (const char* metric : {"val_loss", "val_accuracy"}) EXPECT_EQ(history[metric].size(), 10U) << metric;
  std::ifstream svg(directory.path() / "curves.svg");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(svg), {}), testing::EndsWith("</svg>\n"));
}

TEST(ReportRun, IsTheSameForEveryWorldSize) {
  const TemporaryDirectory one;
  const TemporaryDirectory two;
  expect_same(history_of_run(2, two.path()), history_of_run(1, one.path()), 2e-6);
}

TEST(ReportRun, AKilledRunHasNoGapsAndNothingTwice) {
  const TemporaryDirectory whole;
  const nlohmann::json expected = history_of_run(2, whole.path());
  const TemporaryDirectory directory;
  const auto options = [&] {
    return test::TrainerOptions{.config = kConfig,
                                .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
                                .environment = {},
                                .directory = {}};
  };
  for (const int signal : {SIGKILL, SIGTERM}) {
    TrainerRanks ranks(2, options());
    EXPECT_TRUE(test::wait_for_step(ranks, signal == SIGKILL ? 25 : 55));
    for (const int rank : {0, 1}) ranks.rank(rank).signal(signal);
    ranks.wait();
  }
  TrainerRanks ranks(2, options());
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  const nlohmann::json history = read_json(directory.path() / "report/history.json");
  expect_same(history, expected, 1e-12);
  for (size_t i = 1; i < history["seconds"].size(); ++i) EXPECT_GE(history["seconds"][i], history["seconds"][i - 1]);

  TrainerRanks again(2, options());  // complete already: it evaluates, and changes nothing
  EXPECT_THAT(again.wait(), Each(0)) << again.rank(0).err();
  expect_same(read_json(directory.path() / "report/history.json"), expected, 1e-12);
}

// A report that cannot be written does not end the run.
TEST(ReportRun, AnUnwritableReportIsLogged) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "in the way";
  TrainerRanks ranks(
      1,
      {.config = "task: tiny\nsteps: 5\nreport: {history: " + (directory.path() / "file/history.json").string() + "}\n",
       .arguments = {},
       .environment = {},
       .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
  EXPECT_THAT(ranks.log_line(0, "report: the history of the run was not written").value("error", ""),
              HasSubstr("file"));
}

}  // namespace
}  // namespace oarlock
