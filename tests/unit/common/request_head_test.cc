#include "http/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oarlock {
namespace {

constexpr size_t kWhole = 1 << 20;

// Status of the refusal; 200 for a request, 0 for an incomplete head. The bytes come in pieces of this size.
int status_of(const std::string& bytes, size_t piece, HttpRequest* request = nullptr) {
  const HttpLimits limits;
  RequestHeadReader reader(limits);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const auto outcome = reader.add(std::string_view(bytes).substr(at, piece));
    if (!outcome) continue;
    if (!*outcome) return outcome->error().status;
    if (request != nullptr) *request = **outcome;
    return 200;
  }
  return 0;
}

std::string fields(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += "X: y\r\n";
  return out;
}

TEST(RequestHead, ReadsTargetAndAuthorization) {
  for (const size_t piece : {size_t{1}, size_t{3}, kWhole}) {
    HttpRequest request;
    const std::string bytes =
        "GET /statusz?uid=a&b=? HTTP/1.1\r\nhost: x\r\naUthorization:  Bearer t \r\n\r\nGET /next";
    ASSERT_EQ(status_of(bytes, piece, &request), 200);
    EXPECT_FALSE(request.is_head);
    EXPECT_EQ(request.path, "/statusz");
    EXPECT_EQ(request.query, "uid=a&b=?");
    EXPECT_EQ(request.authorization, "Bearer t");
  }
}

TEST(RequestHead, AcceptsHeadAndAbsoluteForm) {
  HttpRequest request;
  ASSERT_EQ(status_of("HEAD http://[::1]:9400/healthz HTTP/1.0\r\n\r\n", kWhole, &request), 200);
  EXPECT_TRUE(request.is_head);
  EXPECT_EQ(request.path, "/healthz");
  ASSERT_EQ(status_of("GET http://host HTTP/1.1\r\n\r\n", kWhole, &request), 200);
  EXPECT_EQ(request.path, "/");
}

TEST(RequestHead, ReadsTheBodyOfPost) {
  const HttpLimits limits{.post_bytes = 8};
  for (const size_t piece : {size_t{1}, size_t{3}, kWhole}) {
    RequestHeadReader reader(limits);
    const std::string bytes = "POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345678";
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const auto outcome = reader.add(std::string_view(bytes).substr(at, piece));
      if (!outcome) continue;
      ASSERT_TRUE(*outcome);
      EXPECT_TRUE((*outcome)->is_post);
      EXPECT_EQ((*outcome)->body, "12345");
      break;
    }
  }
  RequestHeadReader reader(limits);
  const auto outcome = reader.add("POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\n");
  ASSERT_TRUE(outcome && !*outcome);
  EXPECT_EQ(outcome->error().status, 413);
}

struct Case {
  const char* name;
  std::string bytes;
  int status;
};

TEST(RequestHead, RejectsInvalidOrTooLargeRequests) {
  const std::string line = "GET /x HTTP/1.1\r\n";
  const std::vector<Case> cases = {
      {.name = "incomplete", .bytes = line + "Host: x\r\n", .status = 0},
      {.name = "endless line", .bytes = "GET /" + std::string(5000, 'x'), .status = 414},
      {.name = "long line", .bytes = "GET /" + std::string(4096, 'x') + " HTTP/1.1\r\n", .status = 414},
      {.name = "endless field", .bytes = line + "X: " + std::string(9000, 'x'), .status = 431},
      {.name = "long head", .bytes = line + "X: " + std::string(8192, 'x') + "\r\n\r\n", .status = 431},
      {.name = "largest number of fields", .bytes = line + fields(64) + "\r\n", .status = 200},
      {.name = "too many fields", .bytes = line + fields(65), .status = 431},
      {.name = "TLS", .bytes = "\x16\x03\x01\x02", .status = 400},
      {.name = "empty line", .bytes = "\r\n", .status = 400},
      {.name = "one word", .bytes = "GET\r\n\r\n", .status = 400},
      {.name = "no carriage return", .bytes = "GET / HTTP/1.1\n\n", .status = 505},
      {.name = "zero byte", .bytes = line + std::string("A: \0\r\n\r\n", 8), .status = 400},
      {.name = "field without colon", .bytes = line + "abc\r\n\r\n", .status = 400},
      {.name = "folded field", .bytes = line + "A: b\r\n c\r\n\r\n", .status = 200},
      {.name = "HTTP/2", .bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", .status = 505},
      {.name = "POST", .bytes = "POST /x HTTP/1.1\r\nContent-Length: 1\r\n\r\n", .status = 405},
      {.name = "unknown method", .bytes = "BREW /x HTTP/1.1\r\n\r\n", .status = 405},
      {.name = "small body", .bytes = line + "Content-Length: 4096\r\n\r\n", .status = 200},
      {.name = "large body", .bytes = line + "Content-Length: 1073741824\r\n\r\n", .status = 413},
      {.name = "body of unknown size", .bytes = line + "Transfer-Encoding: chunked\r\n\r\n", .status = 413},
      {.name = "number above 64 bits", .bytes = line + "Content-Length: 99999999999999999999\r\n\r\n", .status = 400},
      {.name = "two lengths", .bytes = line + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", .status = 400},
      {.name = "two tokens", .bytes = line + "Authorization: a\r\nAuthorization: b\r\n\r\n", .status = 400},
  };
  for (const Case& row : cases) {
    for (const size_t piece : {size_t{1}, size_t{100}, kWhole})
      EXPECT_EQ(status_of(row.bytes, piece), row.status) << row.name << " in pieces of " << piece;
  }
}

// "GET /xx... HTTP/1.1", a field, and the blank line.
std::string head_of(size_t line, size_t bytes) {
  std::string head = "GET /" + std::string(line - 14, 'x') + " HTTP/1.1\r\nA: ";
  return head + std::string(bytes - head.size() - 4, 'y') + "\r\n\r\n";
}

TEST(RequestHead, ResultDoesNotDependOnPieces) {
  const HttpLimits limits;
  const size_t line = limits.request_line_bytes;
  const size_t bytes = limits.head_bytes;
  for (const size_t piece : {size_t{1}, size_t{7}, kWhole}) {
    EXPECT_EQ(status_of(head_of(line, bytes), piece), 200) << piece;
    EXPECT_EQ(status_of(head_of(line + 1, bytes), piece), 414) << piece;
    EXPECT_EQ(status_of(head_of(line, bytes + 1), piece), 431) << piece;
    EXPECT_EQ(status_of(head_of(line, bytes + 2), piece), 431) << piece;
  }
}

TEST(ResponseHead, HasLengthAndConnectionClose) {
  const HttpResponse response{.status = 503, .content_type = "text/plain", .body = "abc"};
  EXPECT_EQ(response_head(response),
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: "
            "close\r\nRetry-After: 1\r\n\r\n");
}

}  // namespace
}  // namespace oarlock
