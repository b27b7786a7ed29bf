// Reserves free TCP ports for servers that other processes start later.
#pragma once

#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace oarlock {

// A range of consecutive TCP ports that were free on every address of this host, reserved for the lifetime of the
// object.
//
// Each port is held by a socket that is bound, has SO_REUSEADDR and does not listen. The kernel therefore does not
// assign the port to a bind() to port 0 or to an outgoing connection, and refuses connections to it until a server
// listens. A server that sets SO_REUSEADDR before bind(), as nearly all do (c10d's TCPStore, libuv, Go, Python's
// socketserver, Boost.Asio), binds the port and listens on it while the reservation lasts; a server that does not set
// it fails with EADDRINUSE. Child processes do not inherit the sockets.
class PortReservation {
 public:
  // Reserves `length` >= 1 ports. Fails with kUnavailable if no such range is free.
  static Result<PortReservation> make(int length);

  int first() const { return first_; }

 private:
  PortReservation(int first, std::vector<FileDescriptor> sockets) : first_(first), sockets_(std::move(sockets)) {}

  int first_;
  std::vector<FileDescriptor> sockets_;
};

}  // namespace oarlock
