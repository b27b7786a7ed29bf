// Leader election in the operator: its metric, and the end of all writes when the leadership is lost.
#include "operator/shell/leader_election.h"

#include <gmock/gmock.h>
#include <prometheus/registry.h>

#include <nlohmann/json.hpp>

#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using http::Response;
using http::TransportResult;
using Json = nlohmann::json;

// Holds one Lease; writes of other versions than the newest are conflicts.
class LeaseApi final : public http::Transport {
 public:
  TransportResult<Response> send(const http::Request& request, http::Milliseconds, std::stop_token) override {
    if (request.method == "GET") return lease_.is_null() ? answer(404, {{"reason", "NotFound"}}) : answer(200, lease_);
    const Json body = Json::parse(request.body);
    if (request.method == "PUT" && body["metadata"]["resourceVersion"] != lease_["metadata"]["resourceVersion"])
      return answer(409, {{"reason", "Conflict"}});
    store(body);
    return answer(200, lease_);
  }
  TransportResult<Response> stream(const http::Request&, http::ByteSink&, http::StreamLimits,
                                   std::stop_token) override {
    return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kRefused, "no streams"});
  }

  std::string holder() const { return lease_["spec"]["holderIdentity"]; }
  void take_over(const std::string& identity) {
    Json lease = lease_;
    lease["spec"]["holderIdentity"] = identity;
    store(std::move(lease));
  }

 private:
  void store(Json lease) {
    lease_ = std::move(lease);
    lease_["metadata"]["resourceVersion"] = std::to_string(++version_);
  }
  static TransportResult<Response> answer(int status, const Json& body) {
    return Response{.status = status, .body = body.dump(), .retry_after = {}};
  }

  Json lease_;
  int version_ = 0;
};

class ImpatientSleeper final : public kube::Sleeper {
 public:
  bool sleep(std::chrono::milliseconds, const std::stop_token& stop) override { return !stop.stop_requested(); }
};

class LeaderElectionTest : public ::testing::Test {
 protected:
  double leader_metric() const {
    for (const prometheus::MetricFamily& family : registry_->Collect()) {
      if (family.name == "leader_election_master_status") return family.metric.at(0).gauge.value;
    }
    return -1;
  }
  bool may_write() {
    const http::Request request{.method = "POST", .target = "/api/v1/pods", .body = "{}", .content_type = ""};
    return election_.leader_transport()->send(request, 1s, {}).has_value();
  }

  std::shared_ptr<LeaseApi> api_ = std::make_shared<LeaseApi>();
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  LeaderElection election_{{.enabled = true, .lease = {.key = {"ns", "lease"}, .identity = "a"}},
                           api_,
                           std::make_shared<Metrics>(registry_),
                           std::make_shared<test::FakeClock>(),
                           std::make_shared<ImpatientSleeper>(),
                           1,
                           Logger::silent()};
};

TEST_F(LeaderElectionTest, LostLeaseStopsWrites) {
  EXPECT_EQ(leader_metric(), 0);
  EXPECT_FALSE(may_write());
  ASSERT_TRUE(election_.acquire({}));
  EXPECT_EQ(leader_metric(), 1);
  api_->take_over("b");
  EXPECT_FALSE(election_.hold({}));
  EXPECT_EQ(leader_metric(), 0);
  EXPECT_FALSE(may_write());
}

TEST_F(LeaderElectionTest, ReleasedLeaseHasNoHolder) {
  ASSERT_TRUE(election_.acquire({}));
  EXPECT_EQ(api_->holder(), "a");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(election_.hold(stop.get_token())) << "a stop is not a loss";
  EXPECT_EQ(leader_metric(), 1);
  election_.release();
  EXPECT_EQ(api_->holder(), "");
  EXPECT_EQ(leader_metric(), 0);
  EXPECT_FALSE(may_write());
}

}  // namespace
}  // namespace oarlock::control
