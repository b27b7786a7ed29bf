// Addresses of one host, looked up within the limits of a call.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "operator/kube/http/call_limits.h"
#include "operator/kube/transport.h"

namespace oarlock::kube {

// Thread-safe.
//
// getaddrinfo(3) cannot be interrupted and may block for as long as the system's resolver is configured to retry. Asio
// runs it in a thread that the destructor of the io_context joins, and a blocked lookup would therefore delay the end
// of the call and of the program. Here, each lookup runs in a detached thread that owns everything it uses: the name,
// the function and, through a shared pointer, the place of its result. A caller waits for that result on a condition
// variable until its own deadline or cancellation, and then leaves the lookup behind; the thread never refers to the
// Resolver, and the end of the process ends it wherever it is. Calls that need the same lookup share it, and a lookup
// that has not ended after kSharedLookup is given up for a new one, so that a resolver that blocks holds a thread for
// each kSharedLookup at most.
class Resolver {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  using Endpoints = std::vector<Endpoint>;
  // Blocks. Empty: the name cannot be resolved.
  using Lookup = std::function<Endpoints(const std::string& host, const std::string& port)>;

  static constexpr std::chrono::seconds kSharedLookup{10};

  Resolver(std::string host, std::string port, Lookup lookup = look_up_with_system);

  // At least one endpoint. kConnect if there is none, or an error of the limits. IP addresses need no lookup.
  TransportResult<Endpoints> resolve(const CallLimits& limits);

 private:
  struct Pending;

  static Endpoints look_up_with_system(const std::string& host, const std::string& port);
  TransportResult<std::shared_ptr<Pending>> pending();

  const std::string host_;
  const std::string port_;
  const Lookup lookup_;
  std::mutex mutex_;
  std::shared_ptr<Pending> pending_;  // the lookup that was started last; null: none
};

}  // namespace oarlock::kube
