// What every Transport must do, against servers that misbehave. Each case was seen to go wrong with cpprestsdk's
// defaults.
#include "operator/kube/transport.h"

#include <gmock/gmock.h>

#include <future>
#include <set>
#include <thread>

#include "operator/kube/cpprest_transport.h"
#include "operator/kube/request.h"
#include "tests/support/hostile_server.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using test::HostileServer;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Kind = TransportError::Kind;
using SteadyClock = std::chrono::steady_clock;

std::unique_ptr<Transport> transport_to(const std::string& server, std::shared_ptr<TokenSource> token = nullptr) {
  TransportOptions options;
  options.server = server;
  options.token = std::move(token);
  options.user_agent = "oarlock-test/1";
  auto transport = CpprestTransport::create(std::move(options));
  if (!transport) throw std::runtime_error(transport.error().message);
  return std::move(*transport);
}

Request get(const std::string& target = "/x") {
  return {.method = "GET", .target = target, .body = "", .content_type = ""};
}

class TextSink final : public ByteSink {
 public:
  bool write(std::string_view bytes) override {
    text += bytes;
    return true;
  }
  std::string text;
};

template <typename Condition>
bool becomes_true(Condition condition, std::chrono::seconds limit = 20s) {
  const auto deadline = SteadyClock::now() + limit;
  while (!condition()) {
    if (SteadyClock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string chunk(const std::string& text) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}
constexpr char kChunkedHead[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

TEST(Transport, SendsWhatIsAskedAndReturnsWhatIsAnswered) {
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
  EXPECT_THAT(request.head, HasSubstr("Content-Type:application/json\r\n"));
  EXPECT_THAT(request.head, HasSubstr("Authorization:Bearer secret\r\n"));
  EXPECT_THAT(request.head, HasSubstr("User-Agent:oarlock-test/1\r\n"));
  EXPECT_THAT(request.head, HasSubstr("Accept:application/json\r\n"));
}

TEST(Transport, AnIpv6LiteralIsAHost) {
  HostileServer server(
      [](auto& connection, const auto& request) {
        connection.answer(200, request.target);
        return true;
      },
      HostileServer::Loopback::kIpv6);
  EXPECT_THAT(server.url(), HasSubstr("http://[::1]:"));
  auto transport = transport_to(server.url());
  const auto response = transport->send(get("/api"), 5s, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->body, "/api");
}

TEST(Transport, KeepsAConnectionForManyRequests) {
  HostileServer server([](auto& connection, const auto& request) {
    connection.answer(200, request.target + request.body);
    return true;
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(transport->send(get("/a?n=" + std::to_string(i)), 5s, {})->body, "/a?n=" + std::to_string(i));
    EXPECT_EQ(transport->send({"PATCH", "/b", "body", "text/plain"}, 5s, {})->body, "/bbody");
  }
  EXPECT_LE(server.connections(), 5);  // one is given back a moment after its response, so a few more may be made
}

TEST(Transport, ThePrefixOfTheServersAddressIsKept) {
  HostileServer server([](auto& connection, const auto& request) {
    connection.answer(200, request.target);
    return true;
  });
  EXPECT_EQ(transport_to(server.url() + "/k8s/clusters/c1")->send(get("/api/v1/pods?limit=1&x=a%2Fb"), 5s, {})->body,
            "/k8s/clusters/c1/api/v1/pods?limit=1&x=a%2Fb");
}

// The connection is kept, the next request arrives, is acted on, and the connection drops without an answer. A client
// that sends it again makes two of what should be one.
class CommitThenDrop : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(CommitThenDrop, IsAnErrorAndTheRequestIsNotSentTwice) {
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
    EXPECT_EQ(response.error().kind, Kind::kBroken) << response.error().message;
    // What comes next works: nothing broken is left in the pool.
    ASSERT_EQ(transport->send(get("/warm"), 5s, {})->body, "warm");
    EXPECT_EQ(server.received().size(), before + 2) << method << " was sent more than once";
  }
}

INSTANTIATE_TEST_SUITE_P(All, CommitThenDrop,
                         ::testing::Combine(::testing::Values("POST", "PUT", "PATCH", "DELETE"), ::testing::Bool()));

TEST(Transport, AConnectionThatTheServerClosedWhileIdleCostsNothingButAGetAgain) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "once");
    return false;  // closes although it did not say so
  });
  auto transport = transport_to(server.url());
  for (int i = 0; i < 5; ++i) {
    const auto response = transport->send(get(), 5s, {});
    ASSERT_TRUE(response) << response.error().message;
    ASSERT_TRUE(becomes_true([&] { return server.open() == 0; }));
  }
}

TEST(Transport, ARedirectIsNotFollowed) {
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

TEST(Transport, NobodyThereIsAConnectError) {
  int port = 0;
  {
    HostileServer gone([](auto&, const auto&) { return false; });
    port = gone.port();
  }
  auto transport = transport_to("http://127.0.0.1:" + std::to_string(port));
  const auto response = transport->send(create_request(pods(), "ns", "{}"), 5s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kConnect);
  EXPECT_THAT(response.error().message, HasSubstr("127.0.0.1:" + std::to_string(port)));
  EXPECT_THAT(response.error().message, Not(HasSubstr("\n")));
}

TEST(Transport, AHostThatDoesNotExistIsAConnectError) {
  const auto response = transport_to("http://no-such-host.invalid")->send(get(), 30s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kConnect);
  EXPECT_THAT(response.error().message, HasSubstr("cannot be resolved"));
}

TEST(Transport, AServerThatSpeaksNoTlsIsAnError) {
  // The greeting of TLS is no request, so this server never answers it.
  HostileServer server([](auto&, const auto&) { return false; });
  auto transport = transport_to("https://127.0.0.1:" + std::to_string(server.port()));
  const auto response = transport->send(get(), 300ms, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kDeadline);
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

TEST_P(StallTest, EndsAtTheDeadlineAndTheConnectionIsClosed) {
  auto transport = transport_to(server_.url());
  const auto started = SteadyClock::now();
  const auto response = transport->send(get(), 200ms, {});
  const auto took = SteadyClock::now() - started;
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kDeadline) << response.error().message;
  EXPECT_GE(took, 200ms);
  EXPECT_LT(took, 5s);
  EXPECT_TRUE(becomes_true([&] { return server_.open() == 0; }));
}

TEST_P(StallTest, EndsWhenItIsCancelled) {
  auto transport = transport_to(server_.url());
  std::stop_source stop;
  auto response = std::async(std::launch::async, [&] { return transport->send(get(), 60s, stop.get_token()); });
  ASSERT_TRUE(becomes_true([&] { return !server_.received().empty(); }));
  const auto asked = SteadyClock::now();
  stop.request_stop();
  const auto result = response.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, Kind::kCancelled);
  EXPECT_LT(SteadyClock::now() - asked, 5s);
  EXPECT_TRUE(becomes_true([&] { return server_.open() == 0; }));
}

INSTANTIATE_TEST_SUITE_P(All, StallTest,
                         ::testing::Values(Stall::kNothing, Stall::kHalfHead, Stall::kHalfBody, Stall::kDrip));

TEST(Transport, ACallThatIsCancelledBeforehandSendsNothingThatMatters) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(200, "");
    return true;
  });
  std::stop_source stop;
  stop.request_stop();
  const auto response = transport_to(server.url())->send(get(), 5s, stop.get_token());
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kCancelled);
}

TEST(Transport, ABodyThatEndsEarlyIsBroken) {
  HostileServer server([](auto& connection, const auto& request) {
    connection.write(request.target == "/length" ? "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
                                                 : std::string(kChunkedHead) + chunk("half"));
    return false;
  });
  auto transport = transport_to(server.url());
  for (const char* target : {"/length", "/chunked"}) {
    const auto response = transport->send(get(target), 5s, {});
    ASSERT_FALSE(response) << target;
    EXPECT_EQ(response.error().kind, Kind::kBroken);
    TextSink sink;
    EXPECT_FALSE(transport->stream(get(target), sink, {5s, 5s}, {}));
  }
}

TEST(Transport, NonsenseInsteadOfHttpIsBroken) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    return false;
  });
  const auto response = transport_to(server.url())->send(get(), 5s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kBroken);
}

TEST(Transport, AResponseLargerThanAllowedIsRefused) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead);
    const std::string megabyte = chunk(std::string(1u << 20, 'x'));
    while (!connection.stopping() && connection.write(megabyte)) {
    }
    return false;
  });
  const auto response = transport_to(server.url())->send(get(), 60s, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kRefused);
}

TEST(TransportStream, HandsOnEachPieceWhenItComes) {
  std::promise<void> first_seen;
  HostileServer server([&](auto& connection, const auto&) {
    connection.write(kChunkedHead + chunk("first\n"));
    first_seen.get_future().wait();
    connection.write(chunk("second\n") + "0\r\n\r\n");
    return true;
  });
  class Sink final : public ByteSink {
   public:
    explicit Sink(std::promise<void>& first) : first_(first) {}
    bool write(std::string_view bytes) override {
      text += bytes;
      if (text == "first\n") first_.set_value();
      return true;
    }
    std::string text;

   private:
    std::promise<void>& first_;
  };
  Sink sink(first_seen);
  const auto response = transport_to(server.url())->stream(get(), sink, {10s, 20s}, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(response->body, "");
  EXPECT_EQ(sink.text, "first\nsecond\n");
}

TEST(TransportStream, AnErrorResponseGoesToTheResultAndNotToTheSink) {
  HostileServer server([](auto& connection, const auto&) {
    connection.answer(410, R"({"reason":"Gone"})");
    return true;
  });
  TextSink sink;
  const auto response = transport_to(server.url())->stream(get(), sink, {5s, 5s}, {});
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 410);
  EXPECT_EQ(response->body, R"({"reason":"Gone"})");
  EXPECT_EQ(sink.text, "");
}

TEST(TransportStream, SilenceEndsItEvenThoughItsLifeIsLong) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead + chunk("a"));
    connection.wait_for_close();
    return false;
  });
  TextSink sink;
  const auto started = SteadyClock::now();
  const auto response = transport_to(server.url())->stream(get(), sink, {300ms, 60s}, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kIdle);
  EXPECT_EQ(sink.text, "a");
  EXPECT_LT(SteadyClock::now() - started, 10s);
  EXPECT_TRUE(becomes_true([&] { return server.open() == 0; }));
}

TEST(TransportStream, PiecesKeepItAliveUntilItsLifeEnds) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead);
    while (!connection.stopping() && connection.write(chunk("x"))) std::this_thread::sleep_for(5ms);
    return false;
  });
  TextSink sink;
  const auto response = transport_to(server.url())->stream(get(), sink, {2s, 300ms}, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kDeadline);
  EXPECT_GE(sink.text.size(), 2u);
}

TEST(TransportStream, ASinkThatWantsNoMoreEndsIt) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead);
    while (!connection.stopping() && connection.write(chunk("x"))) {
    }
    return false;
  });
  class Sink final : public ByteSink {
   public:
    bool write(std::string_view) override { return false; }
  } sink;
  const auto response = transport_to(server.url())->stream(get(), sink, {5s, 5s}, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, Kind::kRefused);
  EXPECT_TRUE(becomes_true([&] { return server.open() == 0; }));
}

TEST(TransportStream, ASlowReaderSlowsTheServerDown) {
  std::atomic<size_t> written = 0;
  HostileServer server([&](auto& connection, const auto&) {
    connection.write(kChunkedHead);
    const std::string piece = chunk(std::string(64u << 10, 'x'));
    for (int i = 0; i < 1600 && connection.write(piece); ++i) written = connection.written.load();  // 100 MiB
    connection.write("0\r\n\r\n");
    return false;
  });
  class Sink final : public ByteSink {
   public:
    explicit Sink(const std::atomic<size_t>& written) : written_(written) {}
    bool write(std::string_view bytes) override {
      seen += bytes.size();
      if (seen == bytes.size()) {
        // Hold the first piece until the server has stopped making progress.
        size_t last = 0;
        int still = 0;
        while (still < 10) {
          std::this_thread::sleep_for(10ms);
          still = written_ == last ? still + 1 : 0;
          last = written_;
        }
        held_at = last;
      }
      return true;
    }
    size_t seen = 0;
    size_t held_at = 0;

   private:
    const std::atomic<size_t>& written_;
  } sink(written);
  const auto response = transport_to(server.url())->stream(get(), sink, {20s, 60s}, {});
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(sink.seen, 1600u * (64u << 10));
  EXPECT_LT(sink.held_at, 20u << 20);  // what the kernel's socket buffers take
}

TEST(Transport, A401DropsTheToken) {
  class Counting final : public TokenSource {
   public:
    Result<std::string> token() override { return "t" + std::to_string(drops.load()); }
    void drop() override { ++drops; }
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

TEST(Transport, ManyThreadsAtOnceAndFailuresAmongThem) {
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

TEST(Transport, WhatCannotWorkIsRefusedWithThePlace) {
  const auto error_of = [](const TransportOptions& options) {
    const auto transport = CpprestTransport::create(options);
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
}  // namespace oarlock::kube
