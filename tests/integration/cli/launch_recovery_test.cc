// oarlock launch --max-restarts with real processes: restarts of the group and of single ranks, on one node and on two.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include "tests/integration/cli/launch_recovery_support.h"

namespace oarlock::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

TEST(LaunchRecovery, KilledRankRejoinsItsSurvivors) {
  Program program(launch(kByRank, rank_program("kill")));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("rank 0 of 3, donor 0, step 5", "rank 1 of 3, donor 0, step 5",
                                                         "rank 2 of 3, donor 0, step 5"));
  EXPECT_THAT(program.err(), HasSubstr("restart 1 of 2"));
}

TEST(LaunchRecovery, StoppedRankIsKilledAndReplaced) {
  std::vector<std::string> options = kByRank;
  options.insert(options.end(), {"--regroup-timeout", "2"});
  Program program(launch(options, rank_program("stop")));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(program.out(), HasSubstr("rank 1 of 3, donor 0, step 5"));
}

TEST(LaunchRecovery, ProgramThatDoesNotRegroupIsNamed) {
  Program program(launch(kByRank, {"/bin/sh", "-c", "[ $RANK = 0 ] || sleep 1000"}));
  EXPECT_EQ(program.wait(), to_int(ExitCode::kUsage)) << program.err();
  EXPECT_THAT(program.err(), HasSubstr("its program does not regroup; use --restart-policy group"));
}

TEST(LaunchRecovery, PermanentFailureEndsTheGroup) {
  Program program(launch(kByRank, rank_program("config")));
  EXPECT_EQ(program.wait(), 78) << program.err();
  EXPECT_THAT(program.err(), HasSubstr("rank 1 ended with exit code 78, after which it must not start again"));
}

TEST(LaunchRecovery, SignalEndsTheGroupWithoutRestart) {
  Program program(launch(kByRank, rank_program("none")));
  for (const char* name : {"pid.0", "pid.1", "pid.2"}) ASSERT_GT(number_in(program.directory() / name), 0);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
  EXPECT_THAT(program.err(), Not(HasSubstr("restart 1")));
}

TEST(LaunchRecovery, GroupRestartsProgramsThatCannotRegroup) {
  Program program(
      launch({"--nproc", "2", "--max-restarts", "3", "--no-prefix"},
             {"/bin/bash", "-c",
              "if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then echo $RANK of $TORCHELASTIC_MAX_RESTARTS; exit; "
              "fi; [ $RANK = 0 ] && kill -KILL $$; sleep 1000 & wait"}));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("0 of 3", "1 of 3"));
  EXPECT_THAT(program.err(),
              AllOf(HasSubstr("rank 0 ended with exit code 137; restart 1 of 3"), HasSubstr("restart 2 of 3")));
}

// The operator polls the port of the ranks' metrics. This program does not listen on it.
TEST(LaunchRecovery, OperatorCanReadTheRestartsOfAGroup) {
  const PortReservation port = PortReservation::make(1).value();
  const std::string url = fmt::format("http://127.0.0.1:{}/statusz?uid=u", port.first());
  const std::string script =
      "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ $RANK = 1 ] && exit 3; while [ ! -e done ]; do sleep 0.1; done; "
      "echo $OARLOCK_IN_POD_RESTARTS";
  Program program(
      launch({"--nproc", "2", "--max-restarts", "3", "--no-prefix"}, {"/bin/bash", "-c", script}),
      {.environment = {
           {"OARLOCK_METRICS_PORT", std::to_string(port.first())}, {"OARLOCK_UID", "u"}, {"OARLOCK_ATTEMPT", "7"}}});
  std::string answer;
  EXPECT_TRUE(eventually([&] {
    answer = output_of("python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())' '" +
                       url + "' 2>/dev/null");
    return !answer.empty() || !alive(program.pid());
  }));
  EXPECT_THAT(answer, AllOf(HasSubstr(R"("attempt":7)"), HasSubstr(R"("total":1)"), HasSubstr(R"("rank":1)"),
                            HasSubstr("rank 1 ended with exit code 3")));
  std::ofstream(program.directory() / "done").flush();
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(program.out(), HasSubstr(R"("total":1)")) << "oarlock-trainer reports it itself";
}

TEST(LaunchRecovery, SpentBudgetHasTheExitCodeOfTheFailure) {
  Program program(launch({"--nproc", "2", "--max-restarts", "1"},
                         {"/bin/bash", "-c",
                          "echo $$ >> starts.$RANK; [ $RANK = 0 ] && exit $((3 + TORCHELASTIC_RESTART_COUNT)); "
                          "sleep 1000 & wait"}));
  EXPECT_EQ(program.wait(), 4) << program.err();
  EXPECT_EQ(lines(content(program.directory() / "starts.0")).size(), 2u);
  EXPECT_THAT(program.err(), HasSubstr("the only restart is used up"));
}

// As the workers of torchrun, which was killed: they would hold the devices and the ports of the new processes.
TEST(LaunchRecovery, DescendantInAnotherSessionIsKilledFirst) {
  const std::string wait_for = "wait_for() { until [ -e $1 ]; do read -t 0.01 < <(:) || :; done; }; ";
  Program program(
      launch({"--max-restarts", "1"},
             {"/bin/bash", "-c",
              wait_for + "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then setsid /bin/bash -c 'echo $$ > child; "
                         "touch away; exec sleep 1000' & wait_for away; echo earlier error >&2; exit 3; fi; "
                         "kill -0 $(cat child) 2>/dev/null && echo alive; echo error >&2; exit 4"}),
      {.environment = {{"OARLOCK_TERMINATION_LOG", "message.json"}}});
  EXPECT_EQ(program.wait(), 4) << program.err();
  EXPECT_THAT(program.out(), Not(HasSubstr("alive")));
  EXPECT_THAT(program.err(), HasSubstr("earlier error\n"));
  EXPECT_THAT(content(program.directory() / "message.json"), HasSubstr("rank 0 ended with exit code 4: error\""));
}

// An exception before the first step.
TEST(LaunchRecovery, RepeatedEarlyFailureEndsTheGroup) {
  Program program(launch({"--nproc", "2", "--max-restarts", "5"},
                         {"/bin/bash", "-c",
                          "echo $$ >> starts.$RANK; [ $RANK = 1 ] && echo \"KeyError: 'labels'\" >&2 && exit 1; "
                          "sleep 1000 & wait"}));
  EXPECT_EQ(program.wait(), 1) << program.err();
  EXPECT_EQ(lines(content(program.directory() / "starts.1")).size(), 2u);
  EXPECT_THAT(program.err(), HasSubstr("no further restart: rank 1 ended with exit code 1 again within 30 s"));
  EXPECT_THAT(program.err(), HasSubstr("its last line: KeyError: 'labels'"));
}

// Slurm's --signal: the rank saves its state, and no restart follows.
TEST(LaunchRecovery, SaveAfterForwardedSignalEndsTheGroup) {
  Program program(launch({"--nproc", "2", "--max-restarts", "5"},
                         {"/bin/bash", "-c",
                          "trap 'kill $!; exit 75' USR1; sleep 1000 & echo $$ >> starts.$RANK; echo $$ > ready.$RANK; "
                          "wait"}));
  ASSERT_GT(number_in(program.directory() / "ready.0"), 0);
  ASSERT_GT(number_in(program.directory() / "ready.1"), 0);
  program.signal(SIGUSR1);
  EXPECT_EQ(program.wait(), 75) << program.err();
  EXPECT_EQ(lines(content(program.directory() / "starts.0")).size(), 1u);
}

TEST(LaunchRecovery, DescendantsOfFailedRankAreKilledFirst) {
  Program program(
      launch({"--nproc", "2", "--max-restarts", "1"},
             {"/bin/bash", "-c",
              "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then kill -0 $(cat child) 2>/dev/null && echo alive; "
              "exit 0; fi; [ $RANK = 1 ] && exec sleep 1000; (trap '' TERM; exec sleep 1000) & echo $! > "
              "child; kill -KILL $$"}));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(program.out(), Not(HasSubstr("alive")));
}

TEST(LaunchRecovery, ReasonComesFromTheErrorFile) {
  const std::string script =
      R"(echo '{"message": {"message": "ValueError: bad batch\nTraceback", "extraInfo": {}}}' > $TORCHELASTIC_ERROR_FILE; exit 1)";
  Program program(launch({"--nproc", "2"}, {"/bin/bash", "-c", script}),
                  {.environment = {{"OARLOCK_TERMINATION_LOG", "message.json"}}});
  EXPECT_EQ(program.wait(), 1);
  EXPECT_THAT(content(program.directory() / "message.json"),
              HasSubstr("ended with exit code 1: ValueError: bad batch\""));
}

// The operator would take the message of a failure that was recovered from for the message of the pod.
TEST(LaunchRecovery, RestartOfASingleRankEmptiesItsMessage) {
  const std::string script =
      "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then wc -c < message.json; exit 0; fi; "
      "echo '{\"reason\": \"PeerLost\"}' > $OARLOCK_TERMINATION_LOG; exit 76";
  Program program(launch({"--nproc", "1", "--max-restarts", "1"}, {"/bin/bash", "-c", script}),
                  {.environment = {{"OARLOCK_TERMINATION_LOG", "message.json"}}});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(program.out(), "0\n");
}

TEST(LaunchRecovery, LogDirectoryHasOneFilePerStreamAndRestart) {
  Program program(launch({"--nproc", "2", "--max-restarts", "1", "--log-dir", "logs", "--redirects", "2"},
                         {"/bin/bash", "-c", "echo out; echo err >&2; exit $((TORCHELASTIC_RESTART_COUNT == 0))"}));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(content(program.directory() / "logs/attempt_1/rank_0/stdout.log"), "out\n");
  EXPECT_EQ(content(program.directory() / "logs/attempt_1/rank_1/stderr.log"), "err\n");
  EXPECT_THAT(program.out(), HasSubstr("[RANK 1] out\n"));
  EXPECT_THAT(program.err(), Not(HasSubstr("] err")));
}

TEST(LaunchRecovery, RestartContinuesWithoutItsLogFiles) {
  const TemporaryDirectory directory;
  fs::create_directory(directory.path() / "logs");
  std::ofstream(directory.path() / "logs/attempt_1").flush();  // in place of the directory
  std::vector<std::string> options = kByRank;
  options.insert(options.end(), {"--log-dir", "logs"});
  Program program(launch(options, rank_program("kill")), {.directory = directory.path()});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(program.out(), HasSubstr("rank 1 of 3, donor 0, step 5"));
  EXPECT_THAT(program.err(), AllOf(HasSubstr("attempt_1"), HasSubstr("rank 1 has no such file after this restart")));
}

// The survivors hold the state of the training, which a lack of descriptors, processes or memory must not cost.
TEST(LaunchRecovery, RestartIsRepeatedWhileDescriptorsLack) {
  Program program(launch(kByRank, rank_program("none")));
  for (const char* name : {"pid.0", "pid.1", "pid.2"}) ASSERT_GT(number_in(program.directory() / name), 0);
  rlimit before{};
  ASSERT_EQ(::prlimit(program.pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  rlim_t lowest_free = 0;
  while (fs::is_symlink(fmt::format("/proc/{}/fd/{}", program.pid(), lowest_free))) ++lowest_free;
  const rlimit exhausted{lowest_free, before.rlim_max};
  ASSERT_EQ(::prlimit(program.pid(), RLIMIT_NOFILE, &exhausted, nullptr), 0);
  ::kill(number_in(program.directory() / "pid.1"), SIGKILL);
  EXPECT_TRUE(eventually([&] {
    return program.err().find("rank 1 cannot be started again: ") != std::string::npos || !alive(program.pid());
  }));
  ::prlimit(program.pid(), RLIMIT_NOFILE, &before, nullptr);
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(program.out(), HasSubstr("rank 1 of 3, donor 0, step 5"));
}

TEST(LaunchRecovery, AcceptsTorchrunsRendezvousOptions) {
  Program endpoint(
      launch({"--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:4711", "--rdzv-id=seven", "--nnodes=2", "--node-rank=1"},
             {"/bin/sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID"}));
  EXPECT_EQ(endpoint.wait(), 0) << endpoint.err();
  EXPECT_EQ(endpoint.out(), "10.0.0.1:4711 seven\n");
  Program standalone(launch({"--standalone"}, {"/bin/sh", "-c", "echo $MASTER_ADDR $WORLD_SIZE"}),
                     {.environment = {{"WORLD_SIZE", "8"}, {"NODE_RANK", "3"}, {"MASTER_ADDR", "x"}}});
  EXPECT_EQ(standalone.wait(), 0) << standalone.err();
  EXPECT_EQ(standalone.out(), "127.0.0.1 1\n");
}

}  // namespace
}  // namespace oarlock::test
