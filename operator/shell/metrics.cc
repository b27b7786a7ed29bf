#include "operator/shell/metrics.h"

#include <algorithm>
#include <map>

#include "operator/core/failure_case.h"
#include "operator/core/status.h"

namespace oarlock::control {
namespace {

using Labels = std::map<std::string, std::string>;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

Labels queue_labels() { return {{"name", kControllerName}, {"controller", kControllerName}}; }
Labels controller_labels() { return {{"controller", kControllerName}}; }

// controller-runtime's buckets (pkg/internal/controller/metrics).
Histogram::BucketBoundaries reconcile_buckets() {
  return {0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
          1.75,  2.0,  2.5,   3.0,  3.5, 4.0,  4.5, 5,    6,   7,    8,   9,    10,  15,  20,  25,  30,  40,  50,   60};
}
// controller-runtime's for the work queue (pkg/metrics/workqueue.go): 10 ns * 10^n.
Histogram::BucketBoundaries queue_buckets() {
  return {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000};
}
Histogram::BucketBoundaries request_buckets() {
  return {0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0};
}

Histogram::BucketBoundaries wait_buckets() { return {1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}; }
Histogram::BucketBoundaries run_buckets() {  // a minute to a month
  return {60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400};
}

double between(SystemTime begin, SystemTime end) { return std::chrono::duration<double>(end - begin).count(); }

prometheus::Family<prometheus::Counter>& counter(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Gauge>& gauge(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<Histogram>& histogram(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

// By controller-runtime's numbers: 0, or -100 for what can wait (its LowPriority).
prometheus::Gauge& depth_gauge(prometheus::Registry& registry, const char* priority) {
  Labels labels = queue_labels();
  labels["priority"] = priority;
  return gauge(registry, "workqueue_depth", "Current depth of workqueue by workqueue and priority.").Add(labels);
}

class FamilyBuilder {
 public:
  FamilyBuilder(const char* name, const char* help, MetricType type) : family_{name, help, type, {}} {}
  void add(const Labels& labels, double value) {
    prometheus::ClientMetric metric;
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }
  void give_to(std::vector<MetricFamily>& out) {
    if (!family_.metric.empty()) out.push_back(std::move(family_));
  }

 private:
  MetricFamily family_;
};

int series_class(api::Phase phase) {
  if (is_running(phase) || phase == api::Phase::kRestarting) return 0;
  return is_terminal(phase) ? 2 : 1;
}

// The oldest of the unfinished jobs come first, so that none loses its series before it has finished, and then the jobs
// that finished last.
bool has_series_before(const Job& a, const Job& b) {
  const auto order = [](const Job& job) {
    const auto created = job.metadata.creation_timestamp.value_or(SystemTime{}).time_since_epoch();
    const auto finished = job.status.completion_time.value_or(SystemTime{}).time_since_epoch();
    const bool is_finished = is_terminal(job.status.phase);
    return std::tuple<int, SystemTime::duration, const std::string&>(
        series_class(job.status.phase), is_finished ? -finished : created, job.metadata.uid);
  };
  return order(a) < order(b);
}

double seconds(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

}  // namespace

Metrics::Metrics(const std::shared_ptr<prometheus::Registry>& registry)
    : reconcile_total_(
          counter(*registry, "controller_runtime_reconcile_total", "Total number of reconciliations per controller.")),
      reconcile_errors_(counter(*registry, "controller_runtime_reconcile_errors_total",
                                "Total number of reconciliation errors per controller.")
                            .Add(controller_labels())),
      reconcile_panics_(counter(*registry, "controller_runtime_reconcile_panics_total",
                                "Total number of reconciliation panics (exceptions) per controller.")
                            .Add(controller_labels())),
      reconcile_time_(histogram(*registry, "controller_runtime_reconcile_time_seconds",
                                "Length of time per reconciliation per controller.")
                          .Add(controller_labels(), reconcile_buckets())),
      max_concurrent_(gauge(*registry, "controller_runtime_max_concurrent_reconciles",
                            "Maximum number of concurrent reconciles per controller.")
                          .Add(controller_labels())),
      active_(gauge(*registry, "controller_runtime_active_workers", "Number of currently used workers per controller.")
                  .Add(controller_labels())),
      depth_(depth_gauge(*registry, "0")),
      low_depth_(depth_gauge(*registry, "-100")),
      adds_(
          counter(*registry, "workqueue_adds_total", "Total number of adds handled by workqueue.").Add(queue_labels())),
      queue_duration_(histogram(*registry, "workqueue_queue_duration_seconds",
                                "How long in seconds an item stays in workqueue before being requested.")
                          .Add(queue_labels(), queue_buckets())),
      work_duration_(histogram(*registry, "workqueue_work_duration_seconds",
                               "How long in seconds processing an item from workqueue takes.")
                         .Add(queue_labels(), queue_buckets())),
      retries_(counter(*registry, "workqueue_retries_total", "Total number of retries handled by workqueue.")
                   .Add(queue_labels())),
      requests_(counter(*registry, "rest_client_requests_total",
                        "Number of HTTP requests, partitioned by status code, method, and host.")),
      request_duration_(histogram(*registry, "rest_client_request_duration_seconds",
                                  "Request latency in seconds, by verb and host; watches are left out.")),
      cache_failures_(gauge(*registry, "oarlock_cache_consecutive_failures",
                            "Lists and watches of a resource that failed in a row.")),
      cache_success_(gauge(*registry, "oarlock_cache_last_success_timestamp_seconds",
                           "Time of the last list of a resource, or of the first event of its last watch.")),
      unreadable_(counter(*registry, "oarlock_cache_unreadable_objects_total",
                          "Objects from the API server that could not be read and were ignored.")),
      trimmed_reads_(counter(*registry, "oarlock_cache_trimmed_job_reads_total",
                             "Reads of jobs whose template and trainer configuration exceed the budget of the cache.")
                         .Add({})),
      leader_(gauge(*registry, "leader_election_master_status",
                    "Whether this one leads (1) or stands by (0), by the lease's name.")),
      leader_slow_path_(counter(*registry, "leader_election_slowpath_total",
                                "Renewals that had to read the lease first, by the lease's name.")),
      events_dropped_(counter(*registry, "trainingjob_events_dropped_total",
                              "Kubernetes Events that were discarded, by reason: rate_limited, queue_full, refused, "
                              "unwritable or stopped.")),
      jobs_created_(
          counter(*registry, "trainingjob_jobs_created_total", "Jobs whose pods were created for the first time.")),
      jobs_finished_(counter(*registry, "trainingjob_jobs_finished_total", "Jobs that became Complete or Failed.")),
      startup_(histogram(*registry, "trainingjob_startup_seconds",
                         "From the creation of a job's first pods until all of them ran.")),
      recovery_(histogram(*registry, "trainingjob_recovery_seconds",
                          "From when a job's pods no longer all ran until those of another attempt did.")),
      run_duration_(histogram(*registry, "trainingjob_run_duration_seconds",
                              "From the creation of a job's first pods until it was Complete or Failed.")) {
  for (const char* result : {"success", "error", "requeue", "requeue_after"}) {
    reconcile_total_.Add({{"controller", kControllerName}, {"result", result}});
  }
  for (const char* resource : {"trainingjobs.oarlock.dev", "pods", "services"}) {
    cache_failures_.Add({{"resource", resource}});
    unreadable_.Add({{"resource", resource}});
  }
  for (const char* reason : {"rate_limited", "queue_full", "refused", "unwritable", "stopped"}) {
    events_dropped_.Add({{"reason", reason}});
  }
}

void Metrics::reconciled(const std::string& result, kube::Seconds took) {
  reconcile_total_.Add({{"controller", kControllerName}, {"result", result}}).Increment();
  if (result == "error") reconcile_errors_.Increment();
  reconcile_time_.Observe(took.count());
}

void Metrics::panicked() { reconcile_panics_.Increment(); }

void Metrics::set_workers(int workers) { max_concurrent_.Set(workers); }

void Metrics::worker_busy(bool busy) {
  if (busy) {
    active_.Increment();
  } else {
    active_.Decrement();
  }
}

void Metrics::requested(const std::string& host, const std::string& method, int code, kube::Seconds took) {
  requests_.Add({{"host", host}, {"method", method}, {"code", code == 0 ? "<error>" : std::to_string(code)}})
      .Increment();
  if (took.count() >= 0)
    request_duration_.Add({{"host", host}, {"verb", method}}, request_buckets()).Observe(took.count());
}

void Metrics::status_changed(const Job& job, const api::Status& next) {
  const std::string& name_space = job.metadata.name_space;
  time_phases(job, next);
  if (!job.status.start_time && next.start_time) jobs_created_.Add({{"namespace", name_space}}).Increment();
  if (is_terminal(next.phase) && !is_terminal(job.status.phase)) {
    std::string reason;
    for (const api::Condition& condition : next.conditions) {
      if (condition.type == to_string(next.phase)) reason = condition.reason;
    }
    jobs_finished_.Add({{"namespace", name_space}, {"result", to_string(next.phase)}, {"reason", reason}}).Increment();
  }
}

// By the times that the status itself keeps, so that another operator would have seen the same.
void Metrics::time_phases(const Job& job, const api::Status& next) {
  const Labels labels = {{"namespace", job.metadata.name_space}};
  const api::Condition* before = find_condition(job.status, api::Phase::kRunning);
  const api::Condition* now = find_condition(next, api::Phase::kRunning);
  // A job that was stalled ran all the while.
  const bool begins = now != nullptr && now->status && (before == nullptr || !before->status);
  if (begins && job.status.phase != api::Phase::kStalled) {
    const SystemTime ran = now->last_transition_time;
    if (before == nullptr && next.start_time)
      startup_.Add(labels, wait_buckets()).Observe(between(*next.start_time, ran));
    const api::Condition* stalled = find_condition(next, api::Phase::kStalled);
    const api::Condition* suspended = find_condition(next, api::Phase::kSuspended);
    if (before != nullptr) {
      const SystemTime lost = stalled == nullptr
                                  ? before->last_transition_time
                                  : std::max(before->last_transition_time, stalled->last_transition_time);
      const bool by_wish = suspended != nullptr && suspended->last_transition_time >= lost;
      if (!by_wish) recovery_.Add(labels, wait_buckets()).Observe(between(lost, ran));
    }
  }
  if (next.completion_time && !job.status.completion_time && next.start_time) {
    run_duration_.Add({{"namespace", job.metadata.name_space}, {"result", to_string(next.phase)}}, run_buckets())
        .Observe(between(*next.start_time, *next.completion_time));
  }
}

void Metrics::cache_failures(const std::string& resource, int in_a_row) {
  cache_failures_.Add({{"resource", resource}}).Set(in_a_row);
}

void Metrics::cache_works(const std::string& resource, int failures_in_a_row, SystemTime now) {
  cache_failures(resource, failures_in_a_row);
  cache_success_.Add({{"resource", resource}}).Set(seconds(now));
}

void Metrics::unreadable_object(const std::string& resource) { unreadable_.Add({{"resource", resource}}).Increment(); }

void Metrics::read_trimmed_job() { trimmed_reads_.Increment(); }

void Metrics::event_dropped(const char* reason) { events_dropped_.Add({{"reason", reason}}).Increment(); }

void Metrics::leading(bool leads) { leader_.Add({{"name", kLeaseName}}).Set(leads ? 1 : 0); }
void Metrics::leader_slow_path() { leader_slow_path_.Add({{"name", kLeaseName}}).Increment(); }

void Metrics::set_depth(kube::QueueDepth depth) {
  depth_.Set(static_cast<double>(depth.normal));
  low_depth_.Set(static_cast<double>(depth.low));
}

void Metrics::on_add(kube::QueueDepth depth) {
  adds_.Increment();
  set_depth(depth);
}

void Metrics::on_get(kube::QueueDepth depth, kube::Seconds waited) {
  set_depth(depth);
  queue_duration_.Observe(waited.count());
}

void Metrics::on_done(kube::Seconds worked) { work_duration_.Observe(worked.count()); }
void Metrics::on_retry() { retries_.Increment(); }

// The first bytes of a stream are an answer, long before a watch ends.
class MeteredTransport::WatchingSink final : public kube::ByteSink {
 public:
  WatchingSink(kube::ByteSink& inner, std::atomic<bool>& has_answered) : inner_(inner), has_answered_(has_answered) {}
  bool write(std::string_view bytes) override {
    has_answered_ = true;
    seen = true;
    return inner_.write(bytes);
  }
  bool seen = false;

 private:
  kube::ByteSink& inner_;
  std::atomic<bool>& has_answered_;
};

void MeteredTransport::count(const kube::Request& request, const kube::TransportResult<kube::Response>& response,
                             bool streamed, SteadyTime started) {
  const bool is_watch = request.target.find("?watch=true") != std::string::npos;
  const kube::Seconds took = is_watch ? kube::Seconds(-1) : clock_->steady() - started;
  // A stream that gave bytes had an answer, however it ended.
  const int code = response ? response->status : streamed ? 200 : 0;
  metrics_->requested(host_, request.method, code, took);
  if (response) has_answered_ = true;
}

kube::TransportResult<kube::Response> MeteredTransport::send(const kube::Request& request, kube::Milliseconds deadline,
                                                             std::stop_token cancel) {
  const SteadyTime started = clock_->steady();
  auto response = inner_->send(request, deadline, std::move(cancel));
  count(request, response, false, started);
  return response;
}

kube::TransportResult<kube::Response> MeteredTransport::stream(const kube::Request& request, kube::ByteSink& sink,
                                                               kube::StreamLimits limits, std::stop_token cancel) {
  const SteadyTime started = clock_->steady();
  WatchingSink watching(sink, has_answered_);
  auto response = inner_->stream(request, watching, limits, std::move(cancel));
  count(request, response, watching.seen, started);
  return response;
}

std::vector<MetricFamily> JobMetrics::Collect() const {
  FamilyBuilder unfinished(
      "workqueue_unfinished_work_seconds",
      "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
      MetricType::Gauge);
  FamilyBuilder longest("workqueue_longest_running_processor_seconds",
                        "How many seconds has the longest running processor for workqueue been running without "
                        "completing an API call.",
                        MetricType::Gauge);
  FamilyBuilder info("trainingjob_info", "Identity of the job; the value is 1.", MetricType::Gauge);
  FamilyBuilder phase("trainingjob_status_phase", "Phase of the job: 1 for the one that it is in.", MetricType::Gauge);
  FamilyBuilder condition("trainingjob_status_condition", "Conditions of the job that are true.", MetricType::Gauge);
  FamilyBuilder created("trainingjob_created_timestamp_seconds", "When the job was created.", MetricType::Gauge);
  FamilyBuilder start("trainingjob_start_timestamp_seconds", "When its pods were first created.", MetricType::Gauge);
  FamilyBuilder completion("trainingjob_completion_timestamp_seconds", "When it became Complete or Failed.",
                           MetricType::Gauge);
  FamilyBuilder wanted("trainingjob_spec_replicas", "Pods that the job asks for.", MetricType::Gauge);
  FamilyBuilder accelerators("trainingjob_requested_accelerators",
                             "Extended resources that the pods of a job which has not ended ask for.",
                             MetricType::Gauge);
  FamilyBuilder replicas("trainingjob_status_replicas", "Pods of the current attempt by state.", MetricType::Gauge);
  FamilyBuilder restarts("trainingjob_restarts_total", "Restarts of the whole group, by what made them necessary.",
                         MetricType::Counter);
  FamilyBuilder progress("trainingjob_progress_ratio", "Share of the optimizer steps that is done.", MetricType::Gauge);
  FamilyBuilder dropped("trainingjob_dropped_series",
                        "Jobs without per-job series because the series limit was reached.", MetricType::Gauge);

  unfinished.add(queue_labels(), source_.unfinished_work().count());
  longest.add(queue_labels(), source_.longest_work().count());

  std::vector<std::shared_ptr<const CachedJob>> jobs = source_.jobs();
  const size_t count = std::min(jobs.size(), max_jobs_);
  std::partial_sort(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(count), jobs.end(),
                    [](const auto& a, const auto& b) { return has_series_before(a->job, b->job); });
  dropped.add({}, static_cast<double>(jobs.size() - count));
  jobs.resize(count);
  for (const auto& cached : jobs) {
    const Job* const job = &cached->job;
    const Labels labels{{"namespace", job->metadata.name_space}, {"trainingjob", job->metadata.name}};
    const auto with = [&](const char* name, const std::string& value) {
      Labels more = labels;
      more[name] = value;
      return more;
    };
    const api::Status& status = job->status;
    info.add(with("uid", job->metadata.uid), 1);
    if (status.phase != api::Phase::kNone) phase.add(with("phase", to_string(status.phase)), 1);
    for (const api::Condition& one : status.conditions) {
      if (!api::is_own_condition(one.type)) continue;  // those of others may have any type
      if (!one.verbatim.empty()) continue;             // another controller's
      Labels more = with("condition", one.type);
      more["status"] = "true";
      condition.add(more, one.status ? 1 : 0);
    }
    if (job->metadata.creation_timestamp) created.add(labels, seconds(*job->metadata.creation_timestamp));
    if (status.start_time) start.add(labels, seconds(*status.start_time));
    if (status.completion_time) completion.add(labels, seconds(*status.completion_time));
    wanted.add(labels, job->spec.nodes);
    for (const auto& [resource, each] : cached->accelerators)
      accelerators.add(with("resource", resource), static_cast<double>(each * job->spec.nodes));
    const std::pair<const char*, int> states[] = {{"scheduled", status.nodes.scheduled},
                                                  {"ready", status.nodes.ready},
                                                  {"succeeded", status.nodes.succeeded},
                                                  {"failed", status.nodes.failed}};
    for (const auto& [state, pods] : states) replicas.add(with("state", state), pods);
    for (const api::RestartCount& restart : status.restarts.reasons) {
      const auto known = restart_reasons();
      if (std::find(known.begin(), known.end(), restart.reason) == known.end()) continue;  // not the operator's
      restarts.add(with("reason", restart.reason), restart.count);
    }
    if (status.progress && status.progress->target_steps && *status.progress->target_steps > 0) {
      progress.add(labels,
                   static_cast<double>(status.progress->step) / static_cast<double>(*status.progress->target_steps));
    }
  }
  std::vector<MetricFamily> out;
  for (FamilyBuilder* family : {&unfinished, &longest, &info, &phase, &condition, &created, &start, &completion,
                                &wanted, &accelerators, &replicas, &restarts, &progress, &dropped}) {
    family->give_to(out);
  }
  return out;
}

}  // namespace oarlock::control
