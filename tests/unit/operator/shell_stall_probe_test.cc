#include "operator/shell/stall_probe.h"

#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <thread>

#include "tests/support/fake_clock.h"

namespace oarlock::control {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::SizeIs;

const kube::ObjectKey kStalledJob{"ns", "j"};

// Answers with the body of the address; an address without one refuses the connection, and kSilent does not answer
// before `stop`.
class Node final : public http::Transport {
 public:
  static constexpr const char* kSilent = "10.9.9.9";

  Node(const std::map<std::string, std::string>& bodies, std::string url, std::atomic<int>& requests)
      : bodies_(bodies), url_(std::move(url)), requests_(requests) {}
  http::TransportResult<http::Response> send(const http::Request&, http::Milliseconds, std::stop_token) override {
    std::abort();
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink& sink, http::StreamLimits,
                                               std::stop_token stop) override {
    EXPECT_EQ(request.target, "/statusz?uid=u");
    ++requests_;
    while (url_.find(kSilent) != std::string::npos && !stop.stop_requested()) std::this_thread::yield();
    const auto body = bodies_.find(url_);
    if (body == bodies_.end() || !sink.write(body->second))
      return tl::make_unexpected(http::TransportError{http::TransportErrorKind::kConnect, "refused"});
    return http::Response{.status = 200, .body = "", .retry_after = {}};
  }

 private:
  const std::map<std::string, std::string>& bodies_;
  const std::string url_;
  std::atomic<int>& requests_;
};

class StallProbeTest : public ::testing::Test {
 protected:
  std::vector<StallReport> wait_for(StallProbe& probe, const Stall& stall) {
    for (;;) {
      if (auto reports = probe.reports(kStalledJob, stall)) return *reports;
      std::this_thread::yield();
    }
  }

  std::map<std::string, std::string> bodies_;
  std::atomic<int> requests_ = 0;
  std::atomic<int> calls_ = 0;
  StallProbe::Options options_{.threads = 1};
  std::vector<std::string> reported_{};  // jobs, in the order of their reports
  std::shared_ptr<const Clock> clock_ = std::make_shared<RealClock>();
  std::unique_ptr<StallProbe> make(bool is_started = true) {
    auto out = std::make_unique<StallProbe>(
        options_, [this](const std::string& url) { return std::make_shared<Node>(bodies_, url, requests_); },
        [this](const kube::ObjectKey& job) {
          reported_.push_back(job.to_string());
          ++calls_;
        },
        clock_);
    if (is_started) out->start();
    return out;
  }
};

TEST_F(StallProbeTest, ReadsTheRanksOfLaunchersAndOfRanksThatReportThemselves) {
  RankStatus own;
  own.rank = 2;
  own.step = 7;
  bodies_["http://10.0.0.1:9400"] =
      to_json(RankStatus{}, {{.rank = 0, .step = 7, .state = "running"}, {.rank = 1, .state = "stop\nped"}});
  bodies_["http://10.0.0.2:9400"] = to_json(own);
  own.rank = 3;
  bodies_["http://10.0.0.2:9401"] = to_json(own);
  const auto probe = make();
  const Stall stall{.uid = "u",
                    .since = SystemTime(5s),
                    .port = 9400,
                    .ranks_per_node = 2,
                    .nodes = {{0, "10.0.0.1"}, {1, "10.0.0.2"}, {2, "10.0.0.3"}}};
  const std::vector<StallReport> reports = wait_for(*probe, stall);
  ASSERT_THAT(reports, SizeIs(2)) << "a node that refuses the connection reports nothing";
  ASSERT_THAT(reports[0].ranks, SizeIs(2));
  EXPECT_EQ(reports[0].ranks[1].state.find('\n'), std::string::npos) << "a pod is not trusted";
  ASSERT_THAT(reports[1].ranks, SizeIs(2));
  EXPECT_EQ(reports[1].ranks[1].rank, 3);
  EXPECT_EQ(reports[1].ranks[1].step, 7);
  const int requests = requests_;
  EXPECT_TRUE(probe->reports(kStalledJob, stall)) << "requested once";
  EXPECT_EQ(requests_, requests);
  while (calls_ == 0) std::this_thread::yield();

  Stall next = stall;
  next.since += 100s;
  EXPECT_THAT(wait_for(*probe, next), SizeIs(2)) << "another stall";
  EXPECT_EQ(requests_, 2 * requests);
}

TEST_F(StallProbeTest, ReportsNodesThatDoNotAnswerInTime) {
  options_.timeout = 0ms;
  const std::vector<StallReport> reports = wait_for(*make(), {.uid = "u", .port = 9400, .nodes = {{4, "10.0.0.1"}}});
  EXPECT_EQ(reports, std::vector<StallReport>{StallReport{.node_rank = 4}});
}

TEST_F(StallProbeTest, BoundsRequestsAndWaitingJobs) {
  const auto clock = std::make_shared<test::FakeClock>();
  clock_ = clock;
  options_ = {.threads = 1, .timeout = 0ms, .max_waiting = 2, .max_of_namespace = 1};
  const auto probe = make(false);
  for (const kube::ObjectKey& job : {kube::ObjectKey{"a", "1"}, {"a", "2"}, {"b", "1"}, {"c", "1"}})
    EXPECT_FALSE(probe->reports(job, {.uid = "u"}));
  probe->start();
  while (calls_ < 2) std::this_thread::yield();
  EXPECT_THAT(reported_, ElementsAre("a/1", "b/1")) << "a namespace does not take all places, nor do all together";
  EXPECT_FALSE(probe->reports({"a", "2"}, {.uid = "u"})) << "there is a place now";
  while (calls_ < 3) std::this_thread::yield();
  EXPECT_TRUE(probe->reports({"a", "2"}, {.uid = "u"}));
  clock->advance(21s);
  EXPECT_THAT(probe->reports({"c", "1"}, {.uid = "u"}), testing::Optional(testing::IsEmpty())) << "it is not awaited";
  options_ = {.threads = 1, .max_requests = 3, .timeout = 0ms, .max_waiting = 1};
  Stall stall{.uid = "u", .port = 9400};
  for (int i = 0; i < 10; ++i) stall.nodes.push_back({i, "10.0.0.1"});
  EXPECT_THAT(wait_for(*make(), stall), SizeIs(3));
  EXPECT_EQ(requests_, 3);
}

TEST_F(StallProbeTest, NamespacesTakeTurns) {
  const auto probe = make(false);
  for (const char* name : {"1", "2", "3"}) EXPECT_FALSE(probe->reports({"a", name}, {.uid = "u"}));
  EXPECT_FALSE(probe->reports({"b", "1"}, {.uid = "u"}));
  probe->start();
  while (calls_ < 4) std::this_thread::yield();
  EXPECT_THAT(reported_, ElementsAre("a/1", "b/1", "a/2", "a/3"));
}

TEST_F(StallProbeTest, ASilentNodeDelaysNoOtherJob) {
  options_.threads = 2;
  const auto probe = make();
  EXPECT_FALSE(probe->reports({"ns", "silent"}, {.uid = "u", .port = 9400, .nodes = {{0, Node::kSilent}}}));
  while (requests_ == 0) std::this_thread::yield();
  wait_for(*probe, {.uid = "u", .port = 9400, .nodes = {{0, "10.0.0.1"}}});
  EXPECT_EQ(requests_, 2);
}

TEST_F(StallProbeTest, RequestsAgainAfterAMinute) {
  const auto clock = std::make_shared<test::FakeClock>();
  clock_ = clock;
  const auto probe = make();
  const Stall stall{.uid = "u", .port = 9400, .nodes = {{0, "10.0.0.1"}}};
  wait_for(*probe, stall);
  EXPECT_EQ(requests_, 1);
  clock->advance(1min);
  EXPECT_TRUE(probe->reports(kStalledJob, stall));
  clock->advance(1s);
  EXPECT_FALSE(probe->reports(kStalledJob, stall));
  wait_for(*probe, stall);
  EXPECT_EQ(requests_, 2);
}

TEST_F(StallProbeTest, DoesNotDelayAStallWithoutLimit) {
  const auto clock = std::make_shared<test::FakeClock>();
  clock_ = clock;
  const auto probe = make(/*is_started=*/false);
  const Stall stall{.uid = "u"};
  EXPECT_FALSE(probe->reports(kStalledJob, stall));
  clock->advance(options_.max_wait);
  EXPECT_FALSE(probe->reports(kStalledJob, stall));
  clock->advance(1s);
  const auto reports = probe->reports(kStalledJob, stall);
  ASSERT_TRUE(reports);
  EXPECT_THAT(*reports, SizeIs(0));
}

TEST_F(StallProbeTest, ReadsAllRanksThatANodeCanHave) {
  std::vector<RankActivity> ranks(128);
  for (int i = 0; i < 128; ++i) ranks[static_cast<size_t>(i)] = {.rank = i, .step = 7, .state = "sleeping"};
  bodies_["http://10.0.0.1:9400"] = to_json(RankStatus{}, ranks);
  const auto reports = wait_for(*make(), {.uid = "u", .port = 9400, .ranks_per_node = 128, .nodes = {{0, "10.0.0.1"}}});
  ASSERT_THAT(reports, SizeIs(1));
  EXPECT_THAT(reports[0].ranks, SizeIs(128));
}

}  // namespace
}  // namespace oarlock::control
