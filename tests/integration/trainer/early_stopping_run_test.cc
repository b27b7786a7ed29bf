// A run of two ranks without improvement stops early on both and is saved. It does not continue when it is restarted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rank_harness.h"

namespace oarlock::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kStepsPerEpoch = 4;  // 64 samples, 2 ranks, 8 each

class EarlyStoppingRun : public testing::Test {
 protected:
  // After the first evaluation no improvement is large enough.
  TrainerRanks start(const std::string& stopping) {
    TrainerOptions options;
    options.config =
        "task: tiny\nepochs: 50\ndata: {samples: 64, eval_samples: 16}\nbatch: {size: 8}\n"
        "checkpoint: {dir: ck}\nearly_stopping: " +
        stopping + "\n";
    options.directory = directory_.path();
    options.arguments = {"--log-format", "json"};
    return TrainerRanks(2, options);
  }

  TemporaryDirectory directory_;
};

TEST_F(EarlyStoppingRun, EndsBothRanksAndStaysEnded) {
  TrainerRanks first = start("{patience: 2, metric: loss, min_delta: 1000}");
  ASSERT_THAT(first.wait(), ElementsAre(0, 0)) << first.rank(0).err();
  const nlohmann::json done = first.log_line(0, "training is complete");
  ASSERT_TRUE(done.is_object()) << first.rank(0).err();
  EXPECT_EQ(done["step"], 3 * kStepsPerEpoch);
  EXPECT_THAT(done["stopped_early"].get<std::string>(), HasSubstr("no improvement of loss (best "));
  EXPECT_TRUE(done["parameters_bitwise_equal"].get<bool>());
  for (const int rank : {0, 1}) {
    EXPECT_THAT(first.last_word(rank).message, HasSubstr("stopped early: no improvement of loss"));
    EXPECT_EQ(first.last_word(rank).step, 3 * kStepsPerEpoch);
  }

  TrainerRanks again = start("{patience: 2, metric: loss, min_delta: 1000}");
  ASSERT_THAT(again.wait(), ElementsAre(0, 0)) << again.rank(0).err();
  const nlohmann::json still =
      again.log_line(0,
                     "training was complete already: evaluated the checkpoint; raise epochs or "
                     "steps, or use another checkpoint.dir, to train more");
  ASSERT_TRUE(still.is_object()) << again.rank(0).err();
  EXPECT_EQ(still["step"], 3 * kStepsPerEpoch);
  EXPECT_EQ(still["loss"], done["loss"]);

  TrainerRanks longer = start("{patience: 4, metric: loss, min_delta: 1000}");
  ASSERT_THAT(longer.wait(), ElementsAre(0, 0)) << longer.rank(0).err();
  EXPECT_EQ(longer.log_line(0, "training is complete")["step"], 5 * kStepsPerEpoch);
}

TEST_F(EarlyStoppingRun, AMetricThatIsNotThereEndsBothRanksWithItsName) {
  TrainerRanks ranks = start("{patience: 2, metrics: [{name: loss}, {name: acuracy, mode: max}]}");
  EXPECT_THAT(ranks.wait(), ElementsAre(78, 78));
  for (const int rank : {0, 1}) EXPECT_THAT(ranks.last_word(rank).message, HasSubstr("no metric 'acuracy'")) << rank;
}

}  // namespace
}  // namespace oarlock::test
