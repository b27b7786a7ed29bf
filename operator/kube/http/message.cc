#include "operator/kube/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>
#include <limits>
#include <optional>

namespace oarlock::kube {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace net = boost::asio;
using Kind = TransportError::Kind;

constexpr char kJson[] = "application/json";
// A server that cannot reduce the object to its metadata sends the whole object.
constexpr char kMetadataOnly[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
constexpr size_t kMaxErrorBody = 1u << 20;              // of a stream's response that is not 2xx
constexpr std::chrono::seconds kLongestRetryAfter{60};  // longer times are cut to this one
constexpr std::uint32_t kMaxHeadBytes = 32u << 10;      // of a status line, and of all fields of a head
constexpr size_t kBufferBytes = 17u << 10;              // a TLS record
constexpr size_t kMaxBufferBytes = 2 * kMaxHeadBytes;   // also limits trailers and the extensions of a chunk
constexpr int kMaxInterimResponses = 16;

// The body of a response: where its bytes go, and how many there may be. A Body of Beast.
struct LimitedBody {
  struct value_type {
    ByteSink* sink = nullptr;  // null: into `text`
    CallLimits* limits = nullptr;
    size_t limit = Transport::kMaxResponseBytes;  // of `text`
    std::string text;
  };

  class reader {
   public:
    template <bool isRequest, typename Fields>
    reader(http::header<isRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>& length, ErrorCode& error) {
      error = {};
      if (length && body_.sink == nullptr) body_.text.reserve(std::min<std::uint64_t>(*length, kMaxErrorBody));
    }

    template <typename ConstBuffers>
    size_t put(const ConstBuffers& buffers, ErrorCode& error) {
      error = {};
      size_t size = 0;
      for (const net::const_buffer buffer : beast::buffers_range_ref(buffers)) {
        if (!take({static_cast<const char*>(buffer.data()), buffer.size()})) error = http::error::body_limit;
        size += buffer.size();
      }
      return size;
    }

    void finish(ErrorCode& error) { error = {}; }

   private:
    bool take(std::string_view bytes) {
      if (body_.sink != nullptr) {
        const bool is_wanted = body_.sink->write(bytes);
        body_.limits->progress();  // the time that the sink needed is not the server's silence
        return is_wanted;
      }
      if (bytes.size() > body_.limit - body_.text.size()) return false;
      body_.text.append(bytes);
      return true;
    }

    value_type& body_;
  };
};
using Parser = http::response_parser<LimitedBody>;

bool is_field_text(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

std::optional<std::chrono::seconds> parse_seconds(beast::string_view text) {
  long seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
  return std::min(std::chrono::seconds(seconds), kLongestRetryAfter);
}

// A message without a body must not announce one: the bytes could follow later, as if they were the next response.
bool is_framing_clear(const Parser& parser) {
  return parser.chunked() || parser.content_length().value_or(0) == parser.get().body().text.size() ||
         parser.get().body().sink != nullptr;
}

// One response while it is read.
struct Reading {
  beast::flat_buffer buffer{kMaxBufferBytes};
  std::optional<Parser> parser;
  bool has_interim = false;

  bool is_unanswered() const { return !has_interim && !(parser && parser->got_some()); }
};

// Reads heads until that of the final response.
void read_head(Channel& channel, Reading& reading, ErrorCode& error) {
  for (int i = 0; i <= kMaxInterimResponses; ++i) {
    Parser& parser = reading.parser.emplace();
    parser.header_limit(kMaxHeadBytes);
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // the reader of LimitedBody limits it
    http::read_header(channel, reading.buffer, parser, error);
    if (error || parser.get().result_int() >= 200) return;
    if (parser.get().result() == http::status::switching_protocols) break;  // no request has offered another protocol
    reading.has_interim = true;
  }
  error = http::error::bad_status;
}

ReadError read_error(const ErrorCode& error, const CallLimits& limits, const Reading& reading) {
  if (error == http::error::body_limit)
    return {.error = {Kind::kRefused, "the response is larger than allowed, or no more of it is wanted"}};
  return {.error = channel_error(error, limits), .is_unanswered = reading.is_unanswered()};
}

}  // namespace

TransportResult<std::string> request_text(const Request& request, const RequestFields& fields) {
  if (!request.target.starts_with('/') || request.target.find(' ') != std::string::npos ||
      !is_field_text(request.target)) {
    return failed(Kind::kRefused, fmt::format("the request target '{}' is not valid", request.target));
  }
  if (!is_field_text(fields.token)) return failed(Kind::kRefused, "the token has a line break or control character");
  std::string out = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\nAccept: {}\r\n", request.method,
                                fields.target_prefix, request.target, fields.host, fields.user_agent,
                                request.metadata_only ? kMetadataOnly : kJson);
  if (!fields.token.empty()) out += fmt::format("Authorization: Bearer {}\r\n", fields.token);
  if (!fields.proxy_authorization.empty())
    out += fmt::format("Proxy-Authorization: {}\r\n", fields.proxy_authorization);
  if (request.method != "GET") {
    out += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n",
                       request.content_type.empty() ? kJson : request.content_type.c_str(), request.body.size());
  }
  out += "\r\n";
  if (request.method != "GET") out += request.body;
  return out;
}

TransportError channel_error(const ErrorCode& error, const CallLimits& limits) {
  if (const auto good = limits.check(); !good) return good.error();
  if (error == http::error::partial_message || error == http::error::end_of_stream || error == net::error::eof ||
      error == net::ssl::error::stream_truncated) {
    return {Kind::kBroken, "connection closed by the server before the response was complete"};
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return {Kind::kBroken, "invalid HTTP response: its head or a trailer is too long"};
  if (error.category() == make_error_code(http::error::end_of_stream).category())
    return {Kind::kBroken, "invalid HTTP response: " + error.message()};
  return {Kind::kBroken, "connection broken: " + error.message()};
}

tl::expected<ReceivedResponse, ReadError> read_response(Channel& channel, ByteSink* sink, CallLimits& limits) {
  Reading reading;
  reading.buffer.reserve(kBufferBytes);
  ErrorCode error;
  read_head(channel, reading, error);
  if (error) return tl::make_unexpected(read_error(error, limits, reading));
  Parser& parser = *reading.parser;
  ReceivedResponse out;
  out.response.status = static_cast<int>(parser.get().result_int());
  if (const auto field = parser.get().find(http::field::retry_after); field != parser.get().end())
    out.response.retry_after = parse_seconds(field->value());
  LimitedBody::value_type& body = parser.get().body();
  body.limits = &limits;
  if (sink != nullptr) body.limit = kMaxErrorBody;
  if (out.response.ok()) body.sink = sink;
  if (!parser.is_done()) http::read(channel, reading.buffer, parser, error);
  if (error) return tl::make_unexpected(read_error(error, limits, reading));
  out.is_reusable = parser.keep_alive() && reading.buffer.size() == 0 && is_framing_clear(parser);
  out.response.body = std::move(body.text);
  return out;
}

TransportResult<void> open_tunnel(Channel& channel, const TunnelRequest& request, const CallLimits& limits) {
  std::string text =
      fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\nUser-Agent: {1}\r\n", request.server, request.user_agent);
  if (!request.proxy_authorization.empty())
    text += fmt::format("Proxy-Authorization: {}\r\n", request.proxy_authorization);
  text += "\r\n";
  ErrorCode error;
  net::write(channel, net::buffer(text), error);
  Reading reading;
  if (!error) read_head(channel, reading, error);
  if (error) {
    if (const auto good = limits.check(); !good) return good;
    return failed(Kind::kConnect, "no tunnel: the proxy closed the connection or returned no valid HTTP response");
  }
  const auto& head = reading.parser->get();
  if (head.result_int() / 100 != 2) {
    return failed(Kind::kConnect, fmt::format("no tunnel: the proxy returned {} {}", head.result_int(),
                                              std::string(http::obsolete_reason(head.result()))));
  }
  if (reading.buffer.size() != 0) return failed(Kind::kConnect, "no tunnel: the proxy sent bytes of its own");
  return {};
}

}  // namespace oarlock::kube
