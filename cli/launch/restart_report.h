// The report of in-pod restarts to the operator, which polls the metrics port of node rank 0 (common/contract.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/contract.h"
#include "http/server.h"

namespace oarlock::launch {

// Whether a process of this network namespace listens on the port.
bool is_port_in_use(int port);

// Serves GET /statusz on the metrics port of node rank 0, in place of its ranks, after the first in-pod restart. Ranks
// that serve it themselves (oarlock-trainer) take precedence: after each start they have kPatience to listen on the
// port, and the server is closed before they start again. Once they have listened on it, there is never a server. Not
// thread-safe.
class RestartReport {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  // `uid` and `attempt` are those of the job.
  RestartReport(int port, std::string uid, int attempt) : port_(port), uid_(std::move(uid)), attempt_(attempt) {}

  // Closes the server. Called before the ranks are started or restarted.
  void ranks_start(SteadyTime now);
  // Starts the server if it is due and `restarts` has any. A port that cannot be opened is tried again later.
  void time_passed(SteadyTime now, const InPodRestarts& restarts);
  // When to call time_passed(); nullopt: never.
  std::optional<SteadyTime> deadline() const { return check_at_; }

 private:
  int port_;
  std::string uid_;
  int attempt_;
  bool is_of_ranks_ = false;
  std::optional<SteadyTime> check_at_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace oarlock::launch
