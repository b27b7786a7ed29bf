#include "operator/kube/dial.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

namespace oarlock::kube {
namespace {

using Kind = TransportError::Kind;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

tl::unexpected<TransportError> no_connection(std::string message) {
  return tl::make_unexpected(TransportError{Kind::kConnect, std::move(message)});
}

// Null: none. Blocks for as long as the resolver takes, unless AI_NUMERICHOST is among the flags.
Addresses addresses_of(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  return Addresses(::getaddrinfo(host.c_str(), port.c_str(), &hints, &list) == 0 ? list : nullptr);
}

// getaddrinfo cannot be interrupted, so a name is looked up by a thread that a caller without patience leaves behind.
TransportResult<Addresses> look_up(const ServerAddress& server, Waiter& waiter) {
  if (is_ip_address(server.host)) return addresses_of(server.host, server.port, AI_NUMERICHOST);
  struct Lookup {
    std::promise<Addresses> found;
    Bell done;
  };
  const auto lookup = std::make_shared<Lookup>();
  std::future<Addresses> found = lookup->found.get_future();
  std::thread([lookup, host = server.host, port = server.port] {
    lookup->found.set_value(addresses_of(host, port, 0));
    lookup->done.ring();
  }).detach();
  if (const auto good = waiter.wait(lookup->done.fd(), POLLIN); !good) return tl::make_unexpected(good.error());
  return found.get();
}

// 0, or why there is no connection. Not for longer than until `limit`.
TransportResult<int> connect_to(const addrinfo& address, const FileDescriptor& socket, Waiter::Time limit,
                                Waiter& waiter) {
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  return waiter.wait_until(socket.get(), POLLOUT, limit).map([&](bool in_time) {
    if (!in_time) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  });
}

int count(const addrinfo* list) {
  int addresses = 0;
  for (; list != nullptr; list = list->ai_next) ++addresses;
  return addresses;
}

}  // namespace

TransportResult<FileDescriptor> dial(const ServerAddress& server, Waiter& waiter) {
  const TransportResult<Addresses> addresses = look_up(server, waiter);
  if (!addresses) return tl::make_unexpected(addresses.error());
  if (*addresses == nullptr) return no_connection("the host name cannot be resolved");
  int problem = 0;
  for (const addrinfo* one = addresses->get(); one != nullptr; one = one->ai_next) {
    FileDescriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.open()) {
      problem = errno;
      continue;
    }
    // An address that does not answer leaves the others their share of the time.
    const auto now = std::chrono::steady_clock::now();
    const auto limit = one->ai_next == nullptr ? Waiter::Time::max() : now + (waiter.end() - now) / count(one);
    const TransportResult<int> error = connect_to(*one, socket, limit, waiter);
    if (!error) return tl::make_unexpected(error.error());
    problem = *error;
    if (problem != 0) continue;
    const int at_once = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    waiter.progress();
    return socket;
  }
  return no_connection(fmt::format("no connection: {}", std::strerror(problem)));
}

}  // namespace oarlock::kube
