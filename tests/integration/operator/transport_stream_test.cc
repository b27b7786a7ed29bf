// Behavior of every Transport with bodies that last for hours, such as watches.
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "kube/client/request.h"
#include "tests/support/hostile_server.h"
#include "tests/support/transport_calls.h"

namespace oarlock::http {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::chunk;
using test::get;
using test::HostileServer;
using test::kChunkedHead;
using test::TextSink;
using test::transport_to;
using SteadyClock = std::chrono::steady_clock;

TEST(TransportStream, DeliversEachPieceOnArrival) {
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

TEST(TransportStream, ReturnsErrorResponseInsteadOfStreaming) {
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

TEST(TransportStream, EndsAtTheIdleLimit) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead + chunk("a"));
    connection.wait_for_close();
    return false;
  });
  TextSink sink;
  const auto started = SteadyClock::now();
  const auto response = transport_to(server.url())->stream(get(), sink, {1500ms, 60s}, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kIdle);
  EXPECT_EQ(sink.text, "a");
  EXPECT_LT(SteadyClock::now() - started, 50s);
  EXPECT_TRUE(becomes_true([&] { return server.open() == 0; }));
}

TEST(TransportStream, ActiveStreamEndsAtTheTotalLimit) {
  HostileServer server([](auto& connection, const auto&) {
    connection.write(kChunkedHead);
    while (!connection.stopping() && connection.write(chunk("x"))) std::this_thread::sleep_for(5ms);
    return false;
  });
  TextSink sink;
  const auto response = transport_to(server.url())->stream(get(), sink, {60s, 1500ms}, {});
  ASSERT_FALSE(response);
  EXPECT_EQ(response.error().kind, TransportErrorKind::kDeadline);
  EXPECT_GE(sink.text.size(), 2u);
}

TEST(TransportStream, EndsWhenTheSinkReturnsFalse) {
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
  EXPECT_EQ(response.error().kind, TransportErrorKind::kRefused);
  EXPECT_TRUE(becomes_true([&] { return server.open() == 0; }));
}

TEST(TransportStream, SlowReaderSlowsTheServerDown) {
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
  EXPECT_LT(sink.held_at, 20u << 20);  // the size of the kernel's socket buffers
}

}  // namespace
}  // namespace oarlock::http
