// A real server on loopback, asked over a plain socket.
#include "common/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "common/http/metrics.h"

namespace oarlock {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string request(int port, const std::string& line) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string out;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string text = line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    char buffer[4096];
    for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return out;
}

TEST(HttpServer, ServesExactPathsOnly) {
  auto server = HttpServer::start(
      "127.0.0.1", 0,
      {{"/healthz", [](const std::string& query) { return HttpResponse{200, "text/plain", "ok " + query}; }}});
  ASSERT_TRUE(server) << server.error().message;
  const int port = (*server)->port();
  EXPECT_GT(port, 0);
  EXPECT_THAT(request(port, "GET /healthz?verbose"), HasSubstr("\r\n\r\nok verbose"));
  EXPECT_THAT(request(port, "GET /healthz/more"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(request(port, "GET /"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(request(port, "POST /healthz"), StartsWith("HTTP/1.1 405"));
}

TEST(HttpServer, ATakenPortIsAClearError) {
  auto first = HttpServer::start("127.0.0.1", 0, {});
  ASSERT_TRUE(first);
  const auto second = HttpServer::start("127.0.0.1", (*first)->port(), {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr(":" + std::to_string((*first)->port())));
}

TEST(HttpServer, AllAddressesAreThoseOfIpv4AndIpv6) {
  auto server =
      HttpServer::start("::", 0, {{"/x", [](const std::string&) { return HttpResponse{200, "text/plain", "here"}; }}});
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

// A peer that says nothing holds the end up for the patience with one read, no longer.
TEST(HttpServer, EndsBesideASilentPeer) {
  auto server = HttpServer::start("127.0.0.1", 0, {});
  ASSERT_TRUE(server);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>((*server)->port()));
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  server->reset();
  close(fd);
}

TEST(HttpServer, AHandlerThatThrowsAnswers500) {
  auto server = HttpServer::start(
      "127.0.0.1", 0, {{"/x", [](const std::string&) -> HttpResponse { throw std::runtime_error("broken"); }}});
  ASSERT_TRUE(server);
  EXPECT_THAT(request((*server)->port(), "GET /x"), StartsWith("HTTP/1.1 500"));
}

TEST(Metrics, RegistryAndProcess) {
  auto registry = std::make_shared<prometheus::Registry>();
  prometheus::BuildCounter()
      .Name("oarlock_things_total")
      .Help("Things.")
      .Register(*registry)
      .Add({{"kind", "a"}})
      .Increment(3);
  auto server = HttpServer::start("127.0.0.1", 0, {{"/metrics", metrics_handler(registry)}});
  ASSERT_TRUE(server);
  const std::string body = request((*server)->port(), "GET /metrics");
  EXPECT_THAT(body, HasSubstr("oarlock_things_total{kind=\"a\"} 3"));
  for (const char* name : {"process_cpu_seconds_total ", "process_resident_memory_bytes ",
                           "process_start_time_seconds ", "process_open_fds "}) {
    EXPECT_THAT(body, HasSubstr(std::string("\n") + name));
  }
}

}  // namespace
}  // namespace oarlock
