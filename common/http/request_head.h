// Reads the head of an HTTP/1.x request from untrusted bytes, within HttpLimits. Pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "common/http/server.h"

namespace oarlock {

struct HttpRequest {
  bool is_head = false;       // HEAD; otherwise GET
  std::string path;           // as sent, without decoding
  std::string query;          // without "?"
  std::string authorization;  // the field's value; "" without one
};

// Collects the bytes of one head. A refusal (4xx or 5xx) is final.
class RequestHeadReader {
 public:
  explicit RequestHeadReader(const HttpLimits& limits) : limits_(limits) {}

  // Takes the next bytes, at least one. Empty: the head is incomplete. Bytes after the head are ignored.
  std::optional<tl::expected<HttpRequest, HttpResponse>> add(std::string_view bytes);

 private:
  const HttpLimits& limits_;
  std::string head_;
  size_t lines_ = 0;       // number of complete lines in head_
  size_t line_start_ = 0;  // offset of the incomplete line
};

// The bytes of a response up to its body.
std::string response_head(const HttpResponse& response);

HttpResponse text_response(int status, std::string text);

}  // namespace oarlock
