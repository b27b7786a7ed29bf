#include "operator/kube/client.h"

#include <gmock/gmock.h>

#include "tests/support/scripted_transport.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using Kind = ApiError::Kind;

std::string status(int code, const std::string& reason) {
  return R"({"kind":"Status","status":"Failure","message":"why )" + reason + R"(","reason":")" + reason +
         R"(","code":)" + std::to_string(code) + "}";
}

struct Case {
  int code;
  std::string reason;
  Kind kind;
};

class ApiErrorTest : public ::testing::TestWithParam<Case> {};

TEST_P(ApiErrorTest, IsKnownByItsStatus) {
  const Case& c = GetParam();
  const ApiError error = api_error(Response{.status = c.code, .body = status(c.code, c.reason), .retry_after = 3s});
  EXPECT_EQ(error.kind, c.kind) << c.code << c.reason;
  EXPECT_EQ(error.status, c.code);
  EXPECT_EQ(error.reason, c.reason);
  EXPECT_EQ(error.message, "why " + c.reason);
  EXPECT_EQ(error.retry_after, 3s);
}

INSTANTIATE_TEST_SUITE_P(
    All, ApiErrorTest,
    ::testing::Values(Case{409, "AlreadyExists", Kind::kAlreadyExists}, Case{409, "Conflict", Kind::kConflict},
                      Case{404, "NotFound", Kind::kNotFound}, Case{410, "Expired", Kind::kExpired},
                      Case{410, "Gone", Kind::kExpired}, Case{401, "Unauthorized", Kind::kUnauthorized},
                      Case{403, "Forbidden", Kind::kForbidden}, Case{422, "Invalid", Kind::kInvalid},
                      Case{400, "BadRequest", Kind::kInvalid}, Case{429, "TooManyRequests", Kind::kTooManyRequests},
                      Case{500, "InternalError", Kind::kServer}, Case{503, "ServiceUnavailable", Kind::kServer},
                      Case{418, "Teapot", Kind::kOther}));

TEST(ApiError, OfAPageThatIsNoStatusObject) {
  const ApiError error = api_error(Response{.status = 404, .body = "404 page not found\nmore", .retry_after = {}});
  EXPECT_EQ(error.kind, Kind::kNotFound);
  EXPECT_EQ(error.message, "the server answered 404: 404 page not found");
}

TEST(ApiError, OfAVersionOfTheFuture) {
  EXPECT_EQ(api_error(504, "Timeout", "Too large resource version: 9, current: 5").kind, Kind::kExpired);
}

TEST(Client, SendsTheRequestOfTheVerbAndReturnsTheBodyOrTheError) {
  auto clock = std::make_shared<test::FakeClock>();
  auto transport = std::make_shared<test::ScriptedTransport>(clock);
  const Client client(transport, 5s);
  const std::stop_token go;
  transport->script({.pieces = {"{\"a\":1}"}});
  EXPECT_EQ(client.get(pods(), {"ns", "p"}, go), "{\"a\":1}");
  transport->script({.status = 201, .pieces = {"made"}});
  EXPECT_EQ(client.create(services(), "ns", "body", go), "made");
  transport->script({.status = 409, .pieces = {status(409, "Conflict")}});
  EXPECT_EQ(client.remove(pods(), {"ns", "p"}, {.uid = "u", .resource_version = ""}, go).error().kind, Kind::kConflict);
  transport->script({.failure = TransportError::Kind::kBroken});
  const auto broken = client.patch_status(pods(), {"ns", "p"}, "{}", go);
  EXPECT_EQ(broken.error().kind, Kind::kTransport);
  EXPECT_EQ(broken.error().transport, TransportError::Kind::kBroken);
  std::vector<std::string> methods;
  for (const Request& request : transport->requests()) methods.push_back(request.method);
  EXPECT_THAT(methods, ::testing::ElementsAre("GET", "POST", "DELETE", "PATCH"));
}

}  // namespace
}  // namespace oarlock::kube
