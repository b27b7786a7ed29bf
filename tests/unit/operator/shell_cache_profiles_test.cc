// The cache reads TrainingProfiles, and adds the one that applies to a job.
#include "operator/shell/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
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

class CacheProfiles : public CacheFixture {};

TEST_F(CacheProfiles, ProfileOfTheNamespacePrecedesThatOfTheOperator) {
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
  api_->end_required_lists();
  for (const char* namespace_name : {"operators", "other"})
    api_->push("trainingprofiles", "ADDED", profile(namespace_name, 11));
  start();
  ASSERT_TRUE(becomes_true([&] { return api_->watches().size() == 4; }));
  EXPECT_FALSE(cache_->has_synced()) << "the first jobs would not have the default profile";
  api_->end_list("trainingprofiles", 12);
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
TEST_F(CacheProfiles, ProfilesAreUnknownAfterAnErrorUnlessTheApiRefusesThem) {
  const std::pair<int, const char*> rows[] = {
      {404, "NotFound"}, {403, "Forbidden"}, {500, "InternalError"}, {503, "ServiceUnavailable"}};
  for (const auto& [status, reason] : rows) {
    api_ = std::make_shared<FakeApi>("oarlock.dev");
    api_->end_required_lists();
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

TEST_F(CacheProfiles, ARefusalInOneNamespaceDoesNotConcernTheProfilesOfTheOperator) {
  api_ = std::make_shared<FakeApi>("namespaces/operators");
  api_->end_required_lists();
  api_->end_list("trainingprofiles");
  start({"ns"});
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  Observed observed;
  observed.job.metadata.namespace_name = "ns";
  cache_->add_profile(observed);
  EXPECT_NE(observed.profiles_error, "");
  EXPECT_FALSE(observed.is_profile_unknown) << "the operator has no default";
}

TEST_F(CacheProfiles, ErrorsAfterTheFirstListOfProfilesAreReported) {
  api_ = std::make_shared<FakeApi>("oarlock.dev");
  api_->end_required_lists();
  api_->end_list("trainingprofiles");
  start();
  ASSERT_TRUE(becomes_true([&] { return cache_->has_synced(); }));
  ASSERT_EQ(reports_, 0);
  api_->end_watch("trainingprofiles", response(500, "InternalError"));
  EXPECT_TRUE(becomes_true([&] { return reports_ == 1; }));
}

TEST_F(CacheProfiles, ProfilesOfTheOperatorAreWatchedWithThoseOfChosenNamespaces) {
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

}  // namespace
}  // namespace oarlock::control
