// /statusz and /metrics on the port of the ranks, which must remain theirs.
#include "cli/launch/status_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "common/files.h"
#include "common/port_reservation.h"

namespace oarlock::launch {
namespace {

const InPodRestarts kRestarts{.total = 2, .seconds = 3, .rank = 1, .reason = "rank 1 ended with exit code 3"};

FileDescriptor socket_at(int port, int (*function)(int, const sockaddr*, socklen_t)) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (function(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) socket.close();
  return socket;
}

// Returns the response; "" without a server.
std::string get(int port, const std::string& path) {
  const FileDescriptor socket = socket_at(port, ::connect);
  if (!socket.open()) return "";
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_GT(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  std::string out;
  std::array<char, 4096> buffer;
  for (ssize_t got; (got = ::recv(socket.get(), buffer.data(), buffer.size(), 0)) > 0;)
    out.append(buffer.data(), static_cast<size_t>(got));
  return out;
}

class StatusServerTest : public testing::Test {
 protected:
  FileDescriptor listen() const {
    FileDescriptor socket = socket_at(port_.first(), ::bind);
    EXPECT_EQ(::listen(socket.get(), 1), 0);
    return socket;
  }
  std::string status() const { return get(port_.first(), "/statusz?uid=u"); }
  void pass(SteadyTime::duration time, const InPodRestarts& restarts = kRestarts) {
    now_ += time;
    board_.set_restarts(restarts);
    server_.time_passed(now_);
  }

  const PortReservation port_ = PortReservation::make(1).value();
  SteadyTime now_{};
  const RealClock clock_;
  ProgressBoard board_{{.attempt = 4, .world_size = 2}, clock_};
  std::atomic<int64_t> requested_ = 0;
  StatusServer server_{port_.first(), "u", board_, clock_, [this](int64_t request) { requested_ = request; }};
};

TEST_F(StatusServerTest, ServesWhileTheRanksDoNot) {
  server_.ranks_start(now_);
  EXPECT_EQ(server_.deadline(), now_ + StatusServer::kPatience);
  pass(StatusServer::kPatience - std::chrono::seconds(1));
  EXPECT_EQ(status(), "") << "the ranks may still listen on their port";
  pass(std::chrono::seconds(1));
  const std::string response = status();
  const size_t body = response.find("\r\n\r\n");
  ASSERT_NE(body, std::string::npos);
  EXPECT_EQ(launcher_status_from_json(response.substr(body + 4)), (LauncherStatus{4, kRestarts}));
  EXPECT_NE(get(port_.first(), "/statusz?uid=other").find("404"), std::string::npos);
  server_.ranks_start(now_);
  EXPECT_EQ(status(), "");
  EXPECT_TRUE(listen().open());
}

TEST_F(StatusServerTest, AcceptsOneRequestForACheckpointPerMinute) {
  server_.ranks_start(now_);
  pass(StatusServer::kPatience);
  EXPECT_NE(get(port_.first(), "/statusz?checkpoint=5&uid=other").find("404"), std::string::npos);
  EXPECT_NE(get(port_.first(), "/statusz?checkpoint=6"), "");
  EXPECT_EQ(requested_, 0) << "not with the uid of the job";
  EXPECT_NE(get(port_.first(), "/statusz?checkpoint=7&uid=u").find("inPodRestarts"), std::string::npos);
  EXPECT_EQ(requested_, 7);
  EXPECT_NE(get(port_.first(), "/statusz?checkpoint=8&uid=u"), "");
  EXPECT_EQ(requested_, 7);
}

TEST_F(StatusServerTest, ServesNothingBeforeARestart) {
  server_.ranks_start(now_);
  pass(StatusServer::kPatience, {});
  EXPECT_EQ(status(), "");
  pass(StatusServer::kPatience);
  EXPECT_NE(status(), "");
}

TEST_F(StatusServerTest, ServesTheStateOfRanksThatReportNothing) {
  board_.add_process(0, ::getpid());
  server_.ranks_start(now_);
  while (now_ + StatusServer::kPatience < SteadyTime() + StatusServer::kFirstPatience)
    pass(StatusServer::kPatience, {});
  EXPECT_EQ(status(), "");
  pass(StatusServer::kPatience, {});
  const std::string response = status();
  const auto ranks = rank_activities_from_json(response.substr(response.find("\r\n\r\n") + 4), 8);
  ASSERT_EQ(ranks.size(), 1) << response;
  EXPECT_EQ(std::pair(ranks[0].rank, ranks[0].step), std::pair(0, std::optional<int64_t>()));
  EXPECT_NE(ranks[0].state, "");
  EXPECT_FALSE(rank_status_from_json(response.substr(response.find("\r\n\r\n") + 4))) << "that would be progress";
}

TEST_F(StatusServerTest, LeavesThePortToRanksThatHaveListenedOnIt) {
  server_.ranks_start(now_);
  {
    const FileDescriptor of_rank = listen();
    pass(StatusServer::kPatience, {});
  }
  server_.ranks_start(now_);
  EXPECT_FALSE(server_.deadline());
  pass(StatusServer::kPatience);
  EXPECT_EQ(status(), "");
}

TEST_F(StatusServerTest, ServesReportsImmediatelyAndDuringRestarts) {
  server_.ranks_start(now_);
  board_.add(0, {.step = 7, .loss = 0.5});
  pass({}, {});
  const std::string response = status();
  const auto read = rank_status_from_json(response.substr(response.find("\r\n\r\n") + 4));
  ASSERT_TRUE(read) << response;
  EXPECT_EQ(std::tuple(read->step, read->attempt, read->world_size, read->loss), std::tuple(7, 4, 2, 0.5));
  EXPECT_NE(get(port_.first(), "/metrics").find("\ntrainer_current_step{rank=\"0\"} 7\n"), std::string::npos);
  server_.ranks_start(now_);
  EXPECT_NE(status(), "");
}

TEST_F(StatusServerTest, ReportsWithoutAStepAreNoProgress) {
  server_.ranks_start(now_);
  board_.add(0, {.loss = 0.5});
  pass({}, {});
  const auto body = [this] {
    const std::string response = status();
    return response.substr(response.find("\r\n\r\n") + 4);
  };
  EXPECT_FALSE(rank_status_from_json(body())) << body();
  EXPECT_EQ(rank_activities_from_json(body(), 8).size(), 1);
  board_.add(1, {.step = 3});
  EXPECT_EQ(rank_status_from_json(body())->step, 3);
}

TEST_F(StatusServerTest, LeavesThePortToAProgramThatReportsAndListens) {
  const FileDescriptor of_rank = listen();
  server_.ranks_start(now_);
  board_.add(0, {.step = 7});
  pass({}, {});
  EXPECT_FALSE(server_.deadline());
}

TEST_F(StatusServerTest, FindsListenersOnly) {
  EXPECT_FALSE(is_port_in_use(port_.first()));
  const FileDescriptor listener = listen();
  EXPECT_TRUE(is_port_in_use(port_.first()));
}

}  // namespace
}  // namespace oarlock::launch
