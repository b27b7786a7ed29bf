// The coordinator of a preflight, on node rank 0: it waits for the launchers of all nodes, lets them measure the links
// between them in rounds, and sends each of them its outcome.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "cli/launch/preflight_judgement.h"
#include "common/clock.h"
#include "common/error.h"

namespace oarlock::launch {

struct PreflightServerOptions {
  int port = 0;
  std::string token;  // that all launchers of the job share
  int nodes = 1;
  PreflightLimits limits;
  SteadyTime join_until;  // nodes that have not joined by then are missing
};

// Serves in its own thread, which uses no other part of the launcher. The launcher of node rank 0 connects to it, too.
class PreflightServer {
 public:
  // Fails with kUnavailable if it cannot listen on the port.
  static Result<std::unique_ptr<PreflightServer>> start(PreflightServerOptions options);

  // Returns when the other launchers have read their outcomes, as this one has; after two seconds at the
  // latest. The destructor stops the thread earlier.
  void finish() { thread_.join(); }

 private:
  explicit PreflightServer(std::jthread thread) : thread_(std::move(thread)) {}

  std::jthread thread_;
};

}  // namespace oarlock::launch
