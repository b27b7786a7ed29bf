// A fixture for tests of jobs with a queue against a real kube-apiserver with Kueue's custom resource definitions. The
// test plays Kueue, which writes the status of Workloads, and the kubelets.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/job_scenario.h"
#include "tests/support/peer_examples.h"
#include "tests/support/temporary_directory.h"
#include "yaml/reader.h"

namespace oarlock::test {

inline constexpr char kCrds[] = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
inline constexpr char kKueue[] = "/apis/kueue.x-k8s.io/v1beta2/";
inline constexpr const char* kKueuePlurals[] = {"workloads", "resourceflavors", "workloadpriorityclasses"};

inline nlohmann::json kueue_condition(const std::string& type, bool is_true, const std::string& reason,
                                      const std::string& message = "m") {
  return {{"type", type},
          {"status", is_true ? "True" : "False"},
          {"reason", reason},
          {"message", message},
          {"lastTransitionTime", "2026-01-01T00:00:00Z"}};
}

// Each test has its own namespace and operator, as in Scenario.
class QueueScenario : public Scenario {
 protected:
  using Json = nlohmann::json;

  static void SetUpTestSuite() {
    audit_ = std::make_unique<TemporaryDirectory>();
    const std::string directory = audit_->path().string();
    std::ofstream(directory + "/policy") << R"({"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
      "rules": [{"level": "Metadata", "resources": [{"group": "kueue.x-k8s.io"}]}, {"level": "None"}]})";
    server_ =
        std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers,
                                    fmt::format("--audit-policy-file={0}/policy --audit-log-path={0}/log", directory));
    install_kueue();
  }
  static void TearDownTestSuite() {
    Scenario::TearDownTestSuite();
    audit_.reset();
  }

  static void install_kueue() {
    const std::filesystem::path directory = peer_examples() / "sigs.k8s.io/kueue/config/components/crd/bases";
    for (const char* plural : kKueuePlurals) {
      const std::string file = (directory / fmt::format("kueue.x-k8s.io_{}.yaml", plural)).string();
      const auto documents = yaml::load_all(file);
      if (!documents) throw std::runtime_error(documents.error().message + ": run scripts/setup cluster");
      const Reply made = server_->call("POST", kCrds, documents->at(0).to_json());
      if (!made.ok()) throw std::runtime_error(made.message());
    }
    for (const char* plural : kKueuePlurals)
      ASSERT_TRUE(eventually([&] { return server_->call("GET", kKueue + std::string(plural)).ok(); })) << plural;
  }
  static void remove_kueue() {
    for (const char* plural : kKueuePlurals)
      server_->call("DELETE", fmt::format("{}/{}.kueue.x-k8s.io", kCrds, plural));
    for (const char* plural : kKueuePlurals)
      ASSERT_TRUE(eventually([&] { return server_->call("GET", kKueue + std::string(plural)).status == 404; }));
  }

  // ---- Users -------------------------------------------------------------------------------------------------------

  void create(const std::string& name, Json spec = Json::object(), Json labels = {{kLabelQueue, "team"}}) {
    if (!spec.contains("nodes")) spec["nodes"] = 2;
    if (!spec.contains("template")) {
      spec["template"] = {{"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/t"}}}}}}};
    }
    world_.call("POST", world_.jobs(),
                {{"apiVersion", kApiVersion},
                 {"kind", kKind},
                 {"metadata", {{"name", name}, {"labels", std::move(labels)}}},
                 {"spec", std::move(spec)}});
  }
  void expect_waiting(const std::string& name, const std::string& reason, const std::string& text) {
    EXPECT_TRUE(eventually([&] {
      return world_.has_condition(name, "Pending", "True", reason) &&
             message_of(name, "Pending").find(text) != std::string::npos;
    })) << world_.status(name).dump(1);
  }
  std::string message_of(const std::string& name, const std::string& type) {
    for (const Json& one : world_.status(name).value("conditions", Json::array())) {
      if (one["type"] == type) return one["message"];
    }
    return "";
  }
  void create_flavor(const std::string& name, const Json& spec) {
    world_.call("POST", kKueue + std::string("resourceflavors"),
                {{"apiVersion", "kueue.x-k8s.io/v1beta2"},
                 {"kind", "ResourceFlavor"},
                 {"metadata", {{"name", name}}},
                 {"spec", spec}});
  }

  // ---- Kueue -------------------------------------------------------------------------------------------------------

  std::string workloads() const { return fmt::format("{}namespaces/{}/workloads", kKueue, world_.namespace_name()); }
  // Returns the Workload of the job; null if there is none.
  Json workload(const std::string& job) {
    const Json items = server_->call("GET", workloads()).body.value("items", Json::array());
    for (const Json& item : items) {
      if (item["metadata"]["labels"].value(kLabelJobName, "") == job) return item;
    }
    return nullptr;
  }
  std::string uid_of(const std::string& job) {
    const Json found = workload(job);
    return found.is_null() ? "" : found["metadata"]["uid"].get<std::string>();
  }
  // "True/Preempted"; empty if the Workload does not have the condition.
  std::string condition(const std::string& job, const std::string& type) {
    const Json found = workload(job);
    const Json conditions =
        found.is_null() ? Json::array() : found.value(Json::json_pointer("/status/conditions"), Json::array());
    for (const Json& one : conditions) {
      if (one["type"] == type) return one.value("status", "") + "/" + one.value("reason", "");
    }
    return "";
  }
  void expect_condition(const std::string& job, const std::string& type, const std::string& wanted) {
    EXPECT_TRUE(eventually([&] { return condition(job, type) == wanted; })) << workload(job).dump(1);
  }
  // Waits until the Workload exists. The operator may write its status at the same time.
  void set_status(const std::string& job, const std::vector<Json>& conditions, const Json& admission = nullptr) {
    ASSERT_TRUE(eventually([&] {
      const Json live = workload(job);
      if (live.is_null()) return false;
      Json status = {{"conditions", live.value(Json::json_pointer("/status/conditions"), Json::array())}};
      for (const Json& one : conditions) {
        std::erase_if(status["conditions"].get_ref<Json::array_t&>(),
                      [&](const Json& old) { return old["type"] == one["type"]; });
        status["conditions"].push_back(one);
      }
      if (!admission.is_null()) status["admission"] = admission;
      const Reply reply =
          server_->call("PATCH", fmt::format("{}/{}/status", workloads(), live["metadata"]["name"].get<std::string>()),
                        {{"metadata", {{"resourceVersion", live["metadata"]["resourceVersion"]}}}, {"status", status}});
      EXPECT_TRUE(reply.ok() || reply.status == 409) << reply.message();
      return reply.ok();
    })) << world_.status(job).dump(1);
  }
  void admit(const std::string& job, int nodes = 2, const Json& flavors = Json::object(),
             Json assignment = Json::object()) {
    assignment.update({{"name", "nodes"}, {"count", nodes}, {"flavors", flavors}});
    std::vector<Json> conditions = {kueue_condition("QuotaReserved", true, "QuotaReserved"),
                                    kueue_condition("Admitted", true, "Admitted")};
    if (!condition(job, "Evicted").empty())
      conditions.push_back(kueue_condition("Evicted", false, "QuotaReserved", "Previously: evicted"));
    set_status(job, conditions, {{"clusterQueue", "gpus"}, {"podSetAssignments", Json::array({assignment})}});
  }
  void evict(const std::string& job, const std::string& reason = "Preempted") {
    set_status(job, {kueue_condition("Evicted", true, reason, "a job of higher priority needs the quota")});
  }

  // The pods have a node, so that a deletion has a grace period.
  void run_on_node(const std::string& pod) {
    set_pod(pod, Json::object());
    world_.call("POST", world_.pods() + "/" + pod + "/binding",
                {{"apiVersion", "v1"},
                 {"kind", "Binding"},
                 {"metadata", {{"name", pod}}},
                 {"target", {{"kind", "Node"}, {"name", "node-1"}}}});
    set_pod(pod, pod_running());
  }
  bool is_stopping(const std::string& pod) { return world_.pod(pod)["metadata"].contains("deletionTimestamp"); }
  // Runs another job, which gives the operator time to act by mistake.
  void let_time_pass() {
    create("other", {{"nodes", 1}}, Json::object());
    set_pod("other-0-0", pod_running());
    expect_phase("other", "Running");
  }
  // Requests to Kueue's API about the namespace, other than those of the test.
  std::vector<std::string> requests_to_kueue() const {
    std::vector<std::string> out;
    for (const std::string& line : lines(content(audit_->path() / "log"))) {
      const Json event = Json::parse(line, nullptr, false);
      if (!event.is_object() || event.value("userAgent", "").find("oarlock-test") != std::string::npos) continue;
      std::string uri = event.value("requestURI", "");
      if (uri.find("/namespaces/" + world_.namespace_name() + "/") != std::string::npos)
        out.push_back(event.value("verb", "") + " " + uri);
    }
    return out;
  }

  static inline std::unique_ptr<TemporaryDirectory> audit_;
};

}  // namespace oarlock::test
