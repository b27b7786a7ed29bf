#include "operator/shell/metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "http/metrics.h"
#include "operator/shell/job_metrics.h"
#include "tests/support/builders.h"
#include "tests/support/metrics_page.h"
#include "tests/support/scripted_transport.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using test::at_second;
using test::JobBuilder;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public ::testing::Test {
 protected:
  std::string text() const {
    return metrics_handler(registry_, std::bind_front(&JobMetrics::collect, job_metrics()))("").body;
  }
  JobMetrics job_metrics() const {
    return JobMetrics(
        {.jobs = [this] { return jobs_; },
         .unfinished_work = [] { return kube::Seconds(1.5); },
         .longest_work = [] { return kube::Seconds(0.5); },
         .out_of_date = [](ResourceKind kind) { return kube::Seconds(kind == ResourceKind::kPod ? 400 : 0); }},
        max_jobs_);
  }
  void add(const Job& job) { jobs_.push_back(std::make_shared<const CachedJob>(make_cached_job(job, budget_))); }

  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(registry_);
  ByteBudget budget_{0};
  std::vector<std::shared_ptr<const CachedJob>> jobs_;
  size_t max_jobs_ = 100;
};

TEST_F(MetricsTest, ExportsControllerRuntimeMetricsFromTheStart) {
  const std::string all = text();
  for (const char* line :
       {R"(controller_runtime_reconcile_total{controller="trainingjob",result="success"} 0)",
        R"(controller_runtime_reconcile_total{controller="trainingjob",result="requeue_after"} 0)",
        R"(controller_runtime_reconcile_errors_total{controller="trainingjob"} 0)",
        R"(controller_runtime_reconcile_panics_total{controller="trainingjob"} 0)",
        R"(controller_runtime_reconcile_time_seconds_count{controller="trainingjob"} 0)",
        R"(workqueue_depth{controller="trainingjob",name="trainingjob",priority="0"} 0)",
        R"(workqueue_adds_total{controller="trainingjob",name="trainingjob"} 0)",
        R"(workqueue_unfinished_work_seconds{controller="trainingjob",name="trainingjob"} 1.5)",
        R"(workqueue_longest_running_processor_seconds{controller="trainingjob",name="trainingjob"} 0.5)",
        "process_resident_memory_bytes"}) {
    EXPECT_THAT(all, HasSubstr(line));
  }
}

TEST_F(MetricsTest, CountsReconcilesAndTheQueue) {
  metrics_->observe_reconcile("success", kube::Seconds(0.01));
  metrics_->observe_reconcile("error", kube::Seconds(0.02));
  metrics_->count_panic();
  metrics_->set_max_workers(4);
  metrics_->increment_active_workers();
  metrics_->on_add(3);
  metrics_->on_retry();
  const std::string all = text();
  for (const char* line : {R"(controller_runtime_reconcile_total{controller="trainingjob",result="error"} 1)",
                           R"(controller_runtime_reconcile_errors_total{controller="trainingjob"} 1)",
                           R"(controller_runtime_reconcile_panics_total{controller="trainingjob"} 1)",
                           R"(controller_runtime_reconcile_time_seconds_bucket{controller="trainingjob",le="0.01"} 1)",
                           R"(controller_runtime_max_concurrent_reconciles{controller="trainingjob"} 4)",
                           R"(controller_runtime_active_workers{controller="trainingjob"} 1)",
                           R"(workqueue_depth{controller="trainingjob",name="trainingjob",priority="0"} 3)",
                           R"(workqueue_retries_total{controller="trainingjob",name="trainingjob"} 1)"}) {
    EXPECT_THAT(all, HasSubstr(line));
  }
}

TEST_F(MetricsTest, CountsRequestsByCodeMethodAndHost) {
  auto clock = std::make_shared<test::FakeClock>();
  auto script = std::make_shared<test::ScriptedTransport>(clock);
  InstrumentedTransport transport(script, "h:6443", metrics_, clock);
  script->script({.failure = http::TransportErrorKind::kConnect});
  EXPECT_FALSE(transport.send({"GET", "/version", "", ""}, 1s, {}));
  EXPECT_FALSE(transport.has_responded());
  script->script({.status = 409});
  EXPECT_EQ(transport.send({"POST", "/x", "", ""}, 1s, {})->status, 409);
  EXPECT_TRUE(transport.has_responded());
  class Sink final : public http::ByteSink {
    bool write(std::string_view) override { return true; }
  } sink;
  script->script({.pieces = {"line\n"}, .failure = http::TransportErrorKind::kBroken, .takes = 400s});
  EXPECT_FALSE(transport.stream({"GET", "/x?watch=true", "", ""}, sink, {1s, 1s}, {}));
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr(R"(rest_client_requests_total{code="<error>",host="h:6443",method="GET"} 1)"));
  EXPECT_THAT(all, HasSubstr(R"(rest_client_requests_total{code="409",host="h:6443",method="POST"} 1)"));
  EXPECT_THAT(all, HasSubstr(R"(rest_client_requests_total{code="200",host="h:6443",method="GET"} 1)"));
  // The duration of a watch is not a latency.
  EXPECT_THAT(all, HasSubstr(R"(rest_client_request_duration_seconds_count{host="h:6443",verb="GET"} 1)"));
}

TEST_F(MetricsTest, JobMetricsFollowTheCache) {
  Job job = JobBuilder("bert").nodes(2).phase(api::Phase::kRunning, 1).restarts(1);
  job.status.progress = api::Progress{};
  job.status.progress->step = 25;
  job.status.progress->target_steps = 100;
  job.status.nodes.ready = 2;
  job.status.recoveries =
      api::Recoveries{.total = 3, .seconds = 1.5, .last_ranks = "", .last_reason = "", .last_time = {}};
  job.status.in_pod_restarts =
      api::InPodRestarts{.total = 4, .seconds = 2.5, .last_rank = {}, .last_reason = "", .last_time = {}};
  job.status.bad_nodes = {{.name = "a", .failures = 2, .reason = "", .avoidance = api::NodeAvoidance::kNone},
                          {.name = "b", .failures = 2, .reason = "", .avoidance = api::NodeAvoidance::kRequired}};
  add(job);
  const std::string labels = R"({namespace=")" + job.metadata.namespace_name + R"(",trainingjob="bert")";
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("trainingjob_status_phase{namespace=\"" + job.metadata.namespace_name +
                             R"(",phase="Running",trainingjob="bert"} 1)"));
  EXPECT_THAT(all, HasSubstr("trainingjob_progress_ratio" + labels + "} 0.25"));
  EXPECT_THAT(all, HasSubstr("trainingjob_rank_recoveries_total" + labels + "} 3"));
  EXPECT_THAT(all, HasSubstr("trainingjob_rank_recovery_seconds_total" + labels + "} 1.5"));
  EXPECT_THAT(all, HasSubstr("trainingjob_in_pod_restarts_total" + labels + "} 4"));
  EXPECT_THAT(all, HasSubstr("trainingjob_in_pod_restart_seconds_total" + labels + "} 2.5"));
  EXPECT_THAT(all, HasSubstr("trainingjob_avoided_nodes" + labels + "} 1"));
  EXPECT_THAT(all, HasSubstr("trainingjob_spec_replicas" + labels + "} 2"));
  EXPECT_THAT(all, HasSubstr("trainingjob_restarts_total{namespace=\"" + job.metadata.namespace_name +
                             R"(",reason="PodFailed",trainingjob="bert"} 1)"));
  EXPECT_THAT(all, HasSubstr(R"(state="ready",trainingjob="bert"} 2)"));
  jobs_.clear();
  EXPECT_THAT(text(), Not(HasSubstr("bert")));
}

TEST_F(MetricsTest, SeriesLimitPrefersRunningJobs) {
  const auto add_job = [&](const char* name, api::Phase phase, int created, int completed = 0) {
    Job job = JobBuilder(name).phase(phase);
    job.metadata.uid = name;
    job.metadata.creation_timestamp = at_second(created);
    if (completed > 0) job.status.completion_time = at_second(completed);
    add(job);
  };
  add_job("finished-early", api::Phase::kComplete, 1, 90);
  add_job("finished-late", api::Phase::kFailed, 2, 95);
  add_job("waits", api::Phase::kPending, 3);
  add_job("restarts", api::Phase::kRestarting, 50);
  add_job("runs", api::Phase::kRunning, 60);
  add_job("youngest-runs", api::Phase::kStalled, 70);
  const auto kept = [&](size_t limit) {
    max_jobs_ = limit;
    const std::string all = text();
    EXPECT_THAT(all, HasSubstr("# TYPE trainingjob_dropped_series gauge"));
    EXPECT_THAT(all, HasSubstr("trainingjob_dropped_series " + std::to_string(6 - limit) + "\n"));
    std::vector<std::string> out;
    for (const auto& job : jobs_) {
      if (all.find("trainingjob=\"" + job->job.metadata.name + "\"") != std::string::npos)
        out.push_back(job->job.metadata.name);
    }
    return out;
  };
  using ::testing::UnorderedElementsAre;
  EXPECT_THAT(kept(2), UnorderedElementsAre("restarts", "runs"));
  EXPECT_THAT(kept(3), UnorderedElementsAre("restarts", "runs", "youngest-runs"));
  EXPECT_THAT(kept(4), UnorderedElementsAre("restarts", "runs", "youngest-runs", "waits"));
  EXPECT_THAT(kept(5), UnorderedElementsAre("restarts", "runs", "youngest-runs", "waits", "finished-late"));
}

TEST_F(MetricsTest, NamespacesTakeTurnsForSeries) {
  const auto add_job = [&](const std::string& namespace_name, int created, api::Phase phase) {
    Job job = JobBuilder(fmt::format("{}-{}", namespace_name, created)).phase(phase);
    job.metadata.namespace_name = namespace_name;
    job.metadata.creation_timestamp = at_second(created);
    add(job);
  };
  for (int i = 0; i < 50; ++i) add_job("large", i, api::Phase::kPending);
  add_job("small", 60, api::Phase::kPending);
  add_job("small", 61, api::Phase::kPending);
  add_job("large", 70, api::Phase::kRunning);
  max_jobs_ = 5;
  const std::string all = text();
  for (const char* kept : {"large-70", "large-0", "small-60", "large-1", "small-61"})
    EXPECT_THAT(all, HasSubstr(fmt::format("trainingjob=\"{}\"", kept)));
  EXPECT_THAT(all, HasSubstr("trainingjob_dropped_series 48\n"));
}

// One scrape of jobs with long labels would take 45 MiB.
TEST_F(MetricsTest, LimitsTextOfAllJobs) {
  max_jobs_ = 2000;
  for (int i = 0; i < 2000; ++i) {
    Job job = JobBuilder(fmt::format("{:054}", i)).phase(api::Phase::kRunning);
    job.metadata.namespace_name = std::string(63, 'n');
    auto cached = std::make_shared<CachedJob>(make_cached_job(job, budget_));
    for (int resource = 0; resource < 8; ++resource)
      cached->accelerators[fmt::format("{}.com/{}", resource, std::string(110, 'r'))] = 1;
    jobs_.push_back(std::move(cached));
  }
  const std::string all = text();
  EXPECT_LT(all.size(), JobMetrics::kMaxText);
  EXPECT_THAT(all, HasSubstr("trainingjob_dropped_series "));
  EXPECT_THAT(all, Not(HasSubstr("trainingjob_dropped_series 0")));
}

TEST_F(MetricsTest, LabelsExcludeValuesOfOtherControllers) {
  Job job = JobBuilder("bert").phase(api::Phase::kRunning, 1).restarts(1);
  job.status.conditions.push_back({"example.com/" + std::string(300, 'x'), true, "", "", at_second(1)});
  job.status.restarts.reasons.push_back({"Anything\x1b[31m", 7});
  add(job);
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr(R"(condition="Running")"));
  EXPECT_THAT(all, HasSubstr(R"(reason="PodFailed")"));
  EXPECT_THAT(all, Not(HasSubstr("example.com")));
  EXPECT_THAT(all, Not(HasSubstr("Anything")));
}

TEST_F(MetricsTest, CountsDroppedEventsByReason) {
  EXPECT_THAT(text(), HasSubstr(R"(trainingjob_events_dropped_total{reason="refused"} 0)"));
  metrics_->count_dropped_event("refused");
  EXPECT_THAT(text(), HasSubstr(R"(trainingjob_events_dropped_total{reason="refused"} 1)"));
}

TEST_F(MetricsTest, CountsStartsAndFinishesOnce) {
  Job job = JobBuilder("bert");
  api::Status started = job.status;
  started.phase = api::Phase::kPending;
  started.start_time = at_second(1);
  metrics_->observe_status_change(job, started);
  job.status = started;
  metrics_->observe_status_change(job, started);
  api::Status failed = started;
  failed.phase = api::Phase::kFailed;
  failed.conditions = {{.type = "Failed", .status = true, .reason = "MaxRestartsExceeded", .message = ""}};
  metrics_->observe_status_change(job, failed);
  job.status = failed;
  metrics_->observe_status_change(job, failed);
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("trainingjob_jobs_created_total{namespace=\"" + job.metadata.namespace_name + "\"} 1"));
  EXPECT_THAT(all, HasSubstr(R"(reason="MaxRestartsExceeded",result="Failed"} 1)"));
}

TEST_F(MetricsTest, KeepsJobEventsOfTheLastNamespaces) {
  const auto run_in = [this](const std::string& namespace_name) {
    Job job = JobBuilder("bert");
    job.metadata.namespace_name = namespace_name;
    api::Status next = job.status;
    next.start_time = at_second(1);
    metrics_->observe_status_change(job, next);
    job.status = next;
    next.phase = api::Phase::kComplete;
    next.completion_time = at_second(9);
    metrics_->observe_status_change(job, next);
  };
  run_in("first");
  for (size_t i = 0; i < kMaxNamespaces; ++i) {
    run_in("long-lived");
    run_in(fmt::format("run-{}", i));
  }
  const std::string all = text();
  EXPECT_THAT(all, Not(HasSubstr("namespace=\"first\"")));
  EXPECT_THAT(all, Not(HasSubstr("namespace=\"run-0\"")));
  EXPECT_THAT(all,
              HasSubstr(fmt::format("trainingjob_jobs_created_total{{namespace=\"long-lived\"}} {}", kMaxNamespaces)));
  EXPECT_THAT(all, HasSubstr(fmt::format("namespace=\"run-{}\"", kMaxNamespaces - 1)));
}

api::Condition condition(const char* type, bool status, int since) {
  return {.type = type, .status = status, .reason = "", .message = "", .last_transition_time = at_second(since)};
}

using Conditions = std::vector<api::Condition>;

class PhaseTimesTest : public MetricsTest {
 protected:
  void change(Job& job, api::Phase phase, const Conditions& conditions) {
    api::Status next = job.status;
    next.phase = phase;
    next.conditions = conditions;
    if (is_terminal(phase)) next.completion_time = at_second(500);
    metrics_->observe_status_change(job, next);
    job.status = next;
  }
};

TEST_F(PhaseTimesTest, ObservesStartupRecoveryAndRunDuration) {
  Job job = JobBuilder("bert");
  const auto changes_to = [&](api::Phase phase, const Conditions& conditions) { change(job, phase, conditions); };
  job.status.start_time = at_second(100);
  changes_to(api::Phase::kPending, {condition("Pending", true, 100)});
  changes_to(api::Phase::kRunning, {condition("Pending", false, 107), condition("Running", true, 107)});
  changes_to(api::Phase::kRestarting, {condition("Pending", false, 107), condition("Running", false, 200)});
  changes_to(api::Phase::kRunning, {condition("Pending", false, 107), condition("Running", true, 225)});
  // A suspension is not a failure.
  changes_to(api::Phase::kSuspended, {condition("Running", false, 300), condition("Suspended", true, 300)});
  changes_to(api::Phase::kRunning, {condition("Running", true, 400), condition("Suspended", false, 390)});
  changes_to(api::Phase::kComplete, {condition("Running", false, 500), condition("Complete", true, 500)});
  const std::string labels = "{namespace=\"" + job.metadata.namespace_name + "\"";
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("trainingjob_startup_seconds_count" + labels + "} 1\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_startup_seconds_sum" + labels + "} 7\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_recovery_seconds_count" + labels + "} 1\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_recovery_seconds_sum" + labels + "} 25\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_run_duration_seconds_sum" + labels + ",result=\"Complete\"} 400\n"));
}

TEST_F(PhaseTimesTest, StallIsNotCountedAsRecovery) {
  Job job = JobBuilder("bert");
  const auto changes_to = [&](api::Phase phase, const Conditions& conditions) { change(job, phase, conditions); };
  const std::string labels = "{namespace=\"" + job.metadata.namespace_name + "\"";
  job.status.start_time = at_second(100);
  changes_to(api::Phase::kRunning, {condition("Running", true, 107)});
  changes_to(api::Phase::kStalled, {condition("Running", false, 800), condition("Stalled", true, 800)});
  changes_to(api::Phase::kRunning, {condition("Running", true, 900), condition("Stalled", false, 900)});
  EXPECT_THAT(text(), HasSubstr("trainingjob_startup_seconds_count" + labels + "} 1\n"));
  EXPECT_THAT(text(), Not(HasSubstr("trainingjob_recovery_seconds")));
  changes_to(api::Phase::kStalled, {condition("Running", false, 1800), condition("Stalled", true, 1800)});
  changes_to(api::Phase::kRestarting, {condition("Running", false, 1800), condition("Stalled", false, 2000)});
  changes_to(api::Phase::kRunning, {condition("Running", true, 2005), condition("Stalled", false, 2000)});
  EXPECT_THAT(text(), HasSubstr("trainingjob_recovery_seconds_count" + labels + "} 1\n"));
  EXPECT_THAT(text(), HasSubstr("trainingjob_recovery_seconds_sum" + labels + "} 5\n"));
}

TEST_F(MetricsTest, AcceleratorsCountAllPodsOfUnfinishedJobs) {
  Job job = JobBuilder("bert").nodes(3).phase(api::Phase::kRunning, 1);
  job.spec.pod_template = R"({"spec": {"containers": [
    {"name": "trainer", "resources": {"limits": {"nvidia.com/gpu": 4, "cpu": "2", "hugepages-2Mi": "1Gi"}}},
    {"name": "side", "resources": {"limits": {"nvidia.com/gpu": "1", "rdma/hca": "1", "a.b/c": "x"}}}]}})";
  add(job);
  const std::string labels = "{namespace=\"" + job.metadata.namespace_name + "\",resource=";
  const std::string all = text();
  EXPECT_THAT(all,
              HasSubstr("trainingjob_requested_accelerators" + labels + R"("nvidia.com/gpu",trainingjob="bert"} 15)"));
  EXPECT_THAT(all, HasSubstr("trainingjob_requested_accelerators" + labels + R"("rdma/hca",trainingjob="bert"} 3)"));
  EXPECT_THAT(all, Not(HasSubstr("a.b/c")));
  EXPECT_THAT(all, Not(HasSubstr("hugepages")));
  Job hostile = job;
  hostile.metadata.name = "hostile";
  hostile.spec.nodes = 4096;
  hostile.spec.pod_template = R"({"spec": {"containers": [
    {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 9223372036854775807, "rdma/hca": 18446744073709551615}}},
    {"name": "b", "resources": {"limits": {"nvidia.com/gpu": "9223372036854775807", "rdma/hca": -5}}}]}})";
  add(hostile);
  for (const char* resource : {"nvidia.com/gpu", "rdma/hca"}) {
    EXPECT_THAT(text(), HasSubstr("trainingjob_requested_accelerators" + labels + "\"" + resource +
                                  R"(",trainingjob="hostile"} 4096000000)"))
        << "a million for each pod";
  }
  jobs_.clear();
  job.status.phase = api::Phase::kComplete;
  add(job);
  EXPECT_THAT(text(), Not(HasSubstr("trainingjob_requested_accelerators")));
}

TEST_F(PhaseTimesTest, StagesOfTheStartAreObservedOnce) {
  Job job = JobBuilder("bert");
  const std::string labels = "{namespace=\"" + job.metadata.namespace_name + "\",stage=\"";
  const auto write = [&](const api::Startup& startup) {
    api::Status next = job.status;
    next.startup = startup;
    metrics_->observe_status_change(job, next);
    job.status = next;
  };
  write({.scheduled = 4});
  write({.scheduled = 4, .started = 30, .first_report = 45});
  write({.scheduled = 4, .started = 30, .first_report = 45});
  write({.attempt = 1, .scheduled = 2});
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("trainingjob_startup_stage_seconds_sum" + labels + "scheduling\"} 6\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_startup_stage_seconds_count" + labels + "pulling\"} 1\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_startup_stage_seconds_sum" + labels + "pulling\"} 26\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_startup_stage_seconds_sum" + labels + "starting\"} 15\n"));
  EXPECT_THAT(all, Not(HasSubstr("stage=\"first_step\"")));
}

TEST_F(MetricsTest, AcceleratorTimesAreCountersByClass) {
  Job job = JobBuilder("bert").phase(api::Phase::kRunning);
  add(job);
  EXPECT_THAT(text(), Not(HasSubstr("accelerator_seconds_total")));
  jobs_.clear();
  api::Usage& usage = job.status.usage.emplace();
  usage.classes[UsageClass::kProductive] = 12'500;
  usage.queued = 4'000;
  add(job);
  const std::string all = text();
  EXPECT_THAT(all, HasSubstr("# TYPE trainingjob_accelerator_seconds_total counter\n"));
  EXPECT_THAT(all, HasSubstr("trainingjob_accelerator_seconds_total{class=\"productive\",namespace=\"default\","
                             "trainingjob=\"bert\"} 12.5\n"));
  EXPECT_THAT(all, HasSubstr("class=\"idle\",namespace=\"default\",trainingjob=\"bert\"} 0\n"))
      << "rate() ignores the first value of a series";
  EXPECT_THAT(all, HasSubstr("trainingjob_queued_accelerator_seconds_total{namespace=\"default\","
                             "trainingjob=\"bert\"} 4\n"));
}

// docs/metrics-operator.md is generated from the exported metrics.
TEST_F(MetricsTest, ReferencePageMatchesExportedMetrics) {
  Job job = JobBuilder("bert").nodes(2).phase(api::Phase::kRunning, 1).restarts(1);
  job.spec.pod_template = R"({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}})";
  job.status.start_time = job.metadata.creation_timestamp = at_second(1);
  job.status.progress = api::Progress{};
  job.status.progress->step = 1;
  job.status.progress->target_steps = 2;
  job.status.recoveries = api::Recoveries{.total = 1, .last_ranks = "", .last_reason = "", .last_time = {}};
  job.status.in_pod_restarts = api::InPodRestarts{.total = 1, .last_rank = {}, .last_reason = "", .last_time = {}};
  job.status.bad_nodes = {{.name = "a", .failures = 1, .reason = ""}};
  job.status.queue =
      api::QueueStatus{.name = "team", .cluster_queue = "", .flavors = {}, .nodes = {}, .since = at_second(1)};
  job.status.conditions = {condition("Running", false, 2)};
  api::Status done = job.status;
  done.phase = api::Phase::kComplete;
  done.completion_time = at_second(9);
  done.startup = api::Startup{.scheduled = 1};
  done.conditions = {condition("Running", true, 3)};
  Job fresh = job;
  fresh.status = {};
  metrics_->observe_status_change(fresh, done);
  metrics_->observe_status_change(job, done);
  api::Status evicted = done;
  evicted.attempt = 1;
  evicted.attempts.emplace_back().reason = "QueueEvicted";
  metrics_->observe_status_change(fresh, evicted);
  job.status.completion_time = at_second(9);
  job.status.usage.emplace().classes[UsageClass::kProductive] = 1;
  add(job);
  metrics_->observe_request("h:6443", "GET", 200, kube::Seconds(0.1));
  metrics_->set_leader(true);
  metrics_->count_leader_slow_path();
  metrics_->record_cache_success("pods", 0, at_second(9));
  std::vector<prometheus::MetricFamily> families = registry_->Collect();
  job_metrics().collect([&](prometheus::MetricFamily family) { families.push_back(std::move(family)); });
  test::expect_metrics_page("metrics-operator.md", "The operator's metrics", families);
}

TEST_F(MetricsTest, ExportsCacheHealth) {
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_out_of_date_seconds{resource="pods"} 400)"));
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_out_of_date_seconds{resource="services"} 0)"));
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_consecutive_failures{resource="trainingjobs.oarlock.dev"} 0)"));
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_unreadable_objects_total{resource="pods"} 0)"));
  metrics_->set_cache_failures("pods", 7);
  metrics_->count_unreadable_object("pods");
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_consecutive_failures{resource="pods"} 7)"));
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_unreadable_objects_total{resource="pods"} 1)"));
  metrics_->set_incomplete_namespaces("pods", 3);
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_incomplete_namespaces{resource="pods"} 3)"));
  metrics_->record_cache_success("pods", 0, SystemTime(5s));
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_consecutive_failures{resource="pods"} 0)"));
  EXPECT_THAT(text(), HasSubstr(R"(oarlock_cache_last_success_timestamp_seconds{resource="pods"} 5)"));
}

}  // namespace
}  // namespace oarlock::control
