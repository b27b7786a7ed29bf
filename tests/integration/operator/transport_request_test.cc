// Basic behavior of every Transport: requests, responses, connection reuse and concurrency. Each case fails with a
// well-known client library.
#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "http/client/credentials.h"
#include "kube/client/client.h"
#include "kube/client/request.h"
#include "tests/support/hostile_server.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace kube;  // NOLINT
using namespace std::chrono_literals;
using test::becomes_true;
using test::get;
using test::header;
using test::HostileServer;
using test::TextSink;
using test::transport_to;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Transport, SendsRequestAndReturnsResponse) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(429, "slow down", "Retry-After: 7\r\n");
    return true;
  });
  auto transport = transport_to(server.url(), std::make_shared<ConstantToken>("secret"));
  const auto response = transport->send(create_request(pods(), "ns", R"({"a":1})"), 5s, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 429);
  EXPECT_EQ(response->body, "slow down");
  EXPECT_EQ(response->retry_after, 7s);
  ASSERT_THAT(server.received(), SizeIs(1));
  const auto request = server.received()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/api/v1/namespaces/ns/pods");
  EXPECT_EQ(request.body, R"({"a":1})");
  EXPECT_EQ(header(request.head, "Content-Type"), "application/json");
  EXPECT_EQ(header(request.head, "Authorization"), "Bearer secret");
  EXPECT_EQ(header(request.head, "User-Agent"), "oarlock-test/1");
  EXPECT_EQ(header(request.head, "Accept"), "application/json");
}

TEST(Transport, ClosesExpiredIdleConnections) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "ok");
    return true;
  });
  TransportOptions options;
  options.server = server.url();
  options.max_idle_time = 0ms;
  const auto transport = test::transport_with(std::move(options));
  ASSERT_TRUE(transport->send(get(), 5s, {}));
  size_t closed = 0;
  EXPECT_TRUE(becomes_true([&] { return (closed += transport->close_idle_connections()) == 1; }));
  EXPECT_TRUE(becomes_true([&] { return server.open() == 0; }));
}

TEST(Transport, RequestsMetadataOnly) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "{}");
    return true;
  });
  const Client client(transport_to(server.url()), 5s, ResponseContent::kMetadata);
  ASSERT_TRUE(client.create(pods(), "ns", "{}", {}));
  EXPECT_EQ(header(server.received().at(0).head, "Accept"),
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
}

TEST(Transport, AcceptsIpv6Literal) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        connection.answer(200, request.target);
        return true;
      },
      {.loopback = HostileServer::Loopback::kIpv6});
  EXPECT_THAT(server.url(), HasSubstr("http://[::1]:"));
  auto transport = transport_to(server.url());
  const auto response = transport->send(get("/api"), 5s, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "/api");
}

TEST(Transport, ReusesTheConnection) {
  HostileServer server([](auto& connection, const auto& request) {
    connection.answer(200, request.target + request.body);
    return true;
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(transport->send(get("/a?n=" + std::to_string(i)), 5s, {})->body, "/a?n=" + std::to_string(i));
    EXPECT_EQ(transport->send({"PATCH", "/b", "body", "text/plain"}, 5s, {})->body, "/bbody");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(Transport, KeepsThePathPrefixOfTheServer) {
  HostileServer server([](auto& connection, const auto& request) {
    connection.answer(200, request.target);
    return true;
  });
  EXPECT_EQ(transport_to(server.url() + "/k8s/clusters/c1")->send(get("/api/v1/pods?limit=1&x=a%2Fb"), 5s, {})->body,
            "/k8s/clusters/c1/api/v1/pods?limit=1&x=a%2Fb");
}

TEST(Transport, DoesNotFollowRedirects) {
  HostileServer thief([](auto& connection, const auto&) {
    connection.answer(200, "got it");
    return true;
  });
  HostileServer server([&](auto& connection, const auto&) {
    connection.answer(307, "", "Location: " + thief.url() + "/steal\r\n");
    return true;
  });
  auto transport = transport_to(server.url(), std::make_shared<ConstantToken>("secret"));
  EXPECT_EQ(transport->send(get(), 5s, {})->status, 307);
  EXPECT_EQ(transport->send(create_request(pods(), "ns", "{}"), 5s, {})->status, 307);
  TextSink sink;
  EXPECT_EQ(transport->stream(get(), sink, {5s, 5s}, {})->status, 307);
  EXPECT_THAT(thief.received(), IsEmpty());
}

TEST(Transport, SkipsInterimResponses) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    connection.answer(201, "made");
    return true;
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 2; ++i) {
    const auto response = transport->send(create_request(pods(), "ns", "{}"), 5s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->status, 201);
    EXPECT_EQ(response->body, "made");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(Transport, UnsolicitedDataIsNotTheNextResponse) {
  HostileServer server([](auto& connection, const auto& request) {
    if (request.target == "/more") {
      connection.write(
          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
      return true;
    }
    connection.answer(200, "good");
    return true;
  });
  auto transport = transport_to(server.url());
  EXPECT_EQ(transport->send(get("/more"), 5s, {})->body, "ok");
  EXPECT_EQ(transport->send(get("/next"), 5s, {})->body, "good");
  EXPECT_EQ(server.connections(), 2);
}

TEST(Transport, RejectsHeaderInjection) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "");
    return true;
  });
  auto transport = transport_to(server.url(), std::make_shared<ConstantToken>("secret\r\nX-Remote-User: admin"));
  const auto forged = transport->send(get(), 5s, {});
  ASSERT_FALSE(forged);
  EXPECT_EQ(forged.error().kind, TransportErrorKind::kRefused);
  for (const char* target : {"/a b", "/a\r\nX: y", "a", ""}) {
    const auto response = transport_to(server.url())->send(get(target), 5s, {});
    ASSERT_FALSE(response) << target;
    EXPECT_EQ(response.error().kind, TransportErrorKind::kRefused);
  }
  EXPECT_THAT(server.received(), IsEmpty());
}

TEST(Transport, InvalidatesTheTokenOn401) {
  class Counting final : public TokenSource {
   public:
    Result<std::string> token() override { return "t" + std::to_string(drops.load()); }
    void invalidate() override { ++drops; }
    std::atomic<int> drops = 0;
  };
  HostileServer server([](auto& connection, const auto& request) {
    connection.answer(request.head.find("Bearer t0\r") != std::string::npos ? 401 : 200, "");
    return true;
  });
  auto token = std::make_shared<Counting>();
  auto transport = transport_to(server.url(), token);
  EXPECT_EQ(transport->send(get(), 5s, {})->status, 401);
  EXPECT_EQ(transport->send(get(), 5s, {})->status, 200);
  EXPECT_EQ(token->drops, 1);
}

// A credential plugin that hangs must not delay the end of the process.
// Gateways repeat the head of a request in their errors, and the text of an error ends up in logs.
TEST(Transport, MasksCredentialsThatTheServerRepeats) {
  HostileServer server([](auto& connection, const auto& request) {
    const std::string authorization = header(request.head, "Authorization");
    connection.answer(request.target == "/good" ? 200 : 403, "denied for " + authorization + ", that is " +
                                                                 authorization.substr(authorization.find(' ') + 1) +
                                                                 " or alice:correct/horse or correct\\/horse");
    return true;
  });
  TransportOptions options;
  options.server = server.url();
  options.token = std::make_shared<ConstantToken>("SECRET-token.1");
  const auto bearer = test::transport_with(options);
  EXPECT_THAT(bearer->send(get(), 20s, {})->body, StartsWith("denied for Bearer ***, that is *** or alice"));
  TextSink sink;
  EXPECT_THAT(bearer->stream(get(), sink, {20s, 20s}, {})->body, StartsWith("denied for Bearer ***, that is *** or"));
  EXPECT_THAT(bearer->send(get("/good"), 20s, {})->body, HasSubstr("SECRET")) << "data is not changed";
  EXPECT_EQ(bearer->mask_credentials("no SECRET-token.1 here"), "no *** here");

  options.token_scheme = "Basic";
  options.token = std::make_shared<ConstantToken>(base64_encode("alice:correct/horse"));
  EXPECT_EQ(test::transport_with(options)->send(get(), 20s, {})->body,
            "denied for Basic ***, that is *** or *** or ***");

  // The token is a letter of every word, and a server with an http address gets the credentials of the proxy too.
  options.token_scheme = "Bearer";
  options.token = std::make_shared<ConstantToken>("e");
  options.proxy = "http://bob:pass-word@127.0.0.1:" + std::to_string(server.port());
  const auto proxied = test::transport_with(options);
  EXPECT_THAT(proxied->send(get(), 20s, {})->body, StartsWith("denied for Bearer ***, that is e or"));
  EXPECT_EQ(proxied->mask_credentials("for bob:pass-word, pass-word"), "for ***, ***");
}

TEST(Transport, CancellationEndsTheWaitForCredentials) {
  class Waiting final : public TokenSource {
   public:
    Result<void> prepare(std::chrono::milliseconds limit, const std::stop_token& cancel) override {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any never;
      is_waiting = true;
      never.wait_for(lock, cancel, limit, [] { return false; });
      return fail(ExitCode::kConfig, "no token");
    }
    Result<std::string> token() override { return fail(ExitCode::kConfig, "no token"); }
    void invalidate() override {}
    std::atomic<bool> is_waiting = false;
  };
  HostileServer server([](auto&, const auto&) { return false; });
  const auto token = std::make_shared<Waiting>();
  auto transport = transport_to(server.url(), token);
  std::stop_source stop;
  const std::jthread cancel([&] {
    becomes_true([&] { return token->is_waiting.load(); });
    stop.request_stop();
  });
  const auto response = transport->send(get(), 300s, stop.get_token());
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kCancelled);
  const auto late = transport->send(get(), 20ms, {});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().kind, TransportErrorKind::kRefused);
  EXPECT_THAT(server.received(), IsEmpty());
}

TEST(Transport, ServesManyThreadsDespiteFailures) {
  std::atomic<int> count = 0;
  HostileServer server([&](auto& connection, const auto& request) {
    if (++count % 7 == 0) return false;
    connection.answer(200, request.body);
    return true;
  });
  auto transport = transport_to(server.url());
  std::atomic<int> good = 0;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 50; ++i) {
          const std::string body = std::to_string(t) + "-" + std::to_string(i);
          const auto response = transport->send({"POST", "/", body, "text/plain"}, 20s, {});
          if (!response) continue;
          ++(response->body == body ? good : wrong);
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(good, 200);
  std::set<std::string> bodies;
  for (const auto& request : server.received())
    EXPECT_TRUE(bodies.insert(request.body).second) << request.body << " was sent twice";
}

TEST(Transport, RejectsInvalidOptionsWithTheirLocation) {
  const auto error_of = [](const TransportOptions& options) {
    const auto transport = create_transport(options);
    EXPECT_FALSE(transport);
    return transport ? Error{} : transport.error();
  };
  TransportOptions options;
  for (const char* server : {"", "host:6443", "ftp://host", "https://", "https://ho st"}) {
    options.server = server;
    const Error error = error_of(options);
    EXPECT_EQ(error.code, ExitCode::kConfig) << server;
    EXPECT_THAT(error.message, HasSubstr(std::string("'") + server + "'"));
  }
  options.server = "https://host";
  options.ca.text = "no certificate";
  EXPECT_THAT(error_of(options).message, HasSubstr("no PEM certificate"));
  options.ca = {.text = "", .file = "/no/such/ca.crt"};
  EXPECT_EQ(error_of(options).code, ExitCode::kNoInput);
  options.ca = {};
  options.client_key.text = "x";
  EXPECT_THAT(error_of(options).message, HasSubstr("must be given together"));
}

}  // namespace
}  // namespace oarlock::http
