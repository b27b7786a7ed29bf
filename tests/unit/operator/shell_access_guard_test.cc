// Authorization of /metrics by the reviews of the API server.
#include "operator/shell/authorization_filter.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/support/scripted_transport.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

class AuthorizationFilterTest : public ::testing::Test {
 protected:
  void answer(const Json& status) { transport_->script({.status = 201, .pieces = {Json{{"status", status}}.dump()}}); }
  int check(const std::string& authorization, bool is_known_address = false) {
    const auto response = filter_.check("/metrics", authorization, is_known_address);
    return response ? response->status : 200;
  }
  void allow(const std::string& authorization) {
    answer({{"authenticated", true}, {"user", user_}});
    answer({{"allowed", true}});
    EXPECT_EQ(check(authorization), 200);
  }
  const Json user_ = {{"username", "system:serviceaccount:monitoring:prometheus"}, {"groups", {"g"}}, {"uid", "u"}};

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
  AuthorizationFilter filter_{kube::Client(transport_, 5s), clock_};
};

TEST_F(AuthorizationFilterTest, ReviewsAllowedTokenOncePerMinute) {
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", true}});
  EXPECT_EQ(check("Bearer t"), 200);
  EXPECT_EQ(check("Bearer t"), 200);
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
  EXPECT_EQ(check("Bearer t"), 403);
}

TEST_F(AuthorizationFilterTest, DeniesMissingAndInvalidTokens) {
  EXPECT_EQ(check(""), 401);
  EXPECT_EQ(check("Basic dTpw"), 401);
  EXPECT_THAT(transport_->requests(), IsEmpty());
  answer({{"authenticated", false}});
  EXPECT_EQ(check("Bearer wrong"), 401);
  EXPECT_EQ(check("Bearer wrong"), 401);  // remembered
  EXPECT_THAT(transport_->requests(), SizeIs(1));
}

TEST_F(AuthorizationFilterTest, RetriesReviewAfterPauseOnFailure) {
  transport_->script({.failure = http::TransportErrorKind::kConnect});
  EXPECT_EQ(check("Bearer t"), 503);
  EXPECT_EQ(check("Bearer t"), 503);
  EXPECT_EQ(check("Bearer u"), 503);
  EXPECT_THAT(transport_->requests(), SizeIs(1)) << "an API server that is down gets no request per check";
  clock_->advance(6s);
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", true}});
  EXPECT_EQ(check("Bearer t"), 200);
}

TEST_F(AuthorizationFilterTest, AllowsKnownTokensWhileApiServerIsDown) {
  allow("Bearer t");
  for (int i = 0; i < 4; ++i) {
    clock_->advance(50s);
    if (i > 0) transport_->script({.failure = http::TransportErrorKind::kConnect});
    EXPECT_EQ(check("Bearer t"), 200) << i;
  }
  clock_->advance(200s);
  transport_->script({.failure = http::TransportErrorKind::kConnect});
  EXPECT_EQ(check("Bearer t"), 503) << "a result is used for at most five minutes";
}

TEST_F(AuthorizationFilterTest, DeniesRevokedTokenAfterOneMinute) {
  allow("Bearer t");
  clock_->advance(61s);
  answer({{"authenticated", false}});
  EXPECT_EQ(check("Bearer t"), 401);
  transport_->script({.failure = http::TransportErrorKind::kConnect});
  clock_->advance(11s);
  EXPECT_EQ(check("Bearer t"), 503) << "the earlier result is not used anymore";
}

// 10,000 random tokens in a minute: at most the burst and five per second are reviewed, and the result of the
// scraper is not evicted, and its renewal does not wait for the token bucket.
TEST_F(AuthorizationFilterTest, LimitsReviewsOfRandomTokens) {
  allow("Bearer scraper");
  const size_t before = transport_->requests().size();
  transport_->when_empty({.status = 201, .pieces = {R"({"status":{"authenticated":false}})"}, .takes = 0ms});
  for (int i = 0; i < 10000; ++i) {
    const int status = check("Bearer random-" + std::to_string(i));
    EXPECT_TRUE(status == 401 || status == 429) << status;
    clock_->advance(6ms);
  }
  const size_t reviews = transport_->requests().size() - before;
  EXPECT_LE(reviews, 10U + 5U * 60U + 1U);
  EXPECT_GE(reviews, 5U * 60U);
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", true}});
  EXPECT_EQ(check("Bearer scraper"), 200) << "a known token is renewed although the bucket is empty";
  EXPECT_EQ(transport_->requests().back().target, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
}

// Prometheus' token was rotated: the new one is reviewed immediately, although a flood has emptied the bucket of the
// others.
TEST_F(AuthorizationFilterTest, FloodDoesNotDelayNewTokensOfKnownAddresses) {
  transport_->when_empty({.status = 201, .pieces = {R"({"status":{"authenticated":false}})"}, .takes = 0ms});
  for (int i = 0; i < 100; ++i) check("Bearer random-" + std::to_string(i));
  EXPECT_EQ(check("Bearer rotated"), 429);
  answer({{"authenticated", true}, {"user", user_}});
  answer({{"allowed", true}});
  EXPECT_EQ(check("Bearer rotated", true), 200);

  // Known addresses have a separate limit.
  const size_t before = transport_->requests().size();
  for (int i = 0; i < 100; ++i) check("Bearer other-" + std::to_string(i), true);
  EXPECT_LE(transport_->requests().size() - before, 10U);
}

TEST_F(AuthorizationFilterTest, DeniesMalformedTokensWithoutReview) {
  EXPECT_EQ(check("Bearer "), 401);
  EXPECT_EQ(check("Bearer \xff\xfe"), 401);
  EXPECT_EQ(check("Bearer a b"), 401);
  EXPECT_EQ(check("Bearer a\nX-Header: b"), 401);
  EXPECT_EQ(check("Bearer " + std::string(AuthorizationFilter::kMaxToken + 1, 'a')), 401);
  EXPECT_THAT(transport_->requests(), IsEmpty());
}

TEST(ReviewCache, EvictsEntryThatExpiresFirst) {
  ReviewCache cache(3);
  const SteadyTime now{};
  for (int i = 0; i < 5; ++i) cache.put(std::to_string(i), {401, now, now + std::chrono::seconds(10 + i)}, now);
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_FALSE(cache.find("1", now));
  EXPECT_TRUE(cache.find("2", now));
  EXPECT_FALSE(cache.find("2", now + 12s));
}

TEST(ReviewCache, KeysSeparatePathAndToken) {
  EXPECT_NE(review_key("/a", "bc"), review_key("/ab", "c"));
  EXPECT_EQ(review_key("/metrics", std::string(16000, 'a')).size(), 32U);
}

// Holds each request until it is released or cancelled, and allows all of them.
class HeldTransport final : public http::Transport {
 public:
  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds,
                                             std::stop_token cancel) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    const bool is_let_go = changed_.wait(lock, cancel, [this] { return is_open_; });
    --waiting_;
    if (!is_let_go) {
      return tl::make_unexpected(
          http::TransportError{.kind = http::TransportErrorKind::kCancelled, .message = "cancelled"});
    }
    const bool is_token = request.target.find("tokenreviews") != std::string::npos;
    return http::Response{.status = 201,
                          .body = Json{{"status", {{is_token ? "authenticated" : "allowed", true}}}}.dump(),
                          .retry_after = {}};
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink&, http::StreamLimits limits,
                                               std::stop_token cancel) override {
    return send(request, limits.total, cancel);
  }
  void wait_for(int requests) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == requests; });
  }
  void open(bool value = true) {
    const std::lock_guard lock(mutex_);
    is_open_ = value;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int waiting_ = 0;
  bool is_open_ = false;
};

class AuthorizationFilterThreads : public ::testing::Test {
 protected:
  // Returns the status of the response; 200 if the request is allowed.
  int check(const std::string& token, bool is_known_address = false) {
    const auto no = filter_.check("/metrics", "Bearer " + token, is_known_address);
    return no ? no->status : 200;
  }
  std::future<int> check_soon(const std::string& token, bool is_known_address = false) {
    return std::async(std::launch::async, [=, this] { return check(token, is_known_address); });
  }

  const std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  const std::shared_ptr<HeldTransport> transport_ = std::make_shared<HeldTransport>();
  AuthorizationFilter filter_{kube::Client(transport_, 1h), clock_};
};

TEST_F(AuthorizationFilterThreads, RunsOneReviewAtATimeWithoutBlockingOthers) {
  std::future<int> held = check_soon("a");
  transport_->wait_for(1);
  EXPECT_EQ(check("a"), 429) << "it is being reviewed";
  EXPECT_EQ(check("b"), 429) << "another token is being reviewed";
  transport_->open();
  EXPECT_EQ(held.get(), 200);
  EXPECT_EQ(check("b"), 200) << "the place is free again";

  // The renewal of a known token delays no scrape with a known token.
  clock_->advance(61s);
  transport_->open(false);
  std::future<int> renewal = check_soon("a");
  transport_->wait_for(1);
  EXPECT_EQ(check("a"), 200);
  EXPECT_EQ(check("b"), 200);
  std::future<int> stranger = check_soon("c");
  transport_->wait_for(2);
  EXPECT_EQ(check("a"), 200) << "strangers do not take the place of known tokens";
  transport_->open();
  EXPECT_EQ(renewal.get(), 200);
  EXPECT_EQ(stranger.get(), 200);
}

TEST_F(AuthorizationFilterThreads, ReviewOfAStrangerDoesNotDelayKnownAddresses) {
  std::future<int> stranger = check_soon("a");
  transport_->wait_for(1);
  std::future<int> known = check_soon("b", true);
  transport_->wait_for(2);
  EXPECT_EQ(check("c", true), 429);
  EXPECT_EQ(check("c", false), 429);
  transport_->open();
  EXPECT_EQ(stranger.get(), 200);
  EXPECT_EQ(known.get(), 200);
}

TEST_F(AuthorizationFilterThreads, StopEndsARunningReviewAndRejectsFurtherOnes) {
  std::future<int> held = check_soon("a");
  transport_->wait_for(1);
  filter_.stop();
  EXPECT_EQ(held.get(), 503);
  clock_->advance(AuthorizationFilter::kPauseAfterFailure + 1s);
  EXPECT_EQ(check("b"), 503);
}

}  // namespace
}  // namespace oarlock::control
