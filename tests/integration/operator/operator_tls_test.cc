// The operator and certificates: the API server's authority that is rotated while it runs, and HTTPS on its own port.
// The API server is played: it must change its certificate, and say who a token is.
#include <gmock/gmock.h>

#include "tests/support/api_server.h"
#include "tests/support/empty_cluster.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;

const char kHere[] = "IP:127.0.0.1";

class OperatorTls : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }
  TemporaryFolder folder_;
  const Authority authority_{"test authority"};
  const Authority other_{"another authority"};
  const std::atomic<bool> has_crd_ = true;
};

TEST_F(OperatorTls, AnAuthorityThatIsRotatedWhileItRunsIsTrustedWithoutARestart) {
  std::atomic<bool> cut = false;
  const HostileServer::Handler usual = empty_cluster(has_crd_);
  HostileServer server(
      [&](HostileServer::Connection& connection, const HostileServer::Received& request) {
        if (request.target.find("watch=true") == std::string::npos) return usual(connection, request);
        begin_watch(connection, request);
        while (!connection.stopping() && !cut) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return false;
      },
      {.identity = authority_.issue("server", kHere)});
  const std::string file = write("ca.crt", authority_.certificate());
  OperatorProcess process({"--kubeconfig", write_kubeconfig(folder_.path(), server.url(), file)});
  server.present(other_.issue("server", kHere));
  cut = true;  // as a kube-apiserver that is started anew with its new certificate
  ASSERT_TRUE(eventually([&] { return process.logged("certificate is not accepted"); })) << process.log();
  EXPECT_EQ(process.get("/readyz").status, 200);
  cut = false;
  const size_t before = server.received().size();
  write("ca.crt", other_.certificate());
  // Its three watches reach the server again.
  EXPECT_TRUE(eventually([&] { return server.received().size() >= before + 3; })) << process.log();
  EXPECT_EQ(process.get("/readyz").status, 200);
}

TEST_F(OperatorTls, ACertificateThatCannotBeServedEndsItWithOneLine) {
  HostileServer server(empty_cluster(has_crd_));
  const std::string kubeconfig = write_kubeconfig(folder_.path(), server.url());
  const Identity identity = authority_.issue("operator", kHere);
  const auto ends = [&](const std::string& file) {
    Program program({OARLOCK_BIN "/oarlock-operator", "--kubeconfig", kubeconfig, "--port", "0", "--listen-address",
                     "127.0.0.1", "--tls-certificate", file});
    const int code = program.wait();
    EXPECT_EQ(lines(program.err()).size(), 1u) << program.err();
    EXPECT_THAT(program.err(), HasSubstr(file));
    return std::to_string(code) + " " + program.err();
  };
  EXPECT_THAT(ends("/no/such.pem"), ::testing::StartsWith("66 "));
  EXPECT_THAT(ends(write("no_key.pem", identity.certificate)), HasSubstr("no (unencrypted) PEM private key"));
  EXPECT_THAT(ends(write("nothing.pem", "text")), ::testing::StartsWith("78 "));
  const std::string mixed = identity.certificate + authority_.issue("another", kHere).key;
  EXPECT_THAT(ends(write("mixed.pem", mixed)), HasSubstr("do not belong together"));
}

}  // namespace
}  // namespace oarlock::test
