// The output of oarlock launch with real processes: streams, prefixes, redirects, and readers that are slow or absent.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/cli/launch_support.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

TEST(LaunchOutput, ClosedStreamsDoNotHang) {
  for (const std::string nproc : {"1", "2"}) {
    for (const std::string closed : {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"}) {
      const std::string command = oarlock() + " launch --nproc " + nproc + " -- /bin/echo x " + closed;
      Program program({"/bin/sh", "-c", "exec " + command});
      EXPECT_EQ(program.wait(), 0) << nproc << closed;
    }
  }
}

TEST(LaunchOutput, ReportsOutputLostOnFullDevice) {
  Program out({"/bin/sh", "-c", "exec " + oarlock() + " launch --nproc 2 -- /bin/echo x >/dev/full"});
  EXPECT_EQ(out.wait(), 74);
  EXPECT_THAT(out.err(), HasSubstr("standard output cannot be written: No space left on device"));
  Program err({"/bin/sh", "-c", "exec " + oarlock() + " launch --nproc 2 -- /bin/sh -c 'echo x >&2' 2>/dev/full"});
  EXPECT_EQ(err.wait(), 74);
  // Rank 0 alone writes, and before a rank ends: one that writes after the failure is ended by SIGPIPE, and one that is
  // stopped before it has written has nothing to lose.
  const std::string script = kWaitFor + "[ $RANK = 1 ] || { echo x; touch written; }; wait_for written; exit 65";
  Program failed(
      {"/bin/sh", "-c", "exec " + oarlock() + " launch --nproc 2 -- /bin/bash -c '" + script + "' >/dev/full"});
  EXPECT_EQ(failed.wait(), 65);
  EXPECT_THAT(failed.err(), HasSubstr("No space left on device"));
}

TEST(LaunchOutput, KeepsLinesIntact) {
  // 200 lines of 1 MB and 20,000 short ones on both streams, written in pieces and concurrently.
  const std::string script = R"(import os, sys
rank = os.environ["RANK"]
long = (rank * 1_000_000).encode()
for i in range(100):
    os.write(1, long[:300_000]); os.write(1, long[300_000:] + b"\n")
    for j in range(100):
        sys.stderr.write(f"{rank} {i} {j} "); sys.stderr.write("x" * 50 + "\n")
os.write(1, b"the end of " + rank.encode())
)";
  Program program({oarlock(), "launch", "--nproc", "2", "--", "python3", "-c", script},
                  {.environment = {{"OMP_NUM_THREADS", "1"}}});
  ASSERT_EQ(program.wait(), 0) << program.err();
  const std::vector<std::string> out = lines(program.out());
  for (const std::string rank : {"0", "1"}) {
    const std::string prefix = "[RANK " + rank + "] ";
    EXPECT_EQ(std::count(out.begin(), out.end(), prefix + std::string(1'000'000, rank[0])), 100);
    EXPECT_EQ(std::count(out.begin(), out.end(), prefix + "the end of " + rank), 1);
  }
  EXPECT_EQ(out.size(), 202u);
  const std::vector<std::string> err = lines(program.err());
  std::vector<std::string> of_first;
  for (const std::string& line : err) {
    ASSERT_TRUE(line.starts_with("[RANK ") && line.ends_with(" " + std::string(50, 'x'))) << line;
    if (line.starts_with("[RANK 0] 0 ")) of_first.push_back(line);
  }
  EXPECT_EQ(err.size(), 20'000u);
  ASSERT_EQ(of_first.size(), 10'000u);
  for (int i = 0; i < 10'000; ++i)
    EXPECT_EQ(of_first[static_cast<size_t>(i)],
              "[RANK 0] 0 " + std::to_string(i / 100) + " " + std::to_string(i % 100) + " " + std::string(50, 'x'));
}

TEST(LaunchOutput, SharedStdoutAndStderrKeepLinesIntact) {
  // 2>&1: one file, two streams, and lines that are longer than one write.
  Program program({"/bin/bash", "-c",
                   "OMP_NUM_THREADS=1 " + oarlock() +
                       " launch --nproc 2 -- python3 -c 'import os\nfor i in range(200): os.write(1 + i % 2, "
                       "b\"ab\"[i % 2 : i % 2 + 1] * 20_000 + b\"\\n\")' 2>&1"});
  ASSERT_EQ(program.wait(), 0);
  const std::vector<std::string> out = lines(program.out());
  EXPECT_EQ(out.size(), 400u);
  for (const std::string& line : out) {
    const std::string text = line.substr(9);
    EXPECT_TRUE(text == std::string(20'000, 'a') || text == std::string(20'000, 'b')) << line.substr(0, 60);
  }
}

// A slow or absent reader of the output must not stop the supervision.
TEST(LaunchOutput, StalledReaderDoesNotBlockSignals) {
  TemporaryDirectory directory;
  const std::string fifo = directory.path() / "fifo";
  Program program({"/bin/bash", "-c",
                   "mkfifo " + fifo + "; exec 3<>" + fifo + "; exec " + oarlock() +
                       " launch --nproc 2 --grace 1 -- bash -c 'echo $$ > ready.$RANK; exec yes' >&3"});
  const int first = number_in(program.directory() / "ready.0");
  const int second = number_in(program.directory() / "ready.1");
  program.signal(SIGTERM);
  EXPECT_EQ(program.wait(), 143);
  EXPECT_FALSE(alive(first));
  EXPECT_FALSE(alive(second));
}

// A rank that waits in write(2) stops all others, and none of them saves a checkpoint when it is stopped.
TEST(LaunchOutput, StalledReaderDoesNotStopRanks) {
  TemporaryDirectory directory;
  const std::string fifo = directory.path() / "fifo";
  const std::string ranks = "yes " + std::string(98, 'x') + " | head -c 3000000; echo 1 > done.$RANK";
  Program program({"/bin/bash", "-c",
                   kWaitFor + "mkfifo " + fifo + "; exec 3<>" + fifo + "; " + oarlock() +
                       " launch --nproc 2 -- bash -c '" + ranks + "' >&3 3>&- & wait_for done.0; wait_for done.1; " +
                       "exec 4<" + fifo + " 3>&-; cat <&4; wait $!"});
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(program.out(), HasSubstr("bytes of output are missing here, because they were not read]"));
  for (const std::string& line : lines(program.out())) EXPECT_LE(line.size(), 9u + 99) << "lines are intact";
}

TEST(LaunchOutput, ClosedReaderEndsRanksBySigpipe) {
  Program program({"/bin/bash", "-c", oarlock() + " launch --nproc 2 -- yes | head -n 1; exit ${PIPESTATUS[0]}"});
  EXPECT_EQ(program.wait(), 128 + SIGPIPE);
  EXPECT_THAT(lines(program.out()), ElementsAre(testing::EndsWith("] y")));
}

TEST(LaunchOutput, SingleRankInheritsStreams) {
  Program program({"/bin/bash", "-c", "printf 'a\\0b' | " + oarlock() + " launch cat"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(program.out(), std::string("a\0b", 3));
}

// script(1) gives the launcher a terminal. Both ranks overwrite their line; the terminal shows that of the first one.
TEST(LaunchOutput, TerminalShowsProgressOfFirstRank) {
  const std::string ranks = "printf \"progress of $RANK\\r\"; echo end of $RANK";
  Program program({"/usr/bin/script", "-qec", oarlock() + " launch --nproc 2 -- sh -c '" + ranks + "'", "/dev/null"},
                  {.environment = {{"TERM", "xterm"}}});
  EXPECT_EQ(program.wait(), 0) << program.out();
  EXPECT_THAT(program.out(), AllOf(HasSubstr("[RANK 0] progress of 0\x1b[K\r"), Not(HasSubstr("progress of 1\x1b[K\r")),
                                   HasSubstr("[RANK 0] end of 0"), HasSubstr("[RANK 1] end of 1")));
}

TEST(LaunchOutput, NoPrefix) {
  Program program(launch({"--nproc", "2", "--no-prefix"}, "echo $RANK"));
  EXPECT_EQ(program.wait(), 0);
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("0", "1"));
}

TEST(LaunchOutput, ShowsTheRanksOfTheFilter) {
  Program program(launch({"--nproc", "3", "--local-ranks-filter", "0,2"}, "echo $RANK"));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), UnorderedElementsAre("[RANK 0] 0", "[RANK 2] 2"));
}

TEST(LaunchOutput, RedirectsStreamsOfSingleRanks) {
  Program program(launch({"--nproc", "2", "--log-dir", "logs", "--redirects", "0:3,1:1", "--tee", "0:1"},
                         "echo out $RANK; echo err $RANK >&2"));
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_THAT(lines(program.out()), ElementsAre("[RANK 0] out 0")) << "--tee wins";
  EXPECT_THAT(program.err(), AllOf(HasSubstr("[RANK 1] err 1"), Not(HasSubstr("err 0"))));
  EXPECT_EQ(content(program.directory() / "logs/attempt_0/rank_1/stdout.log"), "out 1\n");
  EXPECT_EQ(content(program.directory() / "logs/attempt_0/rank_0/stderr.log"), "err 0\n");
}

TEST(LaunchOutput, LogFilesOfAnyTypeDoNotBlock) {
  const TemporaryDirectory directory;
  const auto logs = directory.path() / "logs" / "attempt_0" / "rank_0";
  std::filesystem::create_directories(logs);
  ASSERT_EQ(::mkfifo((logs / "stdout.log").c_str(), 0600), 0);
  Program program(launch({"--nproc", "2", "--log-dir", directory.path() / "logs"}, "echo out"));
  EXPECT_NE(program.wait(), 0);
  EXPECT_THAT(program.err(), HasSubstr("stdout.log: is a named pipe that no process reads"));
}

// A full device does not stop the ranks, but a success would hide that their output is nowhere.
TEST(LaunchOutput, FailsIfTheOnlyCopyOfTheOutputIsLost) {
  const TemporaryDirectory directory;
  const auto logs = directory.path() / "logs" / "attempt_0" / "rank_0";
  std::filesystem::create_directories(logs);
  std::filesystem::create_symlink("/dev/full", logs / "stdout.log");
  const auto run = [&](const std::string& redirects, const std::string& script) {
    return std::make_unique<Program>(
        launch({"--log-dir", directory.path() / "logs", "--redirects", redirects}, "echo out; " + script));
  };
  const auto lost = run("3", "exit 0");
  EXPECT_EQ(lost->wait(), 74);
  EXPECT_THAT(lines(lost->err()).back(), HasSubstr("stdout.log: output that goes only to this file is lost"));
  EXPECT_EQ(run("3", "exit 3")->wait(), 3);
  EXPECT_EQ(run("2", "exit 0")->wait(), 0) << "the console has the output, too";
}

}  // namespace
}  // namespace oarlock::test
