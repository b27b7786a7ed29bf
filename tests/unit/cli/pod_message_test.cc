#include <gtest/gtest.h>

#include <sys/stat.h>
#include <csignal>
#include <tuple>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "cli/launch/termination.h"
#include "common/contract.h"

namespace oarlock::launch {
namespace {

const std::string kRank4 = to_json(TerminationMessage{
    .rank = 4, .step = 90, .checkpoint_step = 80, .reason = "PeerLost", .message = "rank 5 is gone"});
const std::string kRank5 = to_json(
    TerminationMessage{.rank = 5, .step = 91, .checkpoint_step = 80, .reason = "DataInvalid", .message = "truncated"});
const std::vector<int> kRanks = {4, 5};

TEST(PodMessage, ReturnsMessageOfFailedRank) {
  EXPECT_EQ(pod_message({kRank4, kRank5}, kRanks, {.exit_code = 65, .member = 1, .status = {65, 0}}), kRank5);
}

TEST(PodMessage, ReturnsMessageOfFirstRankAfterSuccess) {
  EXPECT_EQ(pod_message({kRank4, kRank5}, kRanks, {}), kRank4);
  EXPECT_EQ(pod_message({"", ""}, kRanks, {}), "");
}

TEST(PodMessage, CreatesMessageForKilledRank) {
  const std::string text = pod_message({kRank4, ""}, kRanks, {.exit_code = 137, .member = 1, .status = {0, SIGKILL}});
  const auto message = termination_message_from_json(text);
  ASSERT_TRUE(message.has_value()) << text;
  EXPECT_EQ(message->rank, 5);
  EXPECT_EQ(message->step, 90);  // as its peer saw it
  EXPECT_EQ(message->checkpoint_step, 80);
  EXPECT_EQ(message->reason, "KilledBySignal");
  EXPECT_EQ(message->message, "rank 5 ended with signal 9 (SIGKILL) and left no message");
}

TEST(PodMessage, NamesNoRankOfACommandThatStartsThem) {
  const auto message = termination_message_from_json(
      pod_message({""}, {kUnknownRank}, {.exit_code = 1, .member = 0, .status = {1, 0}}, {"KeyError: 'labels'"}));
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->rank, kUnknownRank);
  EXPECT_EQ(message->message, "the command ended with exit code 1: KeyError: 'labels'");
}

TEST(PodMessage, OmitsStepThatNoRankReported) {
  const std::string text = pod_message({"", ""}, kRanks, {.exit_code = 137, .member = 1, .status = {0, SIGKILL}});
  EXPECT_EQ(text.find("\"step\""), std::string::npos) << text;
  EXPECT_TRUE(termination_message_from_json(text)) << text;
}

// Its ranks report that they lost a peer.
TEST(PodMessage, NamesWhyANodeHasLeftItsGroup) {
  const GroupResult left{.exit_code = 76, .member = 0, .status = {76, 0}, .disconnected = "no answer for 9 s"};
  const auto message = termination_message_from_json(pod_message({kRank4, ""}, kRanks, left));
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(*message, (TerminationMessage{4, 90, 80, "Disconnected", "no answer for 9 s"}));
}

TEST(PodMessage, StatesTheLastStepOfACompletedProgram) {
  const GroupResult complete{.step = 100, .checkpoint_step = 90};
  EXPECT_EQ(termination_message_from_json(pod_message({"", ""}, kRanks, complete)),
            (TerminationMessage{4, 100, 90, "Completed", "rank 4 ended with exit code 0"}));
  EXPECT_EQ(pod_message({"", ""}, kRanks, {}), "") << "no step is known";
}

TEST(PodMessage, AProgramThatASignalEndsWasInterrupted) {
  for (const auto& [interrupted_by, signal, reason] :
       {std::tuple(SIGTERM, SIGTERM, "Interrupted"), std::tuple(SIGTERM, SIGKILL, "Interrupted"),
        std::tuple(SIGTERM, SIGSEGV, "KilledBySignal"), std::tuple(0, SIGKILL, "KilledBySignal")}) {
    const GroupResult result{
        .exit_code = 128 + signal, .member = 0, .status = {0, signal}, .interrupted_by = interrupted_by};
    const auto message = termination_message_from_json(pod_message({"", ""}, kRanks, result));
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->reason, reason) << interrupted_by << " " << signal;
  }
  const GroupResult of_shell{.exit_code = 143, .member = 0, .status = {143, 0}, .interrupted_by = SIGTERM};
  EXPECT_EQ(termination_message_from_json(pod_message({"", ""}, kRanks, of_shell))->reason, "Interrupted");
}

TEST(ResolveInterruption, SuccessNeedsTheReasonCompleted) {
  const auto message = [](const char* reason) {
    return to_json(TerminationMessage{.rank = 4, .reason = reason, .message = ""});
  };
  const GroupResult stopped{.interrupted_by = SIGTERM, .stopped = {0, 1}};
  const std::string completed = message("Completed");
  EXPECT_EQ(resolve_interruption(stopped, {completed, completed}).exit_code, 0);
  for (const std::string& other : {std::string(), message("Interrupted"), std::string("Completed")}) {
    const GroupResult result = resolve_interruption(stopped, {completed, other});
    EXPECT_EQ(result.exit_code, 75) << other;
    EXPECT_EQ(result.member, 1);
  }
  EXPECT_EQ(resolve_interruption({.exit_code = 3, .member = 0, .interrupted_by = SIGTERM, .stopped = {1}}, {"", ""})
                .exit_code,
            3);
  EXPECT_EQ(resolve_interruption({.interrupted_by = SIGTERM}, {"", ""}).exit_code, 0) << "ended before the signal";
  const std::string text = pod_message({completed, ""}, kRanks, resolve_interruption(stopped, {completed, ""}));
  EXPECT_EQ(termination_message_from_json(text)->reason, "Interrupted") << text;
}

TEST(PodMessage, TruncatesAnyTextToTheLimit) {
  const GroupResult verdict{.exit_code = 1, .member = 0, .status = {1, 0}};
  EXPECT_EQ(pod_message({"plain text", kRank5}, kRanks, verdict), "plain text");
  EXPECT_EQ(pod_message({std::string(10'000, 'x'), ""}, kRanks, verdict).size(), kTerminationMessageLimit);
}

// A rank may put anything in the place of its file.
TEST(MessageFiles, OtherThanRegularFilesAreEmpty) {
  const MessageFiles files = *MessageFiles::make({});
  EXPECT_EQ(files.text(0), "");
  ASSERT_EQ(::mkfifo(files.path(1).c_str(), 0600), 0);
  EXPECT_EQ(files.text(1), "");
  std::filesystem::create_symlink("/dev/zero", files.path(2));
  EXPECT_EQ(files.text(2), "");
  EXPECT_EQ(message_in(files.path(1)), "");
  EXPECT_EQ(message_in("/dev/zero"), "");
  EXPECT_FALSE(write_message(files.path(1), "text"));
}

TEST(MessageFiles, OnlyTheBeginningIsRead) {
  const MessageFiles files = *MessageFiles::make({});
  std::ofstream(files.path(0)) << kRank4;
  EXPECT_EQ(files.text(0), kRank4);
  std::filesystem::resize_file(files.path(0), uint64_t{1} << 40);  // sparse
  EXPECT_LT(files.text(0).size(), size_t{1} << 25);
  EXPECT_EQ(message_in(files.path(0)).size(), kTerminationMessageLimit);
}

}  // namespace
}  // namespace oarlock::launch
