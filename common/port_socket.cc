#include "common/port_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <utility>

namespace oarlock {
namespace {

using Backlog = std::optional<int>;  // absent: the socket does not listen

bool set_option(int socket, int level, int option, int value) {
  return ::setsockopt(socket, level, option, &value, sizeof value) == 0;
}

int bind_socket(int family, int port, Backlog backlog, PortSocket& out) {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.open()) return errno;
  const auto allow_reuse = [&] { return set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1); };
  const bool is_six = family == AF_INET6;
  if (is_six && !set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) return errno;
  if (backlog && !allow_reuse()) return errno;
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(static_cast<uint16_t>(port));
  six.sin6_addr = in6addr_any;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  auto* address = is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = is_six ? sizeof six : sizeof four;
  if (::bind(socket.get(), address, size) != 0 || ::getsockname(socket.get(), address, &size) != 0) return errno;
  if (backlog ? ::listen(socket.get(), *backlog) != 0 : !allow_reuse()) return errno;
  out = {std::move(socket), ntohs(is_six ? six.sin6_port : four.sin_port)};
  return 0;
}

int bind_to_all_addresses(int port, Backlog backlog, PortSocket& out) {
  const int error = bind_socket(AF_INET6, port, backlog, out);
  return error == 0 || error == EADDRINUSE ? error : bind_socket(AF_INET, port, backlog, out);
}

}  // namespace

int listen_on_port(int port, int backlog, PortSocket& out) { return bind_to_all_addresses(port, backlog, out); }

int reserve_port(int port, PortSocket& out) { return bind_to_all_addresses(port, std::nullopt, out); }

}  // namespace oarlock
