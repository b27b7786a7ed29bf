// The operator behind an HTTP proxy with a password: tinyproxy, and a real kube-apiserver.
#include <gmock/gmock.h>

#include "tests/support/job_world.h"
#include "tests/support/tinyproxy.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;

class OperatorProxy : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  static inline std::unique_ptr<ApiServer> server_;
  const Tinyproxy proxy_{"127.0.0.1", "user", "pass"};
  const TemporaryDirectory directory_;
};

TEST_F(OperatorProxy, StartsJobThroughProxyOfKubeconfig) {
  JobWorld world(*server_, server_->make_namespace());
  const OperatorProcess process(
      {"--kubeconfig", kubeconfig_with_proxy(server_->kubeconfig(), proxy_.url("user:pass"), directory_.path()),
       "--namespace", world.namespace_name()});
  world.create_job("j");
  world.wait_for_pods({"j-0-0", "j-0-1"});
  EXPECT_THAT(proxy_.log(), HasSubstr("CONNECT"));
  EXPECT_FALSE(process.logged("user:pass"));
}

TEST_F(OperatorProxy, ReportsWrongPasswordWithoutRevealingIt) {
  const OperatorProcess process(
      {"--kubeconfig", kubeconfig_with_proxy(server_->kubeconfig(), proxy_.url("user:wrong-one"), directory_.path())},
      /*wait_until_ready=*/false);
  EXPECT_TRUE(eventually([&] { return process.logged("no tunnel: the proxy returned 40"); })) << process.log();
  EXPECT_TRUE(process.logged("through the proxy http://127.0.0.1:")) << process.log();
  EXPECT_FALSE(process.logged("wrong-one"));
  EXPECT_EQ(process.get("/readyz").status, 503);
}

}  // namespace
}  // namespace oarlock::test
