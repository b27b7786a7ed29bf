// Hostile clients of the operator's HTTP server: its memory stays bounded, and liveness and scrapes are served. A
// minute for each attack: OARLOCK_HOSTILE_SECONDS=60.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/api_server.h"
#include "tests/support/empty_cluster.h"
#include "tests/support/hostile_clients.h"

namespace oarlock::test {
namespace {

using namespace std::chrono_literals;

std::string job(int i) {
  return fmt::format(
      R"({{"metadata":{{"name":"job-{0:05}","namespace":"default","uid":"{0:08x}-aaaa-4bbb-8ccc-ddddeeeeffff",)"
      R"("resourceVersion":"{1}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"nodes":4,)"
      R"("template":{{"spec":{{"containers":[{{"name":"trainer","image":"example.invalid/trainer:1"}}]}}}}}},)"
      R"("status":{{"phase":"Complete","observedGeneration":1,"attempt":0,"worldSize":4,)"
      R"("completionTime":"2026-01-01T01:00:00Z","conditions":[{{"type":"Complete","status":"True","reason":"Succeeded",)"
      R"("message":"all ranks ended with exit code 0","lastTransitionTime":"2026-01-01T01:00:00Z"}}]}}}})",
      i, 1000 + i);
}

// Enough finished jobs for a large /metrics.
HostileServer::Handler cluster_with_jobs(const HostileServer::Handler& empty, int jobs) {
  return [empty, jobs](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (request.target.find("trainingjobs?") == std::string::npos ||
        request.target.find("sendInitialEvents") == std::string::npos)
      return empty(connection, request);
    connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const auto event = [&](const std::string& type, const std::string& object) {
      const std::string line = fmt::format(R"({{"type":"{}","object":{}}})", type, object) + "\n";
      connection.write(fmt::format("{:x}\r\n{}\r\n", line.size(), line));
    };
    for (int i = 0; i < jobs; ++i) event("ADDED", job(i));
    event("BOOKMARK", R"({"metadata":{"resourceVersion":"9000","annotations":{"k8s.io/initial-events-end":"true"}}})");
    connection.wait_for_close();
    return false;
  };
}

class OperatorHostileClients : public ::testing::Test {
 protected:
  std::string kubeconfig_for(const HostileServer& server) { return write_kubeconfig(directory_.path(), server.url()); }

  TemporaryDirectory directory_;
  const std::atomic<bool> has_crd_ = true;
};

TEST_F(OperatorHostileClients, PlainServerStaysWithinItsLimits) {
  HostileServer server(cluster_with_jobs(empty_cluster(has_crd_), 1500));
  OperatorProcess process({"--kubeconfig", kubeconfig_for(server)});
  const int port = process.port();
  const auto get = [&](const std::string& target) { return raw_get(port, target); };
  std::printf("/metrics: %.2f MiB\n", static_cast<double>(get("/metrics").size()) / (1 << 20));
  for (const Attack& attack : attacks_on_http()) {
    SCOPED_TRACE(attack.name);
    expect_unharmed(measure_attack(process.program().pid(), port, attack, get));
  }
}

TEST_F(OperatorHostileClients, TlsServerStaysWithinItsLimits) {
  HostileServer server(empty_cluster(has_crd_));
  const Authority authority("authority");
  const std::string file = (directory_.path() / "server.pem").string();
  std::ofstream(file) << authority.issue("operator", "IP:127.0.0.1").both();
  OperatorProcess process({"--kubeconfig", kubeconfig_for(server), "--tls-certificate", file, "--health-port", "0"});
  process.use_tls(authority.certificate());
  const int health_port = process.health_port();
  const auto get = [&](const std::string& target) {
    if (target == "/healthz") return raw_get(health_port, target);
    try {
      return fmt::format("HTTP/1.1 {}", process.get(target).status);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
  };
  const std::string client_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);  // its first bytes
  const std::string large_hello("\x16\x03\x01\x40\x00\x01\x02\x00\x00", 9);            // it announces 128 KiB
  for (const Attack& attack : {Attack{.name = "TLS handshakes without end", .clients = 500, .first = client_hello},
                               Attack{.name = "TLS handshakes that trickle",
                                      .clients = 500,
                                      .first = client_hello,
                                      .repeated = "x",
                                      .period = 1000ms},
                               Attack{.name = "TLS handshakes without end, with 240 addresses",
                                      .clients = 480,
                                      .first = client_hello,
                                      .addresses = 240},
                               Attack{.name = "ClientHellos of 128 KiB",
                                      .clients = 40,
                                      .first = large_hello + std::string(16 << 10, 'x'),
                                      .addresses = 40}}) {
    SCOPED_TRACE(attack.name);
    expect_unharmed(measure_attack(process.program().pid(), process.port(), attack, get));
  }
}

// Token reviews hang, and then the API server is stopped, while three scrapers send different tokens.
TEST_F(OperatorHostileClients, ProtectedMetricsDoNotDelayLiveness) {
  const HostileServer::Handler empty = empty_cluster(has_crd_);
  std::optional<HostileServer> server;
  server.emplace([&](HostileServer::Connection& connection, const HostileServer::Received& request) {
    if (request.method != "POST" || request.target.find("reviews") == std::string::npos)
      return empty(connection, request);
    connection.wait_for_close();
    return false;
  });
  OperatorProcess process({"--kubeconfig", kubeconfig_for(*server), "--protect-metrics"});
  const int port = process.port();
  std::vector<std::jthread> scrapers;
  for (int i = 0; i < 3; ++i) {
    scrapers.emplace_back([port, i](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const RawClient client(port, {.from = fmt::format("127.0.0.{}", 2 + i)});
        client.send(fmt::format("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {}\r\n\r\n", i));
        while (!stop.stop_requested() && !client.is_closed_within(10ms)) continue;
      }
    });
  }
  AttackResult result;
  const auto poll_health = [&] {
    const auto end = std::chrono::steady_clock::now() + attack_time();
    while (std::chrono::steady_clock::now() < end) {
      const auto began = std::chrono::steady_clock::now();
      ASSERT_TRUE(raw_get(port, "/healthz").starts_with("HTTP/1.1 200"));
      result.health.push_back(seconds_since(began));
      std::this_thread::sleep_for(20ms);
    }
  };
  poll_health();
  server.reset();
  poll_health();
  std::printf("/healthz: %zu times, slowest %.1f ms\n", result.health.size(), 1e3 * result.health_percentile(1));
  EXPECT_TRUE(alive(process.program().pid()));
  if (kSanitized) return;
  EXPECT_LT(result.health_percentile(0.9), 1);
}

}  // namespace
}  // namespace oarlock::test
