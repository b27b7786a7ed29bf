// TCP sockets that are bound to a port on all addresses of this host.
#pragma once

#include "common/files.h"

namespace oarlock {

struct PortSocket {
  FileDescriptor socket;  // blocking; child processes do not inherit it
  int port = 0;
};

// Each function binds a dual-stack socket, or an IPv4 socket if the kernel has no IPv6. Port 0 selects a free port.
// Returns 0, or the errno of the call that failed; `out` is then unchanged.

// Listens with at most `backlog` pending connections. The port may still have connections of an earlier server.
[[nodiscard]] int listen_on_port(int port, int backlog, PortSocket& out);

// Binds the port without listening. SO_REUSEADDR is set after bind(2): the socket shares the port with no server that
// has bound it already, and a later server with SO_REUSEADDR may listen on it.
[[nodiscard]] int reserve_port(int port, PortSocket& out);

}  // namespace oarlock
