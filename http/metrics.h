// Text exposition of Prometheus metrics, including the process_* metrics.
#pragma once

#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <functional>
#include <memory>

#include "http/server.h"

namespace oarlock {

using FamilySink = std::function<void(prometheus::MetricFamily family)>;

// Passes metric families to the sink, one after another, so that a large exposition needs the memory of one family and
// of the text. Called at each scrape, on a thread of the HTTP server.
using FamilySource = std::function<void(const FamilySink& sink)>;

// Returns a thread-safe handler that renders all metrics of the registry in the text format 0.0.4, together with the
// process_* metrics (CPU seconds, resident and virtual memory, start time, open and maximum file descriptors) and the
// families of `computed`, which must have other names. It renders one exposition at a time, so that concurrent scrapes
// do not multiply the memory for rendering.
HttpHandler metrics_handler(std::shared_ptr<prometheus::Registry> registry, FamilySource computed = {});

}  // namespace oarlock
