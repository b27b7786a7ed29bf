// A real server on loopback, and clients that send exactly the bytes of a test.
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
using test::RawClient;
using testing::HasSubstr;
using testing::StartsWith;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(HttpServer, ServesExactPathsOnly) {
  const auto server = serve(
      {{"/healthz",
        {[](const std::string& query) { return HttpResponse{.body = "ok " + query}; }, HandlerKind::kImmediate}}});
  const int port = server->port();
  EXPECT_GT(port, 0);
  EXPECT_THAT(request(port, "GET /healthz?verbose"), HasSubstr("\r\n\r\nok verbose"));
  EXPECT_THAT(request(port, "GET /healthz/more"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(request(port, "GET /"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(request(port, "POST /healthz"), StartsWith("HTTP/1.1 405"));
  const std::string head = request(port, "HEAD /healthz?12");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST(HttpServer, PortInUseIsAnError) {
  const auto first = serve({});
  const auto second = HttpServer::start("127.0.0.1", first->port(), {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr(":" + std::to_string(first->port())));
}

TEST(HttpServer, UnusableCertificateIsAnError) {
  const auto server = HttpServer::start("127.0.0.1", 0, {}, {.certificate = "/nonexistent.pem"});
  ASSERT_FALSE(server);
  EXPECT_THAT(server.error().message, HasSubstr("/nonexistent.pem"));
}

TEST(HttpServer, AnyAddressServesIpv4AndIpv6) {
  auto server = HttpServer::start("::", 0, {{"/x", constant("here")}});
  ASSERT_TRUE(server) << server.error().message;
  EXPECT_THAT(request((*server)->port(), "GET /x"), HasSubstr("here"));
  const int six = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(static_cast<uint16_t>((*server)->port()));
  const bool machine_has_ipv6 = std::ifstream("/proc/net/if_inet6").peek() != EOF;
  EXPECT_EQ(connect(six, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, machine_has_ipv6);
  close(six);
}

TEST(HttpServer, StopsWithSlowClients) {
  auto server = serve({{"/large", constant(std::string(2 << 20, 'x'))}},
                      {.limits = {.request_time = 600s, .response_time = 600s, .close_time = 600s}});
  const RawClient silent(server->port());
  const RawClient partial(server->port());
  partial.send("GET /lar");
  const RawClient reader(server->port(), {.receive_buffer = 4096});
  reader.send(std::string("GET /large") + kHead);
  const auto began = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 60s) << "it waits for a client";
  EXPECT_TRUE(silent.is_closed_within());
  EXPECT_TRUE(partial.is_closed_within());
}

TEST(HttpServer, StopsAfterTheRunningHandler) {
  BlockingHandler slow;
  auto server = serve({{"/slow", slow.handler()}});
  const RawClient running(server->port());
  running.send(std::string("GET /slow") + kHead);
  slow.wait_for_calls(1);
  auto stopped = std::async(std::launch::async, [&] { server.reset(); });
  EXPECT_TRUE(running.is_closed_within()) << "the connection does not wait for its handler";
  EXPECT_EQ(stopped.wait_for(0s), std::future_status::timeout);
  slow.release();
  stopped.get();
}

TEST(HttpServer, ExceptionOfAHandlerIs500) {
  const HttpHandler broken = [](const std::string&) -> HttpResponse { throw std::runtime_error("broken"); };
  const auto server = serve({{"/worker", broken}, {"/immediate", {broken, HandlerKind::kImmediate}}});
  EXPECT_THAT(request(server->port(), "GET /worker"), StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(request(server->port(), "GET /immediate"), StartsWith("HTTP/1.1 500"));
}

// The request limits are tested one by one in request_head_test.
TEST(HttpServer, RefusesEndlessLineFieldsAndBody) {
  const auto server = serve({{"/x", constant("here")}});
  struct Row {
    const char* begin;
    std::string repeated;
    const char* status;
  };
  const std::string block(1 << 16, 'x');
  for (const Row& row : {Row{.begin = "GET /", .repeated = block, .status = "HTTP/1.1 414"},
                         Row{.begin = "GET /x HTTP/1.1\r\n", .repeated = "A: b\r\n", .status = "HTTP/1.1 431"},
                         Row{.begin = "GET /x HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n",
                             .repeated = block,
                             .status = "HTTP/1.1 413"}}) {
    const RawClient client(server->port());
    client.send(row.begin);
    // The server discards a little, so that the client can read the response, and closes then.
    const auto deadline = std::chrono::steady_clock::now() + 120s;
    while (client.send(row.repeated) && std::chrono::steady_clock::now() < deadline) continue;
    EXPECT_TRUE(client.is_closed_within(0s)) << row.status;

    const RawClient reader(server->port());
    reader.send(row.begin);
    for (int i = 0; i < 100; ++i) reader.try_send(row.repeated.substr(0, 100));
    EXPECT_THAT(reader.receive(), StartsWith(row.status));
  }
}

TEST(HttpServer, ClosesWhenTheRequestTakesTooLong) {
  const auto server = serve({{"/x", constant("here")}}, {.limits = {.request_time = 300ms}});
  const RawClient silent(server->port());
  const RawClient trickling(server->port());
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  while (trickling.try_send("G") && !trickling.is_closed() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(silent.is_closed_within());
}

TEST(HttpServer, ClosesAfterManySmallPieces) {
  constexpr size_t kBytes = 1 << 20;
  const auto server = serve({{"/x", constant("here")}},
                            {.limits = {.request_line_bytes = kBytes, .head_bytes = kBytes, .request_time = 600s}});
  const RawClient client(server->port());
  const int yes = 1;
  ASSERT_EQ(::setsockopt(client.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), 0);
  // Pauses, so that the server reads most of the bytes one by one; all of them would take more than 1000 s.
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  while (client.send("G") && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_TRUE(client.is_closed_within(0s));
}

TEST(HttpServer, ClosesWhenTheResponseIsNotRead) {
  const std::string body(8 << 20, 'x');
  const auto server = serve({{"/large", constant(body)}}, {.limits = {.response_time = 300ms}});
  const RawClient client(server->port(), {.receive_buffer = 4096});
  client.send(std::string("GET /large") + kHead);
  pollfd closed{.fd = client.fd(), .events = POLLRDHUP, .revents = 0};
  EXPECT_EQ(::poll(&closed, 1, 20000), 1);
  EXPECT_LT(client.receive().size(), body.size());
}

TEST(HttpServer, ClosesIfPeerDoesNot) {
  const auto server = serve({{"/x", constant("here")}}, {.limits = {.close_time = 100ms}});
  const RawClient client(server->port());
  client.send(std::string("GET /x") + kHead);
  EXPECT_THAT(client.receive(), HasSubstr("here"));
  // Bytes are discarded until the server closes the connection; then they cause a reset.
  const auto deadline = std::chrono::steady_clock::now() + 120s;
  while (client.try_send("x") && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST(HttpServer, ServesOneRequestPerConnection) {
  const auto server = serve({{"/x", constant("here")}});
  const RawClient client(server->port());
  std::string pipeline;
  for (int i = 0; i < 100; ++i) pipeline += std::string("GET /x") + kHead;
  client.send(pipeline);
  const std::string responses = client.receive();
  EXPECT_THAT(responses, StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(responses.find("HTTP/1.1", 1), std::string::npos);
}

TEST(HttpServer, RefusesGarbage) {
  const auto server = serve({{"/x", constant("here")}});
  unsigned state = 1;
  for (int i = 0; i < 200; ++i) {
    std::string bytes;
    for (int k = 0; k < 300; ++k) bytes += static_cast<char>((state = state * 1103515245 + 12345) >> 16);
    const RawClient client(server->port());
    client.send(bytes + "\r\n\r\n");
    EXPECT_THAT(client.receive(), StartsWith("HTTP/1.1 4"));
  }
}

TEST(Metrics, ExposesRegistryAndProcess) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter()
      .Name("oarlock_things_total")
      .Help("Things.")
      .Register(*registry)
      .Add({{"kind", "a"}})
      .Increment(3);
  const auto server = serve({{"/metrics", metrics_handler(registry)}});
  const std::string body = request(server->port(), "GET /metrics");
  EXPECT_THAT(body, HasSubstr("oarlock_things_total{kind=\"a\"} 3"));
  for (const char* name : {"process_cpu_seconds_total ", "process_resident_memory_bytes ",
                           "process_start_time_seconds ", "process_open_fds "}) {
    EXPECT_THAT(body, HasSubstr(std::string("\n") + name));
  }
}

}  // namespace
}  // namespace oarlock
