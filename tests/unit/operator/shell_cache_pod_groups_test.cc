// The cache reads the PodGroups of the APIs that the cluster serves.
#include "operator/shell/cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/operator/cache_fixture.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;
using test::becomes_true;
using test::FakeApi;

class CachePodGroups : public CacheFixture {};

TEST_F(CachePodGroups, PodGroupsAreThoseOfTheServedApis) {
  api_ = std::make_shared<FakeApi>("scheduling.x-k8s.io");
  api_->end_required_lists();
  for (const char* job : {"j", "k"}) api_->push("podgroups", "ADDED", object_of(job));
  start();
  ASSERT_TRUE(becomes_true([&] { return api_->watches().size() == 4; }));
  EXPECT_FALSE(cache_->has_synced()) << "the first jobs would have no PodGroup";
  api_->end_list("podgroups", 12);
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); })) << "refusals suffice";
  Observed observed;
  cache_->add_pod_groups(key_, observed);
  EXPECT_EQ(observed.gang_apis, std::vector{GangApi::kSchedulerPlugins});
  const PodGroup expected{GangApi::kSchedulerPlugins, "trainingjob-j", "uid-j", test::kJobUid};
  EXPECT_EQ(observed.pod_groups, std::vector{expected});
  EXPECT_FALSE(cache_->has_seen(ResourceKind::kSchedulerPluginsPodGroup, "ns", "13"));
  EXPECT_TRUE(cache_->has_seen(ResourceKind::kPodGroup, "ns", "13")) << "nothing is waited for";
  EXPECT_EQ(reports_, 0);
}

// For example because of a conversion webhook that does not respond.
TEST_F(CachePodGroups, BrokenPodGroupsDoNotKeepTheOperatorFromStarting) {
  api_ = std::make_shared<FakeApi>("scheduling.x-k8s.io");
  api_->end_required_lists();
  for (int i = 0; i < 3; ++i) api_->end_watch("podgroups", response(429, "TooManyRequests"));
  start();
  EXPECT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  Observed observed;
  cache_->add_pod_groups(key_, observed);
  EXPECT_TRUE(observed.gang_apis.empty());
}

TEST_F(CachePodGroups, JobsThatStartAreReconciledOncePodGroupsCanBeRead) {
  api_ = std::make_shared<FakeApi>("scheduling.x-k8s.io");
  for (const char* phase : {"Pending", "Running"}) {
    Json job = {{"metadata", {{"name", phase}, {"namespace", "ns"}, {"uid", phase}, {"resourceVersion", "5"}}},
                {"spec", Json::object()},
                {"status", {{"phase", phase}}}};
    api_->push("trainingjobs", "ADDED", job);
  }
  api_->end_required_lists();
  api_->end_watch("podgroups", response(404, "NotFound"));
  start();
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  {
    const std::lock_guard lock(mutex_);
    changes_.clear();
  }
  api_->end_list("podgroups");
  EXPECT_TRUE(becomes_true([&] {
    const std::lock_guard lock(mutex_);
    return changes_ == std::vector{std::pair(std::string("ns/Pending"), Urgency::kImmediate)};
  }));
}

}  // namespace
}  // namespace oarlock::control
