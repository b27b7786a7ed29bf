// Metrics of jobs with a queue of Kueue.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "http/metrics.h"
#include "operator/shell/job_metrics.h"
#include "operator/shell/metrics.h"
#include "tests/support/builders.h"

namespace oarlock::control {
namespace {

using test::at_second;
using test::JobBuilder;
using ::testing::HasSubstr;
using ::testing::Not;

std::string page_of(const std::shared_ptr<prometheus::Registry>& registry, const std::vector<Job>& jobs) {
  ByteBudget budget{0};
  const auto cached = [&] {
    std::vector<std::shared_ptr<const CachedJob>> out;
    for (const Job& job : jobs) out.push_back(std::make_shared<const CachedJob>(make_cached_job(job, budget)));
    return out;
  };
  const JobMetrics job_metrics({.jobs = cached,
                                .unfinished_work = [] { return kube::Seconds(0); },
                                .longest_work = [] { return kube::Seconds(0); },
                                .out_of_date = [](ResourceKind) { return kube::Seconds(0); }});
  return metrics_handler(registry, std::bind_front(&JobMetrics::collect, &job_metrics))("").body;
}

TEST(QueueMetrics, CountsEvictionsByKnownReasons) {
  const auto registry = std::make_shared<prometheus::Registry>();
  Metrics metrics(registry);
  Job job = JobBuilder("bert");
  const auto end_attempt = [&](const char* reason, const std::string& message) {
    api::Status next = job.status;
    api::AttemptRecord& record = next.attempts.emplace_back();
    record.attempt = next.attempt++;
    record.reason = reason;
    record.message = message;
    metrics.observe_status_change(job, next);
    job.status = next;
  };
  end_attempt("QueueEvicted", "the queue team does not admit the job any more: Preempted: to accommodate a workload");
  end_attempt("QueueEvicted", "the queue team does not admit the job any more: DeactivatedDueToRequeuingLimitExceeded");
  end_attempt("QueueEvicted", "the queue team does not admit the job any more: its Workload is being deleted");
  end_attempt("QueueEvicted", "the queue team admits the job with other flavors: h100");
  metrics.observe_status_change(job, job.status);
  api::Status resumed = job.status;
  ++resumed.attempt;
  metrics.observe_status_change(job, resumed);
  end_attempt("PodFailed", "exit code 1");
  const std::string labels = "trainingjob_queue_evictions_total{namespace=\"" + job.metadata.namespace_name + "\",";
  const std::string page = page_of(registry, {});
  EXPECT_THAT(page, HasSubstr(labels + "reason=\"Preempted\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(labels + "reason=\"Deactivated\"} 1\n"));
  EXPECT_THAT(page, HasSubstr(labels + "reason=\"Other\"} 2\n"));
}

TEST(QueueMetrics, ForgetsEvictionsOfOldNamespaces) {
  const auto registry = std::make_shared<prometheus::Registry>();
  Metrics metrics(registry);
  for (size_t i = 0; i <= kMaxNamespaces; ++i) {
    Job job = JobBuilder("bert");
    job.metadata.namespace_name = fmt::format("run-{}", i);
    api::Status next = job.status;
    next.attempt = 1;
    next.attempts.emplace_back().reason = "QueueEvicted";
    metrics.observe_status_change(job, next);
  }
  const std::string page = page_of(registry, {});
  EXPECT_THAT(page, Not(HasSubstr("namespace=\"run-0\"")));
  EXPECT_THAT(page, HasSubstr(R"(trainingjob_queue_evictions_total{namespace="run-1",reason="Other"} 1)"));
}

TEST(QueueMetrics, OnlyUnfinishedJobsWaitForTheirQueue) {
  const auto registry = std::make_shared<prometheus::Registry>();
  Job job = JobBuilder("bert").phase(api::Phase::kPending);
  job.status.queue =
      api::QueueStatus{.name = "team", .cluster_queue = "", .flavors = {}, .nodes = {}, .since = at_second(7)};
  const auto series = [&](const char* state) {
    return fmt::format(
        R"(trainingjob_queue_timestamp_seconds{{namespace="{}",queue="team",state="{}",trainingjob="bert"}})",
        job.metadata.namespace_name, state);
  };
  EXPECT_THAT(page_of(registry, {job}), HasSubstr(series("waiting")));
  job.status.queue->cluster_queue = "gpus";
  EXPECT_THAT(page_of(registry, {job}), HasSubstr(series("admitted")));
  job.status.queue->cluster_queue = "";
  for (const api::Phase phase : {api::Phase::kSuspended, api::Phase::kComplete, api::Phase::kFailed}) {
    job.status.phase = phase;
    EXPECT_THAT(page_of(registry, {job}), Not(HasSubstr("trainingjob_queue_timestamp_seconds"))) << to_string(phase);
  }
}

}  // namespace
}  // namespace oarlock::control
