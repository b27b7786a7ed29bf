// Telemetry of a run: metrics, /statusz, the progress line, and the breakdown of time by phase.
#include "trainer/telemetry/telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>
#include <regex>
#include <thread>

#include "common/contract.h"
#include "common/work_progress.h"
#include "http/metrics.h"
#include "tests/support/fake_clock.h"
#include "tests/support/metrics_page.h"
#include "tests/support/raw_client.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::FakeClock;
using testing::HasSubstr;
using testing::Not;

TEST(TimeTable, AddsUpToTheUptime) {
  FakeClock clock;
  PhaseClock phases(clock);
  clock.advance(seconds(5));
  phases.enter(Phase::kForward);
  clock.advance(seconds(15));
  const TimeTable table = time_table(phases.seconds());
  EXPECT_DOUBLE_EQ(table.total, 20);
  ASSERT_EQ(table.rows.size(), kPhaseNames.size());
  EXPECT_EQ(to_line(table), "20.0 s = startup 5.0 s (25 %) + forward 15.0 s (75 %)");
  EXPECT_THAT(to_markdown(table), HasSubstr("| forward | 15.000 | 75.0 % |\n"));
  EXPECT_THAT(to_markdown(table), HasSubstr("| total | 20.000 | |\n"));
}

TEST(PhaseClock, PhasesAddUpToUptime) {
  FakeClock clock;
  PhaseClock phases(clock);
  clock.advance(seconds(2));
  phases.enter(Phase::kDataWait);
  clock.advance(seconds(1));
  phases.enter(Phase::kForward);
  clock.advance(seconds(4));
  phases.enter(Phase::kDataWait);
  clock.advance(seconds(8));  // in the current phase
  const auto by_phase = phases.seconds();
  EXPECT_DOUBLE_EQ(by_phase[static_cast<size_t>(Phase::kStartup)], 2);
  EXPECT_DOUBLE_EQ(by_phase[static_cast<size_t>(Phase::kForward)], 4);
  EXPECT_DOUBLE_EQ(by_phase[static_cast<size_t>(Phase::kDataWait)], 9);
  EXPECT_DOUBLE_EQ(std::accumulate(by_phase.begin(), by_phase.end(), 0.0), 15);
}

TEST(PhaseClock, CountsFromItsBeginUntilItIsStopped) {
  FakeClock clock;
  const SteadyTime begin = clock.steady();
  clock.advance(seconds(3));
  PhaseClock phases(clock, begin);
  phases.enter(Phase::kOther);
  clock.advance(seconds(4));
  phases.stop();
  clock.advance(seconds(5));
  phases.stop();
  phases.enter(Phase::kForward);
  clock.advance(seconds(6));
  const auto by_phase = phases.seconds();
  EXPECT_DOUBLE_EQ(by_phase[static_cast<size_t>(Phase::kStartup)], 3);
  EXPECT_DOUBLE_EQ(by_phase[static_cast<size_t>(Phase::kOther)], 4);
  EXPECT_DOUBLE_EQ(by_phase[static_cast<size_t>(Phase::kForward)], 0);
  EXPECT_EQ(phases.phase(), Phase::kOther);
}

TEST(Throughput, AveragesLastTenSeconds) {
  Throughput throughput;
  EXPECT_EQ(throughput.samples_per_second(), 0);
  for (int i = 0; i < 100; ++i) throughput.add_step(32, 0.1);
  EXPECT_NEAR(throughput.samples_per_second(), 320, 1e-9);
  EXPECT_NEAR(throughput.seconds_per_step(), 0.1, 1e-9);
  for (int i = 0; i < 400; ++i) throughput.add_step(32, 0.2);  // 80 s, so that the faster steps no longer count
  EXPECT_NEAR(throughput.samples_per_second(), 160, 1);
}

TEST(ProgressLine, ShowsPositionAndSpeed) {
  ProgressView view;
  view.step = 120;
  view.target_steps = 1407;
  view.epoch = 0;
  view.epochs = 3;
  view.loss = 0.51234;
  view.learning_rate = 0.001;
  view.samples_per_second = 23012.4;
  view.seconds_per_step = 0.0326;
  EXPECT_EQ(progress_line(view), "epoch 1/3  step 120/1407 (8 %)  ETA 0:42  loss 0.5123  23012 samples/s  lr 0.001");
  view = {};
  view.step = 7;
  EXPECT_EQ(progress_line(view), "step 7  0 samples/s  lr 0");
}

TEST(ProgressLine, ShowsLongWork) {
  EXPECT_EQ(activity_line({.name = "evaluation", .done = 12, .total = 27, .seconds = 12}),
            "evaluation  [========            ]  12/27 (44 %)  ETA 0:15");
  EXPECT_EQ(activity_line({.name = "evaluation", .done = 0, .total = 27, .seconds = 2}),
            "evaluation  [                    ]  0/27 (0 %)");
  EXPECT_EQ(activity_line({.name = "evaluation", .done = 27, .total = 27, .seconds = 2}),
            "evaluation  [====================]  27/27 (100 %)  ETA 0:00");
  EXPECT_EQ(activity_line({.name = "saving the checkpoint", .seconds = 61}), "saving the checkpoint  1:01");
}

TEST(ProgressLine, ShortensMetrics) {
  const std::map<std::string, double> metrics = {{"accuracy", 0.91}, {"loss", 0.25}, {"top5", 0.99}};
  EXPECT_EQ(metrics_text(metrics, "loss", 6), "loss 0.25  accuracy 0.91  top5 0.99");
  EXPECT_EQ(metrics_text(metrics, "", 1), "accuracy 0.91 and 2 more");
  EXPECT_EQ(metrics_text({}, "loss", 3), "");
}

TEST(ProgressLine, CountsEpochsFromOne) {
  EXPECT_EQ(shown_epoch({.epoch = 0, .epochs = 3}), 1);
  EXPECT_EQ(shown_epoch({.epoch = 3, .epochs = 3}), 3) << "after the last one";
  EXPECT_EQ(shown_epoch({.epoch = 3}), 4);
}

// A line that wraps cannot be replaced.
TEST(ProgressLine, IsCutToTheTerminal) {
  FakeClock clock;
  std::string written;
  ProgressLine line({.write = [&](std::string_view text) { written = text; }, .columns = [] { return 9; }}, clock);
  line.show(ActivityView{.name = "evaluation"});
  EXPECT_EQ(written, "\revaluati\x1b[K\r\r");
}

TEST(ProgressLine, LongWorkWaitsAfterOtherOutput) {
  FakeClock clock;
  std::vector<std::string> written;
  ProgressLine line({.write = [&](std::string_view text) { written.emplace_back(text); }, .columns = [] { return 80; }},
                    clock);
  line.print({"above"});
  EXPECT_EQ(written, std::vector<std::string>{"above\n"});
  line.show(ActivityView{.name = "evaluation"});
  EXPECT_EQ(written.size(), 1U) << "a line of the log may be in progress";
  clock.advance(milliseconds(500));
  line.show(ActivityView{.name = "evaluation"});
  EXPECT_EQ(written.size(), 2U);
  line.close();
  EXPECT_EQ(written.back(), "\r\x1b[K");
  clock.advance(seconds(9));
  line.show(ActivityView{.name = "evaluation"});
  EXPECT_EQ(written.size(), 3U);
}

TEST(ProgressLine, FormatsDurations) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(42.4), "0:42");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 4 * 60), "2d 03:04");
}

TEST(ProgressLine, RedrawsAtMostTenTimesPerSecond) {
  FakeClock clock;
  std::vector<std::string> written;
  ProgressLine line({.write = [&](std::string_view text) { written.emplace_back(text); }, .columns = [] { return 80; }},
                    clock);
  line.clear();
  EXPECT_TRUE(written.empty()) << "nothing to clear";
  line.show(ProgressView{});
  line.show(ProgressView{});
  ASSERT_EQ(written.size(), 1U);
  EXPECT_THAT(written[0], testing::AllOf(testing::StartsWith("\r"), testing::EndsWith("\x1b[K\r\r")));
  clock.advance(milliseconds(100));
  line.show(ProgressView{});
  EXPECT_EQ(written.size(), 2U);
  line.clear();
  EXPECT_EQ(written.back(), "\r\x1b[K");
}

TelemetryOptions rank_1_of_2() {
  TelemetryOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.attempt = 4;
  options.build = {"1.2.3", "abc", "2.11.0", "", ""};
  options.run = {"run-7", "tiny", "ddp", "fp32"};
  return options;
}

TEST(Telemetry, UpdatesStatus) {
  FakeClock clock;
  Telemetry telemetry(rank_1_of_2(), Logger::silent(), clock);
  EXPECT_EQ(telemetry.status().phase, "rendezvous");
  EXPECT_EQ(telemetry.status().attempt, 4);
  telemetry.enter(Phase::kRestore);
  EXPECT_EQ(telemetry.status().phase, "restore");
  telemetry.begin(10, 40, 1, 3);
  telemetry.record_known_checkpoint(10);
  telemetry.enter(Phase::kForward);
  clock.advance(seconds(5));
  telemetry.record_step({.step = 11,
                         .epoch = 1,
                         .local_samples = 16,
                         .global_samples = 32,
                         .seconds = 0.5,
                         .learning_rate = 0.01,
                         .collective_sequence = 99});
  telemetry.record_loss(1.25);
  const RankStatus status = telemetry.status();
  EXPECT_EQ(status.phase, "train");
  EXPECT_EQ(status.rank, 1);
  EXPECT_EQ(status.world_size, 2);
  EXPECT_EQ(status.step, 11);
  EXPECT_EQ(status.target_steps, 40);
  EXPECT_EQ(status.checkpoint_step, 10);
  EXPECT_EQ(status.last_step_seconds, 0.5);
  EXPECT_EQ(status.loss, 1.25);
  EXPECT_DOUBLE_EQ(status.samples_per_second, 64);
  EXPECT_EQ(status.collective_sequence, 99);
  EXPECT_EQ(status.updated_at, to_rfc3339(clock.now()));
  telemetry.record_loss(NAN);
  EXPECT_FALSE(telemetry.status().loss);
  telemetry.finish(false);
  EXPECT_EQ(telemetry.status().phase, "failed");
}

TEST(Telemetry, ServesTimeByClass) {
  FakeClock clock;
  Telemetry telemetry(rank_1_of_2(), Logger::silent(), clock);
  const int port = telemetry.serve(0).value();
  const auto spend = [&](Phase phase, int time) {
    telemetry.enter(phase);
    clock.advance(seconds(time));
  };
  const auto served = [&] {
    const std::string response = test::raw_get(port, kStatusPath);
    return rank_status_from_json(response.substr(response.find("\r\n\r\n") + 4))->usage_seconds;
  };
  UsageSeconds expected;
  expected[UsageClass::kStarting] = 2;
  expected[UsageClass::kRendezvous] = 3;
  clock.advance(seconds(2));
  spend(Phase::kRendezvous, 3);
  EXPECT_EQ(served(), expected);
  spend(Phase::kRestore, 4);
  telemetry.begin(0, 10, 0, 1);
  spend(Phase::kDataWait, 1);
  spend(Phase::kForward, 5);
  spend(Phase::kEval, 6);
  spend(Phase::kCheckpoint, 7);
  spend(Phase::kRendezvous, 8);  // a rank was lost
  spend(Phase::kRestore, 9);
  spend(Phase::kOptimizer, 10);
  expected[UsageClass::kRestore] = 4;
  expected[UsageClass::kProductive] = 16;
  expected[UsageClass::kEvaluation] = 6;
  expected[UsageClass::kCheckpoint] = 7;
  expected[UsageClass::kRecovery] = 17;
  EXPECT_EQ(served(), expected);
}

// The thread of the telemetry shows what the training thread does, which may wait for a long time.
TEST(Telemetry, ShowsLongWorkWhileItLasts) {
  const RealClock clock;
  std::mutex mutex;
  std::string written;
  TelemetryOptions options = rank_1_of_2();
  options.progress.write = [&](std::string_view text) {
    const std::lock_guard lock(mutex);
    written += text;
  };
  Telemetry telemetry(options, Logger::silent(), clock);
  report_work(LongWork::kEvaluate, 1, 4);
  telemetry.enter(Phase::kEval);
  const auto has = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    return written.find(text) != std::string::npos;
  };
  const SteadyTime limit = clock.steady() + seconds(60);
  while (!has("evaluation  [=====               ]  1/4 (25 %)") && clock.steady() < limit)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(has("evaluation  [=====               ]  1/4 (25 %)"));
  EXPECT_TRUE(telemetry.is_watched());
  telemetry.finish(true);
}

TEST(TrainerMetrics, ExportsDocumentedSeriesWithRank) {
  FakeClock clock;
  TrainerMetrics metrics(1, 2, {"1.2.3", "abc", "2.11.0", "", ""}, {"run-7", "tiny", "ddp", "fp32"});
  const auto text = [&] { return metrics_handler(metrics.registry())("").body; };
  EXPECT_THAT(text(), Not(HasSubstr("\ntrainer_loss{"))) << "no series before the first loss";
  metrics.set_target_steps(40);
  EXPECT_THAT(text(), Not(HasSubstr("\ntrainer_tokens_total{"))) << "only for samples that are sequences";
  metrics.set_data_queue_capacity(4);
  metrics.set_peak_flops(5e14);
  metrics.set_device_memory({100, 200, 150, 400, 1, 2});
  metrics.set_device_memory({120, 200, 150, 400, 3, 2});
  metrics.record_data_error();
  metrics.record_step({.step = 11,
                       .epoch = 0,
                       .local_samples = 16,
                       .global_samples = 32,
                       .seconds = 0.02,
                       .learning_rate = 0.001,
                       .collective_sequence = 0,
                       .tokens = 512,
                       .data_bytes = 4096,
                       .flops = 1e9,
                       .batches_ready = 3},
                      clock.now());
  metrics.set_loss(1.25);
  metrics.set_validation_loss(1.5);
  metrics.set_phases({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  metrics.set_phases({1, 2, 3, 4, 5.5, 6, 7, 8, 9, 10});
  metrics.record_rendezvous(0.2);
  metrics.record_recovery(0.5);
  metrics.record_gradient_reduction(2, 4096);
  metrics.record_checkpoint(true, true, 1000, 0.1);
  metrics.record_checkpoint(true, false, 0, 0);
  metrics.set_last_checkpoint(11, clock.now());
  const std::string now = text();
  for (const char* line :
       {"trainer_build_info{rank=\"1\",cuda=\"\",libtorch=\"2.11.0\",nccl=\"\",revision=\"abc\",version=\"1.2.3\"} 1\n",
        "trainer_run_info{rank=\"1\",model=\"tiny\",precision=\"fp32\",run_id=\"run-7\",strategy=\"ddp\"} 1\n",
        "trainer_world_size{rank=\"1\"} 2\n",
        "trainer_steps_total{rank=\"1\"} 1\n",
        "trainer_current_step{rank=\"1\"} 11\n",
        "trainer_target_steps{rank=\"1\"} 40\n",
        "trainer_samples_total{rank=\"1\"} 16\n",
        "trainer_loss{rank=\"1\"} 1.25\n",
        "trainer_tokens_total{rank=\"1\"} 512\n",
        "trainer_data_read_bytes_total{rank=\"1\"} 4096\n",
        "trainer_data_errors_total{rank=\"1\"} 1\n",
        "trainer_data_queue_batches{rank=\"1\"} 3\n",
        "trainer_data_queue_capacity_batches{rank=\"1\"} 4\n",
        "trainer_model_flops_total{rank=\"1\"} 1000000000\n",
        "trainer_device_peak_flops{rank=\"1\"} 500000000000000\n",
        "trainer_device_memory_allocated_bytes{rank=\"1\"} 120\n",
        "trainer_device_memory_reserved_bytes{rank=\"1\"} 200\n",
        "trainer_device_memory_peak_bytes{rank=\"1\"} 150\n",
        "trainer_device_memory_limit_bytes{rank=\"1\"} 400\n",
        "trainer_device_alloc_retries_total{rank=\"1\"} 3\n",
        "trainer_device_ooms_total{rank=\"1\"} 2\n",
        "trainer_collective_seconds_total{rank=\"1\",group=\"dp\",op=\"all_reduce\"} 7\n",
        "trainer_validation_loss{rank=\"1\"} 1.5\n",
        "trainer_learning_rate{rank=\"1\"} 0.001\n",
        "trainer_last_step_timestamp_seconds{rank=\"1\"} 1700000000\n",
        "trainer_phase_seconds_total{rank=\"1\",phase=\"startup\"} 1\n",
        "trainer_phase_seconds_total{rank=\"1\",phase=\"forward\"} 5.5\n",
        "trainer_step_duration_seconds_count{rank=\"1\"} 1\n",
        "trainer_rendezvous_duration_seconds_count{rank=\"1\"} 1\n",
        "trainer_recovery_duration_seconds_count{rank=\"1\"} 1\n",
        "trainer_collective_operations_total{rank=\"1\",group=\"dp\",op=\"all_reduce\"} 2\n",
        "trainer_collective_bytes_total{rank=\"1\",group=\"dp\",op=\"all_reduce\"} 4096\n",
        "trainer_checkpoint_operations_total{rank=\"1\",operation=\"save\",result=\"success\"} 1\n",
        "trainer_checkpoint_operations_total{rank=\"1\",operation=\"save\",result=\"failure\"} 1\n",
        "trainer_checkpoint_bytes_total{rank=\"1\",operation=\"save\"} 1000\n",
        "trainer_last_checkpoint_step{rank=\"1\"} 11\n"}) {
    EXPECT_THAT(now, HasSubstr(line));
  }
  metrics.record_nonfinite_losses(1);
  metrics.set_gradient_norm(1);
  metrics.record_communication_error();
  test::expect_metrics_page("metrics-trainer.md", "The trainer's metrics", metrics.registry()->Collect());
  // Every trainer series has the label rank.
  const std::regex series(R"((^|\n)(trainer_[a-z_]+)(\{[^}]*\})?)");
  for (std::sregex_iterator it(now.begin(), now.end(), series), end; it != end; ++it) {
    EXPECT_THAT((*it)[3].str(), HasSubstr("rank=\"1\"")) << (*it)[2];
  }
}

}  // namespace
}  // namespace oarlock
