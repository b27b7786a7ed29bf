// oarlock launch --preflight with several launchers on this machine, as nodes with the addresses 127.0.0.1, 127.0.0.2
// ...
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/files.h"
#include "common/port_reservation.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

class LaunchPreflight : public testing::Test {
 protected:
  std::unique_ptr<Program> start(int nodes, int node, const std::string& settings, const Variables& own = {}) {
    std::vector<std::string> argv = {oarlock(),       "launch",
                                     "--nnodes",      std::to_string(nodes),
                                     "--node-rank",   std::to_string(node),
                                     "--master-addr", "127.0.0.1",
                                     "--master-port", std::to_string(ports_.first()),
                                     "--nproc",       "2",
                                     "--no-prefix",   fmt::format("--preflight={}", settings)};
    argv.insert(argv.end(), {"--", "/bin/sh", "-c", R"(echo "rank $RANK <$OARLOCK_PREFLIGHT>")"});
    Variables variables = {{kEnvRegroupToken, "secret"}, {kEnvTerminationLog, message_path(node)}};
    for (const auto& [name, value] : own) variables[name] = value;
    return std::unique_ptr<Program>(
        new Program(argv, {.environment = std::move(variables), .directory = directory_.path()}));
  }

  std::string message_path(int node) const { return directory_.path() / fmt::format("message.{}", node); }
  TerminationMessage message(int node) const {
    return termination_message_from_json(content(message_path(node))).value_or(TerminationMessage{});
  }

  TemporaryDirectory directory_;
  PortReservation ports_ = PortReservation::make(3).value();  // of the store, of restarts and of the preflight
};

TEST_F(LaunchPreflight, RanksStartAfterAHealthyGroup) {
  std::vector<std::unique_ptr<Program>> programs;
  for (const int node : {2, 1, 0}) {
    programs.push_back(
        start(3, node, "bandwidth=1,latency=10000", {{kEnvCheckpointDir, directory_.path() / "checkpoints"}}));
  }
  for (const auto& program : programs) EXPECT_EQ(program->wait(), 0) << program->err();
  EXPECT_THAT(lines(programs[2]->out()), testing::UnorderedElementsAre("rank 0 <>", "rank 1 <>"));
  EXPECT_THAT(programs[2]->err(), HasSubstr("preflight passed: 6 links between 3 nodes; the slowest has "));
  EXPECT_EQ(message(0).reason, "");
}

TEST_F(LaunchPreflight, NodeWithoutStorageIsNamed) {
  const auto third = start(3, 2, "timeout=300");
  const auto second = start(3, 1, "timeout=300", {{kEnvCheckpointDir, "/proc/job"}});
  const auto first = start(3, 0, "timeout=300");
  EXPECT_EQ(second->wait(), to_int(ExitCode::kDeviceFailed)) << second->err();
  EXPECT_EQ(first->wait(), to_int(ExitCode::kPeerLost)) << first->err();
  EXPECT_EQ(third->wait(), to_int(ExitCode::kPeerLost)) << third->err();
  EXPECT_THAT(first->err(), AllOf(HasSubstr("preflight failed: node rank 1: storage: /proc/.oarlock-preflight-")));
  EXPECT_EQ(message(1).reason, kReasonPreflightFailed);
  EXPECT_EQ(message(1).rank, 2) << "the first rank of node rank 1";
  EXPECT_THAT(message(1).message, HasSubstr("storage: /proc/"));
  EXPECT_EQ(message(0).reason, kReasonPeerLost);
  EXPECT_THAT(first->out() + second->out() + third->out(), IsEmpty()) << "no rank has started";
}

// The variable is that of the pods of a job with spec.preflight.
TEST_F(LaunchPreflight, OperatorsVariableRequestsIt) {
  Program program({oarlock(), "launch", "--no-prefix", "--", "/bin/sh", "-c", R"(echo "<$OARLOCK_PREFLIGHT>")"},
                  {.environment = {{kEnvPreflight, "timeout=10,devices=1000"}}});
  EXPECT_EQ(program.wait(), to_int(ExitCode::kDeviceFailed)) << program.err();
  EXPECT_THAT(program.err(), AllOf(HasSubstr("devices: "), HasSubstr("of 1000 GPUs are visible")));
  Program healthy({oarlock(), "launch", "--no-prefix", "--", "/bin/sh", "-c", R"(echo "<$OARLOCK_PREFLIGHT>")"},
                  {.environment = {{kEnvPreflight, "timeout=10"}}});
  EXPECT_EQ(healthy.wait(), 0) << healthy.err();
  EXPECT_EQ(healthy.out(), "<>\n") << "the ranks do not receive it";
}

TEST_F(LaunchPreflight, SmallSharedMemoryFails) {
  const auto alone = start(1, 0, "shm=16777216");  // 16 TiB
  EXPECT_EQ(alone->wait(), to_int(ExitCode::kDeviceFailed)) << alone->err();
  EXPECT_THAT(alone->err(), HasSubstr("shared memory: /dev/shm has "));
}

// The replacement of a lost pod joins nodes whose launchers have passed their preflight long before.
TEST_F(LaunchPreflight, ReplacementChecksItsNodeOnly) {
  EXPECT_EQ(start(3, 1, "timeout=1", {{kEnvReplacement, "1"}})->wait(), 0);
  EXPECT_EQ(start(3, 1, "timeout=1,devices=1000", {{kEnvReplacement, "1"}})->wait(), to_int(ExitCode::kDeviceFailed));
}

// The operator computes the node from the rank and the processes that it has set, independent of --nproc.
TEST_F(LaunchPreflight, RankIsThatOfTheJob) {
  const auto third = start(3, 2, "timeout=300,devices=1000", {{kEnvLocalWorldSize, "4"}, {kEnvReplacement, "1"}});
  EXPECT_EQ(third->wait(), to_int(ExitCode::kDeviceFailed)) << third->err();
  EXPECT_EQ(message(2).rank, 8);
}

TEST_F(LaunchPreflight, NodeThatDoesNotConnectIsNamed) {
  const auto second = start(3, 1, "timeout=2");
  const auto first = start(3, 0, "timeout=2");
  EXPECT_EQ(first->wait(), to_int(ExitCode::kDeviceFailed)) << first->err();
  EXPECT_EQ(second->wait(), to_int(ExitCode::kPeerLost)) << second->err();
  EXPECT_THAT(first->err(), HasSubstr("node rank 2: did not answer in time"));
  EXPECT_EQ(message(0).rank, 4) << "the first rank of node rank 2";
}

TEST_F(LaunchPreflight, TwoNodesNameTheLinkOnly) {
  const auto second = start(2, 1, "bandwidth=1e9");
  const auto first = start(2, 0, "bandwidth=1e9");
  for (const auto& program : {std::cref(first), std::cref(second)}) {
    EXPECT_EQ(program.get()->wait(), to_int(ExitCode::kTempFail)) << program.get()->err();
    EXPECT_THAT(program.get()->err(), HasSubstr("the link from node rank 0"));
  }
  EXPECT_EQ(message(0).reason, kReasonPreflightFailed);
}

TEST_F(LaunchPreflight, WrongSecretDoesNotJoin) {
  const auto second = start(2, 1, "timeout=2", {{kEnvRegroupToken, "other"}});
  const auto first = start(2, 0, "timeout=2");
  EXPECT_EQ(first->wait(), to_int(ExitCode::kTempFail)) << first->err();
  EXPECT_THAT(first->err(), HasSubstr("node rank 1: did not answer"));
  EXPECT_EQ(second->wait(), to_int(ExitCode::kPeerLost)) << second->err();
  EXPECT_THAT(second->err(), HasSubstr("no connection to the launcher of node rank 0"));
  const auto none = start(2, 1, "timeout=2", {{kEnvRegroupToken, ""}});
  EXPECT_EQ(none->wait(), to_int(ExitCode::kConfig)) << none->err();
}

TEST_F(LaunchPreflight, SignalEndsIt) {
  const auto first = start(2, 0, "timeout=300");
  ASSERT_TRUE(eventually([&] {  // it has blocked its signals, and listens
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(ports_.first() + kPreflightPortOffset)),
                        .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                        .sin_zero = {}};
    return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }));
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait(), 128 + SIGTERM) << first->err();
}

// nvidia-smi may take up to a minute.
TEST_F(LaunchPreflight, SignalEndsACheck) {
  const std::string script = directory_.path() / "nvidia-smi";
  const std::string begun = directory_.path() / "begun";
  ASSERT_TRUE(write_in_place(script, fmt::format("#!/bin/sh\n: >'{}'\nexec sleep 1000\n", begun)));
  ASSERT_EQ(::chmod(script.c_str(), 0700), 0);
  Program launcher({"/usr/bin/env", fmt::format("PATH={}:/usr/bin:/bin", directory_.path().string()), oarlock(),
                    "launch", "--preflight=devices=1", "--", "/bin/true"});
  ASSERT_TRUE(eventually([&] { return ::access(begun.c_str(), F_OK) == 0; }));
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 128 + SIGTERM) << launcher.err();
}

}  // namespace
}  // namespace oarlock::test
