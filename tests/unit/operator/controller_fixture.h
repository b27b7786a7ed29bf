// A controller of one job with one worker, on a fake API server and a clock that the test moves.
#pragma once

#include <gmock/gmock.h>
#include <prometheus/registry.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "api/codec.h"
#include "operator/core/reconcile.h"
#include "operator/shell/controller.h"
#include "tests/support/builders.h"
#include "tests/support/fake_api.h"
#include "tests/support/fake_clock.h"
#include "tests/support/transport_calls.h"
#include "tests/unit/operator/cache_fixture.h"

namespace oarlock::control {

inline nlohmann::json at_version(const std::string& version) { return {{"metadata", {{"resourceVersion", version}}}}; }
class ControllerTest : public ::testing::Test {
 protected:
  explicit ControllerTest(const Logger& log = Logger::silent(), size_t spec_budget = kSpecBudget,
                          size_t cache_limit = kCacheLimit)
      : cache_(make_options(spec_budget, cache_limit), quiet_cache_hooks(), api_, clock_,
               std::make_shared<kube::RealSleeper>()) {
    job_ = test::JobBuilder("j").nodes(1).phase(api::Phase::kRunning);
    job_.metadata.namespace_name = "ns";
    job_.metadata.resource_version = "10";
    job_.status.progress = api::Progress{};
    key_ = {job_.metadata.namespace_name, job_.metadata.name};
    answer_with(http::Response{.status = 201, .body = at_version("10").dump(), .retry_after = {}});
    api_->push("trainingjobs", "ADDED", api::to_json(job_));
    api_->end_required_lists();
    cache_.start();
    EXPECT_TRUE(test::becomes_true([&] { return cache_.has_synced(); }));
    controller_ = std::make_unique<Controller>(
        Controller::Dependencies{
            .cache = &cache_,
            .poller = &poller_,
            .stalls = &stalls_,
            .queue = &queue_,
            .own_writes = own_writes_,
            .executor = std::make_shared<Executor>(client_, own_writes_, events_, Logger::silent()),
            .client = client_,
            .metrics = metrics_,
            .clock = clock_,
            .reconciler = [this](const Observed& observed) { return decide(observed); }},
        log);
    controller_->start(1, "");
  }
  ~ControllerTest() override {
    controller_->stop();
    cache_.stop();
  }

  void answer_with(const http::Response& response) {
    api_->on_request([response](const http::Request&) { return response; });
  }
  void plan(Plan plan) {
    const std::lock_guard lock(mutex_);
    plan_ = std::move(plan);
  }
  static Plan create_pod() {
    Plan out;
    out.actions.emplace_back(CreatePod{"j-0-0", 0, 0});
    return out;
  }
  Plan progress(int64_t step) const {
    Plan out;
    PatchStatus patch{job_.status};
    patch.status.progress->step = step;
    out.actions.emplace_back(patch);
    return out;
  }

  // One worker takes the keys in order, so what was due before poke() has been done after it.
  void poke() {
    const int before = reconciled();
    queue_.add({"poke", std::to_string(++pokes_)});
    ASSERT_TRUE(test::becomes_true([&] { return reconciled() > before; }));
  }
  // The clock moves on, and what is due then is done.
  void advance(std::chrono::nanoseconds time) {
    clock_->advance(time);
    poke();
    poke();
  }
  void reconcile_now() {
    const int before = reconciled();
    queue_.add(key_);
    ASSERT_TRUE(test::becomes_true([&] { return reconciled() > before; }));
  }
  int reconciled(const std::string& result = "") const {
    double sum = 0;
    for (const prometheus::MetricFamily& family : registry_->Collect()) {
      if (family.name != "controller_runtime_reconcile_total") continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        for (const auto& label : metric.label) {
          if (label.name == "result" && (result.empty() || label.value == result)) sum += metric.counter.value;
        }
      }
    }
    return static_cast<int>(sum);
  }
  size_t writes() const { return api_->requests().size(); }
  Observed last_observed() {
    const std::lock_guard lock(mutex_);
    return last_observed_;
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::FakeApi> api_ = std::make_shared<test::FakeApi>();
  kube::Client client_{api_, std::chrono::seconds(5)};
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>(registry_);
  kube::WorkQueue queue_{{}, clock_};
  Cache cache_;
  ProgressPoller poller_{{}, [](const std::string&) { return nullptr; }, [](const kube::ObjectKey&) {}, clock_};
  StallProbe stalls_{
      {.max_waiting = 1}, [](const std::string&) { return nullptr; }, [](const kube::ObjectKey&) {}, clock_};
  std::shared_ptr<OwnWrites> own_writes_ = std::make_shared<OwnWrites>(clock_);
  std::shared_ptr<EventRecorder> events_ =
      std::make_shared<EventRecorder>(client_, EventSource{}, clock_, Logger::silent());
  Job job_;
  kube::ObjectKey key_;
  std::atomic<int> decisions_ = 0;
  std::atomic<bool> throws_ = false;

 private:
  Plan decide(const Observed& observed) {
    ++decisions_;
    if (throws_) throw std::runtime_error("a bug");
    const std::lock_guard lock(mutex_);
    last_observed_ = observed;
    return plan_;
  }

  static CacheOptions make_options(size_t spec_budget, size_t cache_limit) {
    CacheOptions options;
    options.spec_budget = spec_budget;
    options.limit = cache_limit;
    return options;
  }

  std::mutex mutex_;
  Plan plan_;
  Observed last_observed_;
  int pokes_ = 0;
  std::unique_ptr<Controller> controller_;
};

}  // namespace oarlock::control
