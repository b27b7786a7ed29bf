// Ranks that hang: the others name them and their activity, and exit with 76 after the timeout of a collective.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

#include "common/host_name.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::eventually;
using test::http_get;
using test::TrainerRanks;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Seconds until the exit. It takes 2 s longer than the timeout of a collective; a busy machine may need more.
constexpr double kLongest = 60;
constexpr char kJob[] =
    "task: tiny\nsteps: 1000000\nbatch: {size: 16}\nlog: {every_steps: 10}\ndistributed: {timeout_seconds: 4}\n";

bool wait_for_step(TrainerRanks& ranks, int64_t step) {
  const int port = ranks.metrics_port(0);
  return eventually([&] {
    const auto status = rank_status_from_json(http_get(port, kStatusPath));
    return status && status->step >= step;
  });
}

// Expects that all ranks except `victim` exit with 76 in time, each with `words` in its termination message.
void expect_named(TrainerRanks& ranks, int victim, std::chrono::steady_clock::time_point begin,
                  const testing::Matcher<std::string>& words) {
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks.rank(rank).wait(), to_int(ExitCode::kPeerLost)) << ranks.rank(rank).err();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_LT(seconds, kLongest) << "rank " << rank;
    const TerminationMessage last = ranks.last_word(rank);
    EXPECT_EQ(last.reason, "PeerLost");
    EXPECT_THAT(last.message, words) << "rank " << rank;
    EXPECT_THAT(last.message, AllOf(HasSubstr("this rank is at step "), HasSubstr("collective "))) << "rank " << rank;
    const std::string err = ranks.rank(rank).err();
    EXPECT_THAT(err, HasSubstr(last.message.substr(0, 40))) << "the log does not contain it";
    EXPECT_THAT(err, Not(HasSubstr("frame #"))) << "no backtrace of LibTorch";
  }
}

class StoppedRank : public testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(StoppedRank, IsNamedByAllOthers) {  // rank 0, which serves the store, as any other
  const auto [victim, shared_memory] = GetParam();
  const std::string ddp = shared_memory ? "ddp: {shared_memory: true}\n" : "ddp: {shared_memory: false}\n";
  TrainerRanks ranks(
      3, {.config = kJob + ddp, .arguments = {"--metrics-port", "auto"}, .environment = {}, .directory = {}});
  ASSERT_TRUE(wait_for_step(ranks, 5));
  const auto begin = std::chrono::steady_clock::now();
  ranks.rank(victim).signal(SIGSTOP);
  expect_named(ranks, victim, begin, HasSubstr("rank " + std::to_string(victim) + " does not respond"));
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != victim) {
      EXPECT_THAT(ranks.last_word(rank).message, Not(HasSubstr("ranks "))) << "only one is to blame";
    }
  }
}

std::string name_of(const testing::TestParamInfo<StoppedRank::ParamType>& test_case) {
  const auto [rank, shared_memory] = test_case.param;
  return "rank_" + std::to_string(rank) + (shared_memory ? "_shared_memory" : "_gloo");
}

INSTANTIATE_TEST_SUITE_P(EachPosition, StoppedRank, testing::Combine(testing::Values(0, 1, 2), testing::Bool()),
                         name_of);

TEST(StuckRank, InTheLoaderIsNamedWithItsPhase) {
  TrainerRanks ranks(3, {.config = std::string(kJob) + "model: {fault: {kind: stall_data, rank: 1, step: 8}}\n",
                         .arguments = {"--metrics-port", "auto"},
                         .environment = {},
                         .directory = {}});
  ASSERT_TRUE(eventually([&] { return ranks.rank(1).err().find("stall_data") != std::string::npos; }));
  expect_named(ranks, 1, std::chrono::steady_clock::now(),
               AllOf(HasSubstr("rank 1 has not arrived (it is at step "), HasSubstr("data_wait")));
}

TEST(StuckRank, InEvaluationIsNamedWithItsPhase) {
  TrainerRanks ranks(3, {.config = std::string(kJob) + "model: {fault: {kind: stall_eval, rank: 2}}\n",
                         .arguments = {"--metrics-port", "auto"},
                         .environment = {},
                         .directory = {}});
  ASSERT_TRUE(eventually([&] { return ranks.rank(2).err().find("stall_eval") != std::string::npos; }));
  expect_named(ranks, 2, std::chrono::steady_clock::now(),
               AllOf(HasSubstr("rank 2 has not arrived (it is at step "), HasSubstr(", eval,")));
}

TEST(FailingRank, SendsItsReasonToTheOthers) {
  TrainerRanks ranks(3, {.config = std::string(kJob) + "model: {fault: {kind: throw, rank: 1, step: 6}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  const std::vector<int> codes = ranks.wait();
  EXPECT_EQ(codes[1], to_int(ExitCode::kSoftware));
  for (const int rank : {0, 2}) {
    EXPECT_EQ(codes[static_cast<size_t>(rank)], to_int(ExitCode::kPeerLost));
    EXPECT_THAT(ranks.last_word(rank).message, AllOf(HasSubstr("rank 1 failed: "), HasSubstr("the fault 'throw'")));
  }
}

TEST(FailingRank, NamesHostOfFailedDevice) {
  TrainerRanks ranks(2, {.config = std::string(kJob) + "model: {fault: {kind: device, rank: 1, step: 6}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  const std::vector<int> codes = ranks.wait();
  const std::string reason =
      "host " + host_name() + ": the device or its driver failed: CUDA error: uncorrectable ECC error encountered";
  EXPECT_EQ(codes[1], to_int(ExitCode::kDeviceFailed));
  EXPECT_EQ(ranks.last_word(1).reason, kReasonDeviceFailed);
  EXPECT_THAT(ranks.last_word(1).message, testing::StartsWith(reason));
  EXPECT_EQ(codes[0], to_int(ExitCode::kPeerLost));
  EXPECT_THAT(ranks.last_word(0).message, HasSubstr("rank 1 failed: " + reason));
}

TEST(DivergedRank, IsNamedWithTheParameterAndEndsAll) {
  TrainerRanks ranks(3, {.config = "task: tiny\nsteps: 1000000\nbatch: {size: 16}\n"
                                   "distributed: {check_parameters_every: 4}\n"
                                   "model: {fault: {kind: diverge, rank: 2, step: 5}}\n",
                         .arguments = {},
                         .environment = {},
                         .directory = {}});
  EXPECT_THAT(ranks.wait(), testing::Each(to_int(ExitCode::kSoftware)));
  for (int rank = 0; rank < 3; ++rank) {
    const TerminationMessage last = ranks.last_word(rank);
    EXPECT_EQ(last.reason, "ParametersDiverged");
    EXPECT_EQ(last.step, 8) << "the first check after it";
    EXPECT_THAT(last.message, AllOf(HasSubstr("'fc1.weight'"), HasSubstr("rank 2 of 3")));
  }
}

}  // namespace
}  // namespace oarlock
