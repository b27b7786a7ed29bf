// Behavior of every Transport with an HTTP proxy: CONNECT for https servers, the absolute URL for http servers,
// credentials for the proxy only, and all limits of a call if the proxy stalls.
#include <gmock/gmock.h>

#include <future>

#include "common/port_reservation.h"
#include "http/client/credentials.h"
#include "kube/client/request.h"
#include "tests/support/hostile_server.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace kube;  // NOLINT
using namespace std::chrono_literals;
using test::Authority;
using test::becomes_true;
using test::get;
using test::HostileServer;
using test::TextSink;
using test::transport_with;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Loopback = HostileServer::Loopback;

constexpr char kCredentials[] = "Proxy-Authorization: Basic dXNlcjpwYXNz\r\n";  // user:pass

bool echo(HostileServer::Connection& connection, const HostileServer::Received& request) {
  connection.answer(200, request.target);
  return true;
}

// A well-behaved proxy in front of a scripted server.
HostileServer::Handler proxy_to(const HostileServer& server, Loopback loopback = Loopback::kIpv4) {
  return [&server, loopback](auto& connection, const auto& request) {
    if (request.head.find(kCredentials) == std::string::npos) {
      connection.answer(407, "who are you?", "Proxy-Authenticate: Basic realm=\"test\"\r\n");
      return false;
    }
    if (request.method != "CONNECT") {
      connection.answer(200, "proxied " + request.target);
      return true;
    }
    connection.write("HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
    connection.relay(loopback, server.port());
    return false;
  };
}

std::string with_credentials(std::string url, const std::string& credentials = "user:pass") {
  return url.insert(url.find("://") + 3, credentials + "@");
}

class TransportProxy : public ::testing::Test {
 protected:
  TransportOptions options(const HostileServer& server, const std::string& proxy) const {
    TransportOptions out;
    out.server = server.url();
    out.ca.text = authority_.certificate();
    out.token = std::make_shared<ConstantToken>("secret");
    out.proxy = proxy;
    return out;
  }
  HostileServer::Options tls(Loopback loopback = Loopback::kIpv4) const {
    return {.loopback = loopback, .identity = authority_.issue("server", "IP:127.0.0.1,IP:::1,DNS:api.test")};
  }
  // The error of a request that must fail.
  static TransportError error_of(const TransportOptions& options, Milliseconds deadline = 20s) {
    const auto response = transport_with(options)->send(get(), deadline, {});
    EXPECT_FALSE(response);
    return response ? TransportError{} : response.error();
  }

  const Authority authority_{"private authority"};
};

TEST_F(TransportProxy, ReachesHttpsServerThroughTunnel) {
  HostileServer server(echo, tls());
  HostileServer proxy(proxy_to(server));
  const auto transport = transport_with(options(server, with_credentials(proxy.url())));
  for (int i = 0; i < 3; ++i) {
    const auto response = transport->send(get("/x"), 20s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, "/x");
  }
  ASSERT_THAT(proxy.received(), SizeIs(1)) << "the tunnel is kept";
  const std::string authority = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(proxy.received()[0].target, authority);
  EXPECT_THAT(proxy.received()[0].head,
              AllOf(HasSubstr("Host: " + authority + "\r\n"), HasSubstr(kCredentials), Not(HasSubstr("secret"))));
  EXPECT_THAT(server.received()[0].head, AllOf(HasSubstr("Bearer secret\r\n"), Not(HasSubstr("Proxy-Authorization"))));
}

TEST_F(TransportProxy, ReachesIpv6ServerThroughTunnel) {
  HostileServer server(echo, tls(Loopback::kIpv6));
  HostileServer proxy(proxy_to(server, Loopback::kIpv6), {.loopback = Loopback::kIpv6});
  const auto response = transport_with(options(server, with_credentials(proxy.url())))->send(get("/x"), 20s, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(proxy.received()[0].target, "[::1]:" + std::to_string(server.port()));
}

TEST_F(TransportProxy, StreamsThroughTunnel) {
  HostileServer server(
      [](auto& connection, const auto&) {
        connection.write(test::kChunkedHead);
        for (int i = 0; i < 100; ++i) connection.write(test::chunk(std::string(10000, 'x')));
        connection.write("0\r\n\r\n");
        return true;
      },
      tls());
  HostileServer proxy(proxy_to(server));
  TextSink sink;
  const auto response =
      transport_with(options(server, with_credentials(proxy.url())))->stream(get(), sink, {20s, 60s}, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(sink.text.size(), 1000000u);
}

TEST_F(TransportProxy, SendsAbsoluteUrlForHttpServer) {
  HostileServer server(echo);
  HostileServer proxy(proxy_to(server));
  TransportOptions plain = options(server, with_credentials(proxy.url()));
  plain.server += "/prefix";
  const auto transport = transport_with(plain);
  for (int i = 0; i < 2; ++i) {
    const auto response = transport->send(get("/x?y=z"), 20s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, "proxied " + server.url() + "/prefix/x?y=z");
  }
  const std::string host = "Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n";
  EXPECT_THAT(proxy.received()[0].head, AllOf(HasSubstr(kCredentials), HasSubstr(host)));
  EXPECT_THAT(server.received(), IsEmpty());
  EXPECT_EQ(proxy.connections(), 1);
}

TEST_F(TransportProxy, UsesTlsToTheProxy) {
  HostileServer server(echo, tls());
  HostileServer proxy(proxy_to(server), tls());
  const TransportOptions both = options(server, with_credentials(proxy.url()));
  const auto response = transport_with(both)->send(get("/x"), 20s, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "/x");

  const Authority stranger("stranger");
  proxy.present(stranger.issue("proxy", "IP:127.0.0.1"));
  const TransportError error = error_of(both);
  EXPECT_EQ(error.kind, TransportErrorKind::kTls);
  EXPECT_THAT(error.message, HasSubstr("the proxy's certificate is not accepted"));
}

TEST_F(TransportProxy, VerifiesServerCertificateBehindProxy) {
  HostileServer server(echo, tls());
  HostileServer proxy(proxy_to(server));
  TransportOptions named = options(server, with_credentials(proxy.url()));
  named.tls_server_name = "api.test";
  EXPECT_TRUE(transport_with(named)->send(get(), 20s, {}));
  named.tls_server_name = "other.test";
  const TransportError error = error_of(named);
  EXPECT_EQ(error.kind, TransportErrorKind::kTls);
  EXPECT_THAT(error.message, HasSubstr("the server's certificate is for another host name"));
}

TEST_F(TransportProxy, ErrorsNameTheProxyWithoutCredentials) {
  HostileServer server(echo, tls());
  HostileServer proxy(proxy_to(server));
  TransportError error = error_of(options(server, with_credentials(proxy.url(), "user:wrong")));
  EXPECT_EQ(error.kind, TransportErrorKind::kConnect);
  EXPECT_THAT(error.message, AllOf(HasSubstr(proxy.url()), HasSubstr("407 Proxy Authentication Required"),
                                   Not(HasSubstr("wrong")), Not(HasSubstr("\n"))));
  EXPECT_THAT(server.received(), IsEmpty());

  const auto unused = PortReservation::make(1);
  ASSERT_TRUE(unused) << unused.error().message;
  const std::string address = "127.0.0.1:" + std::to_string(unused->first());
  error = error_of(options(server, "http://user:wrong@" + address));
  EXPECT_EQ(error.kind, TransportErrorKind::kConnect);
  EXPECT_THAT(error.message, AllOf(HasSubstr("proxy http://" + address), Not(HasSubstr("wrong"))));
}

TEST_F(TransportProxy, RejectsInvalidProxy) {
  TransportOptions options;
  options.server = "https://host";
  options.proxy = "socks5://proxy:1080";
  const auto socks = create_transport(options);
  ASSERT_FALSE(socks);
  EXPECT_EQ(socks.error().code, ExitCode::kConfig);
  EXPECT_THAT(socks.error().message, HasSubstr("SOCKS"));
}

TEST_F(TransportProxy, ReportsConnectErrorForInvalidProxyResponse) {
  HostileServer server(echo, tls());
  for (const std::string reply :
       {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01 unexpected", ""}) {
    HostileServer proxy([&](auto& connection, const auto&) {
      connection.write(reply);
      return false;
    });
    const TransportError error = error_of(options(server, proxy.url()));
    EXPECT_EQ(error.kind, TransportErrorKind::kConnect) << error.message;
    EXPECT_THAT(server.received(), IsEmpty());
  }
}

TEST_F(TransportProxy, StalledProxyEndsAtDeadlineOrCancellation) {
  HostileServer server(echo, tls());
  HostileServer proxy([](auto& connection, const auto&) {
    connection.write("HTTP/1.1 200 Connec");
    connection.wait_for_close();
    return false;
  });
  const TransportOptions stalling = options(server, proxy.url());
  EXPECT_EQ(error_of(stalling, 300ms).kind, TransportErrorKind::kDeadline);

  const auto transport = transport_with(stalling);
  const size_t before = proxy.received().size();
  std::stop_source stop;
  auto response = std::async(std::launch::async, [&] { return transport->send(get(), 60s, stop.get_token()); });
  ASSERT_TRUE(becomes_true([&] { return proxy.received().size() > before; }));
  stop.request_stop();
  const auto cancelled = response.get();
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().kind, TransportErrorKind::kCancelled);
  EXPECT_TRUE(becomes_true([&] { return proxy.open() == 0; }));
}

// A request that is not idempotent must not be resent through a proxy either.
TEST_F(TransportProxy, DoesNotResendPostAfterBrokenTunnel) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        if (request.method == "POST") return false;
        connection.answer(200, "");
        return true;
      },
      tls());
  HostileServer proxy(proxy_to(server));
  const auto transport = transport_with(options(server, with_credentials(proxy.url())));
  ASSERT_TRUE(transport->send(get(), 20s, {}));
  const auto response = transport->send(create_request(pods(), "ns", "{}"), 20s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken);
  EXPECT_THAT(server.received(), SizeIs(2));
}

}  // namespace
}  // namespace oarlock::http
