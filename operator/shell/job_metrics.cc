#include "operator/shell/job_metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

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
    for (const auto& [name, text] : labels) metric.label.push_back({name, text});
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
  }
  void move_to(std::vector<MetricFamily>& out) {
    if (!family_.metric.empty()) out.push_back(std::move(family_));
  }

 private:
  MetricFamily family_;
};

double unix_seconds(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// The families with one or more series per job.
struct JobFamilies {
  FamilyBuilder info{"trainingjob_info", "Identity of a job, with the value 1."};
  FamilyBuilder phase{"trainingjob_status_phase", "Current phase of a job, with the value 1."};
  FamilyBuilder condition{"trainingjob_status_condition", "Whether a condition of a job is true."};
  FamilyBuilder created{"trainingjob_created_timestamp_seconds", "Unix time of a job's creation in seconds."};
  FamilyBuilder start{"trainingjob_start_timestamp_seconds",
                      "Unix time in seconds at which a job's first pods were created."};
  FamilyBuilder completion{"trainingjob_completion_timestamp_seconds",
                           "Unix time in seconds at which a job became Complete or Failed."};
  FamilyBuilder spec_replicas{"trainingjob_spec_replicas", "Number of pods that a job requests."};
  FamilyBuilder accelerators{"trainingjob_requested_accelerators",
                             "Number of extended resources that the pods of an unfinished job request."};
  FamilyBuilder replicas{"trainingjob_status_replicas", "Number of pods of the current attempt by state."};
  FamilyBuilder restarts{"trainingjob_restarts_total", "Total number of group restarts of a job by reason.",
                         MetricType::Counter};
  FamilyBuilder recoveries{"trainingjob_rank_recoveries_total",
                           "Total number of recoveries of a job from the loss of ranks without a restart of the group.",
                           MetricType::Counter};
  FamilyBuilder recovery_seconds{
      "trainingjob_rank_recovery_seconds_total",
      "Total time from the loss of ranks until training continued without a restart of the group, in seconds.",
      MetricType::Counter};
  FamilyBuilder replaced{"trainingjob_replaced_pods_total",
                         "Total number of pods of a job that were replaced without a restart of the group.",
                         MetricType::Counter};
  FamilyBuilder in_pod_restarts{"trainingjob_in_pod_restarts_total",
                                "Total number of restarts of all processes of a job in their pods.",
                                MetricType::Counter};
  FamilyBuilder in_pod_restart_seconds{"trainingjob_in_pod_restart_seconds_total",
                                       "Total duration of the restarts of all processes of a job in their pods, in "
                                       "seconds.",
                                       MetricType::Counter};
  FamilyBuilder progress{"trainingjob_progress_ratio", "Ratio of completed to targeted optimizer steps of a job."};

  void add(const CachedJob& cached);
  void add_status(const api::Status& status, const Labels& labels);
};

Labels with(Labels labels, const char* name, const std::string& value) {
  labels[name] = value;
  return labels;
}

void JobFamilies::add(const CachedJob& cached) {
  const Job& job = cached.job;
  const Labels labels{{"namespace", job.metadata.name_space}, {"trainingjob", job.metadata.name}};
  info.add(with(labels, "uid", job.metadata.uid), 1);
  if (job.metadata.creation_timestamp) created.add(labels, unix_seconds(*job.metadata.creation_timestamp));
  spec_replicas.add(labels, job.spec.nodes);
  for (const auto& [resource, per_pod] : cached.accelerators)
    accelerators.add(with(labels, "resource", resource), static_cast<double>(per_pod * job.group_nodes()));
  add_status(job.status, labels);
}

void JobFamilies::add_status(const api::Status& status, const Labels& labels) {
  if (status.phase != api::Phase::kNone) phase.add(with(labels, "phase", to_string(status.phase)), 1);
  for (const api::Condition& one : status.conditions) {
    if (!api::is_own_condition(one.type)) continue;  // conditions of others may have any type
    if (!one.verbatim.empty()) continue;             // written by another controller
    condition.add(with(with(labels, "condition", one.type), "status", "true"), one.status ? 1 : 0);
  }
  if (status.start_time) start.add(labels, unix_seconds(*status.start_time));
  if (status.completion_time) completion.add(labels, unix_seconds(*status.completion_time));
  const std::pair<const char*, int> states[] = {{"scheduled", status.nodes.scheduled},
                                                {"ready", status.nodes.ready},
                                                {"succeeded", status.nodes.succeeded},
                                                {"failed", status.nodes.failed}};
  for (const auto& [state, pods] : states) replicas.add(with(labels, "state", state), pods);
  const auto known_reasons = restart_reasons();
  for (const api::RestartCount& restart : status.restarts.reasons) {
    // A reason that the operator does not use was written by another client.
    if (std::find(known_reasons.begin(), known_reasons.end(), restart.reason) == known_reasons.end()) continue;
    restarts.add(with(labels, "reason", restart.reason), restart.count);
  }
  if (status.recoveries) {
    recoveries.add(labels, static_cast<double>(status.recoveries->total));
    recovery_seconds.add(labels, status.recoveries->seconds);
    replaced.add(labels, status.recoveries->pods);
  }
  if (status.in_pod_restarts) {
    in_pod_restarts.add(labels, static_cast<double>(status.in_pod_restarts->total));
    in_pod_restart_seconds.add(labels, status.in_pod_restarts->seconds);
  }
  if (status.progress && status.progress->target_steps && *status.progress->target_steps > 0) {
    progress.add(labels,
                 static_cast<double>(status.progress->step) / static_cast<double>(*status.progress->target_steps));
  }
}

// Returns about how many bytes of a response the series of a job take.
size_t text_size(const CachedJob& cached) {
  constexpr size_t kPlainSeries = 17;   // without further labels
  constexpr size_t kSeriesBytes = 120;  // the names of family and labels, and the value
  const Job& job = cached.job;
  const size_t series =
      kPlainSeries + cached.accelerators.size() + job.status.conditions.size() + job.status.restarts.reasons.size();
  size_t bytes = series * (kSeriesBytes + job.metadata.name_space.size() + job.metadata.name.size());
  for (const auto& [resource, per_pod] : cached.accelerators) bytes += resource.size();
  return bytes;
}

int precedence_class(api::Phase phase) {
  if (is_running(phase) || phase == api::Phase::kRestarting) return 0;
  return is_terminal(phase) ? 2 : 1;
}

// Whether job `a` gets series before `b`. The oldest of the unfinished jobs come first, so that no job loses its series
// before it has finished.
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

}  // namespace

std::vector<MetricFamily> JobMetrics::Collect() const {
  FamilyBuilder unfinished(
      "workqueue_unfinished_work_seconds",
      "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.");
  FamilyBuilder longest("workqueue_longest_running_processor_seconds",
                        "How many seconds has the longest running processor for workqueue been running without "
                        "completing an API call.");
  FamilyBuilder dropped("trainingjob_dropped_series",
                        "Number of jobs without per-job series because the series limit was reached.");
  const Labels queue_labels = {{"name", kControllerName}, {"controller", kControllerName}};
  unfinished.add(queue_labels, source_.unfinished_work().count());
  longest.add(queue_labels, source_.longest_work().count());

  std::vector<std::shared_ptr<const CachedJob>> jobs = source_.jobs();
  const size_t count = std::min(jobs.size(), max_jobs_);
  std::partial_sort(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(count), jobs.end(),
                    [](const auto& a, const auto& b) { return has_precedence(a->job, b->job); });
  JobFamilies families;
  size_t shown = 0;
  for (size_t bytes = 0; shown < count; ++shown) {
    bytes += text_size(*jobs[shown]);
    if (bytes > kMaxText) break;
    families.add(*jobs[shown]);
  }
  dropped.add({}, static_cast<double>(jobs.size() - shown));

  std::vector<MetricFamily> out;
  for (FamilyBuilder* family :
       {&unfinished, &longest, &families.info, &families.phase, &families.condition, &families.created, &families.start,
        &families.completion, &families.spec_replicas, &families.accelerators, &families.replicas, &families.restarts,
        &families.recoveries, &families.recovery_seconds, &families.replaced, &families.in_pod_restarts,
        &families.in_pod_restart_seconds, &families.progress, &dropped}) {
    family->move_to(out);
  }
  return out;
}

}  // namespace oarlock::control
