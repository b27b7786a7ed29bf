// A rank's channel to its launcher, over a socket pair.
#include "recovery/launcher_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <csignal>
#include <future>

#include "recovery/line_channel.h"

namespace oarlock {
namespace {

using recovery::LineChannel;
using recovery::RankCommand;
using testing::HasSubstr;

class LauncherChannelTest : public testing::Test {
 protected:
  LauncherChannelTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    launcher_.emplace(FileDescriptor(ends[0]), recovery::kMaxLineLength);
    channel_ = std::make_unique<LauncherChannel>(FileDescriptor(ends[1]));
  }

  std::string receive() {
    for (;;) {
      pollfd fd{launcher_->fd(), POLLIN, 0};
      EXPECT_GT(::poll(&fd, 1, 60'000), 0);
      const std::vector<std::string> lines = launcher_->read();
      if (!lines.empty() || !launcher_->is_open()) return lines.empty() ? "" : lines.front();
    }
  }

  void send(RankCommand::Kind kind, int64_t generation, const std::string& reason = "", bool is_growth = false) {
    RankCommand command;
    command.kind = kind;
    command.generation = generation;
    command.is_growth = is_growth;
    command.world_size = 2;
    command.donor = 1;
    command.step = 40;
    command.store_host = "node0";
    command.store_port = 29500;
    command.store_prefix = "oarlock/1/9";
    command.reason = reason;
    launcher_->send(to_json(command));
  }

  std::future<Result<Assignment>> regroup(int64_t generation) {
    return std::async(std::launch::async, [this, generation] {
      return channel_->regroup(generation, {.completed_step = 40, .digest = "d"}, "lost a peer", stop_);
    });
  }

  std::optional<LineChannel> launcher_;
  std::unique_ptr<LauncherChannel> channel_;
  StopFlag stop_;
};

TEST_F(LauncherChannelTest, ReportsStateAndReceivesAssignment) {
  auto result = regroup(0);
  const auto request = recovery::join_request_from_json(receive());
  ASSERT_TRUE(request);
  EXPECT_EQ(request->generation, 0);
  EXPECT_EQ(request->step, 40);
  EXPECT_EQ(request->digest, "d");
  EXPECT_EQ(request->reason, "lost a peer");
  EXPECT_EQ(request->standby_process, 0);  // the program has not called wait_for_start()
  send(RankCommand::Kind::kAssign, 0);     // late, of the group that failed
  send(RankCommand::Kind::kAssign, 1);
  const Result<Assignment> assignment = result.get();
  ASSERT_TRUE(assignment);
  EXPECT_EQ(assignment->generation, 1);
  EXPECT_EQ(assignment->donor, 1);
  EXPECT_EQ(assignment->step, 40);
  EXPECT_EQ(assignment->store_port, 29500);
  EXPECT_EQ(assignment->store_prefix, "oarlock/1/9");
}

TEST_F(LauncherChannelTest, LeaveRequestNamesItsGeneration) {
  EXPECT_FALSE(channel_->regroup_requested(0));
  send(RankCommand::Kind::kLeave, 0);
  auto result = regroup(0);
  receive();
  send(RankCommand::Kind::kAssign, 1);
  ASSERT_TRUE(result.get());  // commands arrive in order
  EXPECT_TRUE(channel_->regroup_requested(0));
  EXPECT_FALSE(channel_->regroup_requested(1));
}

TEST_F(LauncherChannelTest, GrowthRequestDoesNotBreakTheGroup) {
  send(RankCommand::Kind::kLeave, 0, "node rank 1 joins the group", /*is_growth=*/true);
  auto result = regroup(0);
  receive();
  send(RankCommand::Kind::kAssign, 1);
  ASSERT_TRUE(result.get());
  EXPECT_TRUE(channel_->growth_requested(0));
  EXPECT_FALSE(channel_->growth_requested(1));
  EXPECT_FALSE(channel_->regroup_requested(0));
}

TEST_F(LauncherChannelTest, EndIsPeerLost) {
  auto result = regroup(0);
  receive();
  send(RankCommand::Kind::kEnd, -1, "all 3 restarts are used up");
  const Result<Assignment> assignment = result.get();
  ASSERT_FALSE(assignment);
  EXPECT_EQ(assignment.error().code, ExitCode::kPeerLost);
  EXPECT_THAT(assignment.error().message, HasSubstr("all 3 restarts are used up"));
  EXPECT_TRUE(channel_->regroup_requested(7));
}

TEST_F(LauncherChannelTest, StopInterruptsTheWait) {
  auto result = regroup(0);
  receive();
  stop_.raise(SIGTERM);
  const Result<Assignment> assignment = result.get();
  ASSERT_FALSE(assignment);
  EXPECT_EQ(assignment.error().code, ExitCode::kTempFail);
}

TEST_F(LauncherChannelTest, ClosedConnectionIsUnavailable) {
  auto result = regroup(0);
  receive();
  launcher_.reset();
  const Result<Assignment> assignment = result.get();
  ASSERT_FALSE(assignment);
  EXPECT_EQ(assignment.error().code, ExitCode::kUnavailable);
}

TEST(LauncherChannel, OpensInheritedSocketOnly) {
  EXPECT_EQ(LauncherChannel::open(std::nullopt, StandbyProcess::kNo).value(), nullptr);
  for (const char* value : {"x", "1", "-1", "999999", "3x"}) {
    const auto opened = LauncherChannel::open(value, StandbyProcess::kNo);
    ASSERT_FALSE(opened) << value;
    EXPECT_EQ(opened.error().code, ExitCode::kConfig);
  }
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const FileDescriptor launcher(ends[0]);
  const auto opened = LauncherChannel::open(std::to_string(ends[1]), StandbyProcess::kNo);
  ASSERT_TRUE(opened);
  EXPECT_NE(::fcntl(ends[1], F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace oarlock
