#include "cli/cluster/rank_view.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace oarlock::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kMetrics[] = R"(# HELP trainer_steps_total Number of optimizer steps done by this process.
# TYPE trainer_steps_total counter
trainer_steps_total{rank="1"} 100
trainer_step_duration_seconds_sum{rank="1"} 25
trainer_phase_seconds_total{phase="data_wait",rank="1"} 10
trainer_phase_seconds_total{phase="forward",rank="1"} 30
trainer_device_memory_allocated_bytes{rank="1"} 2147483648
process_resident_memory_bytes 1048576
)";

RankView view_of(int rank, int64_t step, const std::string& metrics = "") {
  RankView view;
  view.rank = rank;
  view.pod = "bert-0-" + std::to_string(rank);
  view.node = "n";
  view.pod_state = "Running";
  RankStatus status;
  status.phase = "train";
  status.step = step;
  status.last_step_seconds = 0.5;
  status.loss = 1.5;
  view.status = status;
  view.metrics = parse_rank_metrics(metrics);
  return view;
}

TEST(RankView, ReadsMetrics) {
  const RankMetrics metrics = parse_rank_metrics(kMetrics);
  EXPECT_EQ(metrics.steps, 100);
  EXPECT_EQ(metrics.step_seconds, 25);
  EXPECT_EQ(metrics.data_wait_seconds, 10);
  EXPECT_EQ(metrics.total_seconds, 40);
  EXPECT_EQ(metrics.device_memory_bytes, 2147483648.0);
  EXPECT_EQ(metrics.resident_memory_bytes, 1048576);
}

TEST(RankView, IgnoresBrokenLines) {
  const RankMetrics metrics = parse_rank_metrics(
      "trainer_steps_total\ntrainer_steps_total{\ntrainer_steps_total NaN\ntrainer_steps_total{rank=\"1\"} x\n}\n \n"
      "process_resident_memory_bytes +Inf\n\xff\xfe\n");
  EXPECT_EQ(metrics.steps, std::nullopt);
  EXPECT_EQ(metrics.resident_memory_bytes, std::nullopt);
}

TEST(RankView, ShowsLagAndMeans) {
  const std::string text = rank_table({view_of(0, 101, kMetrics), view_of(1, 98)}, {}, false).to_text({});
  EXPECT_EQ(text,
            "RANK   PHASE   STEP   LAG   STEP TIME   DATA WAIT   MEMORY      LOSS   NODE\n"
            "0      train   101    0     250ms       25%         2 GiB GPU   1.5    n\n"
            "1      train   98     3     500ms       -           -           1.5    n\n");
}

TEST(RankView, ShowsMeansSinceLastRefresh) {
  RankView now = view_of(0, 111);
  now.metrics = {.data_wait_seconds = 12,
                 .total_seconds = 44,
                 .steps = 110,
                 .step_seconds = 35,
                 .device_memory_bytes = {},
                 .resident_memory_bytes = 1024};
  const std::string text = rank_table({now}, {view_of(0, 101, kMetrics)}, false).to_text({});
  EXPECT_THAT(text, HasSubstr("0      train   111    0     1s          50%         1 KiB    1.5    n\n"));
}

TEST(RankView, RestartsCountsWhenRankRestarts) {
  RankView now = view_of(0, 3);
  now.metrics.steps = 2;
  now.metrics.step_seconds = 1;
  EXPECT_THAT(rank_table({now}, {view_of(0, 101, kMetrics)}, false).to_text({}), HasSubstr(" 500ms "));
}

TEST(RankView, ShowsRanksThatDoNotRespond) {
  RankView pending;
  pending.rank = 1;
  pending.pod_state = "ImagePullBackOff";
  RankView silent = pending;
  silent.rank = 2;
  silent.error = "no response";
  EXPECT_EQ(rank_table({pending, silent}, {}, false).to_text({}),
            "RANK   PHASE              STEP   LAG   STEP TIME   DATA WAIT   MEMORY   LOSS   NODE\n"
            "1      ImagePullBackOff   -      -     -           -           -        -      -\n"
            "2      no response        -      -     -           -           -        -      -\n");
  EXPECT_EQ(rank_document(silent)["error"], "no response");
  EXPECT_EQ(rank_document(view_of(0, 7))["status"]["step"], 7);
}

TEST(RankView, HostileStepsDoNotOverflow) {
  const std::string text = rank_table({view_of(0, INT64_MAX), view_of(1, INT64_MIN)}, {}, true).to_text({});
  EXPECT_THAT(text, HasSubstr("9223372036854775807"));
}

}  // namespace
}  // namespace oarlock::cli
