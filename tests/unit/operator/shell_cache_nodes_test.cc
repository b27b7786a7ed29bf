// The cache reads nodes if it is requested to, and enqueues the jobs on a node that is about to be drained or removed.
#include "operator/shell/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "api/codec.h"
#include "tests/unit/operator/cache_fixture.h"

namespace oarlock::control {
namespace {

using kube::ObjectKey;
using test::becomes_true;
using test::FakeApi;

// A cache of one job with a pod on node "a".
class NodesOfCache : public ::testing::Test {
 protected:
  ~NodesOfCache() override { cache_->stop(); }

  void start(bool nodes) {
    Job job = test::JobBuilder("j").phase(api::Phase::kRunning);
    job.metadata.namespace_name = "ns";
    job.metadata.resource_version = "10";
    api_->push("trainingjobs", "ADDED", api::to_json(job));
    api_->push("pods", "ADDED",
               {{"metadata",
                 {{"name", "j-0-0"},
                  {"namespace", "ns"},
                  {"uid", "p"},
                  {"resourceVersion", "10"},
                  {"labels", {{kLabelJobName, "j"}}}}},
                {"spec", {{"nodeName", "a"}}},
                {"status", {{"phase", "Running"}}}});
    api_->end_required_lists();
    CacheHooks hooks = quiet_cache_hooks();
    hooks.on_change = [this](const ObjectKey& changed, Urgency) {
      const std::lock_guard lock(mutex_);
      ++changes_[changed];
    };
    hooks.on_error = [this](const WatchScope& scope, const kube::ApiError&) {
      errors_ += scope.kind == ResourceKind::kNode;
    };
    cache_.emplace(CacheOptions{.namespaces = {"ns"}, .nodes = nodes}, hooks, api_, std::make_shared<test::FakeClock>(),
                   std::make_shared<kube::RealSleeper>());
    cache_->start();
    ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); })) << "nodes are not awaited";
    ASSERT_TRUE(becomes_true([&] { return cache_->pods_of(key_).size() == 1; }));
  }
  void push_node(const std::string& type, const std::string& name, int version, bool cordoned) {
    api_->push("nodes", type,
               {{"metadata", {{"name", name}, {"resourceVersion", std::to_string(version)}}},
                {"spec", {{"unschedulable", cordoned}}}});
  }
  bool has_seen(int version) const {
    return cache_->has_seen(ResourceKind::kNode, key_.namespace_name, std::to_string(version));
  }
  std::map<std::string, std::string> warnings() const { return cache_->node_warnings(cache_->pods_of(key_)); }
  int changes() const {
    const std::lock_guard lock(mutex_);
    const auto found = changes_.find(key_);
    return found == changes_.end() ? 0 : found->second;
  }
  long node_watches() const {
    return std::ranges::count_if(api_->watches(),
                                 [](const std::string& one) { return one.find("/nodes") != std::string::npos; });
  }

  const ObjectKey key_{"ns", "j"};
  std::shared_ptr<FakeApi> api_ = std::make_shared<FakeApi>();
  mutable std::mutex mutex_;
  std::map<ObjectKey, int> changes_;
  std::atomic<int> errors_ = 0;
  std::optional<Cache> cache_;
};

TEST_F(NodesOfCache, AreNotReadUnlessRequested) {
  start(false);
  EXPECT_EQ(node_watches(), 0);
  EXPECT_TRUE(warnings().empty());
}

TEST_F(NodesOfCache, AWarningEnqueuesTheJobsOnTheNode) {
  start(true);
  push_node("ADDED", "a", 8, false);
  push_node("ADDED", "b", 9, true);
  api_->end_list("nodes");
  ASSERT_TRUE(becomes_true([&] { return has_seen(10); }));
  EXPECT_EQ(node_watches(), 1) << "one for the cluster, whatever namespaces are watched";
  EXPECT_TRUE(warnings().empty()) << "the job has no pod on node b";
  int before = changes();
  push_node("MODIFIED", "a", 11, false);  // a heartbeat
  ASSERT_TRUE(becomes_true([&] { return has_seen(11); }));
  EXPECT_EQ(changes(), before);
  push_node("MODIFIED", "a", 12, true);
  ASSERT_TRUE(becomes_true([&] { return changes() == before + 1; }));
  EXPECT_EQ(warnings(), (std::map<std::string, std::string>{{"a", "cordoned"}}));
  before = changes();
  push_node("DELETED", "a", 13, true);
  ASSERT_TRUE(becomes_true([&] { return changes() == before + 1; }));
  EXPECT_TRUE(warnings().empty());
}

TEST_F(NodesOfCache, AMissingPermissionIsReportedAndStopsNothing) {
  api_->end_watch("nodes", {.status = 403, .body = R"({"message": "nodes is forbidden"})", .retry_after = {}});
  start(true);
  EXPECT_TRUE(becomes_true([&] { return errors_ > 0; }));
  EXPECT_TRUE(warnings().empty());
}

}  // namespace
}  // namespace oarlock::control
