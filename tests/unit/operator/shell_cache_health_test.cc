#include "operator/shell/cache_health.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(CacheHealth, ReportsResourceAndRemedyUntilRecovery) {
  auto clock = std::make_shared<test::FakeClock>();
  CacheHealth health("https://h:6443", clock, Logger::silent());
  EXPECT_EQ(health.current_failure(), "");
  health.record_failure({ResourceKind::kJob, ""}, kube::to_api_error(http::Response{
                                                      .status = 404, .body = "404 page not found", .retry_after = {}}));
  EXPECT_THAT(health.current_failure(), HasSubstr("trainingjobs.oarlock.dev"));
  EXPECT_THAT(health.current_failure(), HasSubstr("kubectl apply -f manifests/crd"));
  health.record_list({ResourceKind::kJob, ""}, 3);
  EXPECT_EQ(health.current_failure(), "");
  health.record_failure({ResourceKind::kPod, ""}, kube::to_api_error(403, "Forbidden", "pods is forbidden"));
  EXPECT_THAT(health.current_failure(), HasSubstr("pods is forbidden; the role is missing"));
  EXPECT_THAT(health.public_failure(),
              HasSubstr("watch pods: the API server returned status 403; the role is missing"));
  health.record_failure(
      {ResourceKind::kPod, ""},
      kube::to_api_error(http::TransportError{http::TransportErrorKind::kConnect, "https://h:6443: no connection"}));
  EXPECT_THAT(health.current_failure(), HasSubstr("is the API server running"));
  EXPECT_THAT(health.public_failure(), HasSubstr("no connection to the API server; is the API server running"));
}

TEST(CacheHealth, ReportsIncompleteNamespaces) {
  ::testing::internal::CaptureStderr();
  const auto clock = std::make_shared<test::FakeClock>();
  CacheHealth health("https://h:6443", clock, Logger(LogFormat::kJson, LogLevel::kInfo));
  EXPECT_EQ(health.incomplete_reason(), "");
  health.record_incomplete({ResourceKind::kJob, ""}, {"a", "b"});
  health.record_incomplete({ResourceKind::kPod, "c"}, {"c"});
  EXPECT_EQ(health.incomplete_namespaces(ResourceKind::kJob), 2u);
  EXPECT_EQ(health.incomplete_namespaces(ResourceKind::kService), 0u);
  const std::string public_text = health.incomplete_reason();
  EXPECT_THAT(public_text, HasSubstr("ignores trainingjobs.oarlock.dev of 2 namespaces; limit the jobs"));
  EXPECT_THAT(public_text, HasSubstr("ResourceQuota"));
  EXPECT_THAT(public_text, HasSubstr("raise --cache-limit"));
  health.record_incomplete({ResourceKind::kJob, ""}, {});
  health.record_incomplete({ResourceKind::kPod, "c"}, {});
  EXPECT_EQ(health.incomplete_reason(), "");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(R"("namespaces":"a, b")"));
  EXPECT_THAT(log, HasSubstr("the cache has all objects again"));
}

TEST(CacheHealth, RepeatedFailuresMakeTheCacheStale) {
  CacheHealth health("https://h:6443", std::make_shared<test::FakeClock>(), Logger::silent());
  const WatchScope bad{ResourceKind::kJob, "a"};
  const kube::ApiError error = kube::to_api_error(500, "", "etcd is away");
  for (int i = 1; i < CacheHealth::kFailuresUntilStale; ++i) {
    health.record_failure(bad, error);
    EXPECT_EQ(health.failures(ResourceKind::kJob), i);
  }
  EXPECT_EQ(health.stale_reason(), "");
  // Success in another namespace does not affect this one.
  health.record_list({ResourceKind::kJob, "b"}, 3);
  health.record_watch({ResourceKind::kJob, "b"});
  health.record_failure({ResourceKind::kPod, "a"}, error);
  health.record_failure(bad, error);
  EXPECT_THAT(health.stale_reason(),
              HasSubstr("trainingjobs.oarlock.dev in namespace a: the API server returned status 500 (5 "
                        "consecutive failures)"));
  EXPECT_THAT(health.stale_reason(), ::testing::Not(HasSubstr("etcd")));
  EXPECT_EQ(health.failures(ResourceKind::kJob), 5);
  EXPECT_EQ(health.failures(ResourceKind::kPod), 1);
  EXPECT_EQ(health.failures(ResourceKind::kService), 0);
  health.record_watch(bad);
  EXPECT_EQ(health.stale_reason(), "");
  EXPECT_EQ(health.failures(ResourceKind::kJob), 0);
}

TEST(CacheHealth, SlowFailuresMakeTheCacheStale) {
  const auto clock = std::make_shared<test::FakeClock>();
  CacheHealth health("https://h:6443", clock, Logger::silent());
  const WatchScope jobs{ResourceKind::kJob, ""};
  health.record_listing(jobs);
  clock->advance(CacheHealth::kTimeUntilStale - 1s);
  EXPECT_EQ(health.stale_reason(), "");
  EXPECT_EQ(health.out_of_date(ResourceKind::kJob), CacheHealth::kTimeUntilStale - 1s);
  EXPECT_EQ(health.out_of_date(ResourceKind::kPod), 0s);
  clock->advance(1s);
  EXPECT_EQ(health.stale_reason(), "a list of trainingjobs.oarlock.dev has not ended (out of date for 5 minutes)");
  // Another attempt does not make it up to date.
  health.record_failure(jobs, kube::to_api_error(500, "", "etcd is away"));
  health.record_listing(jobs);
  EXPECT_THAT(health.stale_reason(), HasSubstr("the API server returned status 500 (out of date for 5 minutes)"));
  health.record_list(jobs, 3);
  EXPECT_EQ(health.stale_reason(), "");
  EXPECT_EQ(health.out_of_date(ResourceKind::kJob), 0s);
  health.record_failure(jobs, kube::to_api_error(500, "", "etcd is away"));
  clock->advance(CacheHealth::kTimeUntilStale);
  EXPECT_NE(health.stale_reason(), "");
  health.record_watch(jobs);
  EXPECT_EQ(health.stale_reason(), "");
}

}  // namespace
}  // namespace oarlock::control
