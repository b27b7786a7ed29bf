// Resolution of one host name within the limits of a call.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/http/client/call_limits.h"
#include "common/http/client/transport.h"

namespace oarlock::kube {

// Thread-safe.
//
// getaddrinfo(3) cannot be interrupted and may block for as long as the system's resolver is configured to retry. Asio
// runs it in a thread that the destructor of the io_context joins; a blocked lookup would therefore delay the end of
// the call and of the program. This class runs each lookup in a detached thread that owns everything it uses: the name,
// the function and, through a shared pointer, the result. A caller waits for the result on a condition variable until
// its own deadline or cancellation, and then abandons the lookup. The thread never refers to the Resolver, and the end
// of the process ends it. Concurrent calls share a lookup. A lookup that has not ended after kSharedLookup is abandoned
// in favor of a new one, so that a resolver that blocks holds at most one thread per kSharedLookup.
class Resolver {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  using Endpoints = std::vector<Endpoint>;
  // Blocks until the lookup has ended. An empty result means that the name cannot be resolved.
  using Lookup = std::function<Endpoints(const std::string& host, const std::string& port)>;

  static constexpr std::chrono::seconds kSharedLookup{10};

  Resolver(std::string host, std::string port, Lookup lookup = lookup_with_system);

  // Returns at least one endpoint. Fails with kConnect if the name cannot be resolved, or with the error of the limits.
  // An IP address needs no lookup.
  TransportResult<Endpoints> resolve(const CallLimits& limits);

 private:
  struct Pending;

  static Endpoints lookup_with_system(const std::string& host, const std::string& port);
  // Returns the lookup in progress, or starts one.
  TransportResult<std::shared_ptr<Pending>> pending_lookup();

  const std::string host_;
  const std::string port_;
  const Lookup lookup_;
  std::mutex mutex_;
  std::shared_ptr<Pending> pending_;  // the most recent lookup; null before the first
};

}  // namespace oarlock::kube
