// The operator in a cluster with IPv6 only: a real kube-apiserver with the real controllers, on a machine without IPv4.
#include <gmock/gmock.h>

#include "common/contract.h"
#include "http/server.h"
#include "tests/support/ipv6_machine.h"
#include "tests/support/job_world.h"
#include "tests/support/paths.h"
#include "tests/support/tinyproxy.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

class Ipv6Alone : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    leave_ipv4();
    server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers, "", ApiServer::Family::kIpv6);
  }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override { world_ = std::make_unique<JobWorld>(*server_, server_->make_namespace()); }
  void TearDown() override {
    if (HasFailure() && operator_) std::cerr << "---- the operator's log\n" << operator_->log();
    operator_.reset();
  }

  void start_operator(std::vector<std::string> arguments, std::map<std::string, std::string> environment = {}) {
    arguments.insert(arguments.end(), {"--namespace", world_->namespace_name(), "--progress-interval", "0.2"});
    operator_ = std::make_unique<OperatorProcess>(arguments, /*wait_until_ready=*/true,
                                                  OperatorPlace{.listen_address = "", .environment = environment});
  }
  bool has_event(const std::string& reason) {
    const Json events =
        world_->call("GET", "/apis/events.k8s.io/v1/namespaces/" + world_->namespace_name() + "/events");
    return std::ranges::any_of(events["items"], [&](const Json& event) { return event["reason"] == reason; });
  }
  // Runs a job from its creation to its end. Returns the spec of its Service, which is deleted when the job has ended.
  Json expect_a_job_completes() {
    world_->create_job("j");
    world_->wait_for_pods({"j-0-0", "j-0-1"});
    Json service = world_->call("GET", "/api/v1/namespaces/" + world_->namespace_name() + "/services/j")["spec"];
    Json rank_0 = pod_running();
    rank_0["podIP"] = "::1";
    rank_0["podIPs"] = {{{"ip", "::1"}}};
    world_->set_pod("j-0-0", rank_0);
    world_->set_pod("j-0-1", pod_running());
    world_->wait_for_phase("j", "Running");
    world_->wait("progress", [&] { return world_->status("j").value("/progress/step"_json_pointer, 0) == 40; });
    world_->set_pods({"j-0-0", "j-0-1"}, pod_ended(0));
    world_->wait_for_phase("j", "Complete");
    world_->wait("events", [&] { return has_event("Started") && has_event("Running"); });
    return service;
  }

  static inline std::unique_ptr<ApiServer> server_;
  std::unique_ptr<JobWorld> world_;
  std::unique_ptr<OperatorProcess> operator_;
};

// Serves the progress of a job at ::1, as its rank 0 would.
std::unique_ptr<HttpServer> serve_progress() {
  RankStatus status;
  status.world_size = 2;
  status.phase = "train";
  status.step = 40;
  status.target_steps = 200;
  auto server = HttpServer::start(
      "::1", kDefaultMetricsPort,
      {{kStatusPath, [status](const std::string&) { return HttpResponse{200, "application/json", to_json(status)}; }}});
  if (!server) throw std::runtime_error(server.error().message);
  return std::move(*server);
}

TEST_F(Ipv6Alone, AJobByKubeconfig) {
  EXPECT_THAT(content(server_->kubeconfig()), HasSubstr("server: https://[::1]:"));
  const auto rank_0 = serve_progress();
  start_operator({"--kubeconfig", server_->kubeconfig()});
  const Json service = expect_a_job_completes();
  EXPECT_EQ(service["clusterIP"], "None");
  EXPECT_EQ(service["ipFamilies"], Json({"IPv6"}));
  EXPECT_EQ(service["ipFamilyPolicy"], "PreferDualStack");
}

TEST_F(Ipv6Alone, AJobThroughAProxyWithAPassword) {
  const Tinyproxy proxy("::1", "user", "pass");
  const TemporaryDirectory directory;
  const auto rank_0 = serve_progress();
  start_operator(
      {"--kubeconfig", kubeconfig_with_proxy(server_->kubeconfig(), proxy.url("user:pass"), directory.path())});
  expect_a_job_completes();
  EXPECT_THAT(proxy.log(), HasSubstr("CONNECT [::1]:"));
}

// Requests to the pod's address, as a kubelet and Prometheus send them.
TEST_F(Ipv6Alone, ListensOnIpv6ByDefault) {
  start_operator({"--kubeconfig", server_->kubeconfig()});
  EXPECT_EQ(operator_->get("/healthz").status, 200);
  EXPECT_EQ(operator_->get("/readyz").status, 200);
  EXPECT_EQ(operator_->get("/metrics").status, 200);
}

TEST_F(Ipv6Alone, AJobByTheConfigurationOfAPod) {
  server_->apply(test::source_path("manifests/install.yaml"));
  const Json token = world_->call(
      "POST", "/api/v1/namespaces/oarlock-system/serviceaccounts/oarlock-operator/token",
      {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}, {"spec", {{"expirationSeconds", 3600}}}});
  const Json authority = world_->call("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt");
  become_service_account(authority["data"]["ca.crt"], token["status"]["token"], "oarlock-system");
  const auto rank_0 = serve_progress();
  start_operator({"--leader-elect"}, {{"KUBERNETES_SERVICE_HOST", "::1"}, {"KUBERNETES_SERVICE_PORT", "6443"}});
  EXPECT_TRUE(operator_->logged("https://[::1]:6443")) << operator_->log();
  expect_a_job_completes();
}

}  // namespace
}  // namespace oarlock::test
