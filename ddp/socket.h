// TCP sockets for the rendezvous and the peer monitor. LibTorch-free.
#pragma once

#include <chrono>
#include <string>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

struct Listener {
  int descriptor = -1;  // owned by the caller
  int port = 0;
};

// Returns a TCP socket that listens on all addresses, IPv6 and IPv4 if the kernel supports both. Port 0 selects a free
// port. kTempFail if the port is in use, kUnavailable if it cannot be bound for another reason.
Result<Listener> listen_on(int port);

// Numeric addresses of both ends of a connection.
struct ConnectionAddresses {
  std::string peer;
  std::string local;
};

// Resolves `host`, connects once and closes the connection. The error message is the reason alone ("Connection
// refused"), because the caller reports host and port. kNoHost if the name does not resolve, kUnavailable if it does
// but no connection can be made within `timeout`.
Result<ConnectionAddresses> probe_endpoint(const std::string& host, int port, std::chrono::milliseconds timeout);

// Starts a non-blocking connect to a numeric address. When it has finished, the socket is writable or has an error.
Result<FileDescriptor> start_connect(const std::string& numeric_address, int port);

bool is_loopback(const std::string& numeric_address);

}  // namespace oarlock
