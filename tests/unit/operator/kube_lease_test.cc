// Leader election with a Lease in memory, two candidates and a fake clock.
#include "kube/client/lease.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/scripted_transport.h"

namespace oarlock::kube {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// Stores a Lease and checks preconditions as a real API server does.
class LeaseServer final : public http::Transport {
 public:
  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds deadline,
                                             std::stop_token) override {
    last_deadline = deadline;
    requests.push_back(request.method);
    if (on_request) on_request();
    if (away) return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kConnect, "away"});
    if (request.method == "DELETE") return ok(200);
    if (request.method == "GET") return exists() ? ok(200) : error(404, "NotFound");
    if (request.method == "POST") {
      if (exists()) return error(409, "AlreadyExists");
      return put(request.body);
    }
    if (Json::parse(request.body)["metadata"].value("resourceVersion", "") != std::to_string(version))
      return error(409, "Conflict");
    http::TransportResult<http::Response> written = put(request.body);
    if (drop_next_answer) {
      drop_next_answer = false;
      return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kBroken, "dropped"});
    }
    return written;
  }
  http::TransportResult<http::Response> stream(const http::Request&, http::ByteSink&, http::StreamLimits,
                                               std::stop_token) override {
    return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kRefused, "no streams"});
  }

  bool exists() const { return !lease.is_null(); }
  std::string holder() const { return lease["spec"]["holderIdentity"]; }
  int transitions() const { return lease["spec"]["leaseTransitions"]; }

  Json lease;
  int version = 0;
  bool away = false;
  bool drop_next_answer = false;
  http::Milliseconds last_deadline{0};
  std::vector<std::string> requests;
  std::function<void()> on_request;  // called before each request

 private:
  http::TransportResult<http::Response> put(const std::string& body) {
    lease = Json::parse(body);
    lease["metadata"]["resourceVersion"] = std::to_string(++version);
    return ok(200);
  }
  http::TransportResult<http::Response> ok(int status) {
    return http::Response{.status = status, .body = lease.dump(), .retry_after = {}};
  }
  static http::TransportResult<http::Response> error(int status, const std::string& reason) {
    return http::Response{.status = status, .body = Json{{"reason", reason}}.dump(), .retry_after = {}};
  }
};

// Calls a function of the test instead of sleeping.
class ActingSleeper final : public Sleeper {
 public:
  using Act = std::function<bool(http::Milliseconds)>;  // false: stopped
  explicit ActingSleeper(Act act) : act_(std::move(act)) {}
  bool sleep(http::Milliseconds duration, const std::stop_token&) override { return act_(duration); }

 private:
  const Act act_;
};

class LeaseTest : public ::testing::Test {
 protected:
  struct Candidate {
    std::unique_ptr<LeaderElector> elector;
    std::vector<std::string> leaders;
    std::vector<std::string> problems;
    int slow = 0;
    std::function<bool(http::Milliseconds)> on_sleep = [](http::Milliseconds) { return false; };
    bool acquire() { return elector->acquire({}); }
    // One attempt without waiting.
    bool try_once() {
      on_sleep = [](http::Milliseconds) { return false; };
      return elector->acquire({});
    }
  };

  std::unique_ptr<Candidate> candidate(const std::string& identity) {
    auto out = std::make_unique<Candidate>();
    Candidate* self = out.get();
    LeaderElector::Hooks hooks;
    hooks.on_new_leader = [self](const std::string& holder) { self->leaders.push_back(holder); };
    hooks.on_problem = [self](const ApiError& error) { self->problems.push_back(error.message); };
    hooks.on_slow_path = [self] { ++self->slow; };
    out->elector = std::make_unique<LeaderElector>(
        LeaseOptions{.key = {"ns", "lease"}, .identity = identity}, std::move(hooks), Client(server_, 5s), clock_,
        std::make_shared<ActingSleeper>([self](http::Milliseconds duration) { return self->on_sleep(duration); }),
        [] { return 0.5; });
    return out;
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<LeaseServer> server_ = std::make_shared<LeaseServer>();
};

TEST_F(LeaseTest, SecondCandidateWaitsForExpiryByItsOwnClock) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  ASSERT_TRUE(a->try_once());
  EXPECT_EQ(server_->holder(), "a");
  EXPECT_EQ(server_->transitions(), 0);
  EXPECT_EQ(server_->lease["spec"]["leaseDurationSeconds"], 15);
  EXPECT_EQ(server_->lease["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
  EXPECT_FALSE(b->try_once());
  // The times in the lease do not matter, only the moments when b observes changes.
  clock_->advance(14s);
  EXPECT_FALSE(b->try_once());
  clock_->advance(2s);
  EXPECT_TRUE(b->try_once());
  EXPECT_EQ(server_->holder(), "b");
  EXPECT_EQ(server_->transitions(), 1);
  EXPECT_THAT(b->leaders, ElementsAre("a", "b"));
}

TEST_F(LeaseTest, RenewalNeedsNoRead) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  ASSERT_TRUE(a->try_once());
  server_->requests.clear();
  int renewals = 0;
  a->on_sleep = [&](http::Milliseconds pause) {
    EXPECT_EQ(pause, 2s);
    clock_->advance(pause);
    EXPECT_FALSE(b->try_once());
    return ++renewals <= 30;
  };
  std::stop_source stop;
  EXPECT_FALSE(a->elector->hold(stop.get_token()));  // ended by the sleeper, not by a stop
  EXPECT_EQ(server_->holder(), "a");
  EXPECT_EQ(server_->transitions(), 0);
  EXPECT_EQ(std::count(server_->requests.begin(), server_->requests.end(), "PUT"), 30);
  EXPECT_EQ(a->slow, 0);
}

TEST_F(LeaseTest, AcquireHasJitter) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  ASSERT_TRUE(a->try_once());
  std::vector<http::Milliseconds> pauses;
  b->on_sleep = [&](http::Milliseconds pause) {
    pauses.push_back(pause);
    return pauses.size() < 2;
  };
  EXPECT_FALSE(b->acquire());
  EXPECT_THAT(pauses, ElementsAre(3200ms, 3200ms));  // 2 s plus half of 1.2 times 2 s
}

TEST_F(LeaseTest, LeaderStopsBeforeAnotherTakesOver) {
  const auto a = candidate("a");
  ASSERT_TRUE(a->try_once());
  const SteadyTime renewed = clock_->steady();
  server_->away = true;
  a->on_sleep = [&](http::Milliseconds pause) {
    clock_->advance(pause);
    return true;
  };
  EXPECT_EQ(a->elector->remaining(), 15s);
  EXPECT_FALSE(a->elector->hold({}));
  EXPECT_LE(clock_->steady() - renewed, 12s);
  EXPECT_EQ(a->elector->remaining(), 0ms);
  EXPECT_THAT(a->problems, ::testing::Not(IsEmpty()));
}

// The other candidates count from the moment when the server stored the renewal, which may be long before its response
// arrives. If the leader counted from the response, it would write while another candidate already leads.
TEST_F(LeaseTest, RemainingTimeCountsFromBeforeTheRequest) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  server_->on_request = [&] { clock_->advance(3s); };
  ASSERT_TRUE(a->try_once());  // a GET and a POST
  int renewals = 0;
  a->on_sleep = [&](http::Milliseconds) {
    EXPECT_EQ(a->elector->remaining(), 12s);
    return ++renewals <= 2;
  };
  a->elector->hold({});
  EXPECT_EQ(renewals, 3);
  ASSERT_FALSE(server_->requests.empty());
  EXPECT_EQ(server_->requests.back(), "PUT");

  // A leader that received a late response stops before its successor starts.
  ASSERT_TRUE(a->try_once());
  EXPECT_EQ(a->elector->remaining(), 12s);
  server_->on_request = nullptr;
  ASSERT_FALSE(b->try_once());
  clock_->advance(7s);
  EXPECT_EQ(a->elector->remaining(), 0ms);  // 10 s after the request was sent, 7 s after its answer
}

TEST_F(LeaseTest, NextRenewalDetectsALostLease) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  ASSERT_TRUE(a->try_once());
  ASSERT_FALSE(b->try_once());
  clock_->advance(16s);  // a was frozen
  EXPECT_EQ(a->elector->remaining(), 0ms);
  ASSERT_TRUE(b->try_once());
  a->on_sleep = [](http::Milliseconds) { return true; };
  EXPECT_FALSE(a->elector->hold({}));
  EXPECT_EQ(server_->holder(), "b");
  EXPECT_EQ(a->elector->remaining(), 0ms);
}

TEST_F(LeaseTest, RetriesARenewalWithoutResponse) {
  const auto a = candidate("a");
  ASSERT_TRUE(a->try_once());
  server_->drop_next_answer = true;
  int rounds = 0;
  a->on_sleep = [&](http::Milliseconds pause) {
    clock_->advance(pause);
    return ++rounds <= 3;
  };
  a->elector->hold({});
  EXPECT_EQ(server_->holder(), "a");
  EXPECT_EQ(server_->transitions(), 0);
  EXPECT_EQ(a->slow, 1);
}

TEST_F(LeaseTest, AcquiresAReleasedLeaseImmediately) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  ASSERT_TRUE(a->try_once());
  ASSERT_FALSE(b->try_once());
  a->elector->release();
  EXPECT_EQ(a->elector->remaining(), 0ms);
  EXPECT_TRUE(b->try_once());
  EXPECT_EQ(server_->holder(), "b");
}

TEST_F(LeaseTest, TransitionsStayInRange) {
  for (const int stored : {std::numeric_limits<int>::max(), -5}) {
    server_->lease = {{"metadata", {{"resourceVersion", std::to_string(server_->version)}}},
                      {"spec", {{"holderIdentity", ""}, {"leaseTransitions", stored}}}};
    ASSERT_TRUE(candidate("a")->try_once());
    EXPECT_EQ(server_->transitions(), stored > 0 ? stored : 1);
  }
}

TEST_F(LeaseTest, OneOfTwoConcurrentCandidatesWins) {
  const auto a = candidate("a");
  const auto b = candidate("b");
  const auto c = candidate("c");
  ASSERT_TRUE(a->try_once());
  ASSERT_FALSE(b->try_once());
  ASSERT_FALSE(c->try_once());
  clock_->advance(16s);
  EXPECT_TRUE(b->try_once());
  EXPECT_FALSE(c->try_once());
  EXPECT_EQ(server_->holder(), "b");
}

TEST_F(LeaseTest, OnlyTheLeaderWritesWithinItsLease) {
  const auto a = candidate("a");
  LeasedTransport transport(server_, [&] { return a->elector->remaining(); });
  const http::Request write{.method = "DELETE", .target = "/x", .body = "{}", .content_type = ""};
  const http::Request read{.method = "GET", .target = "/x", .body = "", .content_type = ""};
  server_->lease = Json::object();
  EXPECT_TRUE(transport.send(read, 10s, {}));
  const auto refused = transport.send(write, 10s, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, http::TransportErrorKind::kRefused);
  server_->lease = nullptr;
  ASSERT_TRUE(a->try_once());
  EXPECT_TRUE(transport.send(write, 10s, {}));
  EXPECT_EQ(server_->last_deadline, 10s);
  clock_->advance(9s);
  EXPECT_TRUE(transport.send(write, 10s, {}));
  EXPECT_EQ(server_->last_deadline, 6s);
  clock_->advance(1s);
  EXPECT_FALSE(transport.send(write, 10s, {}));
}

}  // namespace
}  // namespace oarlock::kube
