// Resolution of a host name for a loop that must not block.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace oarlock::launch {

struct SocketAddress {
  sockaddr_storage address{};
  socklen_t length = 0;
};

// Not thread-safe.
//
// getaddrinfo(3) cannot be interrupted, and blocks for as long as the system's resolver is configured to retry. It runs
// in a detached thread that owns everything it uses: the function, the name, and, through a shared pointer, the result.
// The destructor abandons the lookup, and the end of the process ends the thread.
class HostLookup {
 public:
  // Blocks until the lookup has ended. An empty result means that the name cannot be resolved.
  using Lookup = std::function<std::vector<SocketAddress>(const std::string& host, int port)>;

  // Starts a lookup. An IP address needs no thread, and its lookup has ended when the constructor returns.
  HostLookup(const std::string& host, int port, const Lookup& lookup = lookup_with_system);

  // Becomes readable when the lookup has ended; -1 if there is no thread.
  int fd() const;
  // Returns the addresses, which may be none, after the lookup has ended.
  std::optional<std::vector<SocketAddress>> result() const;

  static std::vector<SocketAddress> lookup_with_system(const std::string& host, int port);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace oarlock::launch
