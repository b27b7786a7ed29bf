// Behavior of every Transport with TLS: verification and presentation of certificates, their rotation at run time, and
// detection of truncated connections.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/auth/exec_plugin.h"
#include "tests/support/fake_clock.h"
#include "tests/support/hostile_server.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace kube;  // NOLINT
using namespace std::chrono_literals;
using test::Authority;
using test::chunk;
using test::get;
using test::HostileServer;
using test::Identity;
using test::kChunkedHead;
using test::TextSink;
using test::transport_with;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Loopback = HostileServer::Loopback;

const char kHere[] = "IP:127.0.0.1";

bool hello(HostileServer::Connection& connection, const HostileServer::Received& request) {
  connection.answer(200, request.client);
  return true;
}

class TransportTls : public ::testing::Test {
 protected:
  static TransportOptions trusting(const HostileServer& server, const Authority& authority) {
    TransportOptions options;
    options.server = server.url();
    options.ca.text = authority.certificate();
    return options;
  }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (directory_.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }
  // The error of a request that must fail.
  static TransportError error_of(const TransportOptions& options) {
    const auto response = transport_with(options)->send(get(), 20s, {});
    EXPECT_FALSE(response);
    return response ? TransportError{} : response.error();
  }

  const Authority authority_{"test authority"};
  const Authority other_{"another authority"};
  test::TemporaryDirectory directory_;
};

TEST_F(TransportTls, VerifiesIpv4AndIpv6Addresses) {
  for (const Loopback loopback : {Loopback::kIpv4, Loopback::kIpv6}) {
    const std::string address = loopback == Loopback::kIpv6 ? "IP:::1" : "IP:127.0.0.1";
    HostileServer server(hello, {.loopback = loopback, .identity = authority_.issue("server", address)});
    const auto response = transport_with(trusting(server, authority_))->send(get(), 20s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 200);

    for (const char* wrong : {"IP:::2,IP:127.0.0.2", "DNS:localhost", ""}) {
      server.present(authority_.issue("server", wrong));
      const size_t before = server.received().size();
      const TransportError error = error_of(trusting(server, authority_));
      EXPECT_EQ(error.kind, TransportErrorKind::kTls) << address << " of " << wrong;
      EXPECT_THAT(error.message, HasSubstr("another host name"));
      EXPECT_EQ(server.received().size(), before) << "nothing is sent to a stranger";
    }
    server.present(other_.issue("server", address));
    EXPECT_THAT(error_of(trusting(server, authority_)).message, HasSubstr("certificate is not accepted"));
  }
}

// The common name of a certificate is obsolete since RFC 2818, and an authority need not verify it.
TEST_F(TransportTls, IgnoresTheCommonName) {
  HostileServer server(hello, {.identity = authority_.issue("api.test")});
  TransportOptions options = trusting(server, authority_);
  options.tls_server_name = "api.test";
  const TransportError error = error_of(options);
  EXPECT_EQ(error.kind, TransportErrorKind::kTls);
  EXPECT_THAT(error.message, HasSubstr("the server's certificate is for another host name"));

  // The same holds for a certificate that also has an IP address but no DNS name.
  server.present(authority_.issue("api.test", kHere));
  EXPECT_EQ(error_of(options).kind, TransportErrorKind::kTls);
  server.present(authority_.issue("whatever", "DNS:api.test"));
  EXPECT_TRUE(transport_with(options)->send(get(), 20s, {}));
  EXPECT_THAT(server.received(), ::testing::SizeIs(1));

  server.present(authority_.issue("127.0.0.1", "DNS:127.0.0.1"));
  EXPECT_EQ(error_of(trusting(server, authority_)).kind, TransportErrorKind::kTls)
      << "an address is compared with addresses only";
}

TEST_F(TransportTls, RefusesNamesThatOpenSslWouldNotCompare) {
  HostileServer server(hello, {.identity = authority_.issue("other", "DNS:a.example")});
  TransportOptions options = trusting(server, authority_);
  for (const std::string& name : {std::string(".example"), std::string("zzz\0x", 5)}) {
    options.tls_server_name = name;
    EXPECT_EQ(error_of(options).kind, TransportErrorKind::kTls) << name;
  }
  options.tls_server_name = "a.example";
  EXPECT_TRUE(transport_with(options)->send(get(), 20s, {}));
}

TEST_F(TransportTls, ReloadsRotatedAuthority) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        connection.answer(200, "");
        return request.target != "/last";  // of its connection
      },
      {.identity = authority_.issue("server", kHere)});
  TransportOptions options = trusting(server, authority_);
  options.ca = {.text = "", .file = write("ca.crt", authority_.certificate())};
  const auto transport = transport_with(options);
  ASSERT_TRUE(transport->send(get("/last"), 20s, {}));

  server.present(other_.issue("server", kHere));
  const auto refused = transport->send(get("/last"), 20s, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, TransportErrorKind::kTls);
  write("ca.crt", authority_.certificate() + other_.certificate());  // the first step of a rotation: both authorities
  ASSERT_TRUE(transport->send(get("/last"), 20s, {}));
  write("ca.crt", other_.certificate());
  ASSERT_TRUE(transport->send(get("/last"), 20s, {}));
  server.present(authority_.issue("server", kHere));
  EXPECT_FALSE(transport->send(get("/last"), 20s, {})) << "the old authority is not trusted any more";
}

TEST_F(TransportTls, ReloadsRotatedClientCertificate) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        connection.answer(200, request.client);
        return false;
      },
      {.identity = authority_.issue("server", kHere), .client_authority = authority_.certificate()});
  TransportOptions options = trusting(server, authority_);
  const Identity first = authority_.issue("first");
  options.client_certificate.file = write("client.crt", first.certificate);
  options.client_key.file = write("client.key", first.key);
  const auto transport = transport_with(options);
  EXPECT_EQ(transport->send(get(), 20s, {})->body, "first");
  const Identity second = authority_.issue("second");
  write("client.crt", second.certificate);
  write("client.key", second.key);
  EXPECT_EQ(transport->send(get(), 20s, {})->body, "second");
}

TEST_F(TransportTls, FailsIfTheServerRejectsTheClient) {
  HostileServer server(hello,
                       {.identity = authority_.issue("server", kHere), .client_authority = authority_.certificate()});
  TransportOptions options = trusting(server, authority_);
  const Identity stranger = other_.issue("stranger");
  options.client_certificate.text = stranger.certificate;
  options.client_key.text = stranger.key;
  const auto response = transport_with(options)->send(get(), 20s, {});
  EXPECT_FALSE(response);
  EXPECT_THAT(server.received(), IsEmpty());
}

// A credential plugin returns another certificate after the server has rejected the first. The server keeps the
// connections of the first certificate open, but they must not be reused.
TEST_F(TransportTls, PresentsTheCurrentCertificateOfAPlugin) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        connection.answer(request.target == "/refuse" ? 401 : 200, request.client);
        return true;
      },
      {.identity = authority_.issue("server", kHere), .client_authority = authority_.certificate()});
  const auto print = [&](const Identity& identity) {
    const nlohmann::json credential = {
        {"kind", "ExecCredential"},
        {"apiVersion", "client.authentication.k8s.io/v1"},
        {"status", {{"clientCertificateData", identity.certificate}, {"clientKeyData", identity.key}}}};
    write("credential", credential.dump());
  };
  print(authority_.issue("first"));
  ExecConfig config;
  config.command = "cat";
  config.arguments = {(directory_.path() / "credential").string()};
  config.api_version = "client.authentication.k8s.io/v1";
  const auto plugin = std::make_shared<ExecPlugin>(config, std::make_shared<test::FakeClock>());
  TransportOptions options = trusting(server, authority_);
  options.token = plugin;
  options.certificate = plugin;
  const auto transport = transport_with(options);
  EXPECT_EQ(transport->send(get(), 20s, {})->body, "first");
  print(authority_.issue("second"));
  EXPECT_EQ(transport->send(get(), 20s, {})->body, "first") << "it is good until it is refused";
  EXPECT_EQ(transport->send(get("/refuse"), 20s, {})->status, 401);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(transport->send(get(), 20s, {})->body, "second");
  for (const auto& request : server.received()) EXPECT_THAT(request.head, ::testing::Not(HasSubstr("Authorization")));
}

// The connection is truncated without close_notify, and without a TCP reset, which would also indicate it.
class TruncatedTls : public TransportTls, public ::testing::WithParamInterface<std::string> {};

TEST_P(TruncatedTls, IsBrokenAndTheNextRequestSucceeds) {
  HostileServer server(
      [&](auto& connection, const auto& request) {
        if (request.target == "/whole") {
          connection.answer(200, "whole");
          return true;
        }
        connection.write(GetParam());
        connection.truncate();
        return false;
      },
      {.identity = authority_.issue("server", kHere)});
  const auto transport = transport_with(trusting(server, authority_));
  for (const char* method : {"GET", "POST"}) {
    const auto cut = transport->send({method, "/cut", method == std::string("GET") ? "" : "{}", ""}, 20s, {});
    ASSERT_FALSE(cut) << cut->body;
    EXPECT_EQ(cut.error().kind, TransportErrorKind::kBroken) << cut.error().message;
    const auto whole = transport->send(get("/whole"), 20s, {});
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(whole->body, "whole");
  }
  TextSink sink;
  const auto stream = transport->stream(get("/cut"), sink, {20s, 20s}, {});
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().kind, TransportErrorKind::kBroken) << stream.error().message;
  size_t posts = 0;
  for (const auto& request : server.received()) posts += request.method == "POST" ? 1 : 0;
  EXPECT_EQ(posts, 1u) << "it was sent twice";
}

INSTANTIATE_TEST_SUITE_P(All, TruncatedTls,
                         ::testing::Values("", "HTTP/1.1 200 OK\r\nContent-Le",
                                           "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
                                           "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf of how much?",
                                           std::string(kChunkedHead) + "a\r\nhalf",
                                           std::string(kChunkedHead) + chunk("a chunk and no end")));

}  // namespace
}  // namespace oarlock::http
