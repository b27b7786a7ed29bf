// The API server as the benchmark's load sees it: a call succeeds or the program ends with the reason.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "operator/kube/transport.h"

namespace oarlock::bench {

// Thread-safe. Every call throws std::runtime_error where there is no 2xx answer.
class Server {
 public:
  // `user_agent` tells this load apart in the server's audit log.
  Server(const std::string& kubeconfig, const std::string& user_agent);

  nlohmann::json get(const std::string& target);
  // Returns the created object.
  nlohmann::json post(const std::string& target, const std::string& body);
  // Without grace, the dependents in the background. An object that is gone already is no error.
  void remove(const std::string& target);

 private:
  kube::Response call(const kube::Request& request);

  std::unique_ptr<kube::Transport> transport_;
};

}  // namespace oarlock::bench
