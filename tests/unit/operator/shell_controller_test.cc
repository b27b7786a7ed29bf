// The controller against a scripted API server and a fake clock: when a job is requeued, and what is
// written about it.
#include "operator/shell/controller.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "api/rules.h"
#include "tests/unit/operator/controller_fixture.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using http::Response;
using test::becomes_true;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

Response refusal(int status, const std::string& message, std::optional<std::chrono::seconds> retry_after = {}) {
  return {.status = status,
          .body = Json{{"reason", status == 403 ? "Forbidden" : "X"}, {"message", message}}.dump(),
          .retry_after = retry_after};
}

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

TEST_F(ControllerTest, ATemplateThatIsRejectedWithOneProfileMayBeValidWithAnother) {
  plan(create_pod());
  answer_with(refusal(
      400, R"(Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.foo")"));
  reconcile_now();
  plan({});
  reconcile_now();
  EXPECT_THAT(last_observed().template_error, Not(IsEmpty()));
  int version = 10;
  for (const int64_t generation : {1, 2}) {
    job_.status.profile = api::AppliedProfile{"default", "ns", "uid", generation, "{}"};
    job_.metadata.resource_version = std::to_string(++version);
    api_->push("trainingjobs", "MODIFIED", api::to_json(job_));
    EXPECT_TRUE(becomes_true([&] {
      reconcile_now();
      return last_observed().job.status.profile && last_observed().job.status.profile->generation == generation;
    }));
    EXPECT_THAT(last_observed().template_error, IsEmpty());
    plan(create_pod());
    reconcile_now();
    plan({});
    reconcile_now();
    EXPECT_THAT(last_observed().template_error, Not(IsEmpty())) << "with generation " << generation;
  }
}

}  // namespace
}  // namespace oarlock::control
