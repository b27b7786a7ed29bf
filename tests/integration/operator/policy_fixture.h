// One operator on a real kube-apiserver with the real controllers, and one namespace for each test, which acts as the
// users and the kubelets.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/job_world.h"

namespace oarlock::test {

class Policies : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    world_ = std::make_unique<JobWorld>(*server_, server_->make_namespace());
    operator_ = std::make_unique<OperatorProcess>(
        std::vector<std::string>{"--kubeconfig", server_->kubeconfig(), "--namespace", world_->namespace_name()});
  }
  void TearDown() override {
    if (HasFailure()) std::cerr << "---- the operator's log\n" << operator_->log();
    operator_.reset();
  }

  void create(const std::string& name, nlohmann::json spec) {
    if (!spec.contains("nodes")) spec["nodes"] = 2;
    if (!spec.contains("template"))
      spec["template"] = {{"spec", {{"containers", {{{"name", "trainer"}, {"image", "example.invalid/t"}}}}}}};
    world_->call("POST", world_->jobs(),
                 {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", name}}}, {"spec", spec}});
  }
  // For values that are nested too deeply for a tree.
  void create_text(const std::string& name, const std::string& pod_template, const std::string& trainer) {
    const std::string job =
        fmt::format(R"({{"apiVersion":"{}","kind":"{}","metadata":{{"name":"{}"}},"spec":{{"nodes":2,)"
                    R"("template":{},"trainer":{}}}}})",
                    kApiVersion, kKind, name, pod_template, trainer);
    const auto response = server_->transport().send(
        {.method = "POST", .target = world_->jobs(), .body = job, .content_type = "application/json"},
        std::chrono::seconds(60), {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 201) << response->body;
  }
  static std::string nested_lists(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }
  static constexpr char kTemplate[] = R"({"spec":{"containers":[{"name":"trainer","image":"example.invalid/t"}]}})";
  // Waits until both pods of an attempt exist.
  void set_group(const std::string& name, int attempt, const nlohmann::json& first, const nlohmann::json& second) {
    const std::string prefix = name + "-" + std::to_string(attempt) + "-";
    world_->wait("pods of attempt " + std::to_string(attempt),
                 [&] { return has_pod(prefix + "0") && has_pod(prefix + "1"); });
    world_->set_pod(prefix + "0", first);
    world_->set_pod(prefix + "1", second);
  }
  // Rank 0 leaves its step in the termination message, as the launcher writes it.
  void fail_at_step(const std::string& name, int attempt, int step) {
    set_group(name, attempt, pod_running(), pod_running());
    world_->set_pod(fmt::format("{}-{}-0", name, attempt),
                    pod_ended(1, fmt::format(R"({{"rank":0,"step":{},"checkpointStep":{},"reason":"Failed",)"
                                             R"("message":"m"}})",
                                             step, step - 1)));
  }
  bool has_pod(const std::string& name) { return exists(world_->pods() + "/" + name); }
  bool exists(const std::string& target) { return server_->call("GET", target).status != 404; }
  std::string service(const std::string& name) const {
    return "/api/v1/namespaces/" + world_->namespace_name() + "/services/" + name;
  }
  nlohmann::json condition(const std::string& name, const std::string& type) {
    for (const nlohmann::json& one : world_->status(name).value("conditions", nlohmann::json::array())) {
      if (one["type"] == type) return one;
    }
    return nlohmann::json::object();
  }
  void set_quota(const std::string& resource, int count) {
    const std::string quotas = "/api/v1/namespaces/" + world_->namespace_name() + "/resourcequotas";
    world_->call("POST", quotas,
                 {{"apiVersion", "v1"},
                  {"kind", "ResourceQuota"},
                  {"metadata", {{"name", "quota"}}},
                  {"spec", {{"hard", {{resource, std::to_string(count)}}}}}});
    world_->wait("the quota", [&] {
      return world_->call("GET", quotas + "/quota")
          .value("/status/hard"_json_pointer, nlohmann::json::object())
          .contains(resource);
    });
  }
  // Runs another job to its end, which gives the operator time to act by mistake.
  void let_time_pass() {
    create("other", {});
    set_group("other", 0, pod_running(), pod_running());
    world_->wait_for_phase("other", "Running");
  }

  static inline std::unique_ptr<ApiServer> server_;
  std::unique_ptr<JobWorld> world_;
  std::unique_ptr<OperatorProcess> operator_;
};

}  // namespace oarlock::test
