// The report of in-pod restarts to the operator, which polls the metrics port of node rank 0 (common/contract.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/contract.h"
#include "common/http/server.h"

namespace oarlock::launch {

// Whether a process of this network namespace listens on the port.
bool is_port_in_use(int port);

// Serves GET /statusz while the ranks run, after the first in-pod restart, if they do not listen on the port. It
// belongs to the ranks: they have kPatience from their start to listen on it, each time, and the server is
// closed before they start again. Once they have listened on it, there is never a server. Not thread-safe.
class RestartReport {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  RestartReport(int port, std::string uid, int attempt) : port_(port), uid_(std::move(uid)), attempt_(attempt) {}

  void ranks_start(SteadyTime now);
  void time_passed(SteadyTime now, const InPodRestarts& restarts);
  std::optional<SteadyTime> deadline() const { return check_at_; }

 private:
  int port_;
  std::string uid_;  // of the job
  int attempt_;
  bool is_of_ranks_ = false;
  std::optional<SteadyTime> check_at_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace oarlock::launch
