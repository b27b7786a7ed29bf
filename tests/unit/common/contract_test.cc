// The documents that operator and ranks exchange: they survive the round trip, and never exceed the kubelet's limit.
#include "common/contract.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace oarlock {
namespace {

TEST(TerminationMessage, RoundTrip) {
  const TerminationMessage message{3, 1200, 1000, "PeerLost", "rank 1 closed the connection"};
  EXPECT_EQ(termination_message_from_json(to_json(message)), message);
}

TEST(TerminationMessage, OmitsUnknownStep) {
  const TerminationMessage message{.rank = 3, .reason = "Failed", .message = ""};
  EXPECT_EQ(to_json(message).find("\"step\""), std::string::npos);
  EXPECT_EQ(termination_message_from_json(to_json(message)), message);
}

TEST(TerminationMessage, TruncatesLongMessages) {
  for (const std::string& unit :
       {std::string("x"), std::string("\n"), std::string("é"), std::string("\x01"), std::string("\xff")}) {
    TerminationMessage message{0, 1, -1, "Error", ""};
    while (message.message.size() < 20000) message.message += unit;
    const std::string text = to_json(message);
    EXPECT_LE(text.size(), kTerminationMessageLimit);
    EXPECT_GT(text.size(), kTerminationMessageLimit / 8);
    const auto parsed = termination_message_from_json(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->reason, "Error");
    EXPECT_TRUE(parsed->message.ends_with("..."));
  }
}

TEST(TerminationMessage, TruncatesLongReasons) {
  const TerminationMessage message{.reason = std::string(10'000, 'R'), .message = "why"};
  const std::string text = to_json(message);
  EXPECT_LE(text.size(), kTerminationMessageLimit);
  const auto read = termination_message_from_json(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->reason, std::string(60, 'R'));
  EXPECT_EQ(read->message, "why");
}

TEST(TerminationMessage, RejectsOtherText) {
  for (const char* text : {"", "Killed", "[1]", "{}", "{\"rank\":0", "null", R"({"rank":0,"checkpointStep":1})",
                           R"({"rank":0,"checkpointStep":1,"reason":7})"})
    EXPECT_FALSE(termination_message_from_json(text)) << text;
  // Lines of logs.
  for (const char* text : {R"({"level":"error","reason":"shutdown"})", R"({"rank":0,"step":7,"reason":"timeout"})"})
    EXPECT_FALSE(termination_message_from_json(text)) << text;
}

TEST(TerminationMessage, WrongTypesKeepDefaults) {
  const auto parsed =
      termination_message_from_json(R"({"reason":"Error","rank":"two","step":1.5,"checkpointStep":null})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->rank, 0);
  EXPECT_EQ(parsed->step, -1);
}

TEST(RankStatus, RoundTrip) {
  const RankStatus status{1, 4, 2, "train", 77, 100, 50, 0.25, 0.5, 1234.5, 99, "2026-11-21T10:00:00Z"};
  EXPECT_EQ(rank_status_from_json(to_json(status)), status);
}

TEST(RankStatus, RoundTripWithRecoveries) {
  RankStatus status;
  EXPECT_FALSE(nlohmann::json::parse(to_json(status)).contains("recoveries"));
  status.recoveries = 2;
  status.recovery_seconds = 1.25;
  status.recovered_ranks = "0,3";
  status.recovery_reason = "rank 3 has exited";
  EXPECT_EQ(rank_status_from_json(to_json(status)), status);
}

TEST(InPodRestarts, RoundTripInTheStatusOfARankAndOfALauncher) {
  const InPodRestarts restarts{.total = 2, .seconds = 1.5, .rank = 3, .reason = "rank 3 ended with exit code 1"};
  EXPECT_EQ(in_pod_restarts_from_json(to_json(restarts)), restarts);
  const LauncherStatus launcher{.attempt = 4, .in_pod_restarts = restarts};
  EXPECT_EQ(launcher_status_from_json(to_json(launcher)), launcher);
  EXPECT_FALSE(rank_status_from_json(to_json(launcher))) << "a launcher reports no step";
  RankStatus rank;
  rank.attempt = 4;
  EXPECT_FALSE(launcher_status_from_json(to_json(rank)));
  rank.in_pod_restarts = restarts;
  EXPECT_EQ(launcher_status_from_json(to_json(rank)), launcher);
  EXPECT_EQ(rank_status_from_json(to_json(rank)), rank);
}

TEST(InPodRestarts, RejectsOtherText) {
  for (const char* text : {"", "[]", "{}", "null", R"({"inPodRestarts":3})", R"({"inPodRestarts":{"total":0}})",
                           R"({"inPodRestarts":{"total":-1}})", R"({"inPodRestarts":{"total":1e30}})"})
    EXPECT_FALSE(launcher_status_from_json(text)) << text;
}

TEST(RankStatus, RoundTripWithUsage) {
  RankStatus status;
  UsageSeconds& seconds = status.usage_seconds.emplace();
  seconds[UsageClass::kProductive] = 12.5;
  seconds[UsageClass::kRestore] = 0.25;
  EXPECT_EQ(rank_status_from_json(to_json(status)), status);
  const auto read = rank_status_from_json(
      R"({"rank":0,"step":1,"usageSeconds":{"productive":"1","idle":5,"unknown":1,"restore":-3}})");
  UsageSeconds expected;
  expected[UsageClass::kRestore] = -3;
  EXPECT_EQ(read->usage_seconds, expected) << "idle accelerators are not reported";
}

TEST(RankStatus, IgnoresNumbersOutOfRange) {
  const auto status = rank_status_from_json(
      R"({"rank":4294967296,"worldSize":-2147483649,"attempt":9223372036854775807,"step":18446744073709551615,
          "targetSteps":9223372036854775807,"checkpointStep":-9223372036854775808,"lastStepSeconds":1e308,
          "loss":-1e308,"collectiveSequence":9223372036854775808})");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->rank, 0);
  EXPECT_EQ(status->world_size, 1);
  EXPECT_EQ(status->attempt, 0);
  EXPECT_EQ(status->step, 0);
  EXPECT_EQ(status->target_steps, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(status->checkpoint_step, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(status->collective_sequence, 0);
  EXPECT_EQ(status->loss, -1e308);
}

TEST(RankStatus, DeepNestingIsRefused) {
  const std::string deep = "{\"rank\":1,\"step\":2,\"x\":" + std::string(60'000, '[') + std::string(60'000, ']') + "}";
  EXPECT_FALSE(rank_status_from_json(deep));
  EXPECT_FALSE(termination_message_from_json(deep));
}

TEST(RankStatus, OmitsNonFiniteLoss) {
  RankStatus status;
  status.loss = std::nan("");
  EXPECT_FALSE(nlohmann::json::parse(to_json(status)).contains("loss"));
  EXPECT_FALSE(rank_status_from_json("{\"rank\":1}"));
}

TEST(ProgressReport, ReadsWhatItWrites) {
  const ProgressReport report{.rank = 3,
                              .step = 10,
                              .target_steps = 100,
                              .checkpoint_step = 8,
                              .loss = 0.5,
                              .samples_per_second = 12,
                              .phase = "eval",
                              .metrics = {{"accuracy", 0.9}}};
  EXPECT_EQ(progress_report_from_json(to_json(report)), report);
}

TEST(ProgressReport, IgnoresWhatItCannotUse) {
  const std::vector<std::pair<std::string, std::optional<ProgressReport>>> rows = {
      {"", std::nullopt},
      {"{}", ProgressReport()},
      {"[1]", std::nullopt},
      {R"({"loss": NaN, "rank": 1})", ProgressReport{.rank = 1}},
      {R"({"other": 1})", ProgressReport()},
      {R"({"step": 3)", std::nullopt},
      {R"({"step": 3.0, "other": [1]})", ProgressReport{.step = 3}},
      {R"({"step": 3, "loss": NaN, "metrics": {"NaN \"": 1, "b": -Infinity, "c": "x"}})",
       ProgressReport{.step = 3, .metrics = {{"NaN \"", 1}}}},
      {R"({"step": -1, "targetSteps": 1e300, "loss": 2})", ProgressReport{.loss = 2}},
      {R"({"step": 1.5, "rank": 1000000, "loss": 2, "samplesPerSecond": -1})", ProgressReport{.loss = 2}},
      {R"({"phase": "a\u0007b", "loss": 2})", ProgressReport{.loss = 2}},
      {std::string(kProgressLineLimit, ' ') + R"({"step": 3})", std::nullopt},
  };
  for (const auto& [line, expected] : rows) EXPECT_EQ(progress_report_from_json(line), expected) << line;
}

TEST(ProgressReport, FitsIntoOneLine) {
  ProgressReport report{.step = 1};
  for (int i = 0; i < 64; ++i) report.metrics[std::string(100, 'x') + std::to_string(i)] = i;
  const std::string line = to_json(report);
  EXPECT_LT(line.size(), kProgressLineLimit);
  EXPECT_GT(progress_report_from_json(line)->metrics.size(), 30U);
}

}  // namespace
}  // namespace oarlock
