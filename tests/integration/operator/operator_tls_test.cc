// The operator and certificates: the API server's authority that is rotated while it runs, and HTTPS on its own port.
// The API server is simulated: it must change its certificate and authenticate tokens.
#include <gmock/gmock.h>

#include <mutex>
#include <set>

#include "tests/support/api_server.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const char kHere[] = "IP:127.0.0.1";

// Returns a handler that responds to the reviews of /metrics as a kube-apiserver does.
HostileServer::Handler reviewing(const HostileServer::Handler& usual) {
  return [usual](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (request.method != "POST") return usual(connection, request);
    const Json spec = Json::parse(request.body)["spec"];
    Json status = Json::object();
    if (request.target.find("tokenreviews") != std::string::npos) {
      status["authenticated"] = spec["token"] != "unknown";
      status["user"] = {{"username", spec["token"]}};
    } else {
      status["allowed"] = spec["user"] == "reader" && spec["nonResourceAttributes"]["path"] == "/metrics";
    }
    connection.answer(201, Json{{"status", status}}.dump());
    return true;
  };
}

class OperatorTls : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (directory_.path() / name).string();
    // A new file, as a kubelet makes it: two writes within a tick of the kernel's clock would set the same times.
    std::ofstream(path + ".new") << text;
    std::filesystem::rename(path + ".new", path);
    return path;
  }
  TemporaryDirectory directory_;
  const Authority authority_{"test authority"};
  const Authority other_{"another authority"};
  const std::atomic<bool> has_crd_ = true;
};

TEST_F(OperatorTls, TrustsRotatedAuthorityWithoutRestart) {
  std::atomic<bool> cut = false;
  std::mutex mutex;
  std::set<std::string> begun;  // paths of the watches that have begun
  std::set<std::string> ended;  // of those that were cut
  const HostileServer::Handler usual = empty_cluster(has_crd_);
  HostileServer server(
      [&](HostileServer::Connection& connection, const HostileServer::Received& request) {
        const bool is_watch = request.target.find("watch=true") != std::string::npos;
        if (!is_watch || request.target.find("podgroups") != std::string::npos) return usual(connection, request);
        const std::string path = request.target.substr(0, request.target.find('?'));
        {
          const std::lock_guard lock(mutex);
          begun.insert(path);
        }
        begin_watch(connection, request);
        while (!connection.stopping() && !cut) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        const std::lock_guard lock(mutex);
        ended.insert(path);
        return false;
      },
      {.identity = authority_.issue("server", kHere)});
  const std::string file = write("ca.crt", authority_.certificate());
  OperatorProcess process({"--kubeconfig", write_kubeconfig(directory_.path(), server.url(), file)});
  server.present(other_.issue("server", kHere));
  cut = true;  // like a kube-apiserver that restarts with its new certificate
  ASSERT_TRUE(eventually([&] { return process.logged("certificate is not accepted"); })) << process.log();
  EXPECT_EQ(process.get("/readyz").status, 200);
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    begun.clear();
    return ended.size() == 4;
  })) << process.log();
  cut = false;
  write("ca.crt", other_.certificate());
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return begun.size() == 4;
  })) << process.log();
  EXPECT_EQ(process.get("/readyz").status, 200);
}

TEST_F(OperatorTls, ServesMetricsToAuthorizedClientsOverTls) {
  HostileServer server(reviewing(empty_cluster(has_crd_)));
  const std::string file = write("server.pem", authority_.issue("operator", kHere).both());
  OperatorProcess process({"--kubeconfig", write_kubeconfig(directory_.path(), server.url()), "--tls-certificate", file,
                           "--protect-metrics"});
  // Without TLS there is no answer.
  EXPECT_ANY_THROW(process.get("/healthz"));
  EXPECT_ANY_THROW(process.get("/metrics"));
  process.use_tls(other_.certificate());
  EXPECT_THAT([&] { process.get("/healthz"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("certificate is not accepted")));
  process.use_tls(authority_.certificate());
  EXPECT_EQ(process.get("/healthz").status, 200) << "for the kubelet, which has no token";
  EXPECT_EQ(process.get("/metrics").status, 401);
  process.use_token("unknown");
  EXPECT_EQ(process.get("/metrics").status, 401);
  process.use_token("stranger");
  EXPECT_EQ(process.get("/metrics").status, 403);
  process.use_token("reader");
  EXPECT_EQ(process.get("/metrics").status, 200);
  EXPECT_GT(process.metric("rest_client_requests_total", {"method=\"POST\""}), 0);

  write("server.pem", other_.issue("operator", kHere).both());
  EXPECT_ANY_THROW(process.get("/metrics")) << "it still shows the old certificate";
  process.use_tls(other_.certificate());
  EXPECT_EQ(process.get("/metrics").status, 200);
}

TEST_F(OperatorTls, InvalidCertificateFailsStartup) {
  HostileServer server(empty_cluster(has_crd_));
  const std::string kubeconfig = write_kubeconfig(directory_.path(), server.url());
  const Identity identity = authority_.issue("operator", kHere);
  const auto ends = [&](const std::string& file) {
    Program program({test::program_path("oarlock-operator"), "--kubeconfig", kubeconfig, "--port", "0",
                     "--listen-address", "127.0.0.1", "--tls-certificate", file});
    const int code = program.wait();
    EXPECT_EQ(lines(program.err()).size(), 1u) << program.err();
    EXPECT_THAT(program.err(), HasSubstr(file));
    return std::to_string(code) + " " + program.err();
  };
  EXPECT_THAT(ends("/no/such.pem"), ::testing::StartsWith("66 "));
  EXPECT_THAT(ends(write("no_key.pem", identity.certificate)), HasSubstr("contains no unencrypted PEM private key"));
  EXPECT_THAT(ends(write("nothing.pem", "text")), ::testing::StartsWith("78 "));
  const std::string mixed = identity.certificate + authority_.issue("another", kHere).key;
  EXPECT_THAT(ends(write("mixed.pem", mixed)), HasSubstr("do not belong together"));
}

}  // namespace
}  // namespace oarlock::test
