// The cache reads Kueue's Workloads once a job needs them. Kueue may be missing, and may be installed or removed while
// the operator runs.
#include "operator/shell/cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/operator/cache_fixture.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;
using test::becomes_true;

class CacheWorkloads : public CacheFixture {
 protected:
  size_t watches() const {
    const std::vector<std::string> all = api_->watches();
    return static_cast<size_t>(std::ranges::count_if(
        all, [](const std::string& target) { return target.find("kueue") != std::string::npos; }));
  }
  bool is_readable() {
    std::string error;
    return cache_->workloads_of(key_, error).has_value();
  }
  std::string error() {
    std::string error;
    EXPECT_FALSE(cache_->workloads_of(key_, error));
    return error;
  }
};

TEST_F(CacheWorkloads, AreNotWatchedBeforeTheyAreNeeded) {
  start();
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  EXPECT_EQ(api_->watches().size(), 3u);
  EXPECT_EQ(watches(), 0u);
  EXPECT_FALSE(cache_->is_incomplete("ns"));
  EXPECT_TRUE(cache_->has_seen(ResourceKind::kWorkload, "ns", "100")) << "nothing is waited for";
  EXPECT_EQ(error(), "") << "they are being read";
  ASSERT_TRUE(becomes_true([&] { return watches() == 1; }));
  EXPECT_EQ(error(), "");
  EXPECT_EQ(watches(), 1u) << "the second call starts nothing";
  EXPECT_TRUE(cache_->has_synced());
}

TEST_F(CacheWorkloads, AreThoseOfTheJob) {
  start();
  EXPECT_FALSE(is_readable());
  for (const char* job : {"j", "k"}) api_->push("workloads", "ADDED", object_of(job));
  api_->end_list("workloads", 12);
  ASSERT_TRUE(becomes_true([&] { return is_readable(); }));
  std::string error = "old";
  const auto found = cache_->workloads_of(key_, error);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().uid, "uid-j");
  EXPECT_EQ(error, "");
  EXPECT_TRUE(cache_->workloads_of({"ns", "other"}, error)->empty());
  EXPECT_TRUE(cache_->has_seen(ResourceKind::kWorkload, "ns", "12"));
  EXPECT_FALSE(cache_->has_seen(ResourceKind::kWorkload, "ns", "13"));
  {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(std::ranges::count(changes_, std::pair(std::string("ns/j"), Urgency::kImmediate)), 1);
  }
  api_->push("workloads", "DELETED", object_of("j", 14));
  ASSERT_TRUE(becomes_true([&] { return cache_->workloads_of(key_, error)->empty(); }));
}

TEST_F(CacheWorkloads, AClusterWithoutKueueAffectsNothingElse) {
  for (const auto& [status, reason] : {std::pair(404, "NotFound"), std::pair(403, "Forbidden")}) {
    api_->end_watch("workloads", response(status, reason));
  }
  start();
  EXPECT_EQ(error(), "");
  ASSERT_TRUE(becomes_true([&] { return error() == "because Forbidden"; })) << error();
  EXPECT_GE(watches(), 2u) << "it is tried again";
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  EXPECT_TRUE(cache_->has_seen(ResourceKind::kWorkload, "ns", "100"));
  Json pod = object_of("j");
  pod["metadata"]["name"] = "j-0-0";
  api_->push("pods", "ADDED", pod);
  EXPECT_TRUE(becomes_true([&] { return cache_->pods_of(key_).size() == 1; }));
  EXPECT_EQ(reports_, 0) << "readiness and metrics do not depend on Kueue";

  api_->end_list("workloads");
  EXPECT_TRUE(becomes_true([&] { return is_readable(); })) << "Kueue was installed";
  EXPECT_EQ(reports_, 0);
}

// Kueue converts old objects with a webhook, which may be down.
TEST_F(CacheWorkloads, AnyErrorOfTheFirstListIsExplained) {
  api_->end_watch("workloads", response(500, "InternalError"));
  start();
  EXPECT_EQ(error(), "");
  EXPECT_TRUE(becomes_true([&] { return error() == "because InternalError"; }));
  api_->end_list("workloads");
  EXPECT_TRUE(becomes_true([&] { return is_readable(); }));
}

TEST_F(CacheWorkloads, AreAbsentAfterKueueWasRemoved) {
  start();
  EXPECT_FALSE(is_readable());
  api_->push("workloads", "ADDED", object_of("j"));
  api_->end_list("workloads", 12);
  ASSERT_TRUE(becomes_true([&] { return is_readable(); }));
  // A broken connection and a server that restarts change nothing.
  api_->push("workloads", "BOOKMARK", {{"metadata", {{"resourceVersion", "13"}}}});
  api_->end_watch("workloads", response(200));
  api_->end_watch("workloads", response(503, "ServiceUnavailable"));
  ASSERT_TRUE(becomes_true([&] { return watches() >= 3; }));
  std::string error;
  ASSERT_TRUE(cache_->workloads_of(key_, error));
  EXPECT_EQ(cache_->workloads_of(key_, error)->size(), 1u);
  // The definition of the resource is deleted.
  api_->end_watch("workloads", response(404, "NotFound"));
  ASSERT_TRUE(becomes_true([&] { return !is_readable(); }));
  EXPECT_EQ(this->error(), "because NotFound");
  EXPECT_TRUE(cache_->has_seen(ResourceKind::kWorkload, "ns", "100")) << "no job waits for the watch";
  // It is installed again.
  api_->end_list("workloads", 20);
  ASSERT_TRUE(becomes_true([&] { return is_readable(); }));
  EXPECT_TRUE(cache_->workloads_of(key_, error)->empty()) << "the old ones are gone";
}

TEST_F(CacheWorkloads, AreWatchedInTheNamespaceOfTheJob) {
  start({"other", "ns"});
  EXPECT_FALSE(is_readable());
  ASSERT_TRUE(becomes_true([&] { return watches() == 1; }));
  const std::vector<std::string> all = api_->watches();
  EXPECT_TRUE(std::ranges::any_of(all, [](const std::string& target) {
    return target.starts_with("/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads?");
  }));
  std::string error;
  EXPECT_FALSE(cache_->workloads_of({"unknown", "j"}, error));
  EXPECT_EQ(watches(), 1u);
}

TEST_F(CacheWorkloads, StopEndsTheirWatch) {
  start();
  EXPECT_FALSE(is_readable());
  ASSERT_TRUE(becomes_true([&] { return watches() == 1; }));
  cache_->stop();
  start();
  cache_->stop();
  EXPECT_FALSE(is_readable()) << "nothing starts after stop()";
  EXPECT_EQ(watches(), 1u);
}

}  // namespace
}  // namespace oarlock::control
