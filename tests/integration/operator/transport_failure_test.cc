// Behavior of every Transport with servers that are unreachable, stall, close early or send invalid data: it returns
// the right kind of error in time, resends nothing, and the next call succeeds.
#include <gmock/gmock.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "common/port_reservation.h"
#include "kube/client/request.h"
#include "tests/support/hostile_server.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace kube;  // NOLINT
using namespace std::chrono_literals;
using test::becomes_true;
using test::chunk;
using test::get;
using test::HostileServer;
using test::kChunkedHead;
using test::TextSink;
using test::transport_to;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using SteadyClock = std::chrono::steady_clock;

// The server acts on the second request of a kept connection, and then closes the connection without a response. A
// client that resends the request would create a duplicate.
class CommitThenDrop : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(CommitThenDrop, FailsWithoutResendingTheRequest) {
  const auto [method, by_reset] = GetParam();
  HostileServer server([&](auto& connection, const auto& request) {
    if (request.target != "/write") {
      connection.answer(200, "warm");
      return true;
    }
    if (by_reset) connection.reset();
    return false;
  });
  auto transport = transport_to(server.url());
  for (const std::string body : {"{\"some\":\"body\"}", ""}) {
    ASSERT_EQ(transport->send(get("/warm"), 5s, {})->body, "warm");
    const size_t before = server.received().size();
    const auto response = transport->send({method, "/write", body, "application/json"}, 5s, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken) << response.error().message;
    // The next call succeeds: no broken connection is left in the pool.
    ASSERT_EQ(transport->send(get("/warm"), 5s, {})->body, "warm");
    EXPECT_EQ(server.received().size(), before + 2) << method << " was sent more than once";
  }
}

INSTANTIATE_TEST_SUITE_P(All, CommitThenDrop,
                         ::testing::Combine(::testing::Values("POST", "PUT", "PATCH", "DELETE"), ::testing::Bool()));

TEST(Transport, RetriesOnlyGetOnAClosedIdleConnection) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "once");
    return false;  // closes without "Connection: close"
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 5; ++i) {
    const auto response = transport->send(get(), 5s, {});
    ASSERT_TRUE(response) << response.error().message;
    ASSERT_TRUE(becomes_true([&] { return server.open() == 0; }));
  }
}

TEST(Transport, ReportsConnectErrorWithoutListener) {
  const auto unused = PortReservation::make(1);
  ASSERT_TRUE(unused) << unused.error().message;
  const std::string address = "127.0.0.1:" + std::to_string(unused->first());
  auto transport = transport_to("http://" + address);
  const auto response = transport->send(create_request(pods(), "ns", "{}"), 5s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kConnect);
  EXPECT_THAT(response.error().message, HasSubstr(address));
  EXPECT_THAT(response.error().message, Not(HasSubstr("\n")));
}

TEST(Transport, ReportsConnectErrorForUnknownHost) {
  const auto response = transport_to("http://no-such-host.invalid")->send(get(), 30s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kConnect);
  EXPECT_THAT(response.error().message, HasSubstr("cannot be resolved"));
}

TEST(Transport, FailsIfTheServerDoesNotUseTls) {
  // A TLS ClientHello is not an HTTP request, so this server never responds to it.
  HostileServer server([](auto&, const auto&) { return false; });
  auto transport = transport_to("https://127.0.0.1:" + std::to_string(server.port()));
  const auto response = transport->send(get(), 300ms, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline);
  EXPECT_THAT(server.received(), IsEmpty());
}

enum class Stall { kNothing, kHalfHead, kHalfBody, kDrip };
class StallTest : public ::testing::TestWithParam<Stall> {
 protected:
  StallTest()
      : server_([](auto& connection, const auto&) {
          switch (GetParam()) {
            case Stall::kNothing:
              break;
            case Stall::kHalfHead:
              connection.write("HTTP/1.1 200 OK\r\nContent-Le");
              break;
            case Stall::kHalfBody:
              connection.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
              break;
            case Stall::kDrip:
              connection.write(kChunkedHead);
              while (!connection.stopping() && connection.write(chunk("x"))) std::this_thread::sleep_for(5ms);
              return false;
          }
          connection.wait_for_close();
          return false;
        }) {}
  HostileServer server_;
};

TEST_P(StallTest, EndsAtTheDeadlineAndClosesTheConnection) {
  auto transport = transport_to(server_.url());
  const auto started = SteadyClock::now();
  const auto response = transport->send(get(), 200ms, {});
  const auto took = SteadyClock::now() - started;
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline) << response.error().message;
  EXPECT_GE(took, 200ms);
  EXPECT_LT(took, 60s);
  EXPECT_TRUE(becomes_true([&] { return server_.open() == 0; }));
}

TEST_P(StallTest, EndsOnCancellation) {
  auto transport = transport_to(server_.url());
  std::stop_source stop;
  auto response = std::async(std::launch::async, [&] { return transport->send(get(), 600s, stop.get_token()); });
  ASSERT_TRUE(becomes_true([&] { return !server_.received().empty(); }));
  const auto cancelled_at = SteadyClock::now();
  stop.request_stop();
  const auto result = response.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, TransportErrorKind::kCancelled);
  EXPECT_LT(SteadyClock::now() - cancelled_at, 60s);
  EXPECT_TRUE(becomes_true([&] { return server_.open() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(All, StallTest,
                         ::testing::Values(Stall::kNothing, Stall::kHalfHead, Stall::kHalfBody, Stall::kDrip));

TEST(Transport, FailsIfCancelledBeforeTheCall) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "");
    return true;
  });
  std::stop_source stop;
  stop.request_stop();
  const auto response = transport_to(server.url())->send(get(), 5s, stop.get_token());
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kCancelled);
}

TEST(Transport, ReportsTruncatedBodyAsBroken) {
  HostileServer server([](auto& connection, const auto& request) {
    connection.write(request.target == "/length" ? "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
                                                 : std::string(kChunkedHead) + chunk("half"));
    return false;
  });
  auto transport = transport_to(server.url());
  for (const char* target : {"/length", "/chunked"}) {
    const auto response = transport->send(get(target), 5s, {});
    ASSERT_FALSE(response) << target;
    EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken);
    TextSink sink;
    EXPECT_FALSE(transport->stream(get(target), sink, {5s, 5s}, {}));
  }
}

TEST(Transport, ReportsInvalidHttpAsBroken) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    return false;
  });
  const auto response = transport_to(server.url())->send(get(), 5s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken);
}

TEST(Transport, RefusesTooLargeResponse) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead);
    const std::string megabyte = chunk(std::string(1u << 20, 'x'));
    while (!connection.stopping() && connection.write(megabyte)) {
    }
    return false;
  });
  const auto response = transport_to(server.url())->send(get(), 60s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kRefused);
}

// The peer disappears without closing, as in a power failure: the kept connection stays open and receives nothing.
TEST(Transport, DropsPooledConnectionsAfterADeadline) {
  std::mutex mutex;
  std::set<int> gone;  // connections that have responded once
  HostileServer server([&](auto& connection, const auto& request) {
    bool is_gone = false;
    {
      const std::lock_guard lock(mutex);
      is_gone = !gone.insert(request.connection).second;
    }
    if (is_gone) {
      connection.wait_for_close();
      return false;
    }
    connection.answer(200, request.body);
    return true;
  });
  auto transport = transport_to(server.url());
  ASSERT_TRUE(transport->send({"POST", "/", "x", "text/plain"}, 20s, {}));
  auto response = transport->send({"POST", "/", "x", "text/plain"}, 300ms, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline) << response.error().message;
  ASSERT_TRUE(becomes_true([&] { return server.received().size() >= 2; }));
  EXPECT_EQ(server.received().size(), 2u) << "nothing is sent twice";
  response = transport->send({"POST", "/", "again", "text/plain"}, 20s, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "again");
}

// The kernel has completed the connection, but no program accepts it.
TEST(Transport, TimesOutWhenPeerNeverAccepts) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  for (const char* scheme : {"http://127.0.0.1:", "https://127.0.0.1:"}) {
    const auto response = transport_to(scheme + port)->send(get(), 200ms, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline) << response.error().message;
  }
  ::close(listener);
}

}  // namespace
}  // namespace oarlock::http
