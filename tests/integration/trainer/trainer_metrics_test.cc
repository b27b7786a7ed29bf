// The metrics and the status that a run serves over HTTP.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "tests/integration/trainer/run_support.h"
#include "tests/support/full_listener.h"
#include "trainer/telemetry/progress.h"

namespace oarlock {
namespace {

using test::eventually;
using test::http_get;
using test::kLong;
using test::TemporaryDirectory;
using test::TrainerRanks;
using test::wait_for_step;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

double value_of(const std::string& exposition, const std::string& series) {
  std::istringstream lines(exposition);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(series + " ")) return std::stod(line.substr(series.size() + 1));
  }
  ADD_FAILURE() << series << " is not in\n" << exposition;
  return -1;
}

// The request reaches rank 0 only.
TEST(RunMetrics, RequestedCheckpointIsSavedByAllRanksWithoutAStop) {
  const TemporaryDirectory directory;
  TrainerRanks ranks(2, {.config = std::string(kLong) + "checkpoint: {every_epochs: 0}\n",
                         .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
                         .environment = {{"OARLOCK_UID", "uid-9"}},
                         .directory = {}});
  const int port = ranks.metrics_port(0);
  const auto status = [&] { return rank_status_from_json(http_get(port, kStatusPath)).value_or(RankStatus{}); };
  const auto request = [&](const std::string& query) { http_get(port, kStatusPath + query); };
  ASSERT_TRUE(wait_for_step(ranks, 40));
  request("?checkpoint=1");
  ASSERT_TRUE(wait_for_step(ranks, status().step + 200));
  EXPECT_LE(status().checkpoint_step, 0) << "a request without the uid does not count";
  const int64_t before = status().step;
  request("?checkpoint=1&uid=uid-9");
  ASSERT_TRUE(eventually([&] { return status().checkpoint_step > 0; }));
  const int64_t saved = status().checkpoint_step;
  EXPECT_GE(saved, before);
  EXPECT_EQ(find_latest_checkpoint(directory.path())->step, saved);
  for (const char* query : {"?checkpoint=1&uid=uid-9", "?checkpoint=2&uid=uid-9"}) request(query);
  ASSERT_TRUE(wait_for_step(ranks, status().step + 300)) << "the training continues";
  EXPECT_EQ(status().checkpoint_step, saved) << "at most one request a minute";
  for (const int rank : {0, 1}) ranks.rank(rank).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
}

TEST(RunMetrics, MetricsAndStatusWhileItRuns) {
  const TemporaryDirectory directory;
  const InPodRestarts restarts{.total = 2, .seconds = 1.5, .rank = 1, .reason = "rank 1 ended with exit code 3"};
  TrainerRanks ranks(
      2, {.config = std::string(kLong) + "checkpoint: {every_steps: 20}\n",
          .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
          .environment = {{"OARLOCK_ATTEMPT", "2"}, {"OARLOCK_UID", "uid-9"}, {kEnvInPodRestarts, to_json(restarts)}},
          .directory = {}});
  const int port = ranks.metrics_port(0);
  std::optional<RankStatus> status;
  // A checkpoint is written while the next steps are done.
  ASSERT_TRUE(eventually([&] {
    status = rank_status_from_json(http_get(port, kStatusPath));
    return status && status->step >= 40 && status->checkpoint_step >= 20;
  }));
  EXPECT_EQ(status->rank, 0);
  EXPECT_EQ(status->world_size, 2);
  EXPECT_EQ(status->attempt, 2);
  EXPECT_EQ(status->in_pod_restarts, restarts);
  EXPECT_THAT(status->phase, testing::AnyOf("train", "checkpoint"));
  EXPECT_EQ(status->target_steps, 1000000);
  EXPECT_LE(status->checkpoint_step, status->step);
  EXPECT_TRUE(status->loss);
  EXPECT_GT(status->samples_per_second, 0);
  EXPECT_GT(status->collective_sequence, 40);
  SystemTime updated;
  ASSERT_TRUE(from_rfc3339(status->updated_at, updated));
  EXPECT_LT(std::chrono::system_clock::now() - updated, std::chrono::seconds(60));

  using SteadyClock = std::chrono::steady_clock;
  SteadyClock::time_point begin;
  std::string metrics;
  double steps = 0;
  // A step may end while the series are read; the series of one moment agree.
  EXPECT_TRUE(eventually([&] {
    begin = SteadyClock::now();
    metrics = http_get(port, kMetricsPath);
    steps = value_of(metrics, "trainer_steps_total{rank=\"0\"}");
    return value_of(metrics, "trainer_samples_total{rank=\"0\"}") == steps * 16 &&
           value_of(metrics, "trainer_step_duration_seconds_count{rank=\"0\"}") == steps;
  })) << metrics;
  const SteadyClock::time_point first_end = SteadyClock::now();
  EXPECT_GE(steps, 40);
  EXPECT_EQ(value_of(metrics, "trainer_world_size{rank=\"0\"}"), 2);
  EXPECT_GE(value_of(metrics, "trainer_collective_bytes_total{rank=\"0\",group=\"dp\",op=\"all_reduce\"}"), steps * 4);
  EXPECT_GT(value_of(metrics, "trainer_model_flops_total{rank=\"0\"}"), 0);
  EXPECT_GT(value_of(metrics, "trainer_data_read_bytes_total{rank=\"0\"}"), steps * 16 * 4);
  EXPECT_GT(value_of(metrics, "trainer_data_queue_capacity_batches{rank=\"0\"}"), 0);
  EXPECT_LE(value_of(metrics, "trainer_data_queue_batches{rank=\"0\"}"),
            value_of(metrics, "trainer_data_queue_capacity_batches{rank=\"0\"}"));
  EXPECT_THAT(metrics, Not(HasSubstr("trainer_device_memory"))) << "there is no device";
  EXPECT_GE(value_of(metrics, "trainer_checkpoint_operations_total{rank=\"0\",operation=\"save\",result=\"success\"}"),
            1);
  EXPECT_EQ(value_of(metrics, "trainer_rendezvous_duration_seconds_count{rank=\"0\"}"), 1);
  EXPECT_GT(value_of(metrics, "process_resident_memory_bytes"), 0);
  EXPECT_THAT(metrics, HasSubstr("run_id=\"uid-9\""));
  EXPECT_EQ(http_get(port, "/healthz"), "ok\n");

  // Each line of the exposition is a HELP or TYPE comment, or a sample with a value.
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("# HELP ") || line.starts_with("# TYPE ") || line.find(' ') != std::string::npos)
        << line;
  }
  // The phases sum up to the uptime: two scrapes some time apart.
  const auto sum_of_phases = [](const std::string& text) {
    double sum = 0;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
      if (line.starts_with("trainer_phase_seconds_total{")) sum += std::stod(line.substr(line.find("} ") + 2));
    }
    return sum;
  };
  const double before = sum_of_phases(metrics);
  ASSERT_TRUE(wait_for_step(ranks, static_cast<int64_t>(steps) + 300));
  const SteadyClock::time_point second_begin = SteadyClock::now();
  const double after = sum_of_phases(http_get(port, kMetricsPath));
  const SteadyClock::time_point end = SteadyClock::now();
  constexpr double kRounding = 0.01;
  EXPECT_GE(after - before, std::chrono::duration<double>(second_begin - first_end).count() - kRounding);
  EXPECT_LE(after - before, std::chrono::duration<double>(end - begin).count() + kRounding);

  ranks.rank(0).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
}

TEST(RunMetrics, EachLocalRankServesItsOwnPort) {
  const PortReservation ports = test::reserve_ports(2);
  const int base = ports.first();
  TrainerRanks ranks(2, {.config = kLong,
                         .arguments = {},
                         .environment = {{"OARLOCK_METRICS_PORT", std::to_string(base)}},
                         .directory = {}});
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(eventually([&] {
      const auto status = rank_status_from_json(http_get(base + rank, kStatusPath));
      return status && status->rank == rank && status->step > 0;
    })) << ranks.rank(rank).err();
  }
  ranks.rank(1).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
}

TEST(RunMetrics, StatusIsServedBeforeTheRanksHaveMet) {
  const PortReservation master_port = test::reserve_ports();
  TrainerRanks ranks(1, {.config = kLong,
                         .arguments = {"--metrics-port", "auto"},
                         .environment = {{"RANK", "0"},
                                         {"WORLD_SIZE", "2"},
                                         {"MASTER_ADDR", "127.0.0.1"},
                                         {"MASTER_PORT", std::to_string(master_port.first())}},
                         .directory = {}});
  const auto status = rank_status_from_json(http_get(ranks.metrics_port(0), kStatusPath));
  ASSERT_TRUE(status);
  EXPECT_EQ(status->phase, "rendezvous");
  ranks.rank(0).signal(SIGTERM);
  EXPECT_EQ(ranks.rank(0).wait(), 75);
  EXPECT_EQ(ranks.last_word(0).reason, "Interrupted");
}

// The alert on losses that are not finite adds up these counters; the loss of rank 1 is bad in steps that are not
// logged.
TEST(RunMetrics, StepsThatAreNotFiniteAreCounted) {
  const PortReservation ports = test::reserve_ports(2);
  const int base = ports.first();
  TrainerRanks ranks(
      2, {.config = std::string(kLong) + "nonfinite: {loss: skip}\nmodel: {fault: {kind: nan, rank: 1, step: 12}}\n",
          .arguments = {},
          .environment = {{"OARLOCK_METRICS_PORT", std::to_string(base)}},
          .directory = {}});
  for (const int rank : {0, 1}) {
    const int port = base + rank;
    ASSERT_TRUE(eventually([&] {
      const auto status = rank_status_from_json(http_get(port, kStatusPath));
      return status && status->step >= 21;
    }));
    const std::string metrics = http_get(port, kMetricsPath);
    for (const char* kind : {"loss", "gradient"}) {
      EXPECT_EQ(value_of(metrics, fmt::format("trainer_nonfinite_steps_total{{rank=\"{}\",kind=\"{}\"}}", rank, kind)),
                1);
    }
  }
  ranks.rank(0).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(75));
}

struct StepTime {
  double own = 0;   // of rank 0, for its part of the steps
  double comm = 0;  // of rank 0, waiting for rank 1
};

constexpr int kSlowSteps = 20;

// Returns the times of at least twenty steps in which the forward pass of the rank `slow` is delayed by 100 ms.
StepTime time_with_slow_rank(int slow, int hidden) {
  TrainerRanks ranks(
      2, {.config = std::string(kLong) +
                    fmt::format("model: {{hidden: {}, dropout: 0.0, fault: {{kind: slow, rank: {}}}}}\n", hidden, slow),
          .arguments = {"--metrics-port", "auto"},
          .environment = {},
          .directory = {}});
  EXPECT_TRUE(wait_for_step(ranks, kSlowSteps));
  const std::string metrics = http_get(ranks.metrics_port(0), kMetricsPath);
  const auto seconds = [&](const std::string& phase) {
    return value_of(metrics, "trainer_phase_seconds_total{rank=\"0\",phase=\"" + phase + "\"}");
  };
  return {seconds("forward") + seconds("backward") + seconds("optimizer"), seconds("comm")};
}

// Gradients of less and of more than a MiB are sent to the other ranks in different ways.
TEST(RunMetrics, WaitingForASlowRankIsCommunicationOnTheOthers) {
  for (const int hidden : {16, 50000}) {
    const StepTime of_fast_rank = time_with_slow_rank(1, hidden);
    const StepTime of_slow_rank = time_with_slow_rank(0, hidden);
    EXPECT_GT(of_fast_rank.comm, of_fast_rank.own) << hidden;
    EXPECT_GT(of_fast_rank.comm, kSlowSteps * 0.1 / 2) << hidden;
    EXPECT_LT(of_slow_rank.comm, of_slow_rank.own) << hidden;
  }
}

// The content of the one file in the directory, or below, whose name has this part.
std::string content_below(const std::filesystem::path& directory, const std::string& part) {
  std::string out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().filename().string().find(part) == std::string::npos) continue;
    EXPECT_EQ(out, "") << "more than one " << part;
    out = test::content(entry.path());
  }
  return out;
}

SystemTime time_of(const nlohmann::json& line) {
  SystemTime out;
  EXPECT_TRUE(from_rfc3339(line.value("ts", ""), out)) << line;
  return out;
}

// A trainer whose MLflow server does not respond waits at its end, and serves /metrics meanwhile.
TEST(RunMetrics, TimeTableEqualsMetricsAtEndOfRun) {
  const TemporaryDirectory directory;
  const test::FullListener server;
  const auto begin = std::chrono::steady_clock::now();
  TrainerRanks ranks(
      2, {.config =
              fmt::format("task: tiny\nsteps: 60\nbatch: {{size: 16}}\nlog: {{every_steps: 10}}\n"
                          "eval: {{every_epochs: 0, every_steps: 20}}\ncheckpoint: {{every_steps: 20}}\n"
                          "tracking: {{finish_timeout_seconds: 600, tensorboard: {{enabled: true}}, wandb: {{enabled: "
                          "true}}, mlflow: {{enabled: true, uri: \"{}\"}}}}\n",
                          server.url()),
          .arguments = {"--checkpoint-dir", directory.path().string(), "--metrics-port", "auto"},
          .environment = {{"NO_PROXY", "127.0.0.1"}},
          .directory = {}});
  const int port = ranks.metrics_port(0);
  const auto is_done = [&] {
    const auto status = rank_status_from_json(http_get(port, kStatusPath));
    return status && status->phase == "done";
  };
  ASSERT_TRUE(eventually(is_done)) << ranks.rank(0).err();
  ASSERT_TRUE(eventually([&] { return !ranks.log_line(0, "training is complete").empty(); }));
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const auto scrape = [&] {
    std::array<double, kPhaseNames.size()> out{};
    const std::string metrics = http_get(port, kMetricsPath);
    std::transform(kPhaseNames.begin(), kPhaseNames.end(), out.begin(), [&](std::string_view phase) {
      return value_of(metrics, fmt::format("trainer_phase_seconds_total{{rank=\"0\",phase=\"{}\"}}", phase));
    });
    return out;
  };
  const std::array<double, kPhaseNames.size()> seconds = scrape();
  const TimeTable table = time_table(seconds);
  for (const Phase phase : {Phase::kDataWait, Phase::kForward, Phase::kBackward, Phase::kComm, Phase::kOptimizer,
                            Phase::kCheckpoint, Phase::kEval})
    EXPECT_GT(seconds[static_cast<size_t>(phase)], 0) << kPhaseNames[static_cast<size_t>(phase)];

  // The three reports of the table: the log, TensorBoard, and the summary of W&B, whose numbers are not rounded.
  EXPECT_THAT(ranks.rank(0).err(), HasSubstr(fmt::format("\"time of this process: {}\"", to_line(table))));
  std::string events;
  EXPECT_TRUE(eventually([&] {
    events = content_below(directory.path() / "tensorboard", "events.out.tfevents.");
    return events.find("| total | ") != std::string::npos;
  }));
  EXPECT_THAT(events, HasSubstr(to_markdown(table)));
  std::string summary_text;
  EXPECT_TRUE(
      eventually([&] { return !(summary_text = content_below(directory.path() / "wandb", "summary.json")).empty(); }));
  const nlohmann::json summary = nlohmann::json::parse(summary_text);
  constexpr double kCounterRounding = 1e-9;  // the counter is a sum of differences
  for (const auto& [phase, spent] : table.rows)
    EXPECT_NEAR(summary.value(fmt::format("time/{}_seconds", phase), -1.0), spent, kCounterRounding) << phase;
  EXPECT_NEAR(summary.value("time/total_seconds", -1.0), table.total, kCounterRounding);

  // The sum is the wall time of the run: between its first and its last line of the log before the report, and within
  // the time of the process.
  const nlohmann::json complete = ranks.log_line(0, "training is complete");
  const double logged = std::chrono::duration<double>(time_of(ranks.log_line(0, "evaluation")) -
                                                      time_of(ranks.log_line(0, "metrics are served")))
                            .count();
  constexpr double kLogRounding = 0.002;
  EXPECT_GE(table.total, logged - kLogRounding);
  EXPECT_LE(table.total, complete.value("seconds", 0.0) + kLogRounding);
  EXPECT_LE(table.total, elapsed);
  // The run has ended, and its times no longer change.
  EXPECT_THAT(scrape(), testing::Pointwise(testing::DoubleNear(kCounterRounding), seconds));

  ranks.rank(0).signal(SIGTERM);
  EXPECT_THAT(ranks.wait(), Each(0));
}

}  // namespace
}  // namespace oarlock
