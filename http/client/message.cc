#include "http/client/message.h"

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
#include <limits>
#include <optional>

#include "common/status_macros.h"
#include "http/client/http_transport.h"

namespace oarlock::http {
namespace {

namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
namespace net = boost::asio;

constexpr std::uint32_t kMaxHeadBytes = 32u << 10;     // applies to the status line and to all fields of a head
constexpr size_t kBufferBytes = 17u << 10;             // a TLS record
constexpr size_t kMaxBufferBytes = 2 * kMaxHeadBytes;  // also limits trailers and the extensions of a chunk
constexpr int kMaxInterimResponses = 16;

// Body of a response, which is written to a sink or collected up to a limit. Models Beast's Body concept.
struct LimitedBody {
  struct value_type {          // NOLINT(readability-identifier-naming): a name of the concept
    ByteSink* sink = nullptr;  // null: the body is collected in `text`
    CallLimits* limits = nullptr;
    size_t limit = Transport::kMaxResponseBytes;  // of `text`
    std::string text;
  };

  class reader {  // NOLINT(readability-identifier-naming): as above
   public:
    template <bool isRequest, typename Fields>
    reader(beast_http::header<isRequest, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>& length, ErrorCode& error) {
      error = {};
      if (length && body_.sink == nullptr) body_.text.reserve(std::min<std::uint64_t>(*length, kMaxErrorBodyBytes));
    }

    template <typename ConstBuffers>
    size_t put(const ConstBuffers& buffers, ErrorCode& error) {
      error = {};
      size_t size = 0;
      for (const net::const_buffer buffer : beast::buffers_range_ref(buffers)) {
        if (!take({static_cast<const char*>(buffer.data()), buffer.size()})) error = beast_http::error::body_limit;
        size += buffer.size();
      }
      return size;
    }

    void finish(ErrorCode& error) { error = {}; }

   private:
    bool take(std::string_view bytes) {
      if (body_.sink != nullptr) {
        const bool continues = body_.sink->write(bytes);
        body_.limits->restart_idle();  // time spent in the sink does not count as idle time of the server
        return continues;
      }
      if (bytes.size() > body_.limit - body_.text.size()) return false;
      body_.text.append(bytes);
      return true;
    }

    value_type& body_;
  };
};
using Parser = beast_http::response_parser<LimitedBody>;

// Whether the body has the announced length. If a response without a body announces one, its bytes could arrive later
// and be taken for the next response.
bool is_framing_clear(const Parser& parser) {
  return parser.chunked() || parser.content_length().value_or(0) == parser.get().body().text.size() ||
         parser.get().body().sink != nullptr;
}

// State of reading one response.
struct Reading {
  beast::flat_buffer buffer{kMaxBufferBytes};
  std::optional<Parser> parser;
  bool has_interim = false;

  bool is_unanswered() const { return !has_interim && !(parser && parser->got_some()); }
};

// Reads heads until that of the final response: interim (1xx) responses are skipped.
void read_head(Channel& channel, Reading& reading, ErrorCode& error) {
  for (int i = 0; i <= kMaxInterimResponses; ++i) {
    Parser& parser = reading.parser.emplace();
    parser.header_limit(kMaxHeadBytes);
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // the reader of LimitedBody limits it
    beast_http::read_header(channel, reading.buffer, parser, error);
    if (error || parser.get().result_int() >= 200) return;
    if (parser.get().result() == beast_http::status::switching_protocols) break;  // no request offers another protocol
    reading.has_interim = true;
  }
  error = beast_http::error::bad_status;
}

ReadError read_error(const ErrorCode& error, const CallLimits& limits, const Reading& reading) {
  if (error == beast_http::error::body_limit)
    return {.error = {TransportErrorKind::kRefused, "the response is larger than allowed, or the receiver ended it"}};
  return {.error = channel_error(error, limits), .is_unanswered = reading.is_unanswered()};
}

}  // namespace

TransportResult<std::string> format_request(const Request& request, const RequestFields& fields) {
  RETURN_IF_ERROR(check_request(request, fields.token));
  std::string out =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\nAccept: {}\r\n", request.method,
                  fields.target_prefix, request.target, fields.host, fields.user_agent, accept_header(request));
  if (!fields.token.empty()) out += fmt::format("Authorization: {} {}\r\n", fields.token_scheme, fields.token);
  if (!fields.proxy_authorization.empty())
    out += fmt::format("Proxy-Authorization: {}\r\n", fields.proxy_authorization);
  out += fields.further;
  if (request.method != "GET") {
    out += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n", content_type_header(request), request.body.size());
  }
  out += "\r\n";
  if (request.method != "GET") out += request.body;
  return out;
}

TransportError channel_error(const ErrorCode& error, const CallLimits& limits) {
  if (const auto good = limits.check(); !good) return good.error();
  if (error == beast_http::error::partial_message || error == beast_http::error::end_of_stream ||
      error == net::error::eof || error == net::ssl::error::stream_truncated) {
    return {TransportErrorKind::kBroken, "connection closed by the server before the response was complete"};
  }
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow)
    return {TransportErrorKind::kBroken, "invalid HTTP response: the head or a trailer is too long"};
  if (error == kReadLimitReached)
    return {TransportErrorKind::kBroken, "connection broken: too many TLS records without data"};
  if (error.category() == make_error_code(beast_http::error::end_of_stream).category())
    return {TransportErrorKind::kBroken, "invalid HTTP response: " + error.message()};
  return {TransportErrorKind::kBroken, "connection broken: " + error.message()};
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
  if (const auto field = parser.get().find(beast_http::field::retry_after); field != parser.get().end())
    out.response.retry_after = parse_retry_after({field->value().data(), field->value().size()});
  LimitedBody::value_type& body = parser.get().body();
  body.limits = &limits;
  if (sink != nullptr) body.limit = kMaxErrorBodyBytes;
  if (out.response.ok()) body.sink = sink;
  if (!parser.is_done()) beast_http::read(channel, reading.buffer, parser, error);
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
    return failed(TransportErrorKind::kConnect,
                  "no tunnel: the proxy closed the connection or returned no valid HTTP response");
  }
  const auto& head = reading.parser->get();
  if (head.result_int() / 100 != 2) {
    return failed(TransportErrorKind::kConnect, fmt::format("no tunnel: the proxy returned {} {}", head.result_int(),
                                                            std::string(beast_http::obsolete_reason(head.result()))));
  }
  if (reading.buffer.size() != 0)
    return failed(TransportErrorKind::kConnect, "no tunnel: the proxy sent unexpected data");
  return {};
}

}  // namespace oarlock::http
