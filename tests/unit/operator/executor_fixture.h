// An Executor for the job ns/j, whose requests a scripted API server answers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/shell/executor.h"
#include "tests/support/scripted_transport.h"

namespace oarlock::control {

class ExecutorFixture : public ::testing::Test {
 protected:
  ExecutorFixture() {
    job_.metadata.name = "j";
    job_.metadata.namespace_name = "ns";
    job_.metadata.uid = "job-uid";
    job_.metadata.resource_version = "10";
    job_.spec.pod_template = R"({"spec":{"containers":[{"name":"trainer","image":"i"}]}})";
    transport_->at_end([this] { script_ended_ = true; });
  }

  static test::Answer failure(int status, const std::string& reason, const std::string& message = "no") {
    return {.status = status, .pieces = {nlohmann::json{{"reason", reason}, {"message", message}}.dump()}};
  }

  std::optional<Interruption> run(const std::vector<Action>& actions) {
    done_ = 0;
    return executor_.execute(job_, actions, [this](const Action&) { ++done_; }, stop_.get_token());
  }
  std::vector<std::string> requests() const {
    std::vector<std::string> out;
    for (const auto& request : transport_->requests()) out.push_back(request.method + " " + request.target);
    return out;
  }
  // Whether this is the newest version that the cache must contain before the job is reconciled again.
  bool waits_for(ResourceKind kind, const std::string& version) {
    bool found = false;
    own_writes_->is_cache_fresh("job-uid", [&](ResourceKind recorded, const std::string& wanted) {
      found = found || (recorded == kind && wanted == version);
      return false;
    });
    return found;
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
  std::shared_ptr<OwnWrites> own_writes_ = std::make_shared<OwnWrites>(clock_);
  // As in the program: the API server returns the metadata of the operator's own objects only.
  kube::Client client_{transport_, std::chrono::seconds(5), kube::ResponseContent::kMetadata};
  std::shared_ptr<EventRecorder> events_ =
      std::make_shared<EventRecorder>(client_, EventSource{.instance = "me"}, clock_, Logger::silent());
  Executor executor_{client_, own_writes_, events_, Logger::silent(), {}, clock_};
  Job job_;
  std::stop_source stop_;
  bool script_ended_ = false;
  int done_ = 0;
};

}  // namespace oarlock::control
