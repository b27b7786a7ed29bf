// Behavior of every Transport with a real HTTP proxy that requires a password.
#include <gmock/gmock.h>

#include "tests/support/hostile_server.h"
#include "tests/support/tinyproxy.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace std::chrono_literals;
using test::get;
using test::HostileServer;
using test::transport_with;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Loopback = HostileServer::Loopback;

bool echo(HostileServer::Connection& connection, const HostileServer::Received& request) {
  connection.answer(200, request.target);
  return true;
}

// With a private authority, over IPv4 and over IPv6.
class Tinyproxy : public ::testing::TestWithParam<Loopback> {
 protected:
  HostileServer::Options plain() const { return {.loopback = GetParam()}; }
  HostileServer::Options tls() const {
    return {.loopback = GetParam(), .identity = authority_.issue("server", "IP:127.0.0.1,IP:::1")};
  }
  TransportOptions options(const HostileServer& server, const std::string& credentials) const {
    TransportOptions out;
    out.server = server.url();
    out.ca.text = authority_.certificate();
    out.proxy = proxy_.url(credentials);
    return out;
  }

  const test::Authority authority_{"private authority"};
  const test::Tinyproxy proxy_{GetParam() == Loopback::kIpv6 ? "::1" : "127.0.0.1", "user", "pass.word-1"};
};

TEST_P(Tinyproxy, ReachesHttpsServer) {
  HostileServer server(echo, tls());
  const auto transport = transport_with(options(server, "user:pass%2Eword-1"));
  for (int i = 0; i < 5; ++i) {
    const auto response = transport->send({"POST", "/x", std::string(100000, 'y'), "text/plain"}, 20s, {});
    ASSERT_TRUE(response) << response.error().message << "\n" << proxy_.log();
    EXPECT_EQ(response->body, "/x");
  }
  EXPECT_THAT(server.received(), SizeIs(5));
  EXPECT_EQ(server.connections(), 1);
  EXPECT_THAT(server.received()[0].head, Not(HasSubstr("Proxy-Authorization")));
  EXPECT_THAT(proxy_.log(), HasSubstr("CONNECT"));
}

// Tinyproxy closes the connection after each response without announcing it, so that only a GET is certain to succeed.
TEST_P(Tinyproxy, ReachesHttpServer) {
  HostileServer server(echo, plain());
  const auto transport = transport_with(options(server, "user:pass%2Eword-1"));
  for (int i = 0; i < 5; ++i) {
    const auto response = transport->send(get("/x"), 20s, {});
    ASSERT_TRUE(response) << response.error().message << "\n" << proxy_.log();
    EXPECT_EQ(response->body, "/x");
  }
  EXPECT_THAT(server.received()[0].head, Not(HasSubstr("Proxy-Authorization")));
}

TEST_P(Tinyproxy, ReportsWrongPassword) {
  HostileServer server(echo, tls());
  for (const char* credentials : {"user:wrong", ""}) {
    const auto response = transport_with(options(server, credentials))->send(get(), 20s, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().kind, TransportErrorKind::kConnect) << response.error().message;
    EXPECT_THAT(response.error().message, HasSubstr("no tunnel: the proxy returned 40"));
  }
  EXPECT_EQ(server.connections(), 0);
}

INSTANTIATE_TEST_SUITE_P(All, Tinyproxy, ::testing::Values(Loopback::kIpv4, Loopback::kIpv6),
                         [](const auto& family) { return family.param == Loopback::kIpv6 ? "Ipv6" : "Ipv4"; });

}  // namespace
}  // namespace oarlock::http
