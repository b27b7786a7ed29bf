#include "operator/kube/cpprestsdk/message.h"

#include <cpprest/producerconsumerstream.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

namespace oarlock::kube {
namespace {

using Kind = TransportError::Kind;

constexpr char kJson[] = "application/json";
// A server that cannot omit the rest sends the whole object.
constexpr char kMetadataOnly[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
constexpr std::chrono::seconds kLongestRetryAfter{60};

bool is_field_text(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

// Several Content-Length headers arrive as a list.
bool is_length(const std::string& value) {
  uint64_t length = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
  return error == std::errc() && end == value.data() + value.size();
}

// The value of a Retry-After header; nullopt if it is not a number of seconds.
std::optional<std::chrono::seconds> parse_retry_after(const std::string& value) {
  long seconds = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds < 0) return std::nullopt;
  return std::min(std::chrono::seconds(seconds), kLongestRetryAfter);
}

// cpprestsdk repeats every request, POST included, whose reused connection ends without a response, unless its body
// cannot be rewound. Only GET may be repeated, so every other request has such a body, even an empty one.
concurrency::streams::istream single_use_body(const std::string& text) {
  concurrency::streams::producer_consumer_buffer<uint8_t> buffer;
  buffer.putn_nocopy(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  buffer.close(std::ios_base::out);
  return buffer.create_istream();
}

}  // namespace

TransportResult<web::http::http_request> make_request(const Request& request, const RequestHeaders& headers,
                                                      const std::shared_ptr<Exchange>& exchange) {
  if (!request.target.starts_with('/') || request.target.find(' ') != std::string::npos ||
      !is_field_text(request.target)) {
    return failed(Kind::kRefused, fmt::format("the request target '{}' is not valid", request.target));
  }
  if (!is_field_text(headers.token)) return failed(Kind::kRefused, "the token has a line break or control character");
  web::http::http_request out(request.method);
  out.set_request_uri(request.target);
  if (request.method != "GET") {
    out.set_body(single_use_body(request.body), request.body.size(),
                 request.content_type.empty() ? kJson : request.content_type);
  }
  out.headers().add("Host", headers.host);
  out.headers().add("User-Agent", headers.user_agent);
  out.headers().add("Accept", request.metadata_only ? kMetadataOnly : kJson);
  if (!headers.token.empty()) out.headers().add("Authorization", "Bearer " + headers.token);
  const concurrency::streams::streambuf<uint8_t> body(std::make_shared<ResponseBuffer>(exchange));
  out.set_response_stream(body.create_ostream());
  return out;
}

ResponseHead head_of(const web::http::http_response& response) {
  const auto length = response.headers().find("Content-Length");
  if (length != response.headers().end() && (!is_length(length->second) || response.headers().has("Transfer-Encoding")))
    throw InvalidResponse("invalid HTTP response: the length of the body is ambiguous");
  ResponseHead head{.status = response.status_code(), .retry_after = std::nullopt};
  const auto retry_after = response.headers().find("Retry-After");
  if (retry_after != response.headers().end()) head.retry_after = parse_retry_after(retry_after->second);
  return head;
}

}  // namespace oarlock::kube
