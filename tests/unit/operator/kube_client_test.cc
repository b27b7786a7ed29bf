#include "kube/client/client.h"

#include <gmock/gmock.h>

#include "tests/support/scripted_transport.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;

std::string status(int code, const std::string& reason) {
  return R"({"kind":"Status","status":"Failure","message":"why )" + reason + R"(","reason":")" + reason +
         R"(","code":)" + std::to_string(code) + "}";
}

struct StatusRow {
  int code;
  std::string reason;
  ApiErrorKind kind;
};

class ApiErrorTest : public ::testing::TestWithParam<StatusRow> {};

TEST_P(ApiErrorTest, ClassifiesTheStatus) {
  const StatusRow& row = GetParam();
  const ApiError error =
      to_api_error(http::Response{.status = row.code, .body = status(row.code, row.reason), .retry_after = 3s});
  EXPECT_EQ(error.kind, row.kind) << row.code << row.reason;
  EXPECT_EQ(error.status, row.code);
  EXPECT_EQ(error.reason, row.reason);
  EXPECT_EQ(error.message, "why " + row.reason);
  EXPECT_EQ(error.retry_after, 3s);
}

INSTANTIATE_TEST_SUITE_P(
    All, ApiErrorTest,
    ::testing::Values(StatusRow{.code = 409, .reason = "AlreadyExists", .kind = ApiErrorKind::kAlreadyExists},
                      StatusRow{.code = 409, .reason = "Conflict", .kind = ApiErrorKind::kConflict},
                      StatusRow{.code = 404, .reason = "NotFound", .kind = ApiErrorKind::kNotFound},
                      StatusRow{.code = 410, .reason = "Expired", .kind = ApiErrorKind::kExpired},
                      StatusRow{.code = 410, .reason = "Gone", .kind = ApiErrorKind::kExpired},
                      StatusRow{.code = 401, .reason = "Unauthorized", .kind = ApiErrorKind::kUnauthorized},
                      StatusRow{.code = 403, .reason = "Forbidden", .kind = ApiErrorKind::kForbidden},
                      StatusRow{.code = 422, .reason = "Invalid", .kind = ApiErrorKind::kInvalid},
                      StatusRow{.code = 400, .reason = "BadRequest", .kind = ApiErrorKind::kInvalid},
                      StatusRow{.code = 429, .reason = "TooManyRequests", .kind = ApiErrorKind::kTooManyRequests},
                      StatusRow{.code = 500, .reason = "InternalError", .kind = ApiErrorKind::kServer},
                      StatusRow{.code = 503, .reason = "ServiceUnavailable", .kind = ApiErrorKind::kServer},
                      StatusRow{.code = 418, .reason = "Teapot", .kind = ApiErrorKind::kOther}));

TEST(ApiError, DescribesBodyThatIsNotAStatus) {
  const ApiError error =
      to_api_error(http::Response{.status = 404, .body = "404 page not found\nmore", .retry_after = {}});
  EXPECT_EQ(error.kind, ApiErrorKind::kNotFound);
  EXPECT_EQ(error.message, "the server returned status 404: 404 page not found");
}

TEST(ApiError, HostileBodyIsNotParsed) {
  for (const std::string& body :
       {std::string(1 << 20, '['), std::string(1000, '['), "{\"a\":" + std::string(1000, '[')}) {
    const ApiError error = to_api_error(http::Response{.status = 403, .body = body, .retry_after = {}});
    EXPECT_EQ(error.status, 403);
    EXPECT_LT(error.message.size(), 1000U);
  }
}

TEST(ApiError, ResourceVersionOfTheFutureIsExpired) {
  EXPECT_EQ(to_api_error(504, "Timeout", "Too large resource version: 9, current: 5").kind, ApiErrorKind::kExpired);
}

TEST(Client, SendsTheRequestOfEachVerb) {
  auto clock = std::make_shared<test::FakeClock>();
  auto transport = std::make_shared<test::ScriptedTransport>(clock);
  const Client client(transport, 5s);
  const std::stop_token go;
  transport->script({.pieces = {"{\"a\":1}"}});
  EXPECT_EQ(client.get(pods(), {"ns", "p"}, go), "{\"a\":1}");
  transport->script({.status = 201, .pieces = {"made"}});
  EXPECT_EQ(client.create(services(), "ns", "body", go), "made");
  transport->script({.status = 409, .pieces = {status(409, "Conflict")}});
  EXPECT_EQ(client.remove(pods(), {"ns", "p"}, {.uid = "u", .resource_version = ""}, go).error().kind,
            ApiErrorKind::kConflict);
  transport->script({.failure = http::TransportErrorKind::kBroken});
  const auto broken = client.patch_status(pods(), {"ns", "p"}, "{}", go);
  EXPECT_EQ(broken.error().kind, ApiErrorKind::kTransport);
  EXPECT_EQ(broken.error().transport, http::TransportErrorKind::kBroken);
  std::vector<std::string> methods;
  for (const http::Request& request : transport->requests()) methods.push_back(request.method);
  EXPECT_THAT(methods, ::testing::ElementsAre("GET", "POST", "DELETE", "PATCH"));
}

}  // namespace
}  // namespace oarlock::kube
