// The cache while its informers write it.
#include "operator/shell/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "api/codec.h"
#include "tests/support/builders.h"
#include "tests/support/fake_api.h"
#include "tests/support/fake_clock.h"
#include "tests/support/transport_calls.h"

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
    for (const char* plural : {"trainingjobs", "pods", "services"}) {
      Json end = {{"metadata", {{"resourceVersion", "10"}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}};
      api_->push(plural, "BOOKMARK", end);
    }
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
  Cache cache_{{},
               {.on_change = [](const ObjectKey&, Urgency) {},
                .on_error = [](const WatchScope&, const kube::ApiError&) {},
                .on_listing = [](const WatchScope&) {},
                .on_synced = [](const WatchScope&, size_t) {},
                .on_watching = [](const WatchScope&) {},
                .on_unreadable = [](ResourceKind, const ObjectKey&, const Error&) {}},
               api_,
               std::make_shared<test::FakeClock>(),
               std::make_shared<kube::RealSleeper>()};
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
  for (const char* plural : {"trainingjobs", "pods", "services"}) {
    Json end = {{"metadata", {{"resourceVersion", "50"}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}};
    api->push(plural, "BOOKMARK", end);
  }
  std::mutex mutex;
  std::set<std::string> incomplete;
  CacheHooks hooks{.on_change = [](const ObjectKey&, Urgency) {},
                   .on_error = [](const WatchScope&, const kube::ApiError&) {},
                   .on_listing = [](const WatchScope&) {},
                   .on_synced = [](const WatchScope&, size_t) {},
                   .on_watching = [](const WatchScope&) {},
                   .on_unreadable = [](ResourceKind, const ObjectKey&, const Error&) {}};
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

// Reconnects immediately.
class NoSleeper final : public kube::Sleeper {
 public:
  bool sleep(std::chrono::milliseconds, const std::stop_token& stop) override { return !stop.stop_requested(); }
};

// Kueue may be missing, and may be installed or removed while the operator runs.
class CacheWorkloads : public ::testing::Test {
 protected:
  CacheWorkloads() {
    for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
    hooks_.on_change = [this](const ObjectKey& job, Urgency urgency) {
      const std::lock_guard lock(mutex_);
      changes_.emplace_back(job.to_string(), urgency);
    };
    hooks_.on_error = [this](const WatchScope&, const kube::ApiError&) { ++reports_; };
    hooks_.on_synced = [this](const WatchScope& scope, size_t) { reports_ += scope.kind == ResourceKind::kWorkload; };
  }

  void start(std::vector<std::string> namespaces = {}) {
    cache_ =
        std::make_unique<Cache>(CacheOptions{.namespaces = std::move(namespaces), .profile_namespace = "operators"},
                                hooks_, api_, std::make_shared<test::FakeClock>(), std::make_shared<NoSleeper>());
    cache_->start();
  }
  void end_list(const std::string& plural, int version = 10) {
    api_->push(
        plural, "BOOKMARK",
        {{"metadata",
          {{"resourceVersion", std::to_string(version)}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}});
  }
  static Json workload(const std::string& job, int version = 11) {
    return {{"metadata",
             {{"name", "trainingjob-" + job},
              {"namespace", "ns"},
              {"uid", "uid-" + job},
              {"resourceVersion", std::to_string(version)},
              {"labels", {{kLabelJobName, job}}},
              {"ownerReferences", {{{"controller", true}, {"uid", test::kJobUid}, {"kind", kKind}}}}}}};
  }
  static http::Response response(int status, const std::string& reason = "") {
    const Json body = {{"reason", reason}, {"message", "because " + reason}};
    return {.status = status, .body = body.dump(), .retry_after = {}};
  }
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

  const ObjectKey key_{"ns", "j"};
  std::shared_ptr<FakeApi> api_ = std::make_shared<FakeApi>();
  CacheHooks hooks_{.on_change = {},
                    .on_error = {},
                    .on_listing = [](const WatchScope&) {},
                    .on_synced = {},
                    .on_watching = [](const WatchScope&) {},
                    .on_unreadable = [](ResourceKind, const ObjectKey&, const Error&) {}};
  std::atomic<int> reports_ = 0;  // errors, and Workloads that were listed
  std::mutex mutex_;
  std::vector<std::pair<std::string, Urgency>> changes_;
  std::unique_ptr<Cache> cache_;
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
  for (const char* job : {"j", "k"}) api_->push("workloads", "ADDED", workload(job));
  end_list("workloads", 12);
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
  api_->push("workloads", "DELETED", workload("j", 14));
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
  Json pod = workload("j");
  pod["metadata"]["name"] = "j-0-0";
  api_->push("pods", "ADDED", pod);
  EXPECT_TRUE(becomes_true([&] { return cache_->pods_of(key_).size() == 1; }));
  EXPECT_EQ(reports_, 0) << "readiness and metrics do not depend on Kueue";

  end_list("workloads");
  EXPECT_TRUE(becomes_true([&] { return is_readable(); })) << "Kueue was installed";
  EXPECT_EQ(reports_, 0);
}

// Kueue converts old objects with a webhook, which may be down.
TEST_F(CacheWorkloads, AnyErrorOfTheFirstListIsExplained) {
  api_->end_watch("workloads", response(500, "InternalError"));
  start();
  EXPECT_EQ(error(), "");
  EXPECT_TRUE(becomes_true([&] { return error() == "because InternalError"; }));
  end_list("workloads");
  EXPECT_TRUE(becomes_true([&] { return is_readable(); }));
}

TEST_F(CacheWorkloads, AreAbsentAfterKueueWasRemoved) {
  start();
  EXPECT_FALSE(is_readable());
  api_->push("workloads", "ADDED", workload("j"));
  end_list("workloads", 12);
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
  end_list("workloads", 20);
  ASSERT_TRUE(becomes_true([&] { return is_readable(); }));
  EXPECT_TRUE(cache_->workloads_of(key_, error)->empty()) << "the old ones are gone";
}

TEST_F(CacheWorkloads, ProfileOfTheNamespacePrecedesThatOfTheOperator) {
  api_ = std::make_shared<FakeApi>("oarlock.dev");
  const auto profile = [](const std::string& namespace_name, int version) -> Json {
    return {{"metadata",
             {{"name", "default"},
              {"namespace", namespace_name},
              {"uid", namespace_name},
              {"generation", version},
              {"resourceVersion", std::to_string(version)}}},
            {"spec", {{"image", "a"}}}};
  };
  const Json metadata = {{"name", "j"}, {"namespace", "ns"}, {"uid", "u"}, {"resourceVersion", "5"}};
  api_->push("trainingjobs", "ADDED", {{"metadata", metadata}, {"spec", Json::object()}});
  for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
  for (const char* namespace_name : {"operators", "other"})
    api_->push("trainingprofiles", "ADDED", profile(namespace_name, 11));
  start();
  ASSERT_TRUE(becomes_true([&] { return api_->watches().size() == 4; }));
  EXPECT_FALSE(cache_->has_synced()) << "the first jobs would not have the default profile";
  end_list("trainingprofiles", 12);
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  Job job = *cache_->job(key_);
  const auto observe = [&] {
    Observed observed;
    observed.job = job;
    cache_->add_profile(observed);
    return observed;
  };
  EXPECT_EQ(observe().profile,
            (BoxedOptional<api::AppliedProfile>({"default", "operators", "operators", 11, R"({"image":"a"})"})));
  {
    const std::lock_guard lock(mutex_);
    changes_.clear();
  }
  Json unused = profile("ns", 13);
  unused["metadata"]["name"] = "unused";
  api_->push("trainingprofiles", "ADDED", unused);
  api_->push("trainingprofiles", "ADDED", profile("ns", 13));
  ASSERT_TRUE(becomes_true([&] { return observe().profile->namespace_name == "ns"; }));
  EXPECT_TRUE(becomes_true([&] {
    const std::lock_guard lock(mutex_);
    return changes_ == std::vector{std::pair(std::string("ns/j"), Urgency::kBatched)};
  })) << "a job that has not started is reconciled, but one write does not enqueue all of them immediately";
  for (const char* none : {"", "missing"}) {
    job.spec.profile = none;
    EXPECT_FALSE(observe().profile) << none;
  }
  EXPECT_EQ(observe().profiles_error, "");
  EXPECT_FALSE(observe().is_profile_unknown);
}

// A job without its default would not be what its team has determined.
TEST_F(CacheWorkloads, ProfilesAreUnknownAfterAnErrorUnlessTheApiRefusesThem) {
  const std::pair<int, const char*> rows[] = {
      {404, "NotFound"}, {403, "Forbidden"}, {500, "InternalError"}, {503, "ServiceUnavailable"}};
  for (const auto& [status, reason] : rows) {
    api_ = std::make_shared<FakeApi>("oarlock.dev");
    for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
    for (int i = 0; i < 3; ++i) api_->end_watch("trainingprofiles", response(status, reason));
    start();
    ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); })) << status;
    Observed observed;
    observed.job.metadata.namespace_name = "ns";
    cache_->add_profile(observed);
    EXPECT_FALSE(observed.profile) << status;
    EXPECT_EQ(observed.profiles_error, fmt::format("because {}", reason));
    EXPECT_EQ(observed.is_profile_unknown, status >= 500) << status;
    cache_.reset();
  }
}

TEST_F(CacheWorkloads, ARefusalInOneNamespaceDoesNotConcernTheProfilesOfTheOperator) {
  api_ = std::make_shared<FakeApi>("namespaces/operators");
  for (const char* plural : {"trainingjobs", "pods", "services", "trainingprofiles"}) end_list(plural);
  start({"ns"});
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  Observed observed;
  observed.job.metadata.namespace_name = "ns";
  cache_->add_profile(observed);
  EXPECT_NE(observed.profiles_error, "");
  EXPECT_FALSE(observed.is_profile_unknown) << "the operator has no default";
}

TEST_F(CacheWorkloads, ErrorsAfterTheFirstListOfProfilesAreReported) {
  api_ = std::make_shared<FakeApi>("oarlock.dev");
  for (const char* plural : {"trainingjobs", "pods", "services", "trainingprofiles"}) end_list(plural);
  start();
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  ASSERT_EQ(reports_, 0);
  api_->end_watch("trainingprofiles", response(500, "InternalError"));
  EXPECT_TRUE(becomes_true([&] { return reports_ == 1; }));
}

TEST_F(CacheWorkloads, ProfilesOfTheOperatorAreWatchedWithThoseOfChosenNamespaces) {
  api_ = std::make_shared<FakeApi>("oarlock.dev");
  start({"ns"});
  for (const char* namespace_name : {"ns", "operators"}) {
    const std::string path = fmt::format("/namespaces/{}/trainingprofiles", namespace_name);
    EXPECT_TRUE(becomes_true([&] {
      return std::ranges::any_of(api_->watches(),
                                 [&](const std::string& target) { return target.find(path) != std::string::npos; });
    })) << path;
  }
}

TEST_F(CacheWorkloads, PodGroupsAreThoseOfTheServedApis) {
  api_ = std::make_shared<FakeApi>("scheduling.x-k8s.io");
  for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
  for (const char* job : {"j", "k"}) api_->push("podgroups", "ADDED", workload(job));
  start();
  ASSERT_TRUE(becomes_true([&] { return api_->watches().size() == 4; }));
  EXPECT_FALSE(cache_->has_synced()) << "the first jobs would have no PodGroup";
  end_list("podgroups", 12);
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
TEST_F(CacheWorkloads, BrokenPodGroupsDoNotKeepTheOperatorFromStarting) {
  api_ = std::make_shared<FakeApi>("scheduling.x-k8s.io");
  for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
  for (int i = 0; i < 3; ++i) api_->end_watch("podgroups", response(429, "TooManyRequests"));
  start();
  EXPECT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  Observed observed;
  cache_->add_pod_groups(key_, observed);
  EXPECT_TRUE(observed.gang_apis.empty());
}

TEST_F(CacheWorkloads, JobsThatStartAreReconciledOncePodGroupsCanBeRead) {
  api_ = std::make_shared<FakeApi>("scheduling.x-k8s.io");
  for (const char* phase : {"Pending", "Running"}) {
    Json job = {{"metadata", {{"name", phase}, {"namespace", "ns"}, {"uid", phase}, {"resourceVersion", "5"}}},
                {"spec", Json::object()},
                {"status", {{"phase", phase}}}};
    api_->push("trainingjobs", "ADDED", job);
  }
  for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
  api_->end_watch("podgroups", response(404, "NotFound"));
  start();
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  {
    const std::lock_guard lock(mutex_);
    changes_.clear();
  }
  end_list("podgroups");
  EXPECT_TRUE(becomes_true([&] {
    const std::lock_guard lock(mutex_);
    return changes_ == std::vector{std::pair(std::string("ns/Pending"), Urgency::kImmediate)};
  }));
}

TEST_F(CacheWorkloads, AreWatchedInTheNamespaceOfTheJob) {
  for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
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
    for (const char* plural : {"trainingjobs", "pods", "services"}) end_list(plural);
    CacheHooks hooks{.on_change =
                         [this](const ObjectKey& changed, Urgency) {
                           const std::lock_guard lock(mutex_);
                           ++changes_[changed];
                         },
                     .on_error = [this](const WatchScope& scope,
                                        const kube::ApiError&) { errors_ += scope.kind == ResourceKind::kNode; },
                     .on_listing = [](const WatchScope&) {},
                     .on_synced = [](const WatchScope&, size_t) {},
                     .on_watching = [](const WatchScope&) {},
                     .on_unreadable = [](ResourceKind, const ObjectKey&, const Error&) {}};
    cache_.emplace(CacheOptions{.namespaces = {"ns"}, .nodes = nodes}, hooks, api_, std::make_shared<test::FakeClock>(),
                   std::make_shared<kube::RealSleeper>());
    cache_->start();
    ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); })) << "nodes are not awaited";
    ASSERT_TRUE(becomes_true([&] { return cache_->pods_of(key_).size() == 1; }));
  }
  void end_list(const char* plural) {
    Json end = {{"metadata", {{"resourceVersion", "10"}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}};
    api_->push(plural, "BOOKMARK", end);
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
  end_list("nodes");
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
