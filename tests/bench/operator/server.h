// The API server's client of the benchmark's load generator: a call succeeds, or the program ends with the reason.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "http/client/transport.h"

namespace oarlock::bench {

// Thread-safe. Every call throws std::runtime_error if the response is not 2xx.
class Server {
 public:
  // `user_agent` identifies this load in the audit log of the server.
  Server(const std::string& kubeconfig, const std::string& user_agent);

  nlohmann::json get(const std::string& target);
  // Returns the created object.
  nlohmann::json post(const std::string& target, const std::string& body);
  // Without grace, the dependents in the background. An object that no longer exists is not an error.
  void remove(const std::string& target);

 private:
  http::Response call(const http::Request& request);

  std::unique_ptr<http::Transport> transport_;
};

}  // namespace oarlock::bench
