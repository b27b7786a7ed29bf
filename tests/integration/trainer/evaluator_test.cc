// Evaluation: every sample once, and the same bits whatever the world size.
#include "trainer/engine/evaluate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "fields/yaml_reader.h"
#include "tests/support/rank_harness.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trainer_program/tiny_task.h"

namespace oarlock {
namespace {

TEST(EvaluationIndices, AssignEachSampleToOneRank) {
  for (const int64_t size : {0, 1, 15, 16, 17, 101}) {
    for (const int world_size : {1, 2, 3, 7}) {
      std::vector<int64_t> seen(static_cast<size_t>(size), 0);
      for (int rank = 0; rank < world_size; ++rank) {
        const auto indices = evaluation_indices(size, 16, rank, world_size);
        for (size_t i = 0; i < indices.size(); ++i) {
          seen[static_cast<size_t>(indices[i])]++;
          EXPECT_EQ(indices[i] / 16 % world_size, rank);
          if (i % 16 != 0) {
            EXPECT_EQ(indices[i], indices[i - 1] + 1) << "a batch is a run of samples";
          }
        }
      }
      EXPECT_THAT(seen, testing::Each(1)) << size << " over " << world_size;
    }
  }
}

// The metrics with all their bits.
std::string evaluate_tiny(const ProcessGroup& group, const std::string& data, size_t expected_rows) {
  const auto documents = yaml::parse_all("data: " + data, "test");
  yaml::Problems problems("test");
  YamlFieldsReader root(documents->front(), "", problems);
  const auto task = test::make_tiny(root);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(task->prepare());
  at::manual_seed(11);
  const auto module = task->build_model();
  module->train();
  std::string out;
  EvalPass pass = evaluation_of(*task);
  pass.batch_size = 16;
  const Result<Evaluation> evaluation = evaluate(pass, *module, group, {}, 0);
  for (const auto& [name, value] : evaluation.value().metrics) out += fmt::format("{}={:a}\n", name, value);
  EXPECT_EQ(evaluation->rows.ids.size(), group.rank() == 0 ? expected_rows : 0U);
  EXPECT_TRUE(module->is_training());
  return out;
}

std::string over_ranks(int world_size, const std::string& data, size_t expected_rows = 0) {
  const test::TemporaryDirectory directory;
  test::run_ranks(world_size, [&](const ProcessGroup& group) {
    const std::string metrics = evaluate_tiny(group, data, expected_rows);
    std::ofstream(directory.path() / std::to_string(group.rank())) << metrics;
  });
  const std::string first = test::content(directory.path() / "0");
  for (int rank = 1; rank < world_size; ++rank)
    EXPECT_EQ(test::content(directory.path() / std::to_string(rank)), first);
  return first;
}

TEST(Evaluator, IsBitwiseEqualForEveryWorldSize) {
  const std::string alone = over_ranks(1, "{eval_samples: 101}");
  EXPECT_THAT(alone, testing::HasSubstr(fmt::format("count={:a}\n", 101.0)));
  for (const int world_size : {2, 3, 5}) EXPECT_EQ(over_ranks(world_size, "{eval_samples: 101}"), alone) << world_size;
}

TEST(Evaluator, AcceptsRanksWithoutBatch) {
  const std::string alone = over_ranks(1, "{eval_samples: 5}");
  EXPECT_EQ(over_ranks(3, "{eval_samples: 5}"), alone);
}

TEST(Evaluator, GathersRowsOnRankZero) {
  for (const auto& [samples, data] : std::vector<std::pair<size_t, std::string>>{
           {101, "{eval_samples: 101, rows: true}"}, {5, "{eval_samples: 5, rows: true}"}}) {
    const std::string alone = over_ranks(1, data, samples);
    EXPECT_THAT(alone, testing::HasSubstr(fmt::format("rows={:a}\n", static_cast<double>(samples))));
    for (const int world_size : {2, 3}) EXPECT_EQ(over_ranks(world_size, data, samples), alone) << world_size;
  }
}

TEST(EvalRows, AreSortedAndUnique) {
  const EvalRows rows{.ids = {7, 2, 7, 0}, .columns = {{"x", torch::tensor({70., 20., 71., 0.}, torch::kDouble)}}};
  const EvalRows sorted = sorted_unique(rows);
  EXPECT_EQ(sorted.ids, (std::vector<int64_t>{0, 2, 7}));
  EXPECT_TRUE(torch::equal(sorted.columns.at("x"), torch::tensor({0., 20., 70.}, torch::kDouble)));
}

// Rank r has r rows, and all have the row 100: different numbers of rows, one rank without, one sample on several.
TEST(EvalRows, AreGatheredFromUnevenRanks) {
  test::run_ranks(3, [](const ProcessGroup& group) {
    RowCollector mine;
    const double infinity = std::numeric_limits<double>::infinity();
    for (int i = 0; i < group.rank(); ++i) {
      const int64_t id = 10 * group.rank() + i;
      mine.add({id, 100}, {{"x", torch::tensor({static_cast<double>(id), -infinity}, torch::kDouble)},
                           {"y", torch::tensor({{id, id}, {int64_t{-1}, int64_t{-2}}})}});
    }
    const RowLayout layout = {{"x", {}}, {"y", {2}}};
    const EvalRows all = gather_rows(mine.rows(), layout, group);
    if (group.rank() != 0) {
      EXPECT_TRUE(all.ids.empty());
      return;
    }
    EXPECT_EQ(all.ids, (std::vector<int64_t>{10, 20, 21, 100}));
    EXPECT_TRUE(torch::equal(all.columns.at("x"), torch::tensor({10., 20., 21., -infinity}, torch::kDouble)));
    EXPECT_TRUE(torch::equal(all.columns.at("y"),
                             torch::tensor({{10., 10.}, {20., 20.}, {21., 21.}, {-1., -2.}}, torch::kDouble)));
  });
}

TEST(EvalRows, AreNotWrittenAfterAnAgreementToStop) {
  const test::TemporaryDirectory directory;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement stop(flag, group, clock);
    EvalRows rows;
    if (group.rank() == 0) rows = {.ids = {4}, .columns = {{"x", torch::tensor({0.5}, torch::kDouble)}}};
    EXPECT_TRUE(write_eval_rows(directory.path() / "complete.csv", rows, group, stop));
    EXPECT_TRUE(stop.agree(/*wish=*/group.rank() == 1));
    const Result<void> interrupted = write_eval_rows(directory.path() / "interrupted.csv", rows, group, stop);
    ASSERT_FALSE(interrupted);
    EXPECT_EQ(interrupted.error().code, ExitCode::kTempFail);
  });
  EXPECT_EQ(test::content(directory.path() / "complete.csv"), "id,x\n4,0.5\n");
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "interrupted.csv"));
}

// Another process may have replaced rank 0.
TEST(EvalRows, AreNotWrittenByAReplacedRank) {
  const test::TemporaryDirectory directory;
  test::run_ranks(2, [&](const ProcessGroup& group) {
    const StopFlag flag;
    const RealClock clock;
    StopAgreement stop(flag, group, clock);
    EvalRows rows;
    if (group.rank() == 0) rows = {.ids = {4}, .columns = {{"x", torch::tensor({0.5}, torch::kDouble)}}};
    const Result<void> written =
        write_eval_rows(directory.path() / "rows.csv", rows, group, stop,
                        []() -> Result<void> { return fail(ExitCode::kTempFail, "generation 1 has taken over"); });
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ExitCode::kTempFail);
  });
  EXPECT_FALSE(std::filesystem::exists(directory.path() / "rows.csv"));
}

TEST(EvalRows, RejectMismatchesByName) {
  RowCollector rows;
  rows.add({1, 2}, {{"x", torch::zeros({2})}});
  EXPECT_THROW(rows.add({3}, {{"x", torch::zeros({2})}}), std::runtime_error);
  EXPECT_THROW(rows.add({3}, {{"z", torch::zeros({1})}}), std::runtime_error);
  EXPECT_THROW(rows.add({3}, {}), std::runtime_error);
  EXPECT_EQ(rows.rows().ids.size(), 2U);
}

}  // namespace
}  // namespace oarlock
