// Two operators with a Lease against a real kube-apiserver: one works, the other takes over.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/support/job_world.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;

class Election : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  // Shorter than the usual times, so that the test is as well; a busy machine still renews the lease in time.
  std::unique_ptr<OperatorProcess> start(const std::string& namespace_name) {
    return std::make_unique<OperatorProcess>(std::vector<std::string>{
        "--kubeconfig", server_->kubeconfig(), "--namespace", namespace_name, "--leader-elect",
        "--leader-elect-resource-namespace", namespace_name, "--leader-elect-lease-duration", "10",
        "--leader-elect-renew-deadline", "8", "--leader-elect-retry-period", "1", "--log-level", "debug"});
  }
  static bool leads(const OperatorProcess& one) { return one.metric("leader_election_master_status") == 1; }
  Json lease(const std::string& namespace_name) {
    return server_
        ->call("GET", "/apis/coordination.k8s.io/v1/namespaces/" + namespace_name + "/leases/oarlock-operator")
        .body["spec"];
  }

  static std::unique_ptr<ApiServer> server_;
};
std::unique_ptr<ApiServer> Election::server_;

TEST_F(Election, KilledLeaderNeitherLosesNorRepeatsWork) {
  const std::string namespace_name = server_->make_namespace();
  JobWorld world(*server_, namespace_name);
  auto first = start(namespace_name);
  ASSERT_TRUE(eventually([&] { return leads(*first); }));
  auto second = start(namespace_name);
  EXPECT_FALSE(leads(*second));
  EXPECT_EQ(second->get("/readyz").status, 200);  // it stands by, with a full cache

  constexpr int kJobs = 50;
  for (int i = 0; i < kJobs; ++i) world.create_job("j" + std::to_string(i));
  ASSERT_TRUE(eventually([&] { return world.all_pods().size() >= 20; }));
  EXPECT_EQ(second->metric("controller_runtime_reconcile_total"), 0);
  first->program().signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return leads(*second); })) << second->log();
  EXPECT_EQ(lease(namespace_name)["leaseTransitions"], 1);

  std::set<std::string> wanted;
  for (int i = 0; i < kJobs; ++i) {
    for (int rank = 0; rank < 2; ++rank) wanted.insert("j" + std::to_string(i) + "-0-" + std::to_string(rank));
  }
  world.wait_for_pods(wanted);
  EXPECT_EQ(world.all_pods().size(), wanted.size());
  world.set_pods(wanted, pod_running());
  for (int i = 0; i < kJobs; ++i) world.wait_for_phase("j" + std::to_string(i), "Running");
  for (int i = 0; i < kJobs; ++i) EXPECT_EQ(world.status("j" + std::to_string(i))["attempt"], 0);
}

TEST_F(Election, StoppedLeaderReleasesLeaseImmediately) {
  const std::string namespace_name = server_->make_namespace();
  auto first = start(namespace_name);
  ASSERT_TRUE(eventually([&] { return leads(*first); }));
  auto second = start(namespace_name);
  first->program().signal(SIGTERM);
  EXPECT_EQ(first->program().wait(), 0);
  ASSERT_TRUE(eventually([&] { return leads(*second); }));
  EXPECT_EQ(lease(namespace_name)["leaseTransitions"], 1);
}

TEST_F(Election, FrozenLeaderStopsWritingAndExitsWith75) {
  const std::string namespace_name = server_->make_namespace();
  JobWorld world(*server_, namespace_name);
  auto first = start(namespace_name);
  ASSERT_TRUE(eventually([&] { return leads(*first); }));
  first->program().signal(SIGSTOP);
  world.create_job("j");
  auto second = start(namespace_name);
  ASSERT_TRUE(eventually([&] { return leads(*second); }));
  world.wait_for_pods({"j-0-0", "j-0-1"});
  first->program().signal(SIGCONT);
  EXPECT_EQ(first->program().wait(), 75);
  EXPECT_TRUE(first->logged("leadership lost")) << first->log();
  EXPECT_EQ(world.all_pods().size(), 2u);
}

}  // namespace
}  // namespace oarlock::test
