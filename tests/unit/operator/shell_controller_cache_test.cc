// The controller: jobs whose specs the cache does not hold, and incomplete caches.
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
using Json = nlohmann::json;

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

}  // namespace
}  // namespace oarlock::control
