#include "common/port_reservation.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <utility>
#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kTries = 100;

struct BoundSocket {
  FileDescriptor socket;
  int port = 0;
};

bool enable(int socket, int level, int option, int value) {
  return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

// Binds a socket to `port` on every address of the family; 0 selects a free port. Returns 0, or errno on failure.
int bind_socket(int family, int port, BoundSocket& out) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.open()) return errno;
  sockaddr_in6 six{};
  sockaddr_in four{};
  const bool is_six = family == AF_INET6;
  if (is_six && !enable(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) return errno;
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  six.sin6_addr = in6addr_any;
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  auto* address = is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = is_six ? sizeof six : sizeof four;
  if (::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) return errno;
  // This follows bind(), so that the socket cannot share a port with another server that has yet to listen.
  if (!enable(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1)) return errno;
  out = {std::move(socket), ntohs(is_six ? six.sin6_port : four.sin_port)};
  return 0;
}

// Binds a dual-stack socket, or an IPv4 socket on a host without IPv6.
Result<BoundSocket> bind_port(int port) {
  BoundSocket bound;
  int error = bind_socket(AF_INET6, port, bound);
  if (error != 0 && error != EADDRINUSE) error = bind_socket(AF_INET, port, bound);
  if (error != 0) return fail_errno(error, fmt::format("port {} cannot be reserved", port));
  return bound;
}

// Binds the ports that follow `first`. Returns an empty value if one of them is in use.
std::optional<std::vector<FileDescriptor>> complete_range(BoundSocket first, int length) {
  std::vector<FileDescriptor> sockets;
  const int begin = first.port;
  if (begin + length - 1 > kMaxPort) return std::nullopt;
  sockets.push_back(std::move(first.socket));
  while (static_cast<int>(sockets.size()) < length) {
    Result<BoundSocket> next = bind_port(begin + static_cast<int>(sockets.size()));
    if (!next) return std::nullopt;
    sockets.push_back(std::move(next->socket));
  }
  return sockets;
}

}  // namespace

Result<PortReservation> PortReservation::make(int length) {
  for (int tries = 0; tries < kTries; ++tries) {
    ASSIGN_OR_RETURN(BoundSocket bound, bind_port(0));
    const int first = bound.port;
    if (auto sockets = complete_range(std::move(bound), length)) return PortReservation(first, std::move(*sockets));
  }
  return fail(ExitCode::kUnavailable, fmt::format("no {} consecutive free ports were found on this host", length));
}

}  // namespace oarlock
