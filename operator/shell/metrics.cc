#include "operator/shell/metrics.h"

#include <algorithm>
#include <map>
#include <utility>

#include "operator/core/queue.h"
#include "operator/core/startup.h"
#include "operator/core/status.h"

namespace oarlock::control {
namespace {

using Labels = std::map<std::string, std::string>;
using Buckets = prometheus::Histogram::BucketBoundaries;

Labels controller_labels() { return {{"controller", kControllerName}}; }
Labels queue_labels() { return {{"name", kControllerName}, {"controller", kControllerName}}; }

// controller-runtime's buckets (pkg/internal/controller/metrics).
Buckets reconcile_buckets() {
  return {0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
          1.75,  2.0,  2.5,   3.0,  3.5, 4.0,  4.5, 5,    6,   7,    8,   9,    10,  15,  20,  25,  30,  40,  50,   60};
}
// controller-runtime's buckets for the work queue (pkg/metrics/workqueue.go): 10 ns * 10^n.
Buckets queue_buckets() { return {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000}; }
Buckets request_buckets() { return {0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0}; }
Buckets wait_buckets() { return {1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}; }
Buckets run_buckets() {  // a minute to a month
  return {60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400};
}

prometheus::Family<prometheus::Counter>& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Gauge>& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Histogram>& histogram(prometheus::Registry& registry, const char* name,
                                                     const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

// Returns a gauge with the labels of controller-runtime, whose `priority` is always 0 here.
prometheus::Gauge& depth_gauge(prometheus::Registry& registry) {
  Labels labels = queue_labels();
  labels.emplace("priority", "0");
  return gauge(registry, "workqueue_depth", "Current depth of workqueue by workqueue and priority.").Add(labels);
}

double seconds_between(SystemTime begin, SystemTime end) { return std::chrono::duration<double>(end - begin).count(); }

}  // namespace

Metrics::ReconcileMetrics::ReconcileMetrics(prometheus::Registry& registry)
    : total(counter(registry, "controller_runtime_reconcile_total", "Total number of reconciliations per controller.")),
      errors(counter(registry, "controller_runtime_reconcile_errors_total",
                     "Total number of reconciliation errors per controller.")
                 .Add(controller_labels())),
      panics(counter(registry, "controller_runtime_reconcile_panics_total",
                     "Total number of reconciliation panics (exceptions) per controller.")
                 .Add(controller_labels())),
      duration(histogram(registry, "controller_runtime_reconcile_time_seconds",
                         "Length of time per reconciliation per controller.")
                   .Add(controller_labels(), reconcile_buckets())),
      max_workers(gauge(registry, "controller_runtime_max_concurrent_reconciles",
                        "Maximum number of concurrent reconciles per controller.")
                      .Add(controller_labels())),
      active_workers(
          gauge(registry, "controller_runtime_active_workers", "Number of currently used workers per controller.")
              .Add(controller_labels())) {
  for (const char* result : {"success", "error", "requeue", "requeue_after"}) {
    total.Add({{"controller", kControllerName}, {"result", result}});
  }
}

Metrics::WorkQueueMetrics::WorkQueueMetrics(prometheus::Registry& registry)
    : depth(depth_gauge(registry)),
      adds(counter(registry, "workqueue_adds_total", "Total number of adds handled by workqueue.").Add(queue_labels())),
      queue_duration(histogram(registry, "workqueue_queue_duration_seconds",
                               "How long in seconds an item stays in workqueue before being requested.")
                         .Add(queue_labels(), queue_buckets())),
      work_duration(histogram(registry, "workqueue_work_duration_seconds",
                              "How long in seconds processing an item from workqueue takes.")
                        .Add(queue_labels(), queue_buckets())),
      retries(counter(registry, "workqueue_retries_total", "Total number of retries handled by workqueue.")
                  .Add(queue_labels())) {}

Metrics::ClientMetrics::ClientMetrics(prometheus::Registry& registry)
    : requests(counter(registry, "rest_client_requests_total",
                       "Number of HTTP requests, partitioned by status code, method, and host.")),
      duration(histogram(registry, "rest_client_request_duration_seconds",
                         "Request latency in seconds, partitioned by verb and host, without watches.")) {}

Metrics::CacheMetrics::CacheMetrics(prometheus::Registry& registry)
    : failures(gauge(registry, "oarlock_cache_consecutive_failures",
                     "Number of consecutive failed lists and watches of a resource.")),
      last_success(
          gauge(registry, "oarlock_cache_last_success_timestamp_seconds",
                "Unix time in seconds of the last list, or the first event of the last watch, of a resource.")),
      unreadable(counter(registry, "oarlock_cache_unreadable_objects_total",
                         "Total number of objects from the API server that could not be read and were ignored.")),
      trimmed_reads(counter(registry, "oarlock_cache_trimmed_job_reads_total",
                            "Total number of live reads of jobs whose spec exceeds the budget of the cache.")
                        .Add({})),
      incomplete(gauge(registry, "oarlock_cache_incomplete_namespaces",
                       "Number of namespaces with objects that are ignored because the cache is full, by resource.")) {
  for (const char* resource : {"trainingjobs.oarlock.dev", "pods", "services"}) {
    failures.Add({{"resource", resource}});
    incomplete.Add({{"resource", resource}});
    unreadable.Add({{"resource", resource}});
  }
}

Metrics::LeaderMetrics::LeaderMetrics(prometheus::Registry& registry)
    : is_leader(gauge(registry, "leader_election_master_status",
                      "Whether this process is the leader (1) or a standby (0), by name of the lease.")),
      slow_path(counter(registry, "leader_election_slowpath_total",
                        "Total number of renewals that had to read the lease first, by name of the lease.")) {}

Metrics::JobEventMetrics::JobEventMetrics(prometheus::Registry& registry)
    : dropped_events(counter(registry, "trainingjob_events_dropped_total",
                             "Total number of discarded Kubernetes Events by reason: rate_limited, queue_full, "
                             "refused, unwritable or stopped.")),
      created_(
          counter(registry, "trainingjob_jobs_created_total", "Total number of jobs whose first pods were created.")),
      finished_(
          counter(registry, "trainingjob_jobs_finished_total", "Total number of jobs that became Complete or Failed.")),
      evictions_(counter(registry, "trainingjob_queue_evictions_total",
                         "Total number of attempts that ended because Kueue withdrew the admission, by its reason: "
                         "Preempted, PodsReadyTimeout, AdmissionCheck, ClusterQueueStopped, LocalQueueStopped, "
                         "NodeFailures, Deactivated, FlavorMigration or Other.")),
      startup_(histogram(registry, "trainingjob_startup_seconds",
                         "Time from the creation of a job's first pods until all of them run, in seconds.")),
      startup_stages_(
          histogram(registry, "trainingjob_startup_stage_seconds",
                    "Duration of a stage of the start of an attempt in seconds: scheduling until all pods have "
                    "nodes, pulling until all containers have started, starting until the first report, and "
                    "first_step until the first step after it.")),
      recovery_(histogram(registry, "trainingjob_recovery_seconds",
                          "Time from the loss of a running job's pods until all pods of a new attempt run, in "
                          "seconds.")),
      run_duration_(histogram(registry, "trainingjob_run_duration_seconds",
                              "Time from the creation of a job's first pods until it is Complete or Failed, in "
                              "seconds.")) {
  for (const char* reason : {"rate_limited", "queue_full", "refused", "unwritable", "stopped"}) {
    dropped_events.Add({{"reason", reason}});
  }
}

Metrics::Metrics(const std::shared_ptr<prometheus::Registry>& registry)
    : reconcile_(*registry),
      queue_(*registry),
      client_(*registry),
      cache_(*registry),
      leader_(*registry),
      jobs_(*registry) {}

void Metrics::observe_reconcile(const std::string& result, kube::Seconds duration) {
  reconcile_.total.Add({{"controller", kControllerName}, {"result", result}}).Increment();
  if (result == "error") reconcile_.errors.Increment();
  reconcile_.duration.Observe(duration.count());
}

void Metrics::count_panic() { reconcile_.panics.Increment(); }
void Metrics::set_max_workers(int workers) { reconcile_.max_workers.Set(workers); }
void Metrics::increment_active_workers() { reconcile_.active_workers.Increment(); }
void Metrics::decrement_active_workers() { reconcile_.active_workers.Decrement(); }

void Metrics::observe_request(const std::string& host, const std::string& method, int code, kube::Seconds duration) {
  client_.requests.Add({{"host", host}, {"method", method}, {"code", code == 0 ? "<error>" : std::to_string(code)}})
      .Increment();
  if (duration.count() >= 0)
    client_.duration.Add({{"host", host}, {"verb", method}}, request_buckets()).Observe(duration.count());
}

void Metrics::observe_status_change(const Job& job, const api::Status& next) { jobs_.observe(job, next); }

void Metrics::JobEventMetrics::observe(const Job& job, const api::Status& next) {
  const std::lock_guard lock(mutex_);  // a series may be removed as soon as it is released
  const std::string& namespace_name = job.metadata.namespace_name;
  Namespace& series = use(namespace_name);
  observe_durations(job, next, series);
  if (!job.status.start_time && next.start_time) {
    Counter& counter = created_.Add({{"namespace", namespace_name}});
    series.created.insert(&counter);
    counter.Increment();
  }
  if (is_terminal(next.phase) && !is_terminal(job.status.phase)) {
    std::string reason;
    for (const api::Condition& condition : next.conditions) {
      if (condition.type == to_string(next.phase)) reason = condition.reason;
    }
    Counter& counter =
        finished_.Add({{"namespace", namespace_name}, {"result", to_string(next.phase)}, {"reason", reason}});
    series.finished.insert(&counter);
    counter.Increment();
  }
  const api::AttemptRecord* ended = next.attempts.empty() ? nullptr : &next.attempts.back();
  const bool has_ended = ended != nullptr && ended->attempt == job.status.attempt && next.attempt > ended->attempt;
  if (has_ended && ended_by_queue(*ended)) {
    Counter& counter = evictions_.Add({{"namespace", namespace_name}, {"reason", eviction_reason(*ended)}});
    series.evictions.insert(&counter);
    counter.Increment();
  }
}

Metrics::JobEventMetrics::Namespace& Metrics::JobEventMetrics::use(const std::string& name) {
  if (namespaces_.size() >= kMaxNamespaces && !namespaces_.contains(name)) {
    const auto oldest =
        std::ranges::min_element(namespaces_, {}, [](const auto& entry) { return entry.second.last_use; });
    const Namespace& series = oldest->second;
    for (Counter* counter : series.created) created_.Remove(counter);
    for (Counter* counter : series.finished) finished_.Remove(counter);
    for (Counter* counter : series.evictions) evictions_.Remove(counter);
    for (Histogram* histogram : series.startup) startup_.Remove(histogram);
    for (Histogram* histogram : series.startup_stages) startup_stages_.Remove(histogram);
    for (Histogram* histogram : series.recovery) recovery_.Remove(histogram);
    for (Histogram* histogram : series.run_duration) run_duration_.Remove(histogram);
    namespaces_.erase(oldest);
  }
  Namespace& series = namespaces_[name];
  series.last_use = ++uses_;
  return series;
}

void Metrics::JobEventMetrics::observe_durations(const Job& job, const api::Status& next, Namespace& series) {
  const Labels labels = {{"namespace", job.metadata.namespace_name}};
  const auto observe_wait = [&labels](Family<Histogram>& family, std::set<Histogram*>& known, double seconds) {
    Histogram& histogram = family.Add(labels, wait_buckets());
    known.insert(&histogram);
    histogram.Observe(seconds);
  };
  const api::Startup known = job.status.startup.value_or(api::Startup{.attempt = -1});
  const api::Startup startup = next.startup.value_or(api::Startup{});
  for (int64_t previous = 0; const StartupStage& stage : kStartupStages) {
    const std::optional<int64_t>& done = startup.*stage.done;
    if (!done) break;
    if (known.attempt != startup.attempt || !(known.*stage.done)) {
      Histogram& histogram = startup_stages_.Add(
          {{"namespace", job.metadata.namespace_name}, {"stage", std::string(stage.name)}}, wait_buckets());
      series.startup_stages.insert(&histogram);
      histogram.Observe(static_cast<double>(*done - previous));
    }
    previous = *done;
  }
  const api::Condition* before = find_condition(job.status, api::Phase::kRunning);
  const api::Condition* now = find_condition(next, api::Phase::kRunning);
  // The pods of a stalled job were running all the time.
  const bool starts_running = now != nullptr && now->status && (before == nullptr || !before->status);
  if (starts_running && job.status.phase != api::Phase::kStalled) {
    const SystemTime running_since = now->last_transition_time;
    if (before == nullptr && next.start_time)
      observe_wait(startup_, series.startup, seconds_between(*next.start_time, running_since));
    const api::Condition* stalled = find_condition(next, api::Phase::kStalled);
    const api::Condition* suspended = find_condition(next, api::Phase::kSuspended);
    if (before != nullptr) {
      const SystemTime lost_at = stalled == nullptr
                                     ? before->last_transition_time
                                     : std::max(before->last_transition_time, stalled->last_transition_time);
      const bool was_suspended = suspended != nullptr && suspended->last_transition_time >= lost_at;
      const bool was_queued = !next.attempts.empty() && ended_by_queue(next.attempts.back());
      if (!was_suspended && !was_queued)
        observe_wait(recovery_, series.recovery, seconds_between(lost_at, running_since));
    }
  }
  if (next.completion_time && !job.status.completion_time && next.start_time) {
    Histogram& histogram = run_duration_.Add(
        {{"namespace", job.metadata.namespace_name}, {"result", to_string(next.phase)}}, run_buckets());
    series.run_duration.insert(&histogram);
    histogram.Observe(seconds_between(*next.start_time, *next.completion_time));
  }
}

void Metrics::count_dropped_event(const char* reason) { jobs_.dropped_events.Add({{"reason", reason}}).Increment(); }

void Metrics::set_cache_failures(const std::string& resource, int consecutive) {
  cache_.failures.Add({{"resource", resource}}).Set(consecutive);
}

void Metrics::record_cache_success(const std::string& resource, int consecutive_failures, SystemTime now) {
  set_cache_failures(resource, consecutive_failures);
  cache_.last_success.Add({{"resource", resource}}).Set(seconds_between(SystemTime{}, now));
}

void Metrics::count_unreadable_object(const std::string& resource) {
  cache_.unreadable.Add({{"resource", resource}}).Increment();
}

void Metrics::set_incomplete_namespaces(const std::string& resource, size_t namespaces) {
  cache_.incomplete.Add({{"resource", resource}}).Set(static_cast<double>(namespaces));
}

void Metrics::count_trimmed_job_read() { cache_.trimmed_reads.Increment(); }

void Metrics::set_leader(bool is_leader) { leader_.is_leader.Add({{"name", kLeaseName}}).Set(is_leader ? 1 : 0); }
void Metrics::count_leader_slow_path() { leader_.slow_path.Add({{"name", kLeaseName}}).Increment(); }

void Metrics::on_add(size_t depth) {
  queue_.adds.Increment();
  queue_.depth.Set(static_cast<double>(depth));
}

void Metrics::on_get(size_t depth, kube::Seconds waited) {
  queue_.depth.Set(static_cast<double>(depth));
  queue_.queue_duration.Observe(waited.count());
}

void Metrics::on_done(kube::Seconds worked) { queue_.work_duration.Observe(worked.count()); }
void Metrics::on_retry() { queue_.retries.Increment(); }

// The first bytes of a stream are a response, long before a watch ends.
class InstrumentedTransport::RecordingSink final : public http::ByteSink {
 public:
  RecordingSink(http::ByteSink& inner, std::atomic<bool>& has_responded)
      : inner_(inner), has_responded_(has_responded) {}
  bool write(std::string_view bytes) override {
    has_responded_ = true;
    has_written = true;
    return inner_.write(bytes);
  }
  bool has_written = false;

 private:
  http::ByteSink& inner_;
  std::atomic<bool>& has_responded_;
};

void InstrumentedTransport::observe(const http::Request& request, const http::TransportResult<http::Response>& response,
                                    bool has_streamed, SteadyTime started) {
  const bool is_watch = request.target.find("?watch=true") != std::string::npos;
  const kube::Seconds duration = is_watch ? kube::Seconds(-1) : clock_->steady() - started;
  // A stream that delivered bytes had a response, however it ended.
  const int code = response ? response->status : has_streamed ? 200 : 0;
  metrics_->observe_request(host_, request.method, code, duration);
  if (response) has_responded_ = true;
}

http::TransportResult<http::Response> InstrumentedTransport::send(const http::Request& request,
                                                                  http::Milliseconds deadline, std::stop_token cancel) {
  const SteadyTime started = clock_->steady();
  auto response = inner_->send(request, deadline, std::move(cancel));
  observe(request, response, false, started);
  return response;
}

http::TransportResult<http::Response> InstrumentedTransport::stream(const http::Request& request, http::ByteSink& sink,
                                                                    http::StreamLimits limits, std::stop_token cancel) {
  const SteadyTime started = clock_->steady();
  RecordingSink recording(sink, has_responded_);
  auto response = inner_->stream(request, recording, limits, std::move(cancel));
  observe(request, response, recording.has_written, started);
  return response;
}

}  // namespace oarlock::control
