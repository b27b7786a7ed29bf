// Evaluation: every sample once, and the same bits whatever the world size.
#include "trainer/engine/evaluator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>

#include "tests/support/rank_harness.h"
#include "tests/support/trainer_program/tiny_task.h"
#include "trainer/config/fields_reader.h"

namespace oarlock {
namespace {

TEST(EvaluationIndices, EverySampleOnExactlyOneRankInWholeBatches) {
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
std::string evaluate_tiny(const RankGroup& group, const std::string& data) {
  const auto documents = yaml::parse_all("data: " + data, "test");
  yaml::Problems problems("test");
  FieldsReader root(documents->front(), "", problems);
  const auto task = test::make_tiny(root);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(task->prepare());
  at::manual_seed(11);
  const auto module = task->build_model();
  module->train();
  std::string out;
  for (const auto& [name, value] : evaluate(*task, *module, group, {.batch_size = 16}))
    out += fmt::format("{}={:a}\n", name, value);
  EXPECT_TRUE(module->is_training());
  return out;
}

std::string over_ranks(int world_size, const std::string& data) {
  const test::TemporaryFolder folder;
  test::run_ranks(world_size, [&](const RankGroup& group) {
    const std::string metrics = evaluate_tiny(group, data);
    std::ofstream(folder.path() / std::to_string(group.rank())) << metrics;
  });
  const std::string first = test::content(folder.path() / "0");
  for (int rank = 1; rank < world_size; ++rank) EXPECT_EQ(test::content(folder.path() / std::to_string(rank)), first);
  return first;
}

TEST(Evaluator, TheSameBitsForEveryWorldSize) {
  const std::string alone = over_ranks(1, "{eval_samples: 101}");
  EXPECT_THAT(alone, testing::HasSubstr(fmt::format("count={:a}\n", 101.0)));
  for (const int world_size : {2, 3, 5}) EXPECT_EQ(over_ranks(world_size, "{eval_samples: 101}"), alone) << world_size;
}

TEST(Evaluator, RanksWithoutABatchJoinIn) {
  const std::string alone = over_ranks(1, "{eval_samples: 5}");
  EXPECT_EQ(over_ranks(3, "{eval_samples: 5}"), alone);
}

}  // namespace
}  // namespace oarlock
