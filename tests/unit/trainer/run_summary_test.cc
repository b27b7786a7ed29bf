// The header and the table of a run on a terminal.
#include "trainer/report/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oarlock {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

RunHeader two_ranks() {
  RunHeader header;
  header.task = "image_classification";
  header.world_size = 2;
  header.device = "CPU, 1 thread per rank";
  header.precision = "fp32";
  header.parameters = header.trainable_parameters = 206'922;
  header.train_samples = 60'000;
  header.eval_samples = 10'000;
  header.effective_batch = 128;
  header.batch_per_rank = 64;
  header.target_steps = 1407;
  header.epochs = 3;
  header.learning_rate = 0.002;
  header.checkpoints = "/runs/checkpoints";
  return header;
}

TEST(RunHeader, ListsSizes) {
  EXPECT_THAT(header_lines(two_ranks()),
              ElementsAre("image_classification on 2 ranks", "  device      CPU, 1 thread per rank, fp32",
                          "  model       206,922 parameters",
                          "  data        60,000 samples for training, 10,000 for evaluation",
                          "  batch       128 = 2 ranks x 64", "  length      3 epochs, 1,407 steps",
                          "  optimizer   learning rate 0.002", "  checkpoints /runs/checkpoints"));
}

TEST(RunHeader, StatesUnusualSettings) {
  RunHeader header = two_ranks();
  header.world_size = 1;
  header.accumulation_steps = 2;
  header.trainable_parameters = 10;
  header.epochs = 0;
  header.first_step = 1000;
  header.checkpoints.clear();
  const std::vector<std::string> lines = header_lines(header);
  EXPECT_EQ(lines[0], "image_classification on 1 rank");
  EXPECT_THAT(lines, Contains("  model       206,922 parameters, 10 of them trained"));
  EXPECT_THAT(lines, Contains("  batch       128 = 64 x 2 accumulated"));
  EXPECT_THAT(lines, Contains("  length      1,407 steps, from step 1,000"));
  EXPECT_THAT(lines, Contains("  checkpoints none: set checkpoint.dir to save them"));
}

RunSummary complete() {
  RunSummary summary;
  summary.step = 1407;
  summary.metrics = {{"accuracy", 0.9012}, {"loss", 0.28}, {"a_metric_with_a_long_name", 1}};
  summary.monitor = "accuracy";
  summary.best = BestEvaluation{.metric = "accuracy", .value = 0.9033, .step = 938};
  summary.seconds = 19;
  summary.phase_shares = {{"startup", 0.01}, {"forward", 0.3}, {"backward", 0.5}, {"comm", 0.1}, {"optimizer", 0.09}};
  summary.samples_per_second = 9811.6;
  summary.world_size = 2;
  summary.parameters_equal = true;
  summary.checkpoint = "/runs/checkpoints/step-00001407";
  return summary;
}

TEST(RunSummary, ListsResults) {
  EXPECT_THAT(
      summary_lines(complete()),
      ElementsAre("the training is complete: step 1,407", "  accuracy    0.9012", "  a_metric_with_a_long_name 1",
                  "  loss        0.28", "  best        accuracy 0.9033 at step 938",
                  "  time        0:19  (backward 50 %, forward 30 %, comm 10 %)", "  speed       9,812 samples/s",
                  "  ranks       2, with bitwise equal parameters", "  checkpoint  /runs/checkpoints/step-00001407"));
}

TEST(RunSummary, ShortensManyMetrics) {
  RunSummary summary = complete();
  for (int i = 0; i < 100; ++i) summary.metrics["metric_" + std::to_string(i)] = i;
  summary.stopped_early = "loss did not improve";
  summary.recoveries = 2;
  const std::vector<std::string> lines = summary_lines(summary);
  EXPECT_THAT(lines, SizeIs(1 + 1 + 10 + 1 + 1 + 1 + 1 + 1 + 1 + 1));
  EXPECT_EQ(lines[1], "  stopped     early: loss did not improve");
  EXPECT_EQ(lines[2], "  accuracy    0.9012") << "the monitored metric is the first";
  EXPECT_THAT(lines, Contains(HasSubstr("and 93 more metrics")));
  EXPECT_THAT(lines, Contains("  recoveries  2, no step lost"));
}

TEST(RunSummary, GroupsDigits) {
  EXPECT_EQ(grouped_digits(0), "0");
  EXPECT_EQ(grouped_digits(999), "999");
  EXPECT_EQ(grouped_digits(1000), "1,000");
  EXPECT_EQ(grouped_digits(-123), "-123");
  EXPECT_EQ(grouped_digits(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace oarlock
