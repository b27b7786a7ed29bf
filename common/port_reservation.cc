#include "common/port_reservation.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/port_socket.h"
#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kTries = 100;

Result<PortSocket> bind_port(int port) {
  PortSocket bound;
  if (const int error = reserve_port(port, bound); error != 0)
    return fail_errno(error, fmt::format("port {} cannot be reserved", port));
  return bound;
}

// Binds the ports that follow `first`. Returns an empty value if one of them is in use.
std::optional<std::vector<FileDescriptor>> complete_range(PortSocket first, int length) {
  std::vector<FileDescriptor> sockets;
  const int begin = first.port;
  if (begin + length - 1 > kMaxPort) return std::nullopt;
  sockets.push_back(std::move(first.socket));
  while (static_cast<int>(sockets.size()) < length) {
    Result<PortSocket> next = bind_port(begin + static_cast<int>(sockets.size()));
    if (!next) return std::nullopt;
    sockets.push_back(std::move(next->socket));
  }
  return sockets;
}

}  // namespace

Result<PortReservation> PortReservation::make(int length) {
  for (int tries = 0; tries < kTries; ++tries) {
    ASSIGN_OR_RETURN(PortSocket bound, bind_port(0));
    const int first = bound.port;
    if (auto sockets = complete_range(std::move(bound), length)) return PortReservation(first, std::move(*sockets));
  }
  return fail(ExitCode::kUnavailable, fmt::format("no {} consecutive free ports were found on this host", length));
}

}  // namespace oarlock
