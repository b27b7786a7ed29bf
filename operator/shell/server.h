// What the operator serves: /healthz, /readyz and /metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/http/metrics.h"
#include "common/http/server.h"

namespace oarlock::control {

struct ServerSources {
  // The first two must not block: they run on the server's I/O thread.
  std::function<std::string()> why_not_healthy;  // empty: healthy. Not healthy means: only a restart helps
  std::function<std::string()> why_not_ready;    // empty: ready
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics;
};

HttpRoutes operator_routes(ServerSources sources);

}  // namespace oarlock::control
