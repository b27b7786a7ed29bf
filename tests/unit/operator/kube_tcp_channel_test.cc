// Connecting to unresponsive addresses, and properties of the socket.
#include "http/client/channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "tests/support/full_listener.h"

namespace oarlock::http {
namespace {

using namespace std::chrono_literals;
using boost::asio::ip::tcp;

class TcpChannelTest : public ::testing::Test {
 protected:
  Resolver::Endpoint silent() const { return at(listener_.port()); }
  Resolver::Endpoint open() const { return acceptor_.local_endpoint(); }
  static Resolver::Endpoint at(int port) {
    return {boost::asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)};
  }
  static Resolver::Endpoint refusing() {
    boost::asio::io_context io;
    return tcp::acceptor(io, at(0)).local_endpoint();  // closed when this returns
  }
  TransportResult<void> connect(const Resolver::Endpoints& endpoints, Milliseconds limit) {
    CallLimits limits({.idle = limit, .total = limit}, {});
    TcpChannel channel;
    channel.begin_call(limits);
    return channel.connect(endpoints);
  }

  const test::FullListener listener_;
  boost::asio::io_context io_;
  tcp::acceptor acceptor_{io_, at(0)};
};

TEST_F(TcpChannelTest, DividesTheTimeAmongAddresses) {
  const auto started = std::chrono::steady_clock::now();
  EXPECT_TRUE(connect({silent(), silent(), open()}, 4500ms));
  EXPECT_GE(std::chrono::steady_clock::now() - started, 2900ms);
}

TEST_F(TcpChannelTest, SkipsRefusingAddressImmediately) { EXPECT_TRUE(connect({refusing(), open()}, 20s)); }

TEST_F(TcpChannelTest, ReportsWhyTheLastAddressFailed) {
  const auto refused = connect({refusing()}, 20s);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, TransportErrorKind::kConnect);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("Connection refused"));
  const auto late = connect({silent(), silent()}, 300ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, TransportErrorKind::kDeadline);
}

// A credential plugin must not inherit the connection.
TEST_F(TcpChannelTest, SetsCloseOnExec) {
  CallLimits limits({.idle = 20s, .total = 20s}, {});
  TcpChannel channel;
  channel.begin_call(limits);
  ASSERT_TRUE(channel.connect({open()}));
  int inherited = 0;
  for (int fd = 3; fd < 64; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    const bool is_connection = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (is_connection && ntohs(peer.sin_port) == open().port() && (flags & FD_CLOEXEC) == 0) ++inherited;
  }
  EXPECT_EQ(inherited, 0);
}

}  // namespace
}  // namespace oarlock::http
