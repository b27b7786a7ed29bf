// The Prometheus side of a program: text exposition of a registry, and the process_* metrics.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/registry.h>

#include <memory>
#include <vector>

#include "common/http/server.h"

namespace oarlock {

// GET handler with the text format 0.0.4 of everything in the registry, followed by the process_* family
// (cpu seconds, resident and virtual memory, start time, open and maximal file descriptors), read at each scrape.
// One exposition is rendered at a time: simultaneous scrapes do not multiply the memory that rendering needs.
HttpHandler metrics_handler(std::shared_ptr<prometheus::Registry> registry);

// The same for several sources: registries, and collectables that make up their families at each scrape. A family must
// come from one source only.
HttpHandler metrics_handler(std::vector<std::shared_ptr<prometheus::Collectable>> sources);

}  // namespace oarlock
