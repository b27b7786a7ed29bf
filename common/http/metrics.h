// Text exposition of Prometheus metrics, including the process_* metrics.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/registry.h>

#include <memory>
#include <vector>

#include "common/http/server.h"

namespace oarlock {

// Returns a thread-safe handler that renders all metrics of the registry in the text format 0.0.4, together with the
// process_* metrics (CPU seconds, resident and virtual memory, start time, open and maximum file descriptors). It
// renders one exposition at a time, so that concurrent scrapes do not multiply the memory for rendering.
HttpHandler metrics_handler(std::shared_ptr<prometheus::Registry> registry);

// Like the function above for several sources: registries, and collectables that create their families at each scrape.
// Each metric family must come from one source only.
HttpHandler metrics_handler(std::vector<std::shared_ptr<prometheus::Collectable>> sources);

}  // namespace oarlock
