// Who may read /metrics, by what the API server answers.
#include "operator/shell/access_guard.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/scripted_transport.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

class AccessGuardTest : public ::testing::Test {
 protected:
  void answer(const Json& status) { transport_->script({.status = 201, .pieces = {Json{{"status", status}}.dump()}}); }
  int ask(const std::string& authorization) {
    const auto no = guard_.refuse("/metrics", authorization);
    return no ? no->status : 200;
  }
  const Json user_ = {{"username", "system:serviceaccount:monitoring:prometheus"}, {"groups", {"g"}}, {"uid", "u"}};

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
  AccessGuard guard_{kube::Client(transport_, 5s), clock_};
};

TEST_F(AccessGuardTest, WhoMayReadItIsAskedOnceAMinute) {
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", true}});
  EXPECT_EQ(ask("Bearer t"), 200);
  EXPECT_EQ(ask("Bearer t"), 200);
  const auto& sent = transport_->requests();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].target, "/apis/authentication.k8s.io/v1/tokenreviews");
  EXPECT_EQ(Json::parse(sent[0].body)["spec"]["token"], "t");
  EXPECT_EQ(sent[1].target, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
  EXPECT_EQ(Json::parse(sent[1].body)["spec"],
            Json::parse(R"({"user":"system:serviceaccount:monitoring:prometheus","groups":["g"],"uid":"u",
                            "nonResourceAttributes":{"path":"/metrics","verb":"get"}})"));
  clock_->advance(61s);
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", false}});
  EXPECT_EQ(ask("Bearer t"), 403);
}

TEST_F(AccessGuardTest, NobodyAndStrangersAreRefused) {
  EXPECT_EQ(ask(""), 401);
  EXPECT_EQ(ask("Basic dTpw"), 401);
  EXPECT_THAT(transport_->requests(), IsEmpty());
  answer({{"authenticated", false}});
  EXPECT_EQ(ask("Bearer wrong"), 401);
  EXPECT_EQ(ask("Bearer wrong"), 401);  // remembered
  EXPECT_THAT(transport_->requests(), SizeIs(1));
}

TEST_F(AccessGuardTest, AnApiServerThatDoesNotAnswerAllowsNothingAndIsAskedAgain) {
  transport_->script({.failure = kube::TransportError::Kind::kConnect});
  EXPECT_EQ(ask("Bearer t"), 503);
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", true}});
  EXPECT_EQ(ask("Bearer t"), 200);
}

}  // namespace
}  // namespace oarlock::control
