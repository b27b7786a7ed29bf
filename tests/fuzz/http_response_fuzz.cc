// The bytes of the API server, or of a proxy, to the client. Byte 0 selects what is read: a response or the
// reply to CONNECT. Byte 1 is the size of the pieces in which the rest arrives. The result must depend neither on them
// nor on whether the body is streamed.
#include <algorithm>
#include <cstring>

#include "http/client/message.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

constexpr http::StreamLimits kLimits{.idle = http::Milliseconds(60'000), .total = http::Milliseconds(60'000)};

// A connection on which the peer has sent these bytes and then closed it.
class BytesChannel final : public http::Channel {
 public:
  BytesChannel(std::string_view bytes, size_t piece) : rest_(bytes), piece_(piece) {}

  executor_type get_executor() override { return io_.get_executor(); }
  void close() override {}

 private:
  size_t read(boost::asio::mutable_buffer buffer, http::ErrorCode& error) override {
    const size_t size = std::min({buffer.size(), piece_, rest_.size()});
    error = rest_.empty() ? boost::asio::error::eof : http::ErrorCode();
    std::memcpy(buffer.data(), rest_.data(), size);
    rest_.remove_prefix(size);
    return size;
  }
  size_t write(boost::asio::const_buffer buffer, http::ErrorCode& error) override {
    error = {};
    return buffer.size();
  }

  boost::asio::io_context io_{1};
  std::string_view rest_;
  const size_t piece_;
};

class StringSink final : public http::ByteSink {
 public:
  bool write(std::string_view bytes) override {
    text_ += bytes;
    return true;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Returns the caller's result as one text; empty for an error.
std::string read_response(std::string_view bytes, size_t piece, bool with_sink) {
  BytesChannel channel(bytes, piece);
  http::CallLimits limits(kLimits, {});
  StringSink sink;
  const auto received = http::read_response(channel, with_sink ? &sink : nullptr, limits);
  if (!received) {
    fuzz::require(!received.error().error.message.empty());
    fuzz::require(received.error().error.message.find('\n') == std::string::npos);
    return "";
  }
  const http::Response& response = received->response;
  fuzz::require(response.status >= 200 && response.status <= 999);
  fuzz::require(response.body.empty() || sink.text().empty());
  const auto retry_after = response.retry_after.value_or(std::chrono::seconds(0));
  fuzz::require(retry_after >= std::chrono::seconds(0) && retry_after <= std::chrono::seconds(60));
  fuzz::require(response.body.size() + sink.text().size() <= bytes.size());
  return fmt::format("{} {} {}{}", response.status, retry_after.count(), response.body, sink.text());
}

std::string open_tunnel(std::string_view bytes, size_t piece) {
  BytesChannel channel(bytes, piece);
  const http::CallLimits limits(kLimits, {});
  const auto opened =
      http::open_tunnel(channel, {.server = "h:443", .user_agent = "a", .proxy_authorization = ""}, limits);
  if (!opened) fuzz::require(opened.error().message.find('\n') == std::string::npos);
  return opened ? "open" : "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  const size_t piece = size_t{1} + data[1];
  if (data[0] % 2 == 0) {
    const std::string whole = read_response(bytes, bytes.size() + 1, false);
    fuzz::require(whole == read_response(bytes, piece, false));
    fuzz::require(whole == read_response(bytes, piece, true));
  } else if (!open_tunnel(bytes, bytes.size() + 1).empty()) {
    // Bytes after the head are an error, but only if they arrive with it.
    fuzz::require(!open_tunnel(bytes, piece).empty());
  }
  return 0;
}
