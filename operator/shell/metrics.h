// The operator's metrics that are updated by events: controller-runtime's and client-go's under their names and labels,
// so that their dashboards and alerts work here too, and those of the cache, the Events and the jobs. Metrics that are
// computed from the cache at each scrape are in job_metrics.h.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/clock.h"
#include "http/client/transport.h"
#include "kube/client/work_queue.h"
#include "operator/core/model.h"

namespace oarlock::control {

inline constexpr char kControllerName[] = "trainingjob";
inline constexpr char kLeaseName[] = "oarlock-operator";  // of the leader election

inline constexpr size_t kMaxNamespaces = 250;  // with metrics of job events; about 8 KB each in a response

// Thread-safe.
class Metrics final : public kube::QueueObserver {
 public:
  explicit Metrics(const std::shared_ptr<prometheus::Registry>& registry);

  // result: success, error, requeue or requeue_after.
  void observe_reconcile(const std::string& result, kube::Seconds duration);
  void count_panic();  // a reconcile failed with an exception
  void set_max_workers(int workers);
  void increment_active_workers();
  void decrement_active_workers();

  // Code 0: no response. A negative duration is counted, but not observed.
  void observe_request(const std::string& host, const std::string& method, int code, kube::Seconds duration);

  // To be called after the status `next` of the job has been written.
  void observe_status_change(const Job& job, const api::Status& next);

  void count_dropped_event(const char* reason);  // EventRecorder::OnDrop

  // Metrics of the cache's informers, by resource.
  void set_cache_failures(const std::string& resource, int consecutive);
  void record_cache_success(const std::string& resource, int consecutive_failures, SystemTime now);
  void count_unreadable_object(const std::string& resource);
  void set_incomplete_namespaces(const std::string& resource, size_t namespaces);
  void count_trimmed_job_read();  // a job whose spec exceeds the cache's budget was read from the API server

  // Called with leader election only.
  void set_leader(bool is_leader);
  void count_leader_slow_path();

  void on_add(size_t depth) override;
  void on_get(size_t depth, kube::Seconds waited) override;
  void on_done(kube::Seconds worked) override;
  void on_retry() override;

 private:
  template <typename T>
  using Family = prometheus::Family<T>;
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;

  struct ReconcileMetrics {
    explicit ReconcileMetrics(prometheus::Registry& registry);
    Family<Counter>& total;
    Counter& errors;
    Counter& panics;
    Histogram& duration;
    Gauge& max_workers;
    Gauge& active_workers;
  };
  struct WorkQueueMetrics {
    explicit WorkQueueMetrics(prometheus::Registry& registry);
    Gauge& depth;
    Counter& adds;
    Histogram& queue_duration;
    Histogram& work_duration;
    Counter& retries;
  };
  struct ClientMetrics {
    explicit ClientMetrics(prometheus::Registry& registry);
    Family<Counter>& requests;
    Family<Histogram>& duration;
  };
  struct CacheMetrics {
    explicit CacheMetrics(prometheus::Registry& registry);
    Family<Gauge>& failures;
    Family<Gauge>& last_success;
    Family<Counter>& unreadable;
    Counter& trimmed_reads;
    Family<Gauge>& incomplete;
  };
  struct LeaderMetrics {
    explicit LeaderMetrics(prometheus::Registry& registry);
    Family<Gauge>& is_leader;
    Family<Counter>& slow_path;
  };
  // Of jobs, by namespace. Tenants may create a namespace for each run, so that only those of the last kMaxNamespaces
  // namespaces are kept; one that appears again begins at 0, as after a restart of the operator.
  class JobEventMetrics {
   public:
    explicit JobEventMetrics(prometheus::Registry& registry);
    void observe(const Job& job, const api::Status& next);
    Family<Counter>& dropped_events;

   private:
    struct Namespace {
      std::set<Counter*> created;
      std::set<Counter*> finished;
      std::set<Counter*> evictions;
      std::set<Histogram*> startup;
      std::set<Histogram*> startup_stages;
      std::set<Histogram*> recovery;
      std::set<Histogram*> run_duration;
      int64_t last_use = 0;
    };

    Namespace& use(const std::string& name);
    // Uses the timestamps of the status, so that every operator process would observe the same.
    void observe_durations(const Job& job, const api::Status& next, Namespace& series);

    Family<Counter>& created_;
    Family<Counter>& finished_;
    Family<Counter>& evictions_;
    Family<Histogram>& startup_;
    Family<Histogram>& startup_stages_;
    Family<Histogram>& recovery_;
    Family<Histogram>& run_duration_;
    std::mutex mutex_;
    std::map<std::string, Namespace> namespaces_;
    int64_t uses_ = 0;
  };

  ReconcileMetrics reconcile_;
  WorkQueueMetrics queue_;
  ClientMetrics client_;
  CacheMetrics cache_;
  LeaderMetrics leader_;
  JobEventMetrics jobs_;
};

// Counts and times the requests of a transport, and records whether the server has ever responded. Thread-safe.
class InstrumentedTransport final : public http::Transport {
 public:
  InstrumentedTransport(std::shared_ptr<http::Transport> inner, std::string host, std::shared_ptr<Metrics> metrics,
                        std::shared_ptr<const Clock> clock)
      : inner_(std::move(inner)), host_(std::move(host)), metrics_(std::move(metrics)), clock_(std::move(clock)) {}

  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds deadline,
                                             std::stop_token cancel) override;
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink,
                                               http::StreamLimits limits, std::stop_token cancel) override;
  size_t close_idle_connections() override { return inner_->close_idle_connections(); }
  std::string mask_credentials(std::string text) const override { return inner_->mask_credentials(std::move(text)); }
  bool has_responded() const { return has_responded_; }

 private:
  class RecordingSink;
  void observe(const http::Request& request, const http::TransportResult<http::Response>& response, bool has_streamed,
               SteadyTime started);

  const std::shared_ptr<http::Transport> inner_;
  const std::string host_;
  const std::shared_ptr<Metrics> metrics_;
  const std::shared_ptr<const Clock> clock_;
  std::atomic<bool> has_responded_ = false;
};

}  // namespace oarlock::control
