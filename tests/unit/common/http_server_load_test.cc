// The HTTP server under load: too many connections, slow readers, expensive handlers, no descriptors.
#include "http/server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <prometheus/counter.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "http/metrics.h"
#include "tests/unit/common/http_server_fixture.h"

namespace oarlock {
namespace {

using namespace std::chrono_literals;
using test::raw_get;
using test::RawClient;
using testing::HasSubstr;
using testing::StartsWith;

TEST(HttpServer, BlockedHandlersDoNotDelayLiveness) {
  BlockingHandler slow;
  const auto server =
      serve({{"/slow", slow.handler()}, {"/healthz", {constant("ok"), HandlerKind::kImmediate}}},
            {.refuse = [](const std::string& path, const std::string&, bool) -> std::optional<HttpResponse> {
              if (path == "/healthz") return HttpResponse{.status = 401, .body = ""};
              return std::nullopt;
            }});
  std::vector<RawClient> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.emplace_back(server->port());
    waiting.back().send(std::string("GET /slow") + kHead);
  }
  slow.wait_for_calls(1);
  EXPECT_THAT(request(server->port(), "GET /healthz"), HasSubstr("\r\n\r\nok"));
  slow.release();
  for (const RawClient& client : waiting) EXPECT_THAT(client.receive(), HasSubstr("late"));
}

TEST(HttpServer, RejectsTooManyReviewsWith503) {
  BlockingHandler slow;
  const auto server =
      serve({{"/x", constant("here")}},
            {.refuse = [handler = slow.handler()](const std::string&, const std::string&, bool) { return handler(""); },
             .limits = {.reviews = 3, .reviews_per_peer = 2}});
  const RawClient first(server->port());
  const RawClient second(server->port());
  first.send(std::string("GET /x") + kHead);
  second.send(std::string("GET /x") + kHead);
  slow.wait_for_calls(2);
  const std::string refused = request(server->port(), "GET /x");
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("\r\nRetry-After: 1\r\n"));
  const RawClient other(server->port(), {.from = "127.0.0.2"});
  other.send(std::string("GET /x") + kHead);
  slow.wait_for_calls(3);
  slow.release();
  EXPECT_THAT(first.receive(), HasSubstr("late"));
  EXPECT_THAT(second.receive(), HasSubstr("late"));
  EXPECT_THAT(other.receive(), HasSubstr("late"));
  EXPECT_THAT(request(server->port(), "GET /x"), HasSubstr("late"));
}

TEST(HttpServer, OneCallServesAllWaitingRequests) {
  BlockingHandler slow;
  std::atomic<int> calls = 0;
  const auto server = serve({{"/x", [&](const std::string&) {
                                ++calls;
                                return slow.handler()("");
                              }}});
  const RawClient first(server->port());
  first.send(std::string("GET /x") + kHead);
  slow.wait_for_calls(1);
  std::vector<RawClient> later;
  for (int i = 0; i < 20; ++i) {
    later.emplace_back(server->port());
    later.back().send(std::string("GET /x?") + std::to_string(i) + kHead);
  }
  // The requests have been read when one that came after them is answered.
  EXPECT_THAT(request(server->port(), "GET /nothing"), StartsWith("HTTP/1.1 404"));
  slow.release();
  for (const RawClient& client : later) EXPECT_THAT(client.receive(), HasSubstr("late"));
  EXPECT_THAT(first.receive(), HasSubstr("late"));
  EXPECT_EQ(calls, 2) << "a response must not be older than its request";
}

TEST(HttpServer, RefusalReplacesTheResponse) {
  const auto server =
      serve({{"/metrics", constant("secret")}},
            {.refuse = [](const std::string& path, const std::string& token, bool) -> std::optional<HttpResponse> {
              if (path == "/metrics" && token == "Bearer x") return std::nullopt;
              return HttpResponse{.status = 401, .body = "token needed"};
            }});
  EXPECT_THAT(request(server->port(), "GET /metrics"), StartsWith("HTTP/1.1 401"));
  const RawClient client(server->port());
  client.send("GET /metrics HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n");
  EXPECT_THAT(client.receive(), HasSubstr("secret"));
}

// The oldest incomplete request of the peer with the most connections yields to a new connection.
TEST(HttpServer, NewConnectionReplacesIdleOne) {
  const auto server = serve({{"/x", {constant("here"), HandlerKind::kImmediate}}},
                            {.limits = {.connections = 8, .connections_per_peer = 6}});
  const RawClient other(server->port(), {.from = "127.0.0.3"});
  std::vector<RawClient> idle;
  for (int i = 0; i < 6; ++i) idle.emplace_back(server->port(), RawClient::Options{.from = "127.0.0.2"});
  EXPECT_FALSE(idle.front().is_closed());
  idle.emplace_back(server->port(), RawClient::Options{.from = "127.0.0.2"});  // its peer's seventh
  EXPECT_TRUE(idle[0].is_closed_within());
  EXPECT_FALSE(idle[1].is_closed());
  EXPECT_THAT(request(server->port(), "GET /x"), HasSubstr("here"));  // the eighth
  const RawClient eighth(server->port());
  const RawClient ninth(server->port());
  EXPECT_TRUE(idle[1].is_closed_within());
  EXPECT_FALSE(idle[2].is_closed());
  EXPECT_FALSE(other.is_closed());
}

TEST(HttpServer, ReviewReceivesWhetherTheAddressWasAuthorized) {
  const auto server =
      serve({{"/x", constant("here")}}, {.refuse = [](const std::string&, const std::string& token,
                                                      bool is_known_address) -> std::optional<HttpResponse> {
              if (token == "Bearer x") return std::nullopt;
              return HttpResponse{.status = 401, .body = is_known_address ? "known" : "new"};
            }});
  const auto response = [&](int address, const std::string& token) {
    const RawClient client(server->port(), {.from = fmt::format("127.0.2.{}", address)});
    client.send("GET /x HTTP/1.1\r\nAuthorization: Bearer " + token + "\r\n\r\n");
    return client.receive();
  };
  EXPECT_THAT(response(1, "y"), HasSubstr("new"));
  EXPECT_THAT(response(1, "x"), HasSubstr("here"));
  EXPECT_THAT(response(1, "y"), HasSubstr("known"));
  EXPECT_THAT(response(2, "y"), HasSubstr("new"));
}

// After an authorized request, connections of that address are replaced last.
TEST(HttpServer, AuthorizedAddressKeepsItsConnection) {
  const auto server =
      serve({{"/x", constant("here")}},
            {.refuse = [](const std::string&, const std::string& token, bool) -> std::optional<HttpResponse> {
               if (token == "Bearer x") return std::nullopt;
               return HttpResponse{.status = 401, .body = "token needed"};
             },
             .limits = {.request_time = 600s, .connections = 4}});
  const auto connect = [&](int address, const std::string& bytes) {
    RawClient client(server->port(), {.from = fmt::format("127.0.2.{}", address)});
    client.send(bytes);
    return client;
  };
  EXPECT_THAT(connect(1, "GET /x HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n").receive(), HasSubstr("here"));
  EXPECT_THAT(connect(2, "GET /x HTTP/1.1\r\nAuthorization: Bearer y\r\n\r\n").receive(), StartsWith("HTTP/1.1 401"));
  const RawClient authorized = connect(1, "GET");
  const RawClient refused = connect(2, "GET");
  std::vector<RawClient> others;
  for (int i = 0; i < 20; ++i) others.push_back(connect(10 + i, "GET"));
  EXPECT_TRUE(refused.is_closed_within());
  EXPECT_TRUE(others[15].is_closed_within());
  EXPECT_FALSE(authorized.is_closed());
}

TEST(HttpServer, LivenessIsServedAmongThousandsOfConnections) {
  const auto server = serve({{"/healthz", {constant("ok"), HandlerKind::kImmediate}}});
  std::vector<RawClient> idle;
  for (int i = 0; i < 3000; ++i) {
    const std::string from = "127.0.1." + std::to_string(1 + i % 200);
    if (i < 500) {
      idle.emplace_back(server->port(), RawClient::Options{.from = from});
      idle.back().send("GET");
    } else {  // a client that opens one as soon as it loses one
      RawClient next(server->port(), RawClient::Options{.from = from});
      next.send("GET");
      std::swap(idle[static_cast<size_t>(i % 500)], next);
    }
    if (i % 100 == 0) {
      EXPECT_THAT(raw_get(server->port(), "/healthz"), HasSubstr("\r\n\r\nok")) << i;
    }
  }
}

TEST(HttpServer, ReadersOfOldBodiesYieldToNewOnes) {
  const std::string body(8 << 20, 'x');
  const auto server = serve({{"/large", constant(body)}},
                            {.limits = {.response_bytes = 20 << 20, .response_period = std::chrono::milliseconds(10)}});
  const RawClient::Options slow{.from = "127.0.0.1", .receive_buffer = 4096};
  std::vector<RawClient> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back(server->port(), slow);
    readers.back().send(std::string("GET /large") + kHead);
    pollfd begun{.fd = readers.back().fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&begun, 1, 20000), 1);
    EXPECT_GT(raw_get(server->port(), "/large").size(), body.size());
  }
  EXPECT_TRUE(readers.front().is_closed_within());
  EXPECT_FALSE(readers.back().is_reset());
}

// Requests a large body from an address, and reads nothing of the response once it has begun.
RawClient request_large(int port, const std::string& from) {
  RawClient client(port, {.from = from, .receive_buffer = 4096});
  client.send(std::string("GET /large") + kHead);
  pollfd begun{.fd = client.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&begun, 1, 20000), 1);
  return client;
}

// A reader of an old body, from an address with one connection, keeps it although another address requests body after
// body and does not read them.
TEST(HttpServer, ReadersOfTheHeaviestPeerYieldFirst) {
  const std::string body(8 << 20, 'x');
  const auto server = serve({{"/large", constant(body)}},
                            {.limits = {.response_time = 600s, .response_bytes = 20 << 20, .response_period = 10ms}});
  const RawClient client = request_large(server->port(), "127.0.0.2");
  std::vector<RawClient> attackers;
  for (int i = 0; i < 8; ++i) attackers.push_back(request_large(server->port(), "127.0.0.3"));
  EXPECT_TRUE(attackers.front().is_closed_within());
  EXPECT_GT(client.receive().size(), body.size());
}

// A slow reader keeps its old body although other addresses, of which none has more connections, request body after
// body and do not read them.
TEST(HttpServer, ReadersWithoutProgressYieldFirst) {
  const std::string body(8 << 20, 'x');
  const auto server = serve({{"/large", constant(body)}},
                            {.limits = {.response_time = 600s, .response_bytes = 20 << 20, .response_period = 10ms}});
  const RawClient client = request_large(server->port(), "127.0.0.2");
  std::string received;
  std::vector<RawClient> attackers;
  for (int i = 0; i < 6; ++i) {
    attackers.push_back(request_large(server->port(), fmt::format("127.0.0.{}", 3 + i)));
    // More than the kernel buffers, so the server writes meanwhile.
    std::string piece(1 << 20, ' ');
    ASSERT_EQ(::recv(client.fd(), piece.data(), piece.size(), MSG_WAITALL), static_cast<ssize_t>(piece.size()));
    received += piece;
  }
  EXPECT_TRUE(attackers.front().is_closed_within());
  received += client.receive();
  EXPECT_GT(received.size(), body.size());
}

// A client that repeats a request without pause; the response is small, or not sent at all.
TEST(HttpServer, CallsOfASharedHandlerAreSpacedOut) {
  constexpr auto kPeriod = 100ms;
  for (const char* method : {"GET", "HEAD"}) {
    std::atomic<int> calls = 0;
    const auto server = serve({{"/x",
                                [&](const std::string&) {
                                  ++calls;
                                  return HttpResponse{.body = "here"};
                                }}},
                              {.limits = {.response_period = kPeriod}});
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < 4; ++i)
      EXPECT_THAT(request(server->port(), std::string(method) + " /x"), StartsWith("HTTP/1.1 200"));
    EXPECT_EQ(calls, 4);
    EXPECT_GE(std::chrono::steady_clock::now() - began, 3 * kPeriod) << method;
  }
}

TEST(HttpServer, RequestsOfAPeriodShareOneCall) {
  std::atomic<int> calls = 0;
  const auto server = serve({{"/x",
                              [&](const std::string&) {
                                ++calls;
                                return HttpResponse{.body = "here"};
                              }}},
                            {.limits = {.response_period = 1s}});
  EXPECT_THAT(request(server->port(), "GET /x"), HasSubstr("here"));
  const auto began = std::chrono::steady_clock::now();
  std::vector<RawClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.emplace_back(server->port());
    clients.back().send(std::string("GET /x") + kHead);
  }
  for (const RawClient& client : clients) EXPECT_THAT(client.receive(), HasSubstr("here"));
  EXPECT_LE(calls - 1, 1 + (std::chrono::steady_clock::now() - began) / 1s);
}

TEST(HttpServer, IoThreadHasLowestPriority) {
  const auto nice_value = [](const std::string&) {
    return HttpResponse{.body = fmt::format("nice {}", ::getpriority(PRIO_PROCESS, 0))};
  };
  const auto server = serve({{"/x", {nice_value, HandlerKind::kImmediate}}}, {.limits = {.has_lowest_priority = true}});
  EXPECT_THAT(request(server->port(), "GET /x"), testing::EndsWith("nice 19"));
}

// accept(2) fails while the process has no descriptors left.
TEST(HttpServer, SurvivesExhaustedDescriptors) {
  const auto server = serve({{"/x", {constant("here"), HandlerKind::kImmediate}}},
                            {.limits = {.request_time = 60s, .close_time = 60s}});
  const RawClient idle(server->port());
  const RawClient served(server->port());  // after which the idle connection is accepted
  served.send(std::string("GET /x") + kHead);
  EXPECT_THAT(served.receive(), HasSubstr("here"));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  // The client's descriptor is the last one that the process may open.
  std::string response;
  {
    const rlimit few{.rlim_cur = 100, .rlim_max = before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::vector<int> spare;
    for (int fd = 0; (fd = ::dup(0)) >= 0;) spare.push_back(fd);
    ::close(spare.back());
    spare.pop_back();
    const RawClient client(server->port());
    client.send(std::string("GET /x") + kHead);
    const double cpu = cpu_seconds();
    response = client.receive();  // once the idle connection has been closed in its favor
    EXPECT_LT(cpu_seconds() - cpu, 0.2);
    for (const int fd : spare) ::close(fd);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(response, HasSubstr("here"));
  EXPECT_TRUE(idle.is_closed_within());
}

}  // namespace
}  // namespace oarlock
