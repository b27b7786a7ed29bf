#include "http/request_head.h"

#include <fmt/format.h>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdint>
#include <limits>

#include "common/number.h"

namespace oarlock {
namespace {

namespace http = boost::beast::http;
using Fields = http::request_parser<http::empty_body>::value_type;
using Outcome = tl::expected<HttpRequest, HttpResponse>;

tl::unexpected<HttpResponse> refuse(int status, const char* text) {
  return tl::make_unexpected(text_response(status, std::string(text) + "\n"));
}

std::string to_string(boost::beast::string_view text) { return {text.data(), text.size()}; }

// "http://host/path" becomes "/path" (RFC 9112, 3.2.2: a server must accept the absolute form).
std::string_view origin_form(std::string_view target) {
  if (target.starts_with('/')) return target;
  const size_t scheme = target.find("://");
  if (scheme == std::string_view::npos) return target;
  const size_t path = target.find('/', scheme + 3);
  return path == std::string_view::npos ? "/" : target.substr(path);
}

// The size that the request announces for its body; the largest value for a size that is not known.
size_t announced_body(const Fields& fields) {
  if (fields.count(http::field::transfer_encoding) > 0) return std::numeric_limits<size_t>::max();
  if (fields.count(http::field::content_length) == 0) return 0;
  const auto text = fields[http::field::content_length];
  return parse_integer<size_t>({text.data(), text.size()}).value_or(std::numeric_limits<size_t>::max());
}

Outcome parse(const std::string& head, const HttpLimits& limits) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(head.size() + 1));
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // announced_body() decides
  boost::beast::error_code error;
  // With eager parsing off, the parser stops after the head, whatever the head announces.
  parser.put(boost::asio::buffer(head), error);
  if (error == http::error::bad_version) return refuse(505, "only HTTP/1.0 and HTTP/1.1 are supported");
  if (error || !parser.is_header_done()) return refuse(400, "invalid HTTP request");

  const Fields& fields = parser.get();
  const bool is_post = fields.method() == http::verb::post && limits.post_bytes > 0;
  if (fields.method() != http::verb::get && fields.method() != http::verb::head && !is_post)
    return refuse(405, "only GET and HEAD are supported");
  const size_t body = announced_body(fields);
  if (body > (is_post ? limits.post_bytes : limits.body_bytes)) return refuse(413, "the request body is too large");
  if (fields.count(http::field::authorization) > 1) return refuse(400, "more than one Authorization field");
  const std::string whole_target = to_string(fields.target());
  const std::string_view target = origin_form(whole_target);
  const size_t query = target.find('?');
  return HttpRequest{.is_head = fields.method() == http::verb::head,
                     .is_post = is_post,
                     .path = std::string(target.substr(0, query)),
                     .query = query == std::string_view::npos ? "" : std::string(target.substr(query + 1)),
                     .authorization = to_string(fields[http::field::authorization]),
                     .body_bytes = is_post ? body : 0};
}

}  // namespace

void append(std::string& text, std::string_view bytes, size_t limit) {
  const size_t size = text.size() + bytes.size();
  // reserve() at least doubles the capacity, so a text that needs a quarter of the limit gets all of it.
  if (size > text.capacity() && size > limit / 4) text.reserve(limit);
  text += bytes;
}

std::optional<Outcome> RequestHeadReader::add_to_body(std::string_view bytes) {
  append(post_->body, bytes.substr(0, post_->body_bytes - post_->body.size()), limits_.post_bytes);
  if (post_->body.size() < post_->body_bytes) return std::nullopt;
  return *std::move(post_);
}

std::optional<Outcome> RequestHeadReader::add(std::string_view bytes) {
  if (post_) return add_to_body(bytes);
  size_t from = head_.size();
  append(head_, bytes, limits_.head_bytes + kPieceBytes);
  for (size_t end = 0; (end = head_.find('\n', from)) != std::string::npos;) {
    const size_t length = end - line_start_ - (end > line_start_ && head_[end - 1] == '\r' ? 1 : 0);
    from = line_start_ = end + 1;
    if (from > limits_.head_bytes) break;
    if (length == 0) {
      Outcome outcome = lines_ == 0 ? refuse(400, "invalid HTTP request") : parse(head_.substr(0, from), limits_);
      if (!outcome || outcome->body_bytes == 0) return outcome;
      post_ = *std::move(outcome);
      return add_to_body(std::string_view(head_).substr(from));
    }
    if (++lines_ == 1 && length > limits_.request_line_bytes) return refuse(414, "the request line is too long");
    if (lines_ > 1 + limits_.fields) return refuse(431, "too many header fields");
  }
  // Another protocol, such as TLS, whose first message may never contain a line.
  if (head_[0] < 'A' || head_[0] > 'Z') return refuse(400, "invalid HTTP request");
  // The incomplete line may end in a '\r' that does not count, so that the pieces make no difference.
  if (lines_ == 0 && head_.size() > limits_.request_line_bytes + 1) return refuse(414, "the request line is too long");
  if (head_.size() > limits_.head_bytes) return refuse(431, "the header fields are too long");
  return std::nullopt;
}

std::string response_head(const HttpResponse& response) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n", response.status,
                  std::string_view(reason.data(), reason.size()), response.content_type, response.body.size());
  if (response.status == 405) head += "Allow: GET, HEAD\r\n";
  if (response.status == 503 || response.status == 429) head += "Retry-After: 1\r\n";
  return head + "\r\n";
}

HttpResponse text_response(int status, std::string text) { return {.status = status, .body = std::move(text)}; }

// ---- TLS ---------------------------------------------------------------------------------------------------------

namespace {

constexpr uint8_t kHandshakeRecord = 22;
constexpr uint8_t kMajorVersion = 3;
constexpr uint8_t kClientHello = 1;
constexpr size_t kRecordHeader = 5;   // type, version, and length in 2 bytes
constexpr size_t kMessageHeader = 4;  // type, and length in 3 bytes

uint8_t byte_at(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

}  // namespace

ClientHelloState inspect_client_hello(std::string_view bytes, size_t limit) {
  if (bytes.size() > limit) return ClientHelloState::kInvalid;
  size_t received = 0;               // bytes of the message
  size_t expected = kMessageHeader;  // size of the message, as far as it is known
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view record = bytes.substr(at);
    if (byte_at(record, 0) != kHandshakeRecord) return ClientHelloState::kInvalid;
    if (record.size() > 1 && byte_at(record, 1) != kMajorVersion) return ClientHelloState::kInvalid;
    if (record.size() < kRecordHeader) break;
    const size_t length = byte_at(record, 3) * 256u + byte_at(record, 4);
    if (length == 0) return ClientHelloState::kInvalid;
    for (const char c : record.substr(kRecordHeader, length)) {
      const auto value = static_cast<uint8_t>(c);
      if (received == 0 && value != kClientHello) return ClientHelloState::kInvalid;
      if (received > 0 && received < kMessageHeader) expected += size_t{value} << (8 * (kMessageHeader - 1 - received));
      if (++received == kMessageHeader && expected > limit) return ClientHelloState::kInvalid;
      if (received >= kMessageHeader && received == expected) return ClientHelloState::kComplete;
    }
    at += kRecordHeader + length;
  }
  return ClientHelloState::kIncomplete;
}

}  // namespace oarlock
