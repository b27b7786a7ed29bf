// The socket operations of the rendezvous (listening where rank 0 serves, and reaching it) and of the peer watch.
// LibTorch-free.
#pragma once

#include <chrono>
#include <string>

#include "common/error.h"
#include "common/file_descriptor.h"

namespace oarlock {

// A TCP socket that listens on all addresses, IPv6 and IPv4 where the kernel has both; port 0 picks a free one. The
// caller owns the descriptor. kTempFail when the port is in use, kUnavailable when it cannot be had for another reason.
struct Listener {
  int descriptor = -1;
  int port = 0;
};
Result<Listener> listen_on(int port);

// Both ends of a connection that was made, as numeric addresses.
struct Reached {
  std::string peer_address;
  std::string local_address;
};

// Resolves and connects once, then closes. The error is the reason alone ("Connection refused"): the caller knows host
// and port. kNoHost: the name does not resolve; kUnavailable: it does, and nobody answers.
Result<Reached> reach(const std::string& host, int port, std::chrono::milliseconds timeout);

// Begins to connect to a numeric address and does not wait: the socket is writable, or has an error, when that is done.
Result<FileDescriptor> begin_to_reach(const std::string& numeric_address, int port);

// Name of this host: in Kubernetes that of the pod, or of the node with hostNetwork.
std::string host_name();

bool is_loopback(const std::string& numeric_address);

}  // namespace oarlock
