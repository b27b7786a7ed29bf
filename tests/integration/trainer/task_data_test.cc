// A task's data are prepared on the ranks that it selects, and its evaluation's rows of each sample are written to a
// file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/trainer/run_support.h"

namespace oarlock {
namespace {

using test::kLong;
using test::TemporaryDirectory;
using test::TrainerRanks;
using testing::Each;
using testing::HasSubstr;

TEST(PrepareData, RunsOnTheRanksThatTheTaskNames) {
  // The four ranks are of one node.
  for (const auto& [where, expected] :
       std::vector<std::pair<std::string, size_t>>{{"one_rank", 1}, {"one_rank_per_node", 1}, {"every_rank", 4}}) {
    const TemporaryDirectory directory;
    const std::filesystem::path file = directory.path() / "prepared";
    const std::string config =
        "task: tiny\nsteps: 1\ndata: {prepared_file: " + file.string() + ", prepare_on: " + where + "}\n";
    TrainerRanks ranks(4, {.config = config, .arguments = {}, .environment = {}, .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    EXPECT_EQ(test::lines(test::content(file)).size(), expected) << where;
  }
}

TEST(PrepareData, AFailureEndsAllRanksWithItsMessage) {
  TrainerRanks ranks(3, {.config = std::string(kLong) + "model: {fault: {kind: prepare_data, rank: 0}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(to_int(ExitCode::kNoInput)));
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(ranks.last_word(rank).message, HasSubstr("the fault 'prepare_data': no such file"));
}

TEST(PrepareData, MayTakeLongerThanACollective) {
  TrainerRanks ranks(2, {.config = "task: tiny\nsteps: 1\ndistributed: {timeout_seconds: 3}\n"
                                   "model: {fault: {kind: slow_prepare_data, rank: 0}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err() << ranks.rank(1).err();
}

TEST(EvalRows, AreWrittenAsCsvTheSameForEveryWorldSize) {
  std::string alone;
  for (const int world_size : {1, 3}) {
    const TemporaryDirectory directory;
    const std::filesystem::path file = directory.path() / "rows.csv";
    TrainerRanks ranks(world_size,
                       {.config = "task: tiny\nsteps: 4\nbatch: {size: 24, per: global}\nmodel: {dropout: 0, "
                                  "batch_norm: false}\ndata: {samples: 240, rows: true}\n"
                                  "eval: {batch_size: 16, rows_file: " +
                                  file.string() + "}\n",
                        .arguments = {},
                        .environment = {},
                        .directory = {}});
    EXPECT_THAT(ranks.wait(), Each(0)) << ranks.rank(0).err();
    const std::vector<std::string> lines = test::lines(test::content(file));
    ASSERT_EQ(lines.size(), 102U);
    EXPECT_EQ(lines[0], "id,logit_0,logit_1,logit_2,prediction,target");
    std::string ids_and_targets;
    for (size_t i = 1; i < lines.size(); ++i) {
      EXPECT_TRUE(lines[i].starts_with(std::to_string(i - 1) + ",")) << lines[i];
      ids_and_targets += lines[i].substr(0, lines[i].find(',')) + lines[i].substr(lines[i].rfind(','));
    }
    if (alone.empty()) alone = ids_and_targets;
    EXPECT_EQ(ids_and_targets, alone);
    const nlohmann::json summary = ranks.log_line(0, "training is complete");
    EXPECT_EQ(summary["rows"], 101);
    EXPECT_DOUBLE_EQ(summary["row_accuracy"], summary["accuracy"]);
  }
}

}  // namespace
}  // namespace oarlock
