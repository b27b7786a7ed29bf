// oarlock launch with real processes: exit codes, signals, orphans, termination messages, environment.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "common/files.h"
#include "tests/integration/cli/launch_support.h"
#include "tests/support/program.h"
#include "tests/support/terminal_program.h"

namespace oarlock::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

struct Codes {
  std::string name;
  int nproc;
  std::string script;
  int expected;
};
class ExitCodeTest : public testing::TestWithParam<Codes> {};
TEST_P(ExitCodeTest, IsThatOfTheFirstOwnFailure) {
  Program program(launch({"--nproc", std::to_string(GetParam().nproc)}, GetParam().script));
  EXPECT_EQ(program.wait(), GetParam().expected) << program.err();
}
INSTANTIATE_TEST_SUITE_P(
    Table, ExitCodeTest,
    testing::Values(Codes{.name = "Success", .nproc = 2, .script = "exit 0", .expected = 0},                //
                    Codes{.name = "Single", .nproc = 1, .script = "exit 3", .expected = 3},                 //
                    Codes{.name = "SingleSignal", .nproc = 1, .script = "kill -KILL $$", .expected = 137},  //
                    Codes{.name = "Both", .nproc = 2, .script = "exit 65", .expected = 65},                 //
                    Codes{.name = "OneOfTwo", .nproc = 2, .script = "[ $RANK = 0 ] || exit 3", .expected = 3},
                    Codes{.name = "KilledChild",
                          .nproc = 2,
                          .script = "[ $RANK = 0 ] && exec sleep 1000; kill -KILL $$",
                          .expected = 137},
                    Codes{.name = "PeerLostComesFirst",
                          .nproc = 2,
                          .script = kWaitFor + "if [ $RANK = 0 ]; then trap 'exit 1' TERM; touch ready; "
                                               "sleep 1000 & wait; fi; wait_for ready; exit 76",
                          .expected = 1},
                    Codes{.name = "PeerLostComesLast",
                          .nproc = 2,
                          .script = kWaitFor + "trap 'exit 76' TERM; if [ $RANK = 0 ]; then touch ready; "
                                               "sleep 1000 & wait; fi; wait_for ready; exit 1",
                          .expected = 1},
                    Codes{.name = "OnlyPeersLost", .nproc = 2, .script = "exit 76", .expected = 76}),
    [](const auto& row) { return row.param.name; });

TEST(Launch, AcceptsTorchrunsOptionNames) {
  Program program(launch({"--nproc_per_node", "2", "--nnodes", "2", "--node_rank", "1", "--master_addr", "10.0.0.1",
                          "--master_port", "4711", "--no-prefix"},
                         "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("2 of 4 at 10.0.0.1:4711", "3 of 4 at 10.0.0.1:4711"));
}

TEST(Launch, KillsRankAfterTheGrace) {
  Program program(launch({"--nproc", "2", "--grace", "0.3"},
                         kWaitFor + "if [ $RANK = 1 ]; then trap '' TERM; echo $$ > pid; while :; do read -t 1 < "
                                    "<(sleep 1) || :; done; fi; wait_for pid; exit 66"));
  const int stubborn = number_in(program.directory() / "pid");
  EXPECT_EQ(program.wait(), 66);
  EXPECT_FALSE(alive(stubborn));
  EXPECT_THAT(program.err(), HasSubstr("rank 0 ended with exit code 66; stopping the 1 still running"));
  EXPECT_THAT(program.err(), HasSubstr("rank 1 did not end in time: sent SIGKILL"));
}

TEST(Launch, ForwardsSignalsToAllRanks) {
  for (const auto& [number, name] : std::vector<std::pair<int, std::string>>{{SIGTERM, "TERM"},
                                                                             {SIGINT, "INT"},
                                                                             {SIGHUP, "HUP"},
                                                                             {SIGUSR1, "USR1"},
                                                                             {SIGUSR2, "USR2"},
                                                                             {SIGXCPU, "XCPU"}}) {
    Program program(launch({"--nproc", "2"}, "trap 'echo got " + name + "; kill $!; exit 0' " + name +
                                                 "; sleep 1000 & echo $$ > ready.$RANK; wait"));
    ASSERT_GT(number_in(program.directory() / "ready.0"), 0);
    ASSERT_GT(number_in(program.directory() / "ready.1"), 0);
    program.signal(number);
    EXPECT_EQ(program.wait(), 75) << name << ": no rank reports that it is complete";
    EXPECT_THAT(lines(program.out()), UnorderedElementsAre("[RANK 0] got " + name, "[RANK 1] got " + name));
  }
}

// A worker of a DataLoader that ends first makes its rank fail.
TEST(Launch, SigtermReachesTheRankBeforeItsWorkers) {
  Program program(launch({},
                         "(trap 'exit 5' USR1; sleep 1000 & echo $! > worker; wait) & worker=$!; "
                         "trap 'kill -USR1 $worker; wait $worker; echo worker $?; exit 75' TERM; "
                         "until [ -s worker ]; do read -t 0.01 < <(:) || :; done; echo $$ > ready; wait"));
  ASSERT_GT(number_in(program.directory() / "ready"), 0);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 75);
  EXPECT_EQ(program.out(), "worker 5\n");
  EXPECT_FALSE(alive(number_in(program.directory() / "worker")));
}

// A shell ends without forwarding the signal.
TEST(Launch, SigtermReachesTheProgramOfAShell) {
  Program program(launch({},
                         "(/bin/bash -c 'trap \"echo saved; exit 0\" TERM; echo $$ > ready; while :; do read -t 1 < "
                         "<(sleep 1) || :; done'; echo lost); echo lost"));
  ASSERT_GT(number_in(program.directory() / "ready"), 0);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
  EXPECT_EQ(program.out(), "saved\n");
}

TEST(Launch, InterruptedAndSavedIsTempFail) {
  Program program(
      launch({"--nproc", "2"}, "[ $RANK = 0 ] && trap 'exit 75' TERM; sleep 1000 & echo $$ > ready.$RANK; wait"));
  ASSERT_GT(number_in(program.directory() / "ready.0"), 0);
  ASSERT_GT(number_in(program.directory() / "ready.1"), 0);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 75);
}

TEST(Launch, CompletedAfterTheSignalIsSuccess) {
  Program program(launch({"--nproc", "2"},
                         "trap 'printf \"%s\" \"$DONE\" > $OARLOCK_TERMINATION_LOG; kill $!; exit 0' TERM; "
                         "sleep 1000 & echo $$ > ready.$RANK; wait"),
                  {.environment = {{"DONE", R"({"rank":0,"checkpointStep":9,"reason":"Completed"})"}}});
  ASSERT_GT(number_in(program.directory() / "ready.0"), 0);
  ASSERT_GT(number_in(program.directory() / "ready.1"), 0);
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 0) << program.err();
}

// Whether all these processes are stopped, as Ctrl-Z does it.
bool are_stopped(const std::vector<int>& pids) {
  return std::ranges::all_of(pids, [](int pid) {
    const std::string stat = content("/proc/" + std::to_string(pid) + "/stat");
    return stat.find(") T") != std::string::npos;
  });
}

// One rank has the terminal itself; several are in groups to which the terminal sends no signals.
TEST(Launch, TerminalStopsAndContinuesTheRanks) {
  for (const int nproc : {1, 2}) {
    const TemporaryDirectory directory;
    TerminalProgram shell({"/bin/bash", "--norc", "-i"}, directory.path());
    shell.type(oarlock() + " launch --nproc " + std::to_string(nproc) +
               " -- /bin/bash -c 'echo $$ > pid.$RANK; exec sleep 1000'\n");
    std::vector<int> ranks;
    for (int i = 0; i < nproc; ++i) ranks.push_back(number_in(directory.path() / ("pid." + std::to_string(i))));
    for (const char* resume : {"fg\n", "bg\n"}) {
      shell.type("\x1a");
      EXPECT_TRUE(eventually([&] { return are_stopped(ranks); })) << shell.output();
      EXPECT_TRUE(eventually([&] { return shell.output().find("Stopped") != std::string::npos; })) << shell.output();
      shell.type(resume);
      const auto is_stopped = [](int rank) { return are_stopped({rank}); };
      EXPECT_TRUE(eventually([&] { return std::ranges::none_of(ranks, is_stopped); })) << shell.output();
    }
    shell.type("kill %1\n");
    EXPECT_TRUE(eventually([&] { return std::ranges::none_of(ranks, alive); })) << shell.output();
    shell.type("exit\n");
    shell.wait();
  }
}

TEST(Launch, SecondInterruptKillsImmediately) {
  Program program(
      launch({"--nproc", "2", "--grace", "1000"},
             "trap 'echo $$ > int.$RANK' INT; echo $$ > ready.$RANK; while :; do read -t 1 < <(sleep 1) || :; done"));
  ASSERT_GT(number_in(program.directory() / "ready.0"), 0);
  ASSERT_GT(number_in(program.directory() / "ready.1"), 0);
  program.signal(SIGINT);
  ASSERT_GT(number_in(program.directory() / "int.0"), 0);
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(), 137);
}

// The descendants of a rank are ended too, inside and outside of its process group.
TEST(Launch, EndsGrandchildren) {
  Program program(launch({"--nproc", "2", "--grace", "0.2"},
                         "sleep 1000 & echo $! > group.$RANK; setsid sleep 1000 & echo $! > away.$RANK; (trap '' TERM; "
                         "sleep 1000 & echo $! > deaf.$RANK) ; exit 0"));
  EXPECT_EQ(program.wait(), 0);
  for (const char* name : {"group.0", "group.1", "away.0", "away.1", "deaf.0", "deaf.1"}) {
    EXPECT_FALSE(alive(number_in(program.directory() / name))) << name;
  }
}

// Orphans become the launcher's children; as PID 1 of a container it must not collect zombies.
TEST(Launch, ReapsOrphansWhileRanksRun) {
  Program program(
      launch({"--nproc", "1"},
             "trap 'exit 0' TERM; ( (sleep 0.05; echo done > orphan_done) & echo $! > orphan ); sleep 1000 & wait"));
  const int orphan = number_in(program.directory() / "orphan");
  EXPECT_TRUE(eventually([&] { return content(program.directory() / "orphan_done") == "done\n"; }));
  EXPECT_TRUE(
      eventually([&] { return !std::filesystem::exists("/proc/" + std::to_string(orphan)); }));  // not even a zombie
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 75);
}

TEST(Launch, NoProcessSurvivesKilledLauncher) {
  Program program(launch({"--nproc", "2"},
                         "sleep 1000 & echo $! > child.$RANK; (setsid sleep 1000 & echo $! > away.$RANK); echo $$ > "
                         "rank.$RANK; wait"));
  std::vector<int> pids;
  for (const char* name : {"child.0", "child.1", "away.0", "away.1", "rank.0", "rank.1"})
    pids.push_back(number_in(program.directory() / name));
  for (const int pid : pids) EXPECT_TRUE(alive(pid));
  program.signal(SIGKILL);
  EXPECT_EQ(program.wait(), 137);
  for (const int pid : pids) EXPECT_TRUE(eventually([&] { return !alive(pid); })) << pid;
}

// The value of OMP_NUM_THREADS in the ranks, and whether launch logged that it set it.
struct Threads {
  std::string values;
  bool is_logged;
};
Threads omp_threads(const std::string& nproc, const std::map<std::string, std::string>& environment) {
  Program program(
      {oarlock(), "launch", "--nproc", nproc, "--no-prefix", "--", "/bin/sh", "-c", "echo ${OMP_NUM_THREADS-none}"},
      {.environment = environment});
  EXPECT_EQ(program.wait(), 0) << program.err();
  return {program.out(), program.err().find("OMP_NUM_THREADS is not set: 1 for each rank") != std::string::npos};
}

TEST(Launch, LimitsThreadsOfSeveralRanks) {
  const Threads two = omp_threads("2", {});
  EXPECT_EQ(two.values, "1\n1\n");
  EXPECT_TRUE(two.is_logged);
  const Threads inherited = omp_threads("2", {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(inherited.values, "3\n3\n");
  EXPECT_FALSE(inherited.is_logged);
  const Threads alone = omp_threads("1", {});
  EXPECT_EQ(alone.values, "none\n");
  EXPECT_FALSE(alone.is_logged);
}

TEST(Launch, PythonReceivesItsRank) {
  const std::string script =
      "import os; print(' '.join(os.environ[k] for k in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', "
      "'NODE_RANK', 'MASTER_ADDR', 'MASTER_PORT', "
      "'PET_NNODES', 'PET_NPROC_PER_NODE', 'PET_NODE_RANK', 'PET_MASTER_ADDR', 'PET_MASTER_PORT', "
      "'OARLOCK_METRICS_PORT')))";
  Program program({oarlock(), "launch", "--nproc", "2", "--nnodes", "2", "--node-rank", "1", "--master-addr", "node0",
                   "--master-port", "1234", "python3", "-c", script},
                  {.environment = {{"OARLOCK_METRICS_PORT", "9400"}}});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("[RANK 2] 2 0 4 2 1 node0 1234 2 2 1 node0 1234 9400",
                                                         "[RANK 3] 3 1 4 2 1 node0 1234 2 2 1 node0 1234 9400"));
}

TEST(Launch, TopologyFromTheOperatorsEnvironment) {
  Program program(launch({}, "echo $RANK/$WORLD_SIZE"), {.environment = {{"WORLD_SIZE", "4"},
                                                                         {"LOCAL_WORLD_SIZE", "2"},
                                                                         {"NODE_RANK", "1"},
                                                                         {"MASTER_ADDR", "a"},
                                                                         {"MASTER_PORT", "1"}}});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("[RANK 2] 2/4", "[RANK 3] 3/4"));
}

struct Mistake {
  std::string name;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment{};
  int code;
  std::string words;
};
class MistakeTest : public testing::TestWithParam<Mistake> {};
TEST_P(MistakeTest, ReportsOneLine) {
  std::vector<std::string> argv = {oarlock()};
  argv.insert(argv.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  Program program(argv, {.environment = GetParam().environment});
  EXPECT_EQ(program.wait(), GetParam().code);
  EXPECT_THAT(lines(program.err()), ElementsAre(HasSubstr(GetParam().words)));
  EXPECT_EQ(program.out(), "");
}
INSTANTIATE_TEST_SUITE_P(
    Table, MistakeTest,
    testing::Values(Mistake{.name = "NoCommand", .arguments = {"launch"}, .code = 64, .words = "missing command"},
                    Mistake{.name = "UnknownOption",
                            .arguments = {"launch", "--nprocs", "2", "--", "true"},
                            .code = 64,
                            .words = "did you mean '--nproc'"},
                    Mistake{.name = "NotANumber",
                            .arguments = {"launch", "--nproc", "two", "true"},
                            .code = 64,
                            .words = "--nproc"},
                    Mistake{.name = "UnknownCommand", .arguments = {"lunch"}, .code = 64, .words = "lunch"},
                    Mistake{.name = "NotInPath",
                            .arguments = {"launch", "--nproc", "3", "no-such-command"},
                            .environment = {{"OMP_NUM_THREADS", "1"}},
                            .code = 66,
                            .words = "'no-such-command' is not in PATH"},
                    Mistake{.name = "ScriptWithoutPython",
                            .arguments = {"launch", "--nproc", "2", "train.py"},
                            .environment = {{"OMP_NUM_THREADS", "1"}},
                            .code = 66,
                            .words = "'train.py' is a script, not a command; write python3 train.py"},
                    Mistake{.name = "ModuleAfterMarker",
                            .arguments = {"launch", "--nproc", "2", "--", "-m", "package.train"},
                            .environment = {{"OMP_NUM_THREADS", "1"}},
                            .code = 66,
                            .words = "'-m' is an option of this program; write it before the --"},
                    Mistake{.name = "RangeOfNodes",
                            .arguments = {"launch", "--nnodes", "1:4", "--nproc", "2", "--", "true"},
                            .code = 64,
                            .words = "--nnodes: '1:4' is a range, but the launcher has a fixed number of nodes"},
                    Mistake{.name = "NoSuchFile",
                            .arguments = {"launch", "/no/such/file"},
                            .code = 66,
                            .words = "'/no/such/file' does not exist"},
                    Mistake{.name = "NotExecutable",
                            .arguments = {"launch", "/etc/passwd"},
                            .code = 77,
                            .words = "'/etc/passwd' may not be executed"},
                    Mistake{.name = "BadEnvironment",
                            .arguments = {"launch", "true"},
                            .environment = {{"LOCAL_WORLD_SIZE", "x"}},
                            .code = 78,
                            .words = "LOCAL_WORLD_SIZE='x'"}),
    [](const auto& row) { return row.param.name; });

TEST(Launch, MessageOfTheDecisiveRankBecomesThePods) {
  const std::string message = to_json(
      TerminationMessage{.rank = 1, .step = 7, .checkpoint_step = 5, .reason = "DataInvalid", .message = "truncated"});
  const std::string peers = to_json(
      TerminationMessage{.rank = 0, .step = 7, .checkpoint_step = 5, .reason = "PeerLost", .message = "rank 1"});
  TemporaryDirectory directory;
  const std::string log = directory.path() / "log";
  const std::map<std::string, std::string> environment = {
      {"OARLOCK_TERMINATION_LOG", log}, {"MINE", message}, {"PEERS", peers}, {"WRITTEN", directory.path() / "written"}};
  Program program(launch({"--nproc", "2"},
                         "if [ $RANK = 0 ]; then printf %s \"$PEERS\" > $OARLOCK_TERMINATION_LOG; exit 76; fi; printf "
                         "%s \"$MINE\" > $OARLOCK_TERMINATION_LOG; exit 65"),
                  {.environment = environment});
  EXPECT_EQ(program.wait(), 65);
  EXPECT_EQ(content(log), message);

  Program killed(
      launch({"--nproc", "2"},
             "if [ $RANK = 0 ]; then printf %s \"$PEERS\" > $OARLOCK_TERMINATION_LOG; touch $WRITTEN; exit 0; fi; "
             "until [ -e $WRITTEN ]; do :; done; kill -SEGV $$"),
      {.environment = environment});
  EXPECT_EQ(killed.wait(), 139);
  const auto made = termination_message_from_json(content(log));
  ASSERT_TRUE(made.has_value()) << content(log);
  EXPECT_EQ(made->rank, 1);
  EXPECT_EQ(made->checkpoint_step, 5);
  EXPECT_THAT(made->message, HasSubstr("SIGSEGV"));
  EXPECT_TRUE(std::filesystem::is_empty(killed.directory())) << "temporary files were left";
}

TEST(Launch, SingleRankWritesItsMessageItself) {
  TemporaryDirectory directory;
  const std::string log = directory.path() / "log";
  ASSERT_TRUE(write_file_atomically(log, "").has_value());  // as the kubelet makes it
  const ProgramOptions options{.environment = {{"OARLOCK_TERMINATION_LOG", log}}};
  Program speaks(launch({}, "printf mine > $OARLOCK_TERMINATION_LOG; exit 3"), options);
  EXPECT_EQ(speaks.wait(), 3);
  EXPECT_EQ(content(log), "mine");
  ASSERT_TRUE(write_file_atomically(log, "").has_value());
  Program dies(launch({}, "kill -KILL $$"), options);
  EXPECT_EQ(dies.wait(), 137);
  EXPECT_THAT(content(log), HasSubstr("KilledBySignal"));
}

// The kernel confirms what the launcher reports.
TEST(Launch, BindsRanksToTheCpusThatItReports) {
  Program program(
      launch({"--nproc", "2", "--no-prefix", "--numa-binding", "node"},
             "echo $LOCAL_RANK: $(grep Cpus_allowed_list /proc/self/status | cut -f 2) $OARLOCK_CPU_SHARERS"));
  ASSERT_EQ(program.wait(), 0) << program.err();
  const std::vector<std::string> bound = lines(program.out());
  ASSERT_EQ(bound.size(), 2u);
  for (const std::string& line : bound) {
    const std::string cpus = line.substr(line.find(' ') + 1);  // "0: 0-3 2"
    EXPECT_THAT(program.err(), HasSubstr(cpus.substr(0, cpus.rfind(' ')))) << line;
    EXPECT_THAT(cpus.substr(cpus.rfind(' ') + 1), testing::AnyOf("1", "2"));
  }
  Program wrong(launch({"--nproc", "2", "--numa-binding", "numa"}, "exit 0"));
  EXPECT_EQ(wrong.wait(), 64);
}

// Waiting for a reader or a writer, or for the end of a device, the launcher could not be stopped.
TEST(Launch, MessageFilesOfAnyTypeDoNotBlock) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& log :
       {pipe, std::string("/dev/zero"), directory.path().string(), std::string("/nowhere/log")}) {
    Program program(launch({}, "exit 3"), {.environment = {{"OARLOCK_TERMINATION_LOG", log}}});
    EXPECT_EQ(program.wait(), 3) << log;
  }
  Program ranks(launch({"--nproc", "2"},
                       "rm -f $OARLOCK_TERMINATION_LOG; if [ $RANK = 0 ]; then mkfifo "
                       "$OARLOCK_TERMINATION_LOG; else ln -s /dev/zero $OARLOCK_TERMINATION_LOG; fi; "
                       "exit 4"));
  EXPECT_EQ(ranks.wait(), 4) << ranks.err();
}

TEST(Launch, HelpHasExamples) {
  Program program({oarlock(), "launch", "--help"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(program.out(), HasSubstr("oarlock launch --nproc 4 -- python3 train.py"));
}

}  // namespace
}  // namespace oarlock::test
