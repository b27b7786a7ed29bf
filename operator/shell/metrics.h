// The operator's own metrics: controller-runtime's and client-go's names and labels, so that their dashboards and
// alerts work here too, and trainingjob_* for the jobs.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/core/model.h"
#include "operator/kube/transport.h"
#include "operator/kube/work_queue.h"
#include "operator/shell/cached_job.h"

namespace oarlock::control {

inline constexpr char kControllerName[] = "trainingjob";
inline constexpr char kLeaseName[] = "oarlock-operator";  // of the leader election

// Thread-safe.
class Metrics final : public kube::QueueObserver {
 public:
  explicit Metrics(const std::shared_ptr<prometheus::Registry>& registry);

  // result: success, error, requeue or requeue_after.
  void reconciled(const std::string& result, kube::Seconds took);
  void panicked();  // a reconcile ended with an exception
  void set_workers(int workers);
  void worker_busy(bool busy);

  void requested(const std::string& host, const std::string& method, int code,
                 kube::Seconds took);  // code 0: no answer

  // A status of this job was written.
  void status_changed(const Job& job, const api::Status& next);

  void event_dropped(const char* reason);  // EventRecorder::OnDrop

  // Of the cache, by resource.
  void cache_failures(const std::string& resource, int in_a_row);
  void cache_works(const std::string& resource, int failures_in_a_row, SystemTime now);
  void unreadable_object(const std::string& resource);
  void read_trimmed_job();  // a job whose spec exceeds Cache's budget was read from the API server

  // Of an operator that takes part in an election.
  void leading(bool leads);
  void leader_slow_path();

  void on_add(kube::QueueDepth depth) override;
  void on_get(kube::QueueDepth depth, kube::Seconds waited) override;
  void on_done(kube::Seconds worked) override;
  void on_retry() override;

 private:
  void set_depth(kube::QueueDepth depth);
  void time_phases(const Job& job, const api::Status& next);

  prometheus::Family<prometheus::Counter>& reconcile_total_;
  prometheus::Counter& reconcile_errors_;
  prometheus::Counter& reconcile_panics_;
  prometheus::Histogram& reconcile_time_;
  prometheus::Gauge& max_concurrent_;
  prometheus::Gauge& active_;
  prometheus::Gauge& depth_;
  prometheus::Gauge& low_depth_;
  prometheus::Counter& adds_;
  prometheus::Histogram& queue_duration_;
  prometheus::Histogram& work_duration_;
  prometheus::Counter& retries_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& request_duration_;
  prometheus::Family<prometheus::Gauge>& cache_failures_;
  prometheus::Family<prometheus::Gauge>& cache_success_;
  prometheus::Family<prometheus::Counter>& unreadable_;
  prometheus::Counter& trimmed_reads_;
  prometheus::Family<prometheus::Gauge>& leader_;
  prometheus::Family<prometheus::Counter>& leader_slow_path_;
  prometheus::Family<prometheus::Counter>& events_dropped_;
  prometheus::Family<prometheus::Counter>& jobs_created_;
  prometheus::Family<prometheus::Counter>& jobs_finished_;
  prometheus::Family<prometheus::Histogram>& startup_;
  prometheus::Family<prometheus::Histogram>& recovery_;
  prometheus::Family<prometheus::Histogram>& run_duration_;
};

// Counts and times what goes through, and remembers whether the server has ever answered.
class MeteredTransport final : public kube::Transport {
 public:
  MeteredTransport(std::shared_ptr<kube::Transport> inner, std::string host, std::shared_ptr<Metrics> metrics,
                   std::shared_ptr<const Clock> clock)
      : inner_(std::move(inner)), host_(std::move(host)), metrics_(std::move(metrics)), clock_(std::move(clock)) {}

  kube::TransportResult<kube::Response> send(const kube::Request& request, kube::Milliseconds deadline,
                                             std::stop_token cancel) override;
  kube::TransportResult<kube::Response> stream(const kube::Request& request, kube::ByteSink& sink,
                                               kube::StreamLimits limits, std::stop_token cancel) override;
  bool has_answered() const { return has_answered_; }

 private:
  class WatchingSink;
  void count(const kube::Request& request, const kube::TransportResult<kube::Response>& response, bool streamed,
             SteadyTime started);

  const std::shared_ptr<kube::Transport> inner_;
  const std::string host_;
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<const Clock> clock_;
  std::atomic<bool> has_answered_ = false;
};

// Families computed from the present state at each scrape, so that deleted jobs leave no series behind. At most
// `max_jobs` jobs have series: first those that run, then those that are to run, each the oldest first, then those that
// finished last. trainingjob_dropped_series counts the jobs without series.
class JobMetrics final : public prometheus::Collectable {
 public:
  struct Source {
    std::function<std::vector<std::shared_ptr<const CachedJob>>()> jobs;
    std::function<kube::Seconds()> unfinished_work;
    std::function<kube::Seconds()> longest_work;
  };
  explicit JobMetrics(Source source, size_t max_jobs = 2000) : source_(std::move(source)), max_jobs_(max_jobs) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Source source_;
  const size_t max_jobs_;
};

}  // namespace oarlock::control
