// Progress of any program: FIFOs, the pattern, Kubeflow's protocol, and what is served.
#include "cli/launch/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/launch/kubeflow.h"
#include "common/port_reservation.h"
#include "tests/support/fake_clock.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

class ProgressTest : public testing::Test {
 protected:
  FileDescriptor writer(size_t member) const {
    return FileDescriptor(::open(progress_.environment(member, {}).at(kEnvProgress).c_str(), O_WRONLY | O_NONBLOCK));
  }
  static ssize_t write(const FileDescriptor& to, const std::string& text) {
    return ::write(to.get(), text.data(), text.size());
  }
  GroupResult finish() {
    GroupResult result;
    progress_.finish(result);
    return result;
  }

  const test::TemporaryDirectory directory_;
  test::FakeClock clock_;
  Progress progress_{{.node = {.world_size = 4},
                      .ranks = {2, 3},
                      .directory = directory_.path(),
                      .pattern = ProgressPattern::make(R"(step (\d+).*loss ([\d.]+))").value()},
                     clock_};
};

TEST_F(ProgressTest, ReadsLinesOfEachMember) {
  EXPECT_FALSE(progress_.read(0));
  const FileDescriptor first = writer(0);
  const FileDescriptor second = writer(1);
  ASSERT_TRUE(first.open() && second.open());
  write(first, "{\"step\": 7, \"checkpointStep\": 5}\n{\"step\":");
  write(second, "not JSON\n{\"loss\": 1}\n");
  EXPECT_FALSE(progress_.read(0)) << "it may have resumed";
  EXPECT_FALSE(progress_.read(1)) << "a loss without a step";
  write(first, " 8}\n");
  EXPECT_TRUE(progress_.read(0));
  const GroupResult result = finish();
  EXPECT_EQ(result.step, 8);
  EXPECT_EQ(result.checkpoint_step, 5);
}

TEST_F(ProgressTest, IsThatOfThePresentProcess) {
  const struct {
    std::string earlier;
    std::string present;
    bool expected;
  } rows[] = {
      {.earlier = R"({"step": 7})", .present = "", .expected = false},
      {.earlier = R"({"step": 5})", .present = R"({"step": 7})", .expected = false},
      {.earlier = R"({"step": 7})", .present = R"({"step": 8})", .expected = true},
      {.earlier = R"({"step": 3})", .present = "{\"step\": 1}\n{\"step\": 2}", .expected = true},
      {.earlier = R"({"checkpointStep": 9})", .present = R"({"checkpointStep": 9})", .expected = false},
      {.earlier = R"({"step": 9, "checkpointStep": 10})", .present = R"({"checkpointStep": 11})", .expected = true},
  };
  const FileDescriptor fifo = writer(0);
  for (const auto& [earlier, present, expected] : rows) {
    write(fifo, earlier + "\n{\"st");  // a process that was killed within a line
    progress_.before_start(0, {});
    write(fifo, present + "\n");
    EXPECT_EQ(progress_.read(0), expected) << earlier << present;
  }
}

TEST_F(ProgressTest, LeavesThePortToANewProcess) {
  const PortReservation port = PortReservation::make(1).value();
  Progress progress({.port = port.first(), .ranks = {0}}, clock_);
  progress.before_start(0, {});
  clock_.advance(StatusServer::kPatience);
  progress.time_passed({.total = 1});
  EXPECT_TRUE(is_port_in_use(port.first()));
  progress.before_start(0, {});
  EXPECT_FALSE(is_port_in_use(port.first()));
}

// A flood is read with pauses, and a writer that does not wait only loses lines.
TEST_F(ProgressTest, BoundsTheWorkOfAFlood) {
  const FileDescriptor flood = writer(0);
  while (write(flood, "{\"step\": 1}\n") > 0) {
  }
  progress_.read_due();
  EXPECT_EQ(progress_.deadline(), clock_.steady() + Progress::kReadInterval);
  std::vector<pollfd> fds;
  progress_.add_descriptors(clock_.steady(), fds);
  EXPECT_EQ(fds.size(), 1U) << "only the other FIFO is read before the interval has passed";
  EXPECT_GT(write(flood, "{\"step\": 2}\n"), 0);
  progress_.read_due();
  clock_.advance(Progress::kReadInterval);
  progress_.read_due();
  EXPECT_EQ(finish().step, 2);
}

TEST_F(ProgressTest, KeepsTheNewestLinesOfAFlood) {
  const FileDescriptor flood = writer(0);
  int newest = 0;
  while (write(flood, fmt::format("{{\"step\":{}}}\n", newest + 1)) > 0) ++newest;
  EXPECT_GT(newest, static_cast<int>(Progress::kMaxLines));
  EXPECT_EQ(finish().step, newest);
}

TEST_F(ProgressTest, ReadsStepsFromLinesOfOutput) {
  progress_.read_output(1, "epoch 1 step 40 of 100, loss 0.25 lr 1");
  progress_.read_output(1, "step x loss 1");
  progress_.read_output(1, "epoch 1 step 41 of 100, loss 0.2");
  EXPECT_TRUE(progress_.read(1));
  EXPECT_EQ(finish().step, 41);
}

// A command that starts the ranks has one FIFO.
TEST_F(ProgressTest, EndsWithTheHighestStepOfAllRanks) {
  write(writer(0), "{\"step\": 4, \"checkpointStep\": 2, \"rank\": 7}\n{\"step\": 3, \"rank\": 5}\n");
  const GroupResult result = finish();
  EXPECT_EQ(result.step, 4);
  EXPECT_EQ(result.checkpoint_step, 2);
}

// A match that takes longer than the share of its second is paid in the following ones.
TEST(ProgressPattern, IsSearchedForItsShareOfTime) {
  struct SlowClock final : Clock {  // a match and its report take 100 ms
    SystemTime now() const override { return {}; }
    SteadyTime steady() const override { return start + std::chrono::milliseconds(50) * calls++; }
    SteadyTime start{};
    mutable int calls = 0;
  } clock;
  Progress progress({.ranks = {0}, .pattern = ProgressPattern::make("(\\d+)").value()}, clock);
  int64_t searched = 0;
  for (int second = 0; second < 100; ++second) {
    clock.start = SteadyTime(std::chrono::seconds(second));
    for (int line = 0; line < 5; ++line) {
      clock.calls = 0;
      progress.read_output(0, std::to_string(searched + 1));
      GroupResult result;
      progress.finish(result);
      searched = result.step;
    }
  }
  EXPECT_EQ(searched, 50);
}

TEST_F(ProgressTest, OffersKubeflowsProtocolWithoutReplacingIt) {
  const Environment offered = progress_.environment(0, {});
  EXPECT_THAT(offered.at("KUBEFLOW_TRAINER_SERVER_URL"), HasSubstr("http://127.0.0.1:"));
  EXPECT_EQ(offered.count("no_proxy"), 0U);
  struct stat info{};
  ASSERT_EQ(::stat(offered.at("KUBEFLOW_TRAINER_SERVER_TOKEN").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const Environment other = progress_.environment(0, {{"KUBEFLOW_TRAINER_SERVER_URL", "https://x"}});
  EXPECT_EQ(other.size(), 2U) << "OARLOCK_PROGRESS and OARLOCK_CHECKPOINT_REQUEST only";
  const Environment proxy = progress_.environment(0, {{"http_proxy", "http://p"}, {"NO_PROXY", "a.b"}});
  EXPECT_EQ(proxy.at("no_proxy"), "a.b,127.0.0.1");
  const Environment none = progress_.environment(0, {{"http_proxy", "http://p"}, {"no_proxy", "*"}});
  EXPECT_EQ(none.count("no_proxy"), 0U) << "no proxy is used";
}

TEST(ProgressPattern, RejectsExpressionsItCannotMatch) {
  for (const char* expression : {"step", "(", "(a)\\1", "[z-a](x)"})
    EXPECT_FALSE(ProgressPattern::make(expression)) << expression;
}

// Backtracking would take years.
TEST(ProgressPattern, MatchesInPolynomialTime) {
  const auto pattern = ProgressPattern::make("^(?:a+)+b(\\d+)");
  ASSERT_TRUE(pattern);
  EXPECT_FALSE(pattern->match(std::string(200, 'a')));
  EXPECT_EQ(pattern->match("aaab12")->step, 12);
}

TEST(ProgressPattern, IgnoresLossThatIsNotFinite) {
  const auto pattern = ProgressPattern::make("step (\\S+) loss (\\S+)");
  EXPECT_EQ(*pattern->match("step 3 loss nan"), (ProgressReport{.step = 3}));
  EXPECT_EQ(*pattern->match("step 3 loss 2e-1"), (ProgressReport{.step = 3, .loss = 0.2}));
  EXPECT_FALSE(pattern->match("step -3 loss 1"));
  EXPECT_FALSE(pattern->match("step nan loss 1"));
}

// The requests of transformers 5.24's KubeflowCallback, in their order, and of Kubeflow's SDK 0.5.
TEST(KubeflowReports, ConvertsTheRequestsOfTrainer) {
  KubeflowReports reports;
  EXPECT_EQ(*reports.convert(R"({"trainerStatus": {"lastUpdatedTime": "x", "progressPercentage": 0,
      "metrics": [{"name": "total_steps", "value": "200"}]}})"),
            (ProgressReport{.target_steps = 200}));
  EXPECT_EQ(*reports.convert(R"({"trainerStatus": {"progressPercentage": 20, "estimatedRemainingSeconds": 80,
      "metrics": [{"name": "loss", "value": "0.5"}, {"name": "grad_norm", "value": "nan"},
                  {"name": "current_step", "value": "41"}, {"name": "total_steps", "value": "200"},
                  {"name": "current_epoch", "value": "0.2"}]}})"),
            (ProgressReport{.step = 41,
                            .target_steps = 200,
                            .loss = 0.5,
                            .metrics = {{"current_epoch", 0.2}, {"estimated_remaining_seconds", 80}}}));
  EXPECT_EQ(*reports.convert(R"({"trainerStatus": {"progressPercentage": 100,
      "metrics": [{"name": "train_loss", "value": "0.4"}]}})"),
            (ProgressReport{.loss = 0.4}))
      << "early stopping ends with 100 percent, too";
}

// Its last request has no steps, and those of a run of less than 5 s are missing.
TEST(KubeflowReports, DerivesNoStepsOfAProgramThatCountsThem) {
  for (const auto& [name, expected] : std::vector<std::pair<std::string, ProgressReport>>{
           {"total_steps", {.target_steps = 200}}, {"current_step", {.step = 200}}}) {
    KubeflowReports reports;
    EXPECT_EQ(reports.convert(R"({"trainerStatus": {"progressPercentage": 0, "metrics": [{"name": ")" + name +
                              R"(", "value": "200"}]}})"),
              expected);
    EXPECT_EQ(reports.convert(R"({"trainerStatus": {"progressPercentage": 100}})"), ProgressReport());
  }
}

TEST(KubeflowReports, ConvertsPercentOfOtherPrograms) {
  KubeflowReports reports;
  EXPECT_EQ(*reports.convert(R"({"trainerStatus": {"progressPercentage": 42}})"),
            (ProgressReport{.step = 42, .target_steps = 100}));
  for (const char* text : {"", "{}", "[]", R"({"trainerStatus": 1})"}) EXPECT_FALSE(reports.convert(text)) << text;
}

TEST(ProgressBoard, MeasuresStepsAndServesTheFirstRank) {
  test::FakeClock clock;
  ProgressBoard board({.attempt = 1, .world_size = 2}, clock);
  board.add(1, {.step = 4, .metrics = {{"a\"b", 2}}});
  board.add(2, {.step = 4});
  EXPECT_EQ(rank_status_from_json(board.status())->rank, 1) << "the lowest that has reported";
  board.add(0, {.step = 10, .target_steps = 100});
  clock.advance(std::chrono::seconds(4));
  board.add(0, {.step = 18, .checkpoint_step = 16});
  board.add(1, {.rank = 0, .loss = 3});
  const RankStatus status = *rank_status_from_json(board.status());
  EXPECT_EQ(status.rank, 0);
  EXPECT_EQ(status.step, 18);
  EXPECT_EQ(status.target_steps, 100);
  EXPECT_EQ(status.checkpoint_step, 16);
  EXPECT_EQ(status.last_step_seconds, 0.5);
  EXPECT_EQ(status.loss, 3);
  EXPECT_EQ(status.phase, "train");
  const auto json = nlohmann::json::parse(board.status());
  ASSERT_EQ(json["ranks"].size(), 3U);
  EXPECT_EQ(json["ranks"][1]["step"], 4);
  const std::string metrics = board.metrics();
  EXPECT_THAT(metrics, HasSubstr("trainer_steps_total{rank=\"0\"} 8\n"));
  EXPECT_THAT(metrics, HasSubstr("trainer_reported{name=\"a\\\"b\",rank=\"1\"} 2\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("trainer_in_pod_restarts_total")));
}

TEST(ProgressBoard, CountsTimeByClass) {
  using std::chrono::seconds;
  test::FakeClock clock;
  ProgressBoard board({}, clock);
  const auto count = [&](UsageClass one) { return (*rank_status_from_json(board.status())->usage_seconds)[one]; };
  board.add_process(0, ::getpid());
  clock.advance(seconds(5));
  board.add(0, {.phase = "restore"});
  clock.advance(seconds(2));
  board.add(0, {.step = 10});
  clock.advance(seconds(4));
  board.add(0, {.step = 20});
  clock.advance(seconds(1));
  board.add(0, {.step = 20, .loss = 1});
  EXPECT_EQ(count(UsageClass::kStarting), 5);
  EXPECT_EQ(count(UsageClass::kRestore), 2);
  EXPECT_EQ(count(UsageClass::kProductive), 4) << "the next step has not been reported";
  clock.advance(seconds(3));
  board.add(0, {.phase = "eval"});
  clock.advance(seconds(6));
  EXPECT_EQ(count(UsageClass::kEvaluation), 6) << "it may be the last thing that the program does";
  board.add(0, {.step = 21});
  EXPECT_EQ(count(UsageClass::kProductive), 8);
  EXPECT_EQ(count(UsageClass::kEvaluation), 6);
  clock.advance(seconds(1));
  board.add_process(0, ::getpid());
  clock.advance(seconds(2));
  board.add(0, {.step = 15});
  EXPECT_EQ(count(UsageClass::kRecovery), 3);
  clock.advance(seconds(12));
  board.add(0, {.step = 27});
  EXPECT_EQ(count(UsageClass::kRecomputed), 6) << "6 of 12 steps";
  EXPECT_EQ(count(UsageClass::kProductive), 14);
}

// status() returns the first rank that has a step.
TEST(ProgressBoard, CountsTimeOfTheRankThatItServes) {
  test::FakeClock clock;
  ProgressBoard board({}, clock);
  board.add(0, {.phase = "restore"});
  for (int64_t step = 0; step <= 10; ++step) {
    board.add(3, {.step = step});
    clock.advance(std::chrono::seconds(1));
  }
  const RankStatus served = *rank_status_from_json(board.status());
  EXPECT_EQ(served.rank, 3);
  EXPECT_EQ((*served.usage_seconds)[UsageClass::kProductive], 10);
}

TEST(ProgressBoard, IsBounded) {
  test::FakeClock clock;
  ProgressBoard board({}, clock);
  for (int i = 0; i < 1000; ++i) board.add(0, {.rank = i, .step = i, .metrics = {{std::to_string(i), 1}}});
  EXPECT_LT(board.status().size(), size_t{64} << 10) << "the limit of the operator";
  EXPECT_LT(board.metrics().size(), size_t{256} << 10);
}

}  // namespace
}  // namespace oarlock::launch
