// Behavior of every Transport with a hostile API server: memory, time and the number of requests stay limited, and no
// data of the server is taken for the response to another request.
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "kube/client/request.h"
#include "tests/support/full_listener.h"
#include "tests/support/hostile_server.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::chunk;
using test::FullListener;
using test::get;
using test::HostileServer;
using test::kChunkedHead;
using test::TextSink;
using test::transport_to;
using ::testing::HasSubstr;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kSocketBuffers = 16u << 20;  // more than the kernel buffers on loopback

// Sends the beginning and then `piece` forever.
struct Endless {
  const char* name;
  std::string beginning;
  std::string piece;
};
class EndlessResponse : public ::testing::TestWithParam<Endless> {};

TEST_P(EndlessResponse, IsCutOff) {
  std::atomic<size_t> written = 0;
  HostileServer server([&](auto& connection, const auto& request) {
    if (request.target == "/next") {
      connection.answer(200, "next");
      return true;
    }
    connection.write(GetParam().beginning);
    while (!connection.stopping() && connection.write(GetParam().piece)) written = connection.written.load();
    return false;
  });
  auto transport = transport_to(server.url());
  for (const bool is_stream : {false, true}) {
    TextSink sink;
    const auto response = is_stream ? transport->stream(get(), sink, {20s, 60s}, {}) : transport->send(get(), 60s, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken) << response.error().message;
    EXPECT_THAT(response.error().message, HasSubstr("invalid HTTP response"));
    EXPECT_EQ(sink.text, "");
    EXPECT_LT(written, kSocketBuffers);
    EXPECT_EQ(transport->send(get("/next"), 20s, {})->body, "next");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EndlessResponse,
    ::testing::Values(
        Endless{.name = "StatusLine", .beginning = "HTTP/1.1 200 ", .piece = std::string(4096, 'x')},
        Endless{.name = "FieldName", .beginning = "HTTP/1.1 200 OK\r\n", .piece = std::string(4096, 'x')},
        Endless{.name = "FieldValue", .beginning = "HTTP/1.1 200 OK\r\nX: ", .piece = std::string(4096, 'x')},
        Endless{.name = "Fields", .beginning = "HTTP/1.1 200 OK\r\n", .piece = "X-Warning: more\r\n"},
        Endless{.name = "FoldedField", .beginning = "HTTP/1.1 200 OK\r\nX: y\r\n", .piece = " more\r\n"},
        Endless{.name = "InterimResponses", .beginning = "", .piece = "HTTP/1.1 100 Continue\r\n\r\n"},
        Endless{
            .name = "ChunkExtension", .beginning = std::string(kChunkedHead) + "1;x=", .piece = std::string(4096, 'x')},
        Endless{.name = "ChunkSize", .beginning = kChunkedHead, .piece = std::string(4096, '0')},
        Endless{
            .name = "Trailer", .beginning = std::string(kChunkedHead) + "0\r\nX: ", .piece = std::string(4096, 'x')},
        Endless{.name = "Trailers", .beginning = std::string(kChunkedHead) + "0\r\n", .piece = "X-Warning: more\r\n"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(HostileServer, SlowHeadEndsAtTheDeadline) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nX: ");
    while (!connection.stopping() && connection.write("x")) std::this_thread::sleep_for(5ms);
    return false;
  });
  auto transport = transport_to(server.url());
  const auto response = transport->send(get(), 300ms, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline) << response.error().message;
  TextSink sink;
  const auto stream = transport->stream(get(), sink, {60s, 300ms}, {});
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().kind, TransportErrorKind::kDeadline) << stream.error().message;
}

// A response whose length is ambiguous must be rejected.
class AmbiguousResponse : public ::testing::TestWithParam<std::string> {};

TEST_P(AmbiguousResponse, IsBroken) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("HTTP/1.1 200 OK\r\n" + GetParam());
    return false;
  });
  const auto response = transport_to(server.url())->send(get(), 20s, {});
  ASSERT_FALSE(response) << response->body;
  EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken) << response.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, AmbiguousResponse,
    ::testing::Values("Content-Length: 4\r\nContent-Length: 5\r\n\r\nbodyX", "Content-Length: 4, 5\r\n\r\nbodyX",
                      "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
                      "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
                      "Content-Length: -1\r\n\r\nbody", "Content-Length: 0x4\r\n\r\nbody",
                      "Content-Length: 99999999999999999999\r\n\r\nbody",
                      "Transfer-Encoding: chunked\r\n\r\n-4\r\nbody\r\n0\r\n\r\n",
                      "Transfer-Encoding: chunked\r\n\r\n4\r\nbodybody\r\n0\r\n\r\n",
                      "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\nbody\r\n0\r\n\r\n", "X y: z\r\n\r\nbody",
                      " X: folded\r\n\r\nbody", "X\r\n\r\nbody"));

TEST(HostileServer, RejectsSwitchingProtocols) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: spdy\r\n\r\n");
    connection.wait_for_close();
    return false;
  });
  const auto response = transport_to(server.url())->send(get(), 20s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken);
}

// These responses have no body, whatever their headers announce. The bytes that follow are not the next response.
TEST(HostileServer, UnexpectedBodyIsNotTheNextResponse) {
  for (const std::string status : {"204 No Content", "304 Not Modified"}) {
    HostileServer server([&](auto& connection, const auto& request) {
      if (request.target == "/next") {
        connection.answer(200, "next");
        return true;
      }
      const std::string evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
      connection.write("HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(evil.size()) + "\r\n\r\n");
      connection.write(evil);
      return true;
    });
    auto transport = transport_to(server.url());
    const auto response = transport->send(get(), 20s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, "");
    EXPECT_EQ(transport->send(get("/next"), 20s, {})->body, "next");
    EXPECT_EQ(server.connections(), 2);
  }
}

TEST(HostileServer, AcceptsTrailers) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Checksum\r\n\r\n" + chunk("first ") +
                     "6;name=value\r\nsecond\r\n" + "0\r\nX-Checksum: 1234\r\nX-Other: y\r\n\r\n");
    return true;
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 2; ++i) {
    const auto response = transport->send(get(), 20s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, "first second");
    TextSink sink;
    ASSERT_TRUE(transport->stream(get(), sink, {20s, 20s}, {}));
    EXPECT_EQ(sink.text, "first second");
  }
  EXPECT_EQ(server.connections(), 1);
}

TEST(HostileServer, LimitsTheErrorBodyOfAStream) {
  std::atomic<size_t> written = 0;
  HostileServer server([&](auto& connection, const auto&) {
    connection.write("HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n");
    const std::string piece = chunk(std::string(64u << 10, 'x'));
    while (!connection.stopping() && connection.write(piece)) written = connection.written.load();
    return false;
  });
  TextSink sink;
  const auto response = transport_to(server.url())->stream(get(), sink, {20s, 60s}, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kRefused);
  EXPECT_LT(written, kSocketBuffers);
}

// A server that rejects a body responds and closes early, so that the rest of the request causes a TCP reset.
TEST(HostileServer, AcceptsResponseBeforeTheRequestIsSent) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        if (request.method == "GET") {
          connection.answer(200, "next");
          return true;
        }
        connection.answer(413, "too large", "Connection: close\r\n");
        return false;
      },
      {.head_only = true});
  auto transport = transport_to(server.url());
  const auto response = transport->send({"POST", "/", std::string(kSocketBuffers, 'x'), "text/plain"}, 60s, {});
  if (response) {
    EXPECT_EQ(response->status, 413);
    EXPECT_EQ(response->body, "too large");
  } else {
    EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken) << response.error().message;
  }
  EXPECT_EQ(transport->send(get(), 20s, {})->body, "next");
  EXPECT_EQ(server.received().size(), 2u);
}

TEST(HostileServer, UnreadRequestEndsAtTheDeadline) {
  HostileServer server(
      [](auto& connection, const auto&) {
        while (!connection.stopping() && !connection.closed()) std::this_thread::sleep_for(5ms);
        return false;
      },
      {.head_only = true});
  auto transport = transport_to(server.url());
  const auto started = SteadyClock::now();
  const auto response = transport->send({"POST", "/", std::string(2 * kSocketBuffers, 'x'), "text/plain"}, 300ms, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline) << response.error().message;
  EXPECT_LT(SteadyClock::now() - started, 50s);
}

TEST(HostileServer, UnresponsiveAddressEndsAtTheDeadline) {
  const FullListener listener;
  const auto started = SteadyClock::now();
  const auto response = transport_to(listener.url())->send(get(), 300ms, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline) << response.error().message;
  EXPECT_GE(SteadyClock::now() - started, 300ms);
  EXPECT_LT(SteadyClock::now() - started, 50s);
}

// Cancels a call and expects that it soon fails with kCancelled.
void expect_cancelled(std::future<TransportResult<Response>>& response, std::stop_source& stop) {
  const auto started = SteadyClock::now();
  stop.request_stop();
  const auto result = response.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, TransportErrorKind::kCancelled) << result.error().message;
  EXPECT_LT(SteadyClock::now() - started, 50s);
}

TEST(HostileServer, CancelsConnecting) {
  const FullListener listener;
  auto transport = transport_to(listener.url());
  std::stop_source stop;
  std::promise<void> is_started;
  auto response = std::async(std::launch::async, [&] {
    is_started.set_value();
    return transport->send(get(), 60s, stop.get_token());
  });
  is_started.get_future().wait();
  expect_cancelled(response, stop);
}

TEST(HostileServer, CancelsHandshake) {
  HostileServer server([](auto&, const auto&) { return false; });  // never responds to the ClientHello
  auto transport = transport_to("https://127.0.0.1:" + std::to_string(server.port()));
  std::stop_source stop;
  auto response = std::async(std::launch::async, [&] { return transport->send(get(), 60s, stop.get_token()); });
  ASSERT_TRUE(becomes_true([&] { return server.open() == 1; }));
  expect_cancelled(response, stop);
}

// A cancellation at the very end of one call must not affect the next call on the same connection.
TEST(HostileServer, CancellationEndsOneCallOnly) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "x");
    return true;
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 200; ++i) {
    std::stop_source stop;
    std::jthread canceller([&] { stop.request_stop(); });
    const auto first = transport->send({"POST", "/", "x", "text/plain"}, 20s, stop.get_token());
    if (!first) {
      ASSERT_EQ(first.error().kind, TransportErrorKind::kCancelled) << first.error().message;
    }
    canceller.join();
    const auto second = transport->send({"POST", "/", "x", "text/plain"}, 20s, {});
    ASSERT_TRUE(second) << second.error().message;
  }
}

// Time spent in the sink does not count as idle time of the server.
TEST(HostileServer, SlowSinkIsNotIdle) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead + chunk("a"));
    connection.write(chunk("b") + "0\r\n\r\n");
    return true;
  });
  class Sink final : public ByteSink {
   public:
    bool write(std::string_view bytes) override {
      std::this_thread::sleep_for(1500ms);  // longer than the idle limit
      text += bytes;
      return true;
    }
    std::string text;
  } sink;
  const auto response = transport_to(server.url())->stream(get(), sink, {1s, 60s}, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(sink.text, "ab");
}

// A server that sends TLS records without data, which OpenSSL handles within a read.
class TlsRecordsWithoutData : public ::testing::Test {
 protected:
  static constexpr size_t kFlood = 1u << 20;  // 40,000 key updates

  std::unique_ptr<Transport> transport_to(const HostileServer& server) {
    TransportOptions options;
    options.server = server.url();
    options.ca.text = authority_.certificate();
    return test::transport_with(std::move(options));
  }

  const test::Authority authority_{"test authority"};
  const test::Identity identity_ = authority_.issue("server", "IP:127.0.0.1");
};

// Nothing limits the time in which an idle connection is checked or closed, and every call needs the pool of idle
// connections: the amount that is read must be limited.
TEST_F(TlsRecordsWithoutData, OnAnIdleConnectionDelayNoOtherCall) {
  std::atomic<size_t> written[3] = {};
  HostileServer server(
      [&](auto& connection, const auto& request) {
        connection.answer(200, "answer");
        const size_t before = connection.written;
        std::atomic<bool> is_over = false;
        std::thread flood([&] {
          connection.flood_with_key_updates(kFlood);
          is_over = true;
        });
        const auto progress = [&] { written[request.connection] = connection.written - before; };
        for (; !is_over; std::this_thread::sleep_for(1ms)) progress();
        flood.join();
        progress();
        connection.wait_for_close();
        return false;
      },
      {.identity = identity_});
  auto transport = transport_to(server);
  for (const int connection : {0, 1, 2}) {
    const auto response = transport->send(get(), 20s, {});
    ASSERT_TRUE(response) << response.error().message;
    EXPECT_EQ(response->body, "answer");
    EXPECT_EQ(server.connections(), connection + 1) << "a connection with a flood is not used again";
    ASSERT_TRUE(becomes_true([&] { return written[connection] > 64u << 10; }));
  }
  const auto started = SteadyClock::now();
  transport.reset();
  EXPECT_LT(SteadyClock::now() - started, 5s);
}

TEST_F(TlsRecordsWithoutData, EndACall) {
  HostileServer server(
      [&](auto& connection, const auto&) {
        while (connection.flood_with_key_updates(kFlood)) {
        }
        return false;
      },
      {.identity = identity_});
  auto transport = transport_to(server);
  TextSink sink;
  for (const bool is_stream : {false, true}) {
    const auto response = is_stream ? transport->stream(get(), sink, {60s, 60s}, {}) : transport->send(get(), 60s, {});
    ASSERT_FALSE(response);
    EXPECT_EQ(response.error().kind, TransportErrorKind::kBroken);
    EXPECT_THAT(response.error().message, HasSubstr("TLS records without data"));
  }
}

}  // namespace
}  // namespace oarlock::http
