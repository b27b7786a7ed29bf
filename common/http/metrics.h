// The Prometheus side of a program: text exposition of a registry, and the process_* metrics.
#pragma once

#include <prometheus/registry.h>

#include <memory>

#include "common/http/server.h"

namespace oarlock {

// GET handler with the text format 0.0.4 of everything in the registry, followed by the process_* family
// (cpu seconds, resident and virtual memory, start time, open and maximal file descriptors), read at each scrape.
HttpHandler metrics_handler(std::shared_ptr<prometheus::Registry> registry);

}  // namespace oarlock
