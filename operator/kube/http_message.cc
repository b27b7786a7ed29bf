#include "operator/kube/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

namespace oarlock::kube {
namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;
using ErrorCode = boost::beast::error_code;
using Kind = TransportError::Kind;

constexpr char kJson[] = "application/json";
// A server that cannot leave the rest out sends the whole object.
constexpr char kMetadataOnly[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
constexpr size_t kMaxErrorBody = 1u << 20;
constexpr std::chrono::seconds kLongestRetryAfter{60};  // a server that names a longer time is asked again after this
constexpr size_t kReadSize =
    16u << 10;  // a TLS record; no less than what the parser needs for the longest head (8 KiB)

bool is_field_text(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') return false;
  }
  return true;
}

std::optional<std::chrono::seconds> seconds_of(string_view text) {
  long seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
  return std::min(std::chrono::seconds(seconds), kLongestRetryAfter);
}

class ResponseParser final : public http::basic_parser<false> {
 public:
  explicit ResponseParser(ByteSink* sink) : sink_(sink) {
    eager(true);
    body_limit(std::numeric_limits<std::uint64_t>::max());  // ours knows a sink from a string
  }
  Response take() { return std::move(response_); }
  bool interim() const { return response_.status < 200; }
  bool refused() const { return refused_; }

 private:
  void on_request_impl(http::verb, string_view, string_view, int, ErrorCode&) override {}
  void on_response_impl(int code, string_view, int, ErrorCode&) override { response_.status = code; }
  void on_field_impl(http::field name, string_view, string_view value, ErrorCode&) override {
    if (name == http::field::retry_after) response_.retry_after = seconds_of(value);
  }
  void on_header_impl(ErrorCode&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, ErrorCode&) override {
    if (length && sink_ == nullptr) response_.body.reserve(std::min<std::uint64_t>(*length, kMaxErrorBody));
  }
  size_t on_body_impl(string_view bytes, ErrorCode& error) override { return take_bytes(bytes, error); }
  void on_chunk_header_impl(std::uint64_t, string_view, ErrorCode&) override {}
  size_t on_chunk_body_impl(std::uint64_t, string_view bytes, ErrorCode& error) override {
    return take_bytes(bytes, error);
  }
  void on_finish_impl(ErrorCode&) override {}

  size_t take_bytes(string_view bytes, ErrorCode& error) {
    if (sink_ != nullptr && response_.ok()) {
      refused_ = !sink_->write({bytes.data(), bytes.size()});
    } else {
      const size_t limit = sink_ == nullptr ? Transport::kMaxResponseBytes : kMaxErrorBody;
      refused_ = response_.body.size() + bytes.size() > limit;
      if (!refused_) response_.body.append(bytes.data(), bytes.size());
    }
    if (refused_) error = http::error::body_limit;
    return bytes.size();
  }

  ByteSink* const sink_;
  Response response_;
  bool refused_ = false;
};

tl::unexpected<TransportError> no_http(const ErrorCode& error) {
  if (error == http::error::partial_message || error == http::error::end_of_stream)
    return failed(Kind::kBroken, "the server has ended it before its answer was whole");
  return failed(Kind::kBroken, "the answer is no HTTP: " + error.message());
}

}  // namespace

TransportResult<std::string> request_text(const Request& request, const std::string& prefix,
                                          const RequestFields& fields) {
  if (!request.target.starts_with('/') || request.target.find(' ') != std::string::npos ||
      !is_field_text(request.target)) {
    return failed(Kind::kRefused, fmt::format("the request target '{}' is not valid", request.target));
  }
  if (!is_field_text(fields.token)) return failed(Kind::kRefused, "the token has a line break or control character");
  std::string out =
      fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: {}\r\nAccept: {}\r\n", request.method, prefix,
                  request.target, fields.host, fields.user_agent, request.metadata_only ? kMetadataOnly : kJson);
  if (!fields.token.empty()) out += fmt::format("Authorization: Bearer {}\r\n", fields.token);
  if (request.method != "GET") {
    out += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n",
                       request.content_type.empty() ? kJson : request.content_type.c_str(), request.body.size());
  }
  out += "\r\n";
  if (request.method != "GET") out += request.body;
  return out;
}

TransportResult<Answer> read_answer(Connection& connection, ByteSink* sink, Waiter& waiter) {
  std::array<char, kReadSize> buffer;
  size_t begin = 0;
  size_t end = 0;
  std::optional<ResponseParser> parser(sink);
  for (;;) {
    ErrorCode error;
    if (begin < end) begin += parser->put({buffer.data() + begin, end - begin}, error);
    if (parser->refused())
      return failed(Kind::kRefused, "the response is larger than allowed, or no more of it is wanted");
    if (error && error != http::error::need_more) return no_http(error);
    if (parser->is_done()) {
      if (!parser->interim()) return Answer{parser->take(), parser->keep_alive() && begin == end};
      parser.emplace(sink);  // 100 Continue and its like: the answer is still to come
      continue;
    }
    if (begin < end && !error) continue;
    std::memmove(buffer.data(), buffer.data() + begin, end - begin);
    end -= begin;
    begin = 0;
    if (end == buffer.size()) return failed(Kind::kBroken, "the answer is no HTTP: a line without end");
    const auto n = connection.read({buffer.data() + end, buffer.size() - end}, waiter);
    if (!n) return tl::make_unexpected(n.error());
    if (*n == 0) {
      if (!parser->got_some()) return no_http(http::error::end_of_stream);
      parser->put_eof(error);
      if (error) return no_http(error);
      return Answer{parser->take(), false};
    }
    end += *n;
  }
}

}  // namespace oarlock::kube
