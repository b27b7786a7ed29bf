#include "operator/shell/job_metrics.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/boxed_optional.h"
#include "operator/core/pod_failure.h"
#include "operator/core/status.h"
#include "operator/shell/metrics.h"

namespace oarlock::control {
namespace {

using Labels = std::map<std::string, std::string>;
using prometheus::MetricFamily;
using prometheus::MetricType;

class FamilyBuilder {
 public:
  FamilyBuilder(const char* name, const char* help, MetricType type = MetricType::Gauge)
      : family_{name, help, type, {}} {}
  void add(const Labels& labels, double value) {
    prometheus::ClientMetric metric;
    metric.label.reserve(labels.size());
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }
  void move_to(const FamilySink& sink) {
    if (!family_.metric.empty()) sink(std::move(family_));
  }

 private:
  MetricFamily family_;
};

Labels with(Labels labels, const char* name, const std::string& value) {
  labels[name] = value;
  return labels;
}

void add_info(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  family.add(with(labels, "uid", cached.job.metadata.uid), 1);
}

void add_phase(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  const api::Phase phase = cached.job.status.phase;
  if (phase != api::Phase::kNone) family.add(with(labels, "phase", to_string(phase)), 1);
}

void add_accelerators(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  for (const auto& [resource, per_pod] : cached.accelerators)
    family.add(with(labels, "resource", resource), static_cast<double>(per_pod * cached.job.group_nodes()));
}

void add_conditions(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  for (const api::Condition& one : cached.job.status.conditions) {
    if (!api::is_own_condition(one.type)) continue;  // conditions of others may have any type
    if (!one.verbatim.empty()) continue;             // written by another controller
    family.add(with(with(labels, "condition", one.type), "status", "true"), one.status ? 1 : 0);
  }
}

void add_replicas(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  const api::NodeCounts& nodes = cached.job.status.nodes;
  const std::pair<const char*, int> states[] = {
      {"scheduled", nodes.scheduled}, {"ready", nodes.ready}, {"succeeded", nodes.succeeded}, {"failed", nodes.failed}};
  for (const auto& [state, pods] : states) family.add(with(labels, "state", state), pods);
}

void add_restarts(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  const auto known_reasons = restart_reasons();
  for (const api::RestartCount& restart : cached.job.status.restarts.reasons) {
    // A reason that the operator does not use was written by another client.
    if (std::find(known_reasons.begin(), known_reasons.end(), restart.reason) == known_reasons.end()) continue;
    family.add(with(labels, "reason", restart.reason), restart.count);
  }
}

void add_usage(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  const BoxedOptional<api::Usage>& usage = cached.job.status.usage;
  if (!usage) return;
  for (size_t i = 0; i < kUsageClasses.size(); ++i) {
    // Those without time, too: rate() ignores the first value of a series.
    const int64_t time = usage->classes[static_cast<UsageClass>(i)];
    family.add(with(labels, "class", std::string(kUsageClasses[i])), static_cast<double>(time) / 1000);
  }
}

std::optional<double> queued_seconds(const Job& job) {
  if (!job.status.usage) return std::nullopt;
  return static_cast<double>(job.status.usage->queued) / 1000;
}

std::optional<double> unix_seconds(const std::optional<SystemTime>& time) {
  if (!time) return std::nullopt;
  return std::chrono::duration<double>(time->time_since_epoch()).count();
}

std::optional<double> progress_ratio(const Job& job) {
  const auto& progress = job.status.progress;
  if (!progress || !progress->target_steps || *progress->target_steps <= 0) return std::nullopt;
  return static_cast<double>(progress->step) / static_cast<double>(*progress->target_steps);
}

std::optional<double> count_avoided_nodes(const Job& job) {
  if (job.status.bad_nodes.empty() || is_terminal(job.status.phase)) return std::nullopt;
  return static_cast<double>(std::ranges::count_if(
      job.status.bad_nodes, [](const api::BadNode& node) { return node.avoidance != api::NodeAvoidance::kNone; }));
}

void add_queue(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) {
  const BoxedOptional<api::QueueStatus>& queue = cached.job.status.queue;
  const api::Phase phase = cached.job.status.phase;
  if (!queue || !queue->since || is_terminal(phase) || phase == api::Phase::kSuspended) return;
  const char* state = queue->cluster_queue.empty() ? "waiting" : "admitted";
  family.add(with(with(labels, "queue", queue->name), "state", state), *unix_seconds(queue->since));
}

// Returns a member of an optional part of the status, e.g. of status.recoveries.
template <class Part, class Value>
std::optional<double> optional_field(const BoxedOptional<Part>& part, Value Part::* value) {
  if (!part) return std::nullopt;
  return static_cast<double>((*part).*value);
}

// A family with series of jobs: either any number of series with further labels, or at most one per job.
struct JobFamily {
  const char* name;
  const char* help;
  MetricType type = MetricType::Gauge;
  void (*add)(FamilyBuilder& family, const CachedJob& cached, const Labels& labels) = nullptr;
  std::optional<double> (*value)(const Job& job) = nullptr;
  // The most series of a job; 0 for the families whose series text_size() counts in the status of the job.
  size_t max_series = 1;
};

constexpr JobFamily kJobFamilies[] = {
    {.name = "trainingjob_info", .help = "Identity of a job, with the value 1.", .add = add_info},
    {.name = "trainingjob_status_phase", .help = "Current phase of a job, with the value 1.", .add = add_phase},
    {.name = "trainingjob_status_condition",
     .help = "Whether a condition of a job is true.",
     .add = add_conditions,
     .max_series = 0},
    {.name = "trainingjob_created_timestamp_seconds",
     .help = "Unix time of a job's creation in seconds.",
     .value = [](const Job& job) { return unix_seconds(job.metadata.creation_timestamp); }},
    {.name = "trainingjob_start_timestamp_seconds",
     .help = "Unix time in seconds at which a job's first pods were created.",
     .value = [](const Job& job) { return unix_seconds(job.status.start_time); }},
    {.name = "trainingjob_completion_timestamp_seconds",
     .help = "Unix time in seconds at which a job became Complete or Failed.",
     .value = [](const Job& job) { return unix_seconds(job.status.completion_time); }},
    {.name = "trainingjob_queue_timestamp_seconds",
     .help = "Unix time in seconds since which a job that is neither finished nor suspended waits for its queue, or is "
             "admitted by it.",
     .add = add_queue},
    {.name = "trainingjob_spec_replicas",
     .help = "Number of pods that a job requests.",
     .value = [](const Job& job) { return std::optional<double>(job.spec.nodes); }},
    {.name = "trainingjob_requested_accelerators",
     .help = "Number of extended resources that the pods of an unfinished job request.",
     .add = add_accelerators,
     .max_series = 0},
    {.name = "trainingjob_status_replicas",
     .help = "Number of pods of the current attempt by state.",
     .add = add_replicas,
     .max_series = 4},
    {.name = "trainingjob_restarts_total",
     .help = "Total number of group restarts of a job by reason.",
     .type = MetricType::Counter,
     .add = add_restarts,
     .max_series = 0},
    {.name = "trainingjob_rank_recoveries_total",
     .help = "Total number of recoveries of a job from the loss of ranks without a restart of the group.",
     .type = MetricType::Counter,
     .value = [](const Job& job) { return optional_field(job.status.recoveries, &api::Recoveries::total); }},
    {.name = "trainingjob_rank_recovery_seconds_total",
     .help = "Total time from the loss of ranks until training continued without a restart of the group, in seconds.",
     .type = MetricType::Counter,
     .value = [](const Job& job) { return optional_field(job.status.recoveries, &api::Recoveries::seconds); }},
    {.name = "trainingjob_replaced_pods_total",
     .help = "Total number of pods of a job that were replaced without a restart of the group.",
     .type = MetricType::Counter,
     .value = [](const Job& job) { return optional_field(job.status.recoveries, &api::Recoveries::pods); }},
    {.name = "trainingjob_in_pod_restarts_total",
     .help = "Total number of restarts of all processes of a job in their pods.",
     .type = MetricType::Counter,
     .value = [](const Job& job) { return optional_field(job.status.in_pod_restarts, &api::InPodRestarts::total); }},
    {.name = "trainingjob_in_pod_restart_seconds_total",
     .help = "Total duration of the restarts of all processes of a job in their pods, in seconds.",
     .type = MetricType::Counter,
     .value = [](const Job& job) { return optional_field(job.status.in_pod_restarts, &api::InPodRestarts::seconds); }},
    {.name = "trainingjob_avoided_nodes",
     .help = "Number of nodes that the pods of a job avoid, because the job has failed on them.",
     .value = count_avoided_nodes},
    {.name = "trainingjob_accelerator_seconds_total",
     .help = "Total time of the accelerators of a job by class, in seconds. The classes sum to the allocated time.",
     .type = MetricType::Counter,
     .add = add_usage,
     .max_series = 0},
    {.name = "trainingjob_queued_accelerator_seconds_total",
     .help =
         "Total time for which a job has waited for accelerators before its starts, times their number, in seconds.",
     .type = MetricType::Counter,
     .value = queued_seconds},
    {.name = "trainingjob_progress_ratio",
     .help = "Ratio of completed to targeted optimizer steps of a job.",
     .value = progress_ratio},
};

constexpr size_t kFixedSeries = std::accumulate(std::begin(kJobFamilies), std::end(kJobFamilies), size_t{0},
                                                [](size_t sum, const JobFamily& one) { return sum + one.max_series; });

// Passes the family to the sink, unless it has no series.
void collect_family(const JobFamily& definition, const std::vector<std::shared_ptr<const CachedJob>>& jobs,
                    const FamilySink& sink) {
  FamilyBuilder family(definition.name, definition.help, definition.type);
  for (const auto& cached : jobs) {
    const api::Metadata& metadata = cached->job.metadata;
    const Labels labels{{"namespace", metadata.namespace_name}, {"trainingjob", metadata.name}};
    if (definition.add != nullptr) {
      definition.add(family, *cached, labels);
    } else if (const std::optional<double> value = definition.value(cached->job)) {
      family.add(labels, *value);
    }
  }
  family.move_to(sink);
}

// Returns about how many bytes of a response the series of a job take.
size_t text_size(const CachedJob& cached) {
  constexpr size_t kSeriesBytes = 120;  // the names of family and labels, and the value
  const Job& job = cached.job;
  const size_t classes = job.status.usage ? kUsageClasses.size() : 0;
  const size_t series = kFixedSeries + classes + cached.accelerators.size() + job.status.conditions.size() +
                        job.status.restarts.reasons.size();
  size_t bytes = series * (kSeriesBytes + job.metadata.namespace_name.size() + job.metadata.name.size());
  for (const auto& [resource, per_pod] : cached.accelerators) bytes += resource.size();
  return bytes;
}

int precedence_class(api::Phase phase) {
  if (is_running(phase) || phase == api::Phase::kRestarting) return 0;
  return is_terminal(phase) ? 2 : 1;
}

// Whether job `a` gets series before `b` of the same namespace. The oldest of the unfinished jobs come first, so that
// no job loses its series to a younger one before it has finished.
bool has_precedence(const Job& a, const Job& b) {
  const auto order = [](const Job& job) {
    const auto created = job.metadata.creation_timestamp.value_or(SystemTime{}).time_since_epoch();
    const auto finished = job.status.completion_time.value_or(SystemTime{}).time_since_epoch();
    const bool is_finished = is_terminal(job.status.phase);
    return std::tuple<int, SystemTime::duration, const std::string&>(
        precedence_class(job.status.phase), is_finished ? -finished : created, job.metadata.uid);
  };
  return order(a) < order(b);
}

// Sorts the jobs by precedence. The namespaces take turns within each class, so that the jobs of one namespace do not
// take the series of all others.
void sort_by_precedence(std::vector<std::shared_ptr<const CachedJob>>& jobs) {
  std::ranges::sort(jobs, [](const auto& a, const auto& b) { return has_precedence(a->job, b->job); });
  struct Turn {
    int precedence_class;
    size_t turn;  // number of jobs of the same namespace and class that come first
    std::shared_ptr<const CachedJob> job;
  };
  std::vector<Turn> turns;
  turns.reserve(jobs.size());
  std::map<std::pair<int, std::string_view>, size_t> counts;
  for (std::shared_ptr<const CachedJob>& cached : jobs) {
    const int of_phase = precedence_class(cached->job.status.phase);
    size_t& count = counts[{of_phase, cached->job.metadata.namespace_name}];
    turns.push_back({of_phase, count++, std::move(cached)});
  }
  std::ranges::stable_sort(turns, {}, [](const Turn& one) { return std::pair(one.precedence_class, one.turn); });
  std::ranges::transform(turns, jobs.begin(), [](Turn& one) { return std::move(one.job); });
}

}  // namespace

void JobMetrics::collect(const FamilySink& sink) const {
  const Labels queue_labels = {{"name", kControllerName}, {"controller", kControllerName}};
  const auto pass = [&sink](const char* name, const char* help, const Labels& labels, double value) {
    FamilyBuilder family(name, help);
    family.add(labels, value);
    family.move_to(sink);
  };
  pass("workqueue_unfinished_work_seconds",
       "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
       queue_labels, source_.unfinished_work().count());
  pass("workqueue_longest_running_processor_seconds",
       "How many seconds has the longest running processor for workqueue been running without completing an API call.",
       queue_labels, source_.longest_work().count());
  FamilyBuilder out_of_date("oarlock_cache_out_of_date_seconds",
                            "Time in seconds since lists and watches of a resource began to fail, or since the start "
                            "of a list in progress; 0 while a watch delivers the changes.");
  for (const ResourceKind kind : {ResourceKind::kJob, ResourceKind::kPod, ResourceKind::kService})
    out_of_date.add({{"resource", resource_of(kind).to_string()}}, source_.out_of_date(kind).count());
  out_of_date.move_to(sink);

  std::vector<std::shared_ptr<const CachedJob>> jobs = source_.jobs();
  const size_t all = jobs.size();
  const size_t count = std::min(all, max_jobs_);
  sort_by_precedence(jobs);
  size_t shown = 0;
  for (size_t bytes = 0; shown < count; ++shown) {
    bytes += text_size(*jobs[shown]);
    if (bytes > kMaxText) break;
  }
  jobs.resize(shown);
  for (const JobFamily& definition : kJobFamilies) collect_family(definition, jobs, sink);
  pass("trainingjob_dropped_series", "Number of jobs without per-job series because the series limit was reached.", {},
       static_cast<double>(all - shown));
}

}  // namespace oarlock::control
