// The progress that rank 0 serves becomes the status of the job, and a job without progress is stalled.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "common/contract.h"
#include "common/http/server.h"
#include "tests/support/job_scenario.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;

// Every address of 127/8 is local, so a pod can have one that no other test uses.
std::string own_address() {
  return "127.77." + std::to_string(::getpid() / 250 % 250) + "." + std::to_string(1 + ::getpid() % 250);
}

Result<std::unique_ptr<HttpServer>> serve_rank_0(const std::string& ip, const std::atomic<int64_t>& step) {
  return HttpServer::start(ip, kDefaultMetricsPort, {{kStatusPath, [&step](const std::string&) {
                                                        RankStatus rank_status;
                                                        rank_status.world_size = 2;
                                                        rank_status.phase = "train";
                                                        rank_status.step = step;
                                                        rank_status.target_steps = 200;
                                                        rank_status.checkpoint_step = 30;
                                                        rank_status.loss = 0.5;
                                                        rank_status.samples_per_second = 100;
                                                        return HttpResponse{200, "application/json",
                                                                            to_json(rank_status)};
                                                      }}});
}

TEST_F(Scenario, ProgressComesFromRankZero) {
  const std::string ip = own_address();
  std::atomic<int64_t> step = 40;
  const auto rank = serve_rank_0(ip, step);
  ASSERT_TRUE(rank) << rank.error().message;
  start_operator();
  world_.create_job("j");
  set_pod("j-0-1", pod_running());
  set_pod("j-0-0", pod_running(ip));
  EXPECT_TRUE(eventually([&] {
    return world_.status("j").contains("progress") && world_.status("j")["progress"]["step"] == 40;
  })) << world_.status("j").dump(1);
  EXPECT_EQ(world_.status("j")["progress"]["targetSteps"], 200);
  EXPECT_EQ(world_.status("j")["progress"]["checkpointStep"], 30);
  EXPECT_EQ(world_.status("j")["progress"]["completed"], "20%");
  step = 100;
  EXPECT_TRUE(eventually([&] { return world_.status("j")["progress"]["step"] == 100; }));
  EXPECT_TRUE(eventually([&] { return operator_->metric("trainingjob_progress_ratio") == 0.5; }));
}

TEST_F(Scenario, StalledUntilStepAdvances) {
  const std::string ip = own_address();
  std::atomic<int64_t> step = 40;
  auto rank = serve_rank_0(ip, step);
  ASSERT_TRUE(rank) << rank.error().message;
  start_operator();
  world_.create_job("j", {{"stallPolicy", {{"timeoutSeconds", 2}}}});
  world_.create_job("silent", {{"stallPolicy", {{"timeoutSeconds", 1}}}});  // its image has no /statusz
  set_group("silent", 0, pod_running());
  set_pod("j-0-1", pod_running());
  set_pod("j-0-0", pod_running(ip));
  expect_phase("j", "Stalled");
  const auto stalled_since = [&] {
    const Json all = world_.status("j")["conditions"];
    for (const Json& condition : all) {
      if (condition["type"] == "Stalled") return condition["lastTransitionTime"].get<std::string>();
    }
    return std::string();
  };
  EXPECT_TRUE(world_.has_condition("j", "Stalled", "True", "NoStep"));
  EXPECT_TRUE(world_.has_condition("j", "Running", "False"));
  EXPECT_EQ(world_.status("j")["progress"]["step"], 40);
  const auto events = [&](const char* reason) {
    const std::vector<std::string> all = world_.event_reasons("j");
    return std::count(all.begin(), all.end(), reason);
  };
  EXPECT_TRUE(eventually([&] { return events("Stalled") == 1; }));
  EXPECT_TRUE(eventually([&] { return operator_->metric("trainingjob_status_phase", {R"(phase="Stalled")"}) == 1; }));
  const std::string since = stalled_since();

  // Another operator, which has only the status, keeps the job stalled, and detects that it progresses.
  kill_operator();
  start_operator();
  EXPECT_TRUE(eventually([&] { return operator_->logged("nothing to do in phase Stalled"); }));
  EXPECT_EQ(stalled_since(), since);
  EXPECT_EQ(events("Stalled"), 1);
  step = 41;
  EXPECT_TRUE(eventually([&] { return world_.has_condition("j", "Running", "True", "Progressing"); }))
      << world_.status("j").dump(1);
  EXPECT_TRUE(world_.has_condition("j", "Stalled", "False"));
  EXPECT_TRUE(eventually([&] { return events("Progressing") == 1; }));
  EXPECT_EQ(operator_->metric("trainingjob_recovery_seconds_count"), 0) << "a stall is not a recovery";

  // The job stalls again while no operator runs: the next operator polls rank 0, which does not respond anymore.
  kill_operator();
  rank->reset();
  start_operator();
  expect_phase("j", "Stalled");
  EXPECT_EQ(world_.status("j")["progress"]["step"], 41);
  EXPECT_EQ(world_.status("j")["restarts"]["total"], 0);

  // The timeout may be raised while the job runs; and a job that reports no progress is never stalled.
  ASSERT_TRUE(
      server_->call("PATCH", world_.jobs() + "/j", {{"spec", {{"stallPolicy", {{"timeoutSeconds", 3600}}}}}}).ok());
  expect_phase("j", "Running");
  EXPECT_EQ(world_.phase("silent"), "Running");
  EXPECT_FALSE(world_.has_condition("silent", "Stalled", "True"));
}

}  // namespace
}  // namespace oarlock::test
