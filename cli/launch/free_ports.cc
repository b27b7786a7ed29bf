#include "cli/launch/free_ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <iterator>

#include "common/file_descriptor.h"

namespace oarlock::launch {
namespace {

struct Bound {
  FileDescriptor socket;
  int port = 0;
};

Result<Bound> bind_port(int port) {
  Bound bound{FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  if (!bound.socket.open()) return fail_errno(errno, "a socket cannot be made");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(bound.socket.get(), generic, size) != 0 || ::getsockname(bound.socket.get(), generic, &size) != 0) {
    return fail_errno(errno, fmt::format("port {} of 127.0.0.1 cannot be had", port));
  }
  bound.port = ntohs(address.sin_port);
  return bound;
}

}  // namespace

Result<std::vector<int>> free_port_ranges(int ranges, int length) {
  constexpr int kTries = 100;
  std::vector<Bound> held;  // until all are found, so that none comes twice
  std::vector<int> firsts;
  for (int tries = 0; static_cast<int>(firsts.size()) < ranges; ++tries) {
    if (tries == kTries * ranges) {
      return fail(ExitCode::kUnavailable, fmt::format("no {} free ports in a row were found on 127.0.0.1", length));
    }
    Result<Bound> first = bind_port(0);
    if (!first) return tl::make_unexpected(first.error());
    const int port = first->port;
    std::vector<Bound> range;
    range.push_back(std::move(*first));
    while (static_cast<int>(range.size()) < length && port + static_cast<int>(range.size()) <= 65535) {
      Result<Bound> next = bind_port(port + static_cast<int>(range.size()));
      if (!next) break;
      range.push_back(std::move(*next));
    }
    if (static_cast<int>(range.size()) < length) continue;
    std::move(range.begin(), range.end(), std::back_inserter(held));
    firsts.push_back(port);
  }
  return firsts;
}

}  // namespace oarlock::launch
