// A fixture for tests of the operator as a process against a real kube-apiserver with the real controllers. There are
// no nodes: the test acts as the kubelets and writes the pods' status.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/job_world.h"

namespace oarlock::test {

// The variables of the first container of a pod.
inline std::map<std::string, std::string> environment(const nlohmann::json& pod) {
  std::map<std::string, std::string> out;
  for (const nlohmann::json& variable : pod["spec"]["containers"][0]["env"])
    out[variable["name"]] = variable.value("value", "");
  return out;
}

// All tests of a program share the API server; each has a namespace and an operator, which it starts.
class Scenario : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  void TearDown() override {
    if (HasFailure() && operator_) std::cerr << "---- the operator's log\n" << operator_->log();
    operator_.reset();
  }

  void start_operator(const std::vector<std::string>& more = {}) {
    operator_.reset();
    std::vector<std::string> arguments = {
        "--kubeconfig", server_->kubeconfig(), "--namespace", world_.namespace_name(), "--progress-interval",
        "0.2",          "--log-level",         "debug"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    operator_ = std::make_unique<OperatorProcess>(arguments);
  }
  void kill_operator() {
    operator_->program().signal(SIGKILL);
    EXPECT_EQ(operator_->program().wait(), 128 + SIGKILL);
  }

  // Waits until the pod exists.
  void set_pod(const std::string& name, const nlohmann::json& pod_status) {
    world_.wait("pod " + name, [&] { return world_.exists(world_.pods() + "/" + name); });
    world_.set_pod(name, pod_status);
  }
  void set_group(const std::string& name, int attempt, const nlohmann::json& pod_status) {
    for (int rank = 0; rank < 2; ++rank)
      set_pod(name + "-" + std::to_string(attempt) + "-" + std::to_string(rank), pod_status);
  }
  void expect_phase(const std::string& name, const std::string& wanted) {
    EXPECT_TRUE(eventually([&] { return world_.phase(name) == wanted; }))
        << "phase " << world_.phase(name) << " instead of " << wanted << ": " << world_.status(name).dump(1);
  }
  void expect_attempt(const std::string& name, int attempt) {
    EXPECT_TRUE(eventually([&] { return world_.status(name).value("attempt", -1) == attempt; }))
        << world_.status(name).dump(1);
  }
  // The operator writes events after the status.
  void expect_events(const std::string& name, const std::vector<std::string>& reasons) {
    const auto all_exist = [&] {
      const std::vector<std::string> existing = world_.event_reasons(name);
      return std::ranges::all_of(reasons,
                                 [&](const std::string& reason) { return std::ranges::count(existing, reason) > 0; });
    };
    EXPECT_TRUE(eventually(all_exist)) << testing::PrintToString(world_.event_reasons(name));
  }
  // Returns status.restarts of a job without what follows from its progress.
  nlohmann::json restarts_of(const std::string& job) {
    nlohmann::json out = world_.status(job)["restarts"];
    out.erase("afterProgress");
    return out;
  }
  static nlohmann::json restarts(int total, const char* reason = "PodFailed") {
    nlohmann::json out = {{"total", total}, {"charged", total}, {"reasons", nlohmann::json::array()}};
    if (total > 0) out["reasons"] = {{{"reason", reason}, {"count", total}}};
    return out;
  }

  static inline std::unique_ptr<ApiServer> server_;
  JobWorld world_{*server_, server_->make_namespace()};
  std::unique_ptr<OperatorProcess> operator_;
};

}  // namespace oarlock::test
