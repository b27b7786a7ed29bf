// One namespace of a real kube-apiserver in which a test acts as the users and the kubelets.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/contract.h"
#include "tests/support/api_server.h"

namespace oarlock::test {

// ---- pod statuses, as a kubelet would write them ---------------------------------------------------------------

inline nlohmann::json pod_condition(const char* type, bool value) {
  return {{"type", type}, {"status", value ? "True" : "False"}};
}
inline nlohmann::json container_status(const nlohmann::json& state) {
  return {{"name", kTrainerContainer},          {"image", "x"},      {"imageID", "x"},
          {"ready", state.contains("running")}, {"restartCount", 0}, {"state", state}};
}
inline nlohmann::json pod_running(const std::string& ip = "") {
  nlohmann::json status = {
      {"phase", "Running"},
      {"conditions", {pod_condition("PodScheduled", true), pod_condition("Ready", true)}},
      {"containerStatuses", {container_status({{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}})}}};
  if (!ip.empty()) {
    status["podIP"] = ip;
    status["podIPs"] = {{{"ip", ip}}};
  }
  return status;
}
inline nlohmann::json pod_ended(int exit_code, const std::string& message = "") {
  const nlohmann::json state = {
      {"terminated",
       {{"exitCode", exit_code}, {"reason", exit_code == 0 ? "Completed" : "Error"}, {"message", message}}}};
  return {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
          {"conditions", {pod_condition("PodScheduled", true), pod_condition("Ready", false)}},
          {"containerStatuses", {container_status(state)}}};
}

// Functions that write throw if the API server rejects the request; functions that read return an empty value if the
// object does not exist.
class JobWorld {
 public:
  // `on_poll` is called repeatedly by wait(); it may restart an operator.
  JobWorld(
      ApiServer& server, std::string namespace_name, std::function<void()> on_poll = [] {})
      : server_(server), name_space_(std::move(namespace_name)), on_poll_(std::move(on_poll)) {}

  const std::string& namespace_name() const { return name_space_; }
  std::string jobs() const { return "/apis/oarlock.dev/v1alpha1/namespaces/" + name_space_ + "/trainingjobs"; }
  std::string pods() const { return "/api/v1/namespaces/" + name_space_ + "/pods"; }
  std::string services() const { return "/api/v1/namespaces/" + name_space_ + "/services"; }

  nlohmann::json call(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr) {
    const Reply reply = server_.call(method, target, body);
    if (!reply.ok()) throw std::runtime_error(method + " " + target + ": " + reply.message());
    return reply.body;
  }
  bool exists(const std::string& target) { return server_.call("GET", target).status != 404; }

  // Throws if the condition does not become true in time.
  void wait(const std::string& description, const std::function<bool()>& condition) {
    const bool is_true = eventually([&] {
      on_poll_();
      return condition();
    });
    if (!is_true)
      throw std::runtime_error(name_space_ + ": timed out waiting for " + description +
                               "; the job: " + status("j").dump());
  }

  // ---- jobs ----------------------------------------------------------------------------------------------------

  // Creates a job with this spec, to which two nodes and a template are added if they are missing. Returns the job.
  nlohmann::json create_job(const std::string& name, nlohmann::json spec) {
    if (spec.is_null()) spec = nlohmann::json::object();
    if (!spec.contains("nodes")) spec["nodes"] = 2;
    if (!spec.contains("template")) {
      spec["template"] = {
          {"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/trainer"}}}}}}};
    }
    return call("POST", jobs(),
                {{"apiVersion", kApiVersion}, {"kind", kKind}, {"metadata", {{"name", name}}}, {"spec", spec}});
  }
  nlohmann::json create_job(const std::string& name, int nodes = 2) {
    return create_job(name, nlohmann::json{{"nodes", nodes}});
  }
  void patch_job(const std::string& name, const nlohmann::json& patch) { call("PATCH", jobs() + "/" + name, patch); }
  void delete_job(const std::string& name) {
    call("DELETE", jobs() + "/" + name, {{"propagationPolicy", "Background"}});
  }
  nlohmann::json job(const std::string& name) { return server_.call("GET", jobs() + "/" + name).body; }
  nlohmann::json status(const std::string& name) {
    const Reply reply = server_.call("GET", jobs() + "/" + name);
    return reply.ok() ? reply.body.value("status", nlohmann::json::object()) : nlohmann::json::object();
  }
  std::string phase(const std::string& name) { return status(name).value("phase", ""); }
  bool has_condition(const std::string& name, const std::string& type, const std::string& value,
                     const std::string& reason = "") {
    const nlohmann::json all = status(name).value("conditions", nlohmann::json::array());
    for (const nlohmann::json& condition : all) {
      if (condition["type"] == type)
        return condition["status"] == value && (reason.empty() || condition["reason"] == reason);
    }
    return false;
  }
  std::vector<std::string> event_reasons(const std::string& name) {
    std::vector<std::string> reasons;
    const nlohmann::json events = call("GET", "/apis/events.k8s.io/v1/namespaces/" + name_space_ + "/events")["items"];
    for (const nlohmann::json& item : events) {
      if (item["regarding"].value("kind", "") == kKind && item["regarding"].value("name", "") == name)
        reasons.push_back(item["reason"]);
    }
    return reasons;
  }
  void wait_for_phase(const std::string& name, const std::string& phase) {
    wait("phase " + phase, [&] { return status(name).value("phase", "") == phase; });
  }

  // ---- pods ----------------------------------------------------------------------------------------------------

  nlohmann::json pod(const std::string& name) { return server_.call("GET", pods() + "/" + name).body; }
  nlohmann::json all_pods() { return call("GET", pods())["items"]; }
  std::set<std::string> pod_names() {
    std::set<std::string> names;
    for (const nlohmann::json& item : all_pods()) names.insert(item["metadata"]["name"]);
    return names;
  }
  // Pods that have not terminated and are not being deleted.
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
