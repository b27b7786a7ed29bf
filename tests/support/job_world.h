// One namespace of a real kube-apiserver in which a test plays the users and the kubelets.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "common/contract.h"
#include "tests/support/api_server.h"

namespace oarlock::test {

// status of a pod, as a kubelet would write it
inline nlohmann::json pod_condition(const char* type, bool value) {
  return {{"type", type}, {"status", value ? "True" : "False"}};
}
inline nlohmann::json container_status(const nlohmann::json& state) {
  return {{"name", kTrainerContainer},          {"image", "x"},      {"imageID", "x"},
          {"ready", state.contains("running")}, {"restartCount", 0}, {"state", state}};
}
inline nlohmann::json pod_running() {
  return {{"phase", "Running"},
          {"conditions", {pod_condition("PodScheduled", true), pod_condition("Ready", true)}},
          {"containerStatuses", {container_status({{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}})}}};
}
inline nlohmann::json pod_ended(int exit_code) {
  const nlohmann::json state = {
      {"terminated", {{"exitCode", exit_code}, {"reason", exit_code == 0 ? "Completed" : "Error"}, {"message", ""}}}};
  return {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
          {"conditions", {pod_condition("PodScheduled", true), pod_condition("Ready", false)}},
          {"containerStatuses", {container_status(state)}}};
}

class JobWorld {
 public:
  // `on_poll` is called while something is waited for: it may bring an operator back to life. Failed waits throw.
  JobWorld(
      ApiServer& server, std::string name_space, std::function<void()> on_poll = [] {})
      : server_(server), name_space_(std::move(name_space)), on_poll_(std::move(on_poll)) {}

  const std::string& name_space() const { return name_space_; }
  std::string jobs() const { return "/apis/oarlock.dev/v1alpha1/namespaces/" + name_space_ + "/trainingjobs"; }
  std::string pods() const { return "/api/v1/namespaces/" + name_space_ + "/pods"; }

  nlohmann::json call(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr) {
    const Reply reply = server_.call(method, target, body);
    if (!reply.ok()) throw std::runtime_error(method + " " + target + ": " + reply.message());
    return reply.body;
  }
  void wait(const std::string& what, const std::function<bool()>& condition) {
    const bool came = eventually([&] {
      on_poll_();
      return condition();
    });
    if (!came)
      throw std::runtime_error(name_space_ + ": waited for " + what + " in vain; the job: " + status("j").dump());
  }

  void create_job(const std::string& name, int nodes = 2) {
    const nlohmann::json pod = {
        {"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/t"}}}}}}};
    call("POST", jobs(),
         {{"apiVersion", kApiVersion},
          {"kind", kKind},
          {"metadata", {{"name", name}}},
          {"spec", {{"nodes", nodes}, {"template", pod}}}});
  }
  void patch_job(const std::string& name, const nlohmann::json& patch) { call("PATCH", jobs() + "/" + name, patch); }
  nlohmann::json status(const std::string& name) {
    const Reply reply = server_.call("GET", jobs() + "/" + name);
    return reply.ok() ? reply.body.value("status", nlohmann::json::object()) : nlohmann::json::object();
  }
  void wait_for_phase(const std::string& name, const std::string& phase) {
    wait("phase " + phase, [&] { return status(name).value("phase", "") == phase; });
  }

  nlohmann::json all_pods() { return call("GET", pods())["items"]; }
  std::set<std::string> live_pods() {
    std::set<std::string> names;
    for (const nlohmann::json& item : all_pods()) {
      const std::string phase = item["status"].value("phase", "");
      if (phase != "Failed" && phase != "Succeeded" && !item["metadata"].contains("deletionTimestamp"))
        names.insert(item["metadata"]["name"]);
    }
    return names;
  }
  void wait_for_pods(const std::set<std::string>& names) {
    wait("the live pods", [&] { return live_pods() == names; });
  }
  void set_pod(const std::string& name, const nlohmann::json& pod_status) {
    call("PATCH", pods() + "/" + name + "/status", {{"status", pod_status}});
  }
  void set_pods(const std::set<std::string>& names, const nlohmann::json& pod_status) {
    for (const std::string& name : names) set_pod(name, pod_status);
  }

 private:
  ApiServer& server_;
  const std::string name_space_;
  const std::function<void()> on_poll_;
};

}  // namespace oarlock::test
