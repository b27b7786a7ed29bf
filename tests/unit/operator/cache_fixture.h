// A cache on a fake API server.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "operator/shell/cache.h"
#include "tests/support/builders.h"
#include "tests/support/fake_api.h"
#include "tests/support/fake_clock.h"
#include "tests/support/transport_calls.h"

namespace oarlock::control {

inline CacheHooks quiet_cache_hooks() {
  return {.on_change = [](const kube::ObjectKey&, Urgency) {},
          .on_error = [](const WatchScope&, const kube::ApiError&) {},
          .on_listing = [](const WatchScope&) {},
          .on_synced = [](const WatchScope&, size_t) {},
          .on_watching = [](const WatchScope&) {},
          .on_unreadable = [](ResourceKind, const kube::ObjectKey&, const Error&) {}};
}

// Reconnects immediately.
class NoSleeper final : public kube::Sleeper {
 public:
  bool sleep(std::chrono::milliseconds, const std::stop_token& stop) override { return !stop.stop_requested(); }
};

// The cache of an operator whose namespace is "operators". It records what its hooks report.
class CacheFixture : public ::testing::Test {
 protected:
  CacheFixture() {
    api_->end_required_lists();
    hooks_.on_change = [this](const kube::ObjectKey& job, Urgency urgency) {
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
  // A Workload, PodGroup or pod of the job.
  static nlohmann::json object_of(const std::string& job, int version = 11) {
    return {{"metadata",
             {{"name", "trainingjob-" + job},
              {"namespace", "ns"},
              {"uid", "uid-" + job},
              {"resourceVersion", std::to_string(version)},
              {"labels", {{kLabelJobName, job}}},
              {"ownerReferences", {{{"controller", true}, {"uid", test::kJobUid}, {"kind", kKind}}}}}}};
  }
  static http::Response response(int status, const std::string& reason = "") {
    const nlohmann::json body = {{"reason", reason}, {"message", "because " + reason}};
    return {.status = status, .body = body.dump(), .retry_after = {}};
  }

  const kube::ObjectKey key_{"ns", "j"};
  std::shared_ptr<test::FakeApi> api_ = std::make_shared<test::FakeApi>();
  CacheHooks hooks_ = quiet_cache_hooks();
  std::atomic<int> reports_ = 0;  // errors, and Workloads that were listed
  std::mutex mutex_;
  std::vector<std::pair<std::string, Urgency>> changes_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace oarlock::control
