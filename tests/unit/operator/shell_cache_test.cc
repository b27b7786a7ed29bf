// The cache while its informers write it.
#include "operator/shell/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "api/codec.h"
#include "tests/unit/operator/cache_fixture.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;
using kube::ObjectKey;
using test::becomes_true;
using test::FakeApi;

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() {
    Job job = test::JobBuilder("j").nodes(kNodes).phase(api::Phase::kRunning);
    job.metadata.namespace_name = "ns";
    job.metadata.resource_version = "10";
    api_->push("trainingjobs", "ADDED", api::to_json(job));
    api_->end_required_lists();
    cache_.start();
    EXPECT_TRUE(becomes_true([&] { return cache_.has_synced(); }));
  }
  ~CacheTest() override { cache_.stop(); }

  static constexpr int kNodes = 500;

  // It has ended with exit code 0.
  static Json done_pod(int rank, int version) {
    return {{"metadata",
             {{"name", "j-0-" + std::to_string(rank)},
              {"namespace", "ns"},
              {"uid", "uid-" + std::to_string(rank)},
              {"resourceVersion", std::to_string(version)},
              {"labels", {{kLabelJobName, "j"}}},
              {"ownerReferences", {{{"controller", true}, {"uid", test::kJobUid}, {"kind", kKind}}}}}},
            {"status",
             {{"phase", "Succeeded"},
              {"containerStatuses", {{{"name", kTrainerContainer}, {"state", {{"terminated", {{"exitCode", 0}}}}}}}}}}};
  }
  static Json deleting(Json pod) {
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z";
    return pod;
  }

  const ObjectKey key_{"ns", "j"};
  std::shared_ptr<FakeApi> api_ = std::make_shared<FakeApi>();
  Cache cache_{
      {}, quiet_cache_hooks(), api_, std::make_shared<test::FakeClock>(), std::make_shared<kube::RealSleeper>()};
};

// A reader that saw a pod as deleting or not at all would restart the group: the ranks were done before the deletions.
TEST_F(CacheTest, DonePodIsNeverMissingDuringRemoval) {
  int version = 11;
  for (int rank = 0; rank < kNodes; ++rank) api_->push("pods", "ADDED", done_pod(rank, ++version));
  ASSERT_TRUE(becomes_true([&] { return cache_.pods_of(key_).size() == kNodes; }));
  std::atomic<int> wrong = 0;
  {
    const std::jthread reader([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::vector<Pod> pods = cache_.pods_of(key_);
        if (pods.size() != kNodes || std::ranges::any_of(pods, &Pod::deleting)) ++wrong;
      }
    });
    for (int rank = 0; rank < kNodes; ++rank) {
      api_->push("pods", "MODIFIED", deleting(done_pod(rank, ++version)));
      api_->push("pods", "DELETED", deleting(done_pod(rank, ++version)));
    }
    const std::string last = std::to_string(version);
    ASSERT_TRUE(becomes_true([&] { return cache_.has_seen(ResourceKind::kPod, "ns", last); }));
  }
  EXPECT_EQ(wrong, 0);
}

// Finished jobs need nothing any more, except those that the operator deletes after a time.
TEST(CacheLimit, DropsOldestFinishedJobsFirst) {
  constexpr int kFinished = 10;
  const auto api = std::make_shared<FakeApi>();
  int version = 10;
  const auto push = [&](const std::string& name, api::Phase phase, int created, std::optional<int> ttl = {}) {
    Job job = test::JobBuilder(name).phase(phase);
    job.metadata.namespace_name = "ns";
    job.metadata.resource_version = std::to_string(++version);
    job.spec.ttl_seconds_after_finished = ttl;
    Json object = api::to_json(job);
    object["metadata"]["creationTimestamp"] = fmt::format("2026-11-21T10:00:{:02}Z", created);
    api->push("trainingjobs", "ADDED", object);
  };
  push("with-ttl", api::Phase::kComplete, 1, 60);
  push("running", api::Phase::kRunning, 59);
  for (int i = 0; i < kFinished; ++i) push(fmt::format("finished-{}", i), api::Phase::kComplete, 10 + i);
  api->end_required_lists(50);
  std::mutex mutex;
  std::set<std::string> incomplete;
  CacheHooks hooks = quiet_cache_hooks();
  hooks.on_incomplete = [&](const WatchScope& scope, const std::set<std::string>& namespaces) {
    const std::lock_guard lock(mutex);
    if (scope.kind == ResourceKind::kJob) incomplete = namespaces;
  };
  Cache cache({.namespaces = {}, .limit = 32 << 10}, hooks, api, std::make_shared<test::FakeClock>(),
              std::make_shared<kube::RealSleeper>());
  cache.start();
  ASSERT_TRUE(becomes_true([&] { return cache.has_synced(); }));
  EXPECT_NE(cache.job({"ns", "running"}), nullptr);
  EXPECT_NE(cache.job({"ns", "with-ttl"}), nullptr);
  EXPECT_NE(cache.job({"ns", fmt::format("finished-{}", kFinished - 1)}), nullptr);
  EXPECT_EQ(cache.job({"ns", "finished-0"}), nullptr);
  EXPECT_FALSE(cache.is_incomplete("ns")) << "all pods are known";
  const std::lock_guard lock(mutex);
  EXPECT_EQ(incomplete, std::set<std::string>{"ns"});
  cache.stop();
}

}  // namespace
}  // namespace oarlock::control
