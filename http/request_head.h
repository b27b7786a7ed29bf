// The first bytes of a connection, from untrusted peers: parses an HTTP/1.x request within HttpLimits, and inspects the
// ClientHello of a TLS connection. Performs no I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "http/server.h"

namespace oarlock {

struct HttpRequest {
  bool is_head = false;       // HEAD
  bool is_post = false;       // POST; otherwise GET or HEAD
  std::string path;           // as sent, without decoding
  std::string query;          // without "?"
  std::string authorization;  // value of the Authorization field, or ""
  size_t body_bytes = 0;      // of the body that follows; 0 unless it is POST
  std::string body{};         // of POST
};

// The bytes that a connection reads at a time.
constexpr size_t kPieceBytes = 512;

// Appends to a text that will not exceed `limit`. Its capacity does not exceed the limit either, as that of
// std::string::append() would.
void append(std::string& text, std::string_view bytes, size_t limit);

// Collects the bytes of one head, and of the body of POST. `limits` must outlive the reader.
class RequestHeadReader {
 public:
  explicit RequestHeadReader(const HttpLimits& limits) : limits_(limits) {}

  // Adds the next bytes, at least one. Returns an empty value while the request is incomplete, then the request, or an
  // error response (4xx or 5xx) if the request is rejected. Bytes after it are ignored.
  std::optional<tl::expected<HttpRequest, HttpResponse>> add(std::string_view bytes);

 private:
  std::optional<tl::expected<HttpRequest, HttpResponse>> add_to_body(std::string_view bytes);

  const HttpLimits& limits_;
  std::string head_;
  size_t lines_ = 0;                   // number of complete lines in head_
  size_t line_start_ = 0;              // offset of the incomplete line
  std::optional<HttpRequest> post_{};  // a request whose body is incomplete
};

// Returns the status line and the header fields of a response.
std::string response_head(const HttpResponse& response);

// Returns a plain-text response.
HttpResponse text_response(int status, std::string text);

// ---- TLS ---------------------------------------------------------------------------------------------------------
// A TLS session takes about 100 KiB, so a server creates one only for a client that has sent a ClientHello of a usual
// size.

enum class ClientHelloState { kIncomplete, kComplete, kInvalid };

// Returns the state of the ClientHello at the beginning of `bytes`, all bytes that the peer has sent so far (RFC 8446,
// 4 and 5.1; it may be split into several records). It is invalid if it is another message, another protocol, or if its
// records exceed `limit` bytes.
ClientHelloState inspect_client_hello(std::string_view bytes, size_t limit);

}  // namespace oarlock
