// Only the intended server can use a reserved port.
#include "common/port_reservation.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace oarlock {
namespace {

#ifndef IP_LOCAL_PORT_RANGE
constexpr int IP_LOCAL_PORT_RANGE = 51;  // <linux/in.h> since 6.3
#endif

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// errno of the call, or 0.
int bind_to(const FileDescriptor& socket, int port) {
  const sockaddr_in address = loopback(port);
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}
int connect_to(const FileDescriptor& socket, int port) {
  const sockaddr_in address = loopback(port);
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

FileDescriptor tcp_socket() { return FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

FileDescriptor server_socket() {
  FileDescriptor socket = tcp_socket();
  const int on = 1;
  EXPECT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  return socket;
}

PortReservation reserve(int length) {
  Result<PortReservation> ports = PortReservation::make(length);
  if (!ports) throw std::runtime_error(ports.error().message);
  return std::move(*ports);
}

TEST(PortReservation, ServerListensWhileThePortIsReserved) {
  const PortReservation ports = reserve(3);
  for (int port = ports.first(); port < ports.first() + 3; ++port) {
    EXPECT_EQ(connect_to(tcp_socket(), port), ECONNREFUSED);
    const FileDescriptor server = server_socket();
    ASSERT_EQ(bind_to(server, port), 0);
    ASSERT_EQ(::listen(server.get(), 1), 0);
    EXPECT_EQ(connect_to(tcp_socket(), port), 0);
  }
}

// With IP_LOCAL_PORT_RANGE the reserved port is the only one that the kernel may select.
TEST(PortReservation, KernelDoesNotSelectReservedPort) {
  const PortReservation ports = reserve(1);
  const auto only = static_cast<uint32_t>(ports.first());
  const uint32_t range = only << 16 | only;
  const FileDescriptor listener = server_socket();  // for the connection
  ASSERT_EQ(bind_to(listener, 0), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);

  const FileDescriptor client = tcp_socket();
  if (::setsockopt(client.get(), IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range) != 0) {
    GTEST_SKIP() << "the kernel has no IP_LOCAL_PORT_RANGE (Linux 6.3)";
  }
  EXPECT_EQ(connect_to(client, ntohs(address.sin_port)), EADDRNOTAVAIL);
  for (const bool is_server : {false, true}) {
    const FileDescriptor socket = is_server ? server_socket() : tcp_socket();
    ASSERT_EQ(::setsockopt(socket.get(), IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range), 0);
    EXPECT_EQ(bind_to(socket, 0), EADDRINUSE);
  }
}

TEST(PortReservation, ReservationsDoNotOverlap) {
  const PortReservation one = reserve(4);
  const PortReservation other = reserve(4);
  EXPECT_TRUE(one.first() + 4 <= other.first() || other.first() + 4 <= one.first());
}

TEST(PortReservation, SocketWithoutReuseCannotBind) {
  const PortReservation ports = reserve(1);
  EXPECT_EQ(bind_to(tcp_socket(), ports.first()), EADDRINUSE);
}

TEST(PortReservation, ReportsImpossibleRange) {
  const Result<PortReservation> ports = PortReservation::make(70'000);
  ASSERT_FALSE(ports);
  EXPECT_EQ(ports.error().code, ExitCode::kUnavailable);
}

}  // namespace
}  // namespace oarlock
