// The controller against a scripted API server and a fake clock: when a job is requeued, and what is
// written about it.
#include "operator/shell/controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "api/rules.h"
#include "operator/core/reconcile.h"
#include "tests/support/builders.h"
#include "tests/support/fake_api.h"
#include "tests/support/fake_clock.h"
#include "tests/support/transport_calls.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using http::Response;
using kube::ObjectKey;
using test::becomes_true;
using test::FakeApi;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

Json at_version(const std::string& version) { return {{"metadata", {{"resourceVersion", version}}}}; }

Response refusal(int status, const std::string& message, std::optional<std::chrono::seconds> retry_after = {}) {
  return {.status = status,
          .body = Json{{"reason", status == 403 ? "Forbidden" : "X"}, {"message", message}}.dump(),
          .retry_after = retry_after};
}

class ControllerTest : public ::testing::Test {
 protected:
  explicit ControllerTest(const Logger& log = Logger::silent(), size_t spec_budget = kSpecBudget,
                          size_t cache_limit = kCacheLimit)
      : cache_(make_options(spec_budget, cache_limit), quiet_hooks(), api_, clock_,
               std::make_shared<kube::RealSleeper>()) {
    job_ = test::JobBuilder("j").nodes(1).phase(api::Phase::kRunning);
    job_.metadata.namespace_name = "ns";
    job_.metadata.resource_version = "10";
    job_.status.progress = api::Progress{};
    key_ = {job_.metadata.namespace_name, job_.metadata.name};
    answer_with(Response{.status = 201, .body = at_version("10").dump(), .retry_after = {}});
    api_->push("trainingjobs", "ADDED", api::to_json(job_));
    for (const char* plural : {"trainingjobs", "pods", "services"}) {
      Json end = at_version("10");
      end["metadata"]["annotations"]["k8s.io/initial-events-end"] = "true";
      api_->push(plural, "BOOKMARK", end);
    }
    cache_.start();
    EXPECT_TRUE(becomes_true([&] { return cache_.has_synced(); }));
    controller_ = std::make_unique<Controller>(
        Controller::Dependencies{
            .cache = &cache_,
            .poller = &poller_,
            .stalls = &stalls_,
            .queue = &queue_,
            .own_writes = own_writes_,
            .executor = std::make_shared<Executor>(client_, own_writes_, events_, Logger::silent()),
            .client = client_,
            .metrics = metrics_,
            .clock = clock_,
            .reconciler = [this](const Observed& observed) { return decide(observed); }},
        log);
    controller_->start(1, "");
  }
  ~ControllerTest() override {
    controller_->stop();
    cache_.stop();
  }

  void answer_with(const Response& response) {
    api_->on_request([response](const http::Request&) { return response; });
  }
  void plan(Plan plan) {
    const std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
  }
  static Plan create_pod() {
    Plan out;
    out.actions.emplace_back(CreatePod{"j-0-0", 0, 0});
    return out;
  }
  Plan progress(int64_t step) const {
    Plan out;
    PatchStatus patch{job_.status};
    patch.status.progress->step = step;
    out.actions.emplace_back(patch);
    return out;
  }

  // One worker takes the keys in order, so what was due before poke() has been done after it.
  void poke() {
    const int before = reconciled();
    queue_.add({"poke", std::to_string(++pokes_)});
    ASSERT_TRUE(becomes_true([&] { return reconciled() > before; }));
  }
  // The clock moves on, and what is due then is done.
  void advance(std::chrono::nanoseconds time) {
    clock_->advance(time);
    poke();
    poke();
  }
  void reconcile_now() {
    const int before = reconciled();
    queue_.add(key_);
    ASSERT_TRUE(becomes_true([&] { return reconciled() > before; }));
  }
  int reconciled(const std::string& result = "") const {
    double sum = 0;
    for (const prometheus::MetricFamily& family : registry_->Collect()) {
      if (family.name != "controller_runtime_reconcile_total") continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        for (const auto& label : metric.label) {
          if (label.name == "result" && (result.empty() || label.value == result)) sum += metric.counter.value;
        }
      }
    }
    return static_cast<int>(sum);
  }
  size_t writes() const { return api_->requests().size(); }
  Observed last_observed() {
    const std::lock_guard lock(mutex_);
    return last_observed_;
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<FakeApi> api_ = std::make_shared<FakeApi>();
  kube::Client client_{api_, 5s};
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(registry_);
  kube::WorkQueue queue_{{}, clock_};
  Cache cache_;
  ProgressPoller poller_{{}, [](const std::string&) { return nullptr; }, [](const ObjectKey&) {}, clock_};
  StallProbe stalls_{{.max_waiting = 1}, [](const std::string&) { return nullptr; }, [](const ObjectKey&) {}, clock_};
  std::shared_ptr<OwnWrites> own_writes_ = std::make_shared<OwnWrites>(clock_);
  std::shared_ptr<EventRecorder> events_ =
      std::make_shared<EventRecorder>(client_, EventSource{}, clock_, Logger::silent());
  Job job_;
  ObjectKey key_;
  std::atomic<int> decisions_ = 0;
  std::atomic<bool> throws_ = false;

 private:
  Plan decide(const Observed& observed) {
    ++decisions_;
    if (throws_) throw std::runtime_error("a bug");
    const std::lock_guard lock(mutex_);
    last_observed_ = observed;
    return plan_;
  }

  static CacheOptions make_options(size_t spec_budget, size_t cache_limit) {
    CacheOptions options;
    options.spec_budget = spec_budget;
    options.limit = cache_limit;
    return options;
  }
  static CacheHooks quiet_hooks() {
    return {.on_change = [](const ObjectKey&, Urgency) {},
            .on_error = [](const WatchScope&, const kube::ApiError&) {},
            .on_listing = [](const WatchScope&) {},
            .on_synced = [](const WatchScope&, size_t) {},
            .on_watching = [](const WatchScope&) {},
            .on_unreadable = [](ResourceKind, const ObjectKey&, const Error&) {}};
  }

  std::mutex mutex_;
  Plan plan_;
  Observed last_observed_;
  int pokes_ = 0;
  std::unique_ptr<Controller> controller_;
};

TEST_F(ControllerTest, SuccessAndRequeueAfterResetFailures) {
  for (const bool is_requeued : {true, false}) {
    plan(create_pod());
    answer_with(refusal(500, "etcd is away"));
    reconcile_now();
    for (int i = 0; i < 5; ++i) advance(1min);
    EXPECT_GE(queue_.failures(key_), 5);
    Plan wait;
    if (is_requeued) wait.requeue_after = 30s;
    plan(wait);
    advance(1min);
    EXPECT_EQ(queue_.failures(key_), 0) << is_requeued;
    // The time of the next reconcile is kept.
    const int before = decisions_;
    advance(29s);
    EXPECT_EQ(decisions_, before);
    advance(1s);
    EXPECT_EQ(decisions_, before + (is_requeued ? 1 : 0));
    plan({});
    advance(30s);
  }
}

TEST_F(ControllerTest, ForgetsReportsOnceTheStallIsInTheStatus) {
  const Stall stall{.uid = job_.metadata.uid};
  EXPECT_FALSE(stalls_.reports(key_, stall)) << "requested";
  advance(21s);
  reconcile_now();
  EXPECT_TRUE(stalls_.reports(key_, stall)) << "no longer awaited";
  job_.status.phase = api::Phase::kStalled;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.job(key_)->status.phase == api::Phase::kStalled; }));
  reconcile_now();
  EXPECT_FALSE(stalls_.reports(key_, stall)) << "a new request";
}

TEST_F(ControllerTest, RetryAfterIsHonored) {
  plan(create_pod());
  answer_with(refusal(429, "slow down", 7s));
  reconcile_now();
  EXPECT_EQ(decisions_, 1);
  EXPECT_EQ(queue_.failures(key_), 0);
  advance(6999ms);
  EXPECT_EQ(decisions_, 1);
  advance(1ms);
  EXPECT_EQ(decisions_, 2);
  EXPECT_EQ(reconciled("error"), 2);
}

TEST_F(ControllerTest, CapsRetryAfterAtOneMinute) {
  plan(create_pod());
  answer_with(refusal(503, "come back tomorrow", std::chrono::seconds(std::numeric_limits<int64_t>::max() / 1000)));
  reconcile_now();
  advance(59s);
  EXPECT_EQ(decisions_, 1);
  advance(1s);
  EXPECT_EQ(decisions_, 2);
}

TEST_F(ControllerTest, RetriesRejectedJobAtMostOncePerMinute) {
  plan(create_pod());
  answer_with(refusal(403, "exceeded\nquota\x1b[31m " + std::string(5000, 'x')));
  reconcile_now();
  for (int i = 0; i < 20; ++i) advance(1min);  // the pauses have grown
  const int before = decisions_;
  for (int i = 0; i < 10; ++i) {
    advance(50s);
    EXPECT_EQ(decisions_, before + i);
    advance(10s);
    EXPECT_EQ(decisions_, before + i + 1) << "when there is room in the quota the job starts within a minute";
  }
  // Reported once, with a bounded text.
  answer_with(Response{.status = 201, .body = "{}", .retry_after = {}});
  const size_t sent = writes();
  std::string note;
  api_->on_request([&](const http::Request& request) {
    note = Json::parse(request.body).value("note", "");
    return Response{.status = 201, .body = "{}", .retry_after = {}};
  });
  events_->flush();
  EXPECT_EQ(writes(), sent + 1);
  EXPECT_THAT(note, HasSubstr("cannot create pod ns/j-0-0: exceeded quota [31m xxx"));
  EXPECT_LE(note.size(), 1024u);
}

TEST_F(ControllerTest, RequeuesWhileOwnWritesAreNotCached) {
  plan(create_pod());
  answer_with(Response{.status = 201, .body = at_version("50").dump(), .retry_after = {}});
  reconcile_now();
  EXPECT_EQ(decisions_, 1);
  EXPECT_EQ(writes(), 1u);
  reconcile_now();  // the cache does not have the pod yet
  EXPECT_EQ(decisions_, 1) << "the pod would be created twice";
  EXPECT_EQ(reconciled("requeue_after"), 1);
  advance(999ms);
  EXPECT_EQ(reconciled("requeue_after"), 1);
  advance(1ms);
  EXPECT_EQ(reconciled("requeue_after"), 2) << "the job is requeued although no event arrived";
  EXPECT_EQ(decisions_, 1);
  api_->push("pods", "BOOKMARK", at_version("50"));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kPod, "ns", "50"); }));
  advance(1s);
  EXPECT_EQ(decisions_, 2);
}

TEST_F(ControllerTest, AnOldViewIsLookedAtAgain) {
  plan(progress(1));
  answer_with(refusal(409, "the object has been modified"));
  reconcile_now();
  EXPECT_EQ(reconciled("requeue"), 1);
  EXPECT_EQ(queue_.failures(key_), 1);
  advance(5ms);
  EXPECT_EQ(decisions_, 2);
}

TEST_F(ControllerTest, LongPlanYieldsToOtherJobs) {
  Plan many;
  for (int rank = 0; rank < 100; ++rank) many.actions.emplace_back(CreatePod{fmt::format("j-0-{}", rank), 0, rank});
  plan(many);
  const auto take_a_second = [this](const http::Request&) {
    clock_->advance(1s);
    return Response{.status = 201, .body = "{}", .retry_after = {}};
  };
  api_->on_request(take_a_second);
  reconcile_now();
  EXPECT_EQ(writes(), 100u) << "no other job waits";
  EXPECT_EQ(reconciled("requeue_after"), 0);

  api_->on_request([&](const http::Request& request) {
    queue_.add({"neighbor", "job"});
    return take_a_second(request);
  });
  reconcile_now();
  EXPECT_GE(writes(), 105u) << "it has five seconds";
  EXPECT_LE(writes(), 105u + 16) << "calls that had begun are waited for";
  EXPECT_EQ(reconciled("requeue_after"), 1);
  EXPECT_EQ(queue_.failures(key_), 0);
  plan({});
  advance(1s);
  EXPECT_EQ(decisions_, 3) << "the rest follows though nothing has happened";
}

TEST_F(ControllerTest, LongPlanWithProgressIsNotHung) {
  Plan many;
  for (int rank = 0; rank < 100; ++rank) many.actions.emplace_back(CreatePod{fmt::format("j-0-{}", rank), 0, rank});
  plan(many);
  std::atomic<double> longest = 0;  // seconds
  api_->on_request([&](const http::Request&) {
    longest = std::max(longest.load(), queue_.longest_running().count());
    clock_->advance(1s);
    return Response{.status = 201, .body = "{}", .retry_after = {}};
  });
  reconcile_now();
  EXPECT_EQ(writes(), 100u);
  EXPECT_LE(longest, 40) << "the calls of one batch, which run at the same time";
}

TEST_F(ControllerTest, ExceptionAffectsOnlyItsJob) {
  throws_ = true;
  reconcile_now();
  EXPECT_EQ(reconciled("error"), 1);
  EXPECT_EQ(queue_.failures(key_), 1);
  throws_ = false;
  advance(1s);
  EXPECT_EQ(decisions_, 2);
  EXPECT_EQ(reconciled("error"), 1);
  EXPECT_EQ(queue_.failures(key_), 0);
}

TEST_F(ControllerTest, ReadsPodWithoutTheLabelUntilItIsRestored) {
  Plan plan_of_loss;
  plan_of_loss.actions.emplace_back(ConfirmPodAbsent{"j-0-0"});
  plan(plan_of_loss);
  Json labels = Json::object();
  api_->on_request([&](const http::Request&) {
    const Json pod = {{"metadata",
                       {{"name", "j-0-0"},
                        {"namespace", "ns"},
                        {"uid", "pod-uid"},
                        {"resourceVersion", "10"},
                        {"labels", labels},
                        {"ownerReferences", {{{"uid", job_.metadata.uid}, {"controller", true}}}}}}};
    return Response{.status = 200, .body = pod.dump(), .retry_after = {}};
  });
  reconcile_now();
  plan({});
  for (int i = 0; i < 2; ++i) {
    reconcile_now();
    ASSERT_EQ(last_observed().pods.size(), 1U);
    EXPECT_TRUE(last_observed().pods[0].unlabeled);
    EXPECT_EQ(last_observed().pods[0].owner_uid, job_.metadata.uid);
  }
  labels[kLabelJobName] = "j";
  reconcile_now();
  ASSERT_EQ(last_observed().pods.size(), 1U);
  EXPECT_FALSE(last_observed().pods[0].unlabeled);
  const size_t before = writes();
  reconcile_now();
  EXPECT_THAT(last_observed().pods, IsEmpty()) << "the informer reports it again";
  EXPECT_EQ(writes(), before);
}

TEST_F(ControllerTest, ReportsRejectionUntilCreateSucceeds) {
  plan(create_pod());
  answer_with(refusal(403, "exceeded quota"));
  reconcile_now();
  EXPECT_THAT(last_observed().last_error, IsEmpty()) << "it is not known before the first create";
  answer_with(Response{.status = 201, .body = "{}", .retry_after = {}});
  reconcile_now();
  EXPECT_THAT(last_observed().last_error, HasSubstr("exceeded quota"));
  reconcile_now();
  EXPECT_THAT(last_observed().last_error, IsEmpty());
}

// Webhooks choose the status code of a denial, and one that does not respond is an internal error.
TEST_F(ControllerTest, ReportsWebhooksWithAnyStatus) {
  plan(create_pod());
  for (const int status : {401, 404, 409, 410, 413, 429, 500, 503}) {
    const std::string message = status == 500
                                    ? R"(failed calling webhook "a.example.com": dial tcp: connection refused)"
                                    : fmt::format(R"(admission webhook "a.example.com" denied it with {})", status);
    answer_with(refusal(status, message));
    reconcile_now();
    answer_with(Response{.status = 201, .body = "{}", .retry_after = {}});
    reconcile_now();
    EXPECT_THAT(last_observed().last_error, HasSubstr(message)) << status;
  }
}

TEST_F(ControllerTest, RejectedTemplateReachesTheNextDecision) {
  plan(create_pod());
  answer_with(refusal(
      400, R"(Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.foo")"));
  reconcile_now();
  EXPECT_THAT(last_observed().template_error, IsEmpty()) << "it is not known before the first create";
  plan({});
  reconcile_now();
  EXPECT_EQ(last_observed().template_error, "spec.template.spec.foo: unknown field");
  EXPECT_THAT(last_observed().last_error, IsEmpty());
  EXPECT_TRUE(events_->flush());
  EXPECT_EQ(writes(), 1U) << "the decision reports the error, so there is no event of the rejection";
  // Another spec may be valid.
  job_.metadata.generation = 2;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  EXPECT_TRUE(becomes_true([&] {
    reconcile_now();
    return last_observed().job.metadata.generation == 2;
  }));
  EXPECT_THAT(last_observed().template_error, IsEmpty());
}

TEST_F(ControllerTest, ADeletedJobIsNotPolledOrDelayed) {
  Plan until_deadline;
  until_deadline.requeue_after = std::chrono::seconds(api::rules::kMaxSeconds);
  plan(until_deadline);
  reconcile_now();
  EXPECT_EQ(queue_.delayed(), 1u);
  poller_.watch(key_, job_.metadata.uid, "10.0.0.1", 9400);
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "DELETED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  ASSERT_EQ(poller_.active_jobs(), 1u);
  reconcile_now();
  EXPECT_EQ(poller_.active_jobs(), 0u);
  EXPECT_EQ(queue_.delayed(), 0u) << "each deleted job would take memory until its deadline";
}

TEST_F(ControllerTest, AFinishedJobIsNotPolled) {
  const auto poll = [&] { poller_.watch(key_, job_.metadata.uid, "10.0.0.1", 9400); };
  poll();
  job_.status.phase = api::Phase::kComplete;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  ASSERT_EQ(poller_.active_jobs(), 1u);
  reconcile_now();
  EXPECT_EQ(poller_.active_jobs(), 0u);
}

TEST_F(ControllerTest, LimitsProgressWritesWithoutLosingTheLast) {
  for (int step = 1; step <= ProgressWriteLimiter::kBurst; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
  const int before = decisions_;
  for (int step = 100; step < 150; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  EXPECT_EQ(decisions_, before + 50);
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst)) << "its turn has not come";
  advance(200ms);
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst) + 1)
      << "it is written though nothing has happened";
}

// A rank may report another size of its group in each poll.
TEST_F(ControllerTest, LimitsWritesOfTheNodesThatTrain) {
  api::GroupSize& size = job_.status.elastic.emplace();
  size.nodes = 2;
  size.active_nodes = 2;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.job(key_)->status.elastic.has_value(); }));
  Plan shrunk;
  PatchStatus patch{job_.status};
  patch.status.elastic->active_nodes = 1;
  shrunk.actions.emplace_back(patch);
  shrunk.actions.emplace_back(EmitEvent{});
  plan(shrunk);
  for (int i = 0; i < 2 * ProgressWriteLimiter::kBurst; ++i) reconcile_now();
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
}

// A readiness probe may change its mind each second.
TEST_F(ControllerTest, LimitsWritesOfTheNumberOfReadyPods) {
  for (int i = 1; i <= 2 * ProgressWriteLimiter::kBurst; ++i) {
    PatchStatus patch{job_.status};
    patch.status.nodes.ready = i;
    patch.status.nodes.summary = std::to_string(i) + "/1";
    Plan flapped;
    flapped.actions.emplace_back(patch);
    plan(flapped);
    reconcile_now();
  }
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
}

TEST_F(ControllerTest, OtherStatusChangesAreNotRateLimited) {
  for (int step = 1; step <= 2 * ProgressWriteLimiter::kBurst; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  ASSERT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst));
  Plan stalled = progress(100);
  std::get<PatchStatus>(stalled.actions[0]).status.phase = api::Phase::kStalled;
  plan(stalled);
  reconcile_now();
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst) + 1);
  plan({});
  advance(1h);
  EXPECT_EQ(writes(), static_cast<size_t>(ProgressWriteLimiter::kBurst) + 1) << "it was written with the phase";
}

// A cache without room for specs.
class TrimmedJobTest : public ControllerTest {
 protected:
  TrimmedJobTest() : ControllerTest(Logger::silent(), 0) {}

  void serve_job(const Json& job) {
    api_->on_request(
        [job](const http::Request&) { return Response{.status = 200, .body = job.dump(), .retry_after = {}}; });
  }
};

TEST_F(TrimmedJobTest, ReadsJobFromApiServerForEachReconcile) {
  ASSERT_TRUE(cache_.job(key_)->report.is_trimmed);
  Job live = job_;
  live.metadata.resource_version = "12";
  serve_job(api::to_json(live));
  reconcile_now();
  EXPECT_EQ(decisions_, 1);
  EXPECT_EQ(last_observed().job.spec, job_.spec);
  EXPECT_EQ(last_observed().job.metadata.resource_version, "12");
  EXPECT_FALSE(last_observed().job.report.is_trimmed);
}

TEST_F(TrimmedJobTest, DoesNotReconcileUnreadableJob) {
  answer_with(refusal(500, "etcd is away"));
  reconcile_now();
  EXPECT_EQ(reconciled("error"), 1);
  answer_with(refusal(404, "gone"));
  reconcile_now();
  EXPECT_EQ(reconciled("success"), 1);
  Job another = job_;
  another.metadata.uid = "another";
  serve_job(api::to_json(another));
  reconcile_now();
  EXPECT_EQ(reconciled("requeue_after"), 1);
  EXPECT_EQ(decisions_, 0);
}

TEST_F(TrimmedJobTest, DoesNotReadSuspendedJobWithoutPods) {
  job_.spec.suspend = true;
  job_.metadata.resource_version = "11";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  reconcile_now();
  EXPECT_EQ(decisions_, 1);
  EXPECT_EQ(writes(), 0u);
}

// Thousands of jobs that can never work must not be read again and again.
TEST_F(TrimmedJobTest, ReadsJobWithInvalidSpecOnce) {
  job_.status.conditions.at(0).reason = kInvalidSpec;
  job_.status.observed_generation = job_.metadata.generation = 3;
  job_.metadata.resource_version = "11";
  serve_job(api::to_json(job_));
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  reconcile_now();
  EXPECT_EQ(decisions_, 1) << "this operator may permit what an earlier one did not";
  reconcile_now();
  EXPECT_EQ(decisions_, 1);
  EXPECT_EQ(writes(), 1u);
  job_.metadata.generation = 4;
  job_.metadata.resource_version = "12";
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "12"); }));
  reconcile_now();
  EXPECT_EQ(decisions_, 2) << "the spec has changed";
}

TEST_F(TrimmedJobTest, ReadsJobWithInvalidSpecAgainAtItsDeadline) {
  job_.status.conditions.at(0).reason = kInvalidSpec;
  job_.status.observed_generation = job_.metadata.generation = 3;
  job_.metadata.resource_version = "11";
  job_.spec.active_deadline_seconds = 60;
  job_.status.start_time = clock_->now();
  serve_job(api::to_json(job_));
  api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kJob, "ns", "11"); }));
  reconcile_now();
  reconcile_now();
  EXPECT_EQ(decisions_, 1);
  clock_->advance(61s);
  reconcile_now();
  EXPECT_EQ(decisions_, 2);
}

class FullCacheTest : public ControllerTest {
 protected:
  FullCacheTest() : ControllerTest(Logger::silent(), kSpecBudget, 16 << 10) {}
};

// It would create pods that exist already.
TEST_F(FullCacheTest, MakesNoDecisionWithoutAllPodsOfTheNamespace) {
  reconcile_now();
  const int before = decisions_;
  EXPECT_GT(before, 0);
  EXPECT_FALSE(cache_.is_incomplete("ns"));
  for (int i = 0; i < 30; ++i) {
    Json pod = at_version(std::to_string(20 + i));
    pod["metadata"]["name"] = fmt::format("other-0-{}", i);
    pod["metadata"]["namespace"] = "ns";
    pod["metadata"]["labels"] = {{kLabelJobName, "other"}};
    api_->push("pods", "ADDED", pod);
  }
  ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kPod, "ns", "49"); }));
  EXPECT_TRUE(cache_.is_incomplete("ns"));
  EXPECT_FALSE(cache_.is_incomplete("elsewhere"));
  EXPECT_LT(cache_.pod_count(), 30u);
  reconcile_now();
  EXPECT_EQ(decisions_, before);
}

class ControllerLogTest : public ControllerTest {
 protected:
  ControllerLogTest() : ControllerTest(Logger(LogFormat::kJson, LogLevel::kInfo)) {}
};

TEST_F(ControllerLogTest, DoesNotLogProgressUpdates) {
  ::testing::internal::CaptureStderr();
  for (int step = 1; step <= 50; ++step) {
    plan(progress(step));
    reconcile_now();
  }
  const std::string progress_lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(progress_lines, IsEmpty());
  ::testing::internal::CaptureStderr();
  Plan other = create_pod();
  other.reason = "missing: 1 object";
  plan(other);
  reconcile_now();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("missing: 1 object"));
}

}  // namespace
}  // namespace oarlock::control
