// NetworkPolicies of jobs on a real kube-apiserver. There is no network plugin, so the test checks only which policies
// exist, when, and with which content.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/support/job_world.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

// With an empty list and a null, which the API server does not store.
constexpr char kPeers[] = R"([{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"oarlock-system"}},
  "podSelector":{"matchLabels":{"app":"operator"},"matchExpressions":[]}},{"ipBlock":{"cidr":"10.0.0.0/8","except":null}}])";

class NetworkPolicies : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  static OperatorProcess start(const std::string& namespace_name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--kubeconfig", server_->kubeconfig(), "--namespace", namespace_name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return OperatorProcess(arguments);
  }
  static void end(OperatorProcess& process) {
    process.program().signal(SIGTERM);
    EXPECT_EQ(process.program().wait(), 0) << process.log();
  }
  std::string path(const std::string& name = "trainingjob-j") const {
    return "/apis/networking.k8s.io/v1/namespaces/" + world_.namespace_name() + "/networkpolicies/" + name;
  }
  Reply policy() const { return server_->call("GET", path()); }
  void wait_for_policy(bool exists) {
    world_.wait("the NetworkPolicy", [&] { return policy().ok() == exists; });
  }
  void run_pods() {
    world_.wait_for_pods({"j-0-0", "j-0-1"});
    world_.set_pods({"j-0-0", "j-0-1"}, pod_running());
    world_.wait_for_phase("j", "Running");
  }

  static inline std::unique_ptr<ApiServer> server_;
  JobWorld world_{*server_, server_->make_namespace()};
};

TEST_F(NetworkPolicies, CreatesRepairsAndDeletesPolicyWithJob) {
  OperatorProcess process = start(world_.namespace_name(), {std::string("--job-network-policy=") + kPeers});
  world_.create_job("j");
  run_pods();
  const Json created = policy().body;
  EXPECT_EQ(created["metadata"]["ownerReferences"][0]["uid"],
            world_.call("GET", world_.jobs() + "/j")["metadata"]["uid"]);
  EXPECT_EQ(created["spec"]["podSelector"]["matchLabels"], (Json{{kLabelJobName, "j"}}));
  ASSERT_EQ(created["spec"]["ingress"].size(), 2U);
  EXPECT_EQ(created["spec"]["ingress"][1]["from"].size(), 2U);
  EXPECT_EQ(created["spec"]["ingress"][1]["ports"][0]["port"], 9400);

  // The stored policy equals the desired one, so it is not written repeatedly.
  world_.call("PATCH", world_.jobs() + "/j", {{"spec", {{"failurePolicy", {{"maxRestarts", 7}}}}}});
  world_.wait("a look at the job", [&] { return world_.status("j")["observedGeneration"] == 2; });
  EXPECT_EQ(process.metric("rest_client_requests_total", {"method=\"PUT\""}), 0);
  EXPECT_EQ(policy().body["metadata"]["generation"], 1);

  world_.call("PATCH", path(), {{"spec", {{"ingress", Json::array({Json::object()})}, {"egress", Json::array()}}}});
  world_.wait("the repair", [&] { return policy().body["spec"] == created["spec"]; });
  EXPECT_EQ(policy().body["metadata"]["uid"], created["metadata"]["uid"]) << "replaced, not created again";
  world_.call("DELETE", path());
  wait_for_policy(true);

  world_.set_pods({"j-0-0", "j-0-1"}, pod_ended(0));
  world_.wait_for_phase("j", "Complete");
  wait_for_policy(false);
}

// An operator without the setting starts the job, then one with the setting takes over, then one with another setting.
TEST_F(NetworkPolicies, FollowsTheOperatorsSettings) {
  {
    OperatorProcess old = start(world_.namespace_name(), {});
    world_.create_job("j");
    run_pods();
    EXPECT_FALSE(policy().ok());
    end(old);
  }
  {
    OperatorProcess process = start(world_.namespace_name(), {"--job-network-policy=[]"});
    wait_for_policy(true);
    EXPECT_EQ(policy().body["spec"]["ingress"].size(), 1U);
    end(process);
  }
  OperatorProcess process = start(world_.namespace_name(), {std::string("--job-network-policy=") + kPeers});
  world_.wait("the other peers", [&] { return policy().body["spec"]["ingress"].size() == 2; });
  EXPECT_EQ(world_.status("j")["restarts"].value("total", 0), 0);
  EXPECT_EQ(world_.live_pods(), (std::set<std::string>{"j-0-0", "j-0-1"}));
}

TEST_F(NetworkPolicies, PolicyOfAnotherOwnerBlocksJob) {
  OperatorProcess process = start(world_.namespace_name(), {"--job-network-policy=[]"});
  const std::string list = path("").substr(0, path("").size() - 1);
  world_.call("POST", list, {{"metadata", {{"name", "trainingjob-j"}}}, {"spec", {{"podSelector", Json::object()}}}});
  world_.create_job("j");
  world_.wait("the condition", [&] { return world_.status("j").dump().find("NameTaken") != std::string::npos; });
  EXPECT_THAT(world_.status("j").dump(), HasSubstr("NetworkPolicy trainingjob-j"));
  EXPECT_TRUE(world_.all_pods().empty());
  EXPECT_TRUE(policy().body["spec"]["podSelector"].empty()) << "the policy of another owner must not change";
  world_.call("DELETE", path());
  // Any change of the job causes a reconcile.
  world_.call("PATCH", world_.jobs() + "/j", {{"spec", {{"failurePolicy", {{"maxRestarts", 7}}}}}});
  world_.wait_for_pods({"j-0-0", "j-0-1"});
}

}  // namespace
}  // namespace oarlock::test
