// Metrics that are computed from the cache and the queue at each scrape.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "http/metrics.h"
#include "kube/client/work_queue.h"
#include "operator/shell/cache.h"
#include "operator/shell/cached_objects.h"

namespace oarlock::control {

// A deleted job has no series, because no state is kept between scrapes. At most `max_jobs` jobs have series, and fewer
// if their text, whose labels tenants choose, would be larger than kMaxText bytes, of which a scrape takes about three
// times as much memory. They are selected in this order: running jobs, then waiting ones, each from the oldest; then
// finished jobs, from the last to finish. Within each of the three, the namespaces take turns.
// trainingjob_dropped_series is the number of jobs without series. Thread-safe if the functions of the source are.
class JobMetrics {
 public:
  static constexpr size_t kMaxText = size_t{8} << 20;

  // Called at each scrape, on a thread of the HTTP server.
  struct Source {
    std::function<std::vector<std::shared_ptr<const CachedJob>>()> jobs;
    std::function<kube::Seconds()> unfinished_work;
    std::function<kube::Seconds()> longest_work;
    std::function<kube::Seconds(ResourceKind)> out_of_date;  // CacheHealth::out_of_date()
  };
  explicit JobMetrics(Source source, size_t max_jobs = 2000) : source_(std::move(source)), max_jobs_(max_jobs) {}

  // Passes one family after another to the sink; none without series.
  void collect(const FamilySink& sink) const;

 private:
  const Source source_;
  const size_t max_jobs_;
};

}  // namespace oarlock::control
