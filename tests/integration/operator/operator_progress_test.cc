// The progress that rank 0 serves becomes the status of the job, and a job without progress is stalled.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>

#include "common/contract.h"
#include "common/files.h"
#include "common/status_query.h"
#include "http/server.h"
#include "tests/support/job_scenario.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;

// Every address of 127/8 is local, so a pod can have one that no other test uses.
std::string own_address(int network = 77) {
  return "127." + std::to_string(network) + "." + std::to_string(::getpid() / 250 % 250) + "." +
         std::to_string(1 + ::getpid() % 250);
}

// With `advances`, each response has another step.
Result<std::unique_ptr<HttpServer>> serve_rank_0(const std::string& ip, std::atomic<int64_t>& step,
                                                 bool advances = false) {
  return HttpServer::start(ip, kDefaultMetricsPort, {{kStatusPath, [&step, advances](const std::string&) {
                                                        RankStatus rank_status;
                                                        rank_status.world_size = 2;
                                                        rank_status.phase = "train";
                                                        if (advances) ++step;
                                                        rank_status.step = step;
                                                        rank_status.target_steps = 200;
                                                        rank_status.checkpoint_step = 30;
                                                        rank_status.loss = 0.5;
                                                        rank_status.samples_per_second = 100;
                                                        return HttpResponse{200, "application/json",
                                                                            to_json(rank_status)};
                                                      }}});
}

// Returns a listener that accepts no connection.
FileDescriptor listen_silently(const std::string& ip, int port) {
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(::inet_pton(AF_INET, ip.c_str(), &address.sin_addr), 1);
  EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  return listener;
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

TEST_F(Scenario, CordonedNodeRequestsACheckpoint) {
  const std::string ip = own_address();
  std::mutex mutex;
  std::string last_query;
  const auto query = [&] {
    const std::lock_guard lock(mutex);
    return last_query;
  };
  const HttpHandler status = [&](const std::string& text) {
    RankStatus rank_status;
    rank_status.step = 40;
    const std::lock_guard lock(mutex);
    last_query = text;
    return HttpResponse{200, "application/json", to_json(rank_status)};
  };
  const auto rank =
      HttpServer::start(ip, kDefaultMetricsPort, {{kStatusPath, HttpRoute(status, HandlerKind::kImmediate)}});
  ASSERT_TRUE(rank) << rank.error().message;
  // No pod of another test tolerates its taint.
  const std::string node = world_.namespace_name();
  world_.call("POST", "/api/v1/nodes",
              {{"metadata", {{"name", node}}},
               {"spec", {{"taints", {{{"key", "test"}, {"value", "cordon"}, {"effect", "NoSchedule"}}}}}}});
  start_operator({"--watch-nodes"});
  const std::string uid = world_.create_job("j", 1)["metadata"]["uid"];
  world_.wait("the pod", [&] { return world_.exists(world_.pods() + "/j-0-0"); });
  world_.call("POST", world_.pods() + "/j-0-0/binding",
              {{"apiVersion", "v1"},
               {"kind", "Binding"},
               {"metadata", {{"name", "j-0-0"}}},
               {"target", {{"kind", "Node"}, {"name", node}}}});
  set_pod("j-0-0", pod_running(ip));
  EXPECT_TRUE(eventually([&] { return query() == "uid=" + uid; })) << query();
  expect_phase("j", "Running");
  EXPECT_FALSE(world_.status("j").contains("disruption"));

  world_.call("PATCH", "/api/v1/nodes/" + node, {{"spec", {{"unschedulable", true}}}});
  EXPECT_TRUE(eventually([&] { return parse_status_query(query()).checkpoint.has_value(); })) << query();
  EXPECT_EQ(parse_status_query(query()).uid, uid);
  const Json disruption = world_.status("j")["disruption"];
  EXPECT_EQ(disruption["nodes"], Json({node}));
  EXPECT_EQ(disruption["reason"], node + " (cordoned)");
  SystemTime requested;
  ASSERT_TRUE(from_rfc3339(disruption["requestTime"].get<std::string>(), requested));
  EXPECT_EQ(std::chrono::system_clock::from_time_t(*parse_status_query(query()).checkpoint), requested);
  expect_events("j", {"CheckpointRequested"});
  EXPECT_EQ(world_.phase("j"), "Running");
  world_.call("DELETE", "/api/v1/nodes/" + node);
}

// More jobs than polls and writes per second, and jobs whose rank 0 accepts connections and does not respond.
TEST_F(Scenario, ManyJobsShareThePollsAndTheWrites) {
  constexpr int kJobs = 25;
  constexpr int kSilentJobs = 10;
  const std::string ip = own_address(77);
  std::atomic<int64_t> step = 0;
  const auto rank = serve_rank_0(ip, step, /*advances=*/true);
  ASSERT_TRUE(rank) << rank.error().message;
  const std::string silent_ip = own_address(78);
  const FileDescriptor silent = listen_silently(silent_ip, kDefaultMetricsPort);
  start_operator();
  const auto start = [&](const std::string& prefix, int i, const Json& pod_status) {
    const std::string name = prefix + std::to_string(i);
    world_.create_job(name, 1);
    set_pod(name + "-0-0", pod_status);
  };
  for (int i = 0; i < kSilentJobs; ++i) start("silent", i, pod_running(silent_ip));
  for (int i = 0; i < kJobs; ++i) start("j", i, pod_running(ip));
  const auto steps = [&] {
    std::vector<int64_t> out;
    for (int i = 0; i < kJobs; ++i)
      out.push_back(world_.status("j" + std::to_string(i)).value("/progress/step"_json_pointer, int64_t{0}));
    return out;
  };
  const auto all_above = [&](const std::vector<int64_t>& before) {
    const std::vector<int64_t> now = steps();
    return std::ranges::equal(now, before, std::greater());
  };
  ASSERT_TRUE(eventually([&] { return all_above(std::vector<int64_t>(kJobs, 0)); }));
  // From here on, only progress changes.
  const auto patches = [&] { return operator_->metric("rest_client_requests_total", {R"(method="PATCH")"}); };
  const auto info_lines = [&] {
    const std::string log = operator_->log();
    size_t count = 0;
    for (size_t at = 0; (at = log.find(R"("level":"info")", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  // The counter is read before the steps: whatever is written while they are read counts.
  const auto begin = std::chrono::steady_clock::now();
  const double patches_before = patches();
  const size_t lines_before = info_lines();
  const std::vector<int64_t> before = steps();
  ASSERT_TRUE(eventually([&] { return all_above(before); })) << testing::PrintToString(steps());
  // A request counts when its response has arrived, which can be after its effect is visible.
  EXPECT_TRUE(eventually([&] { return patches() - patches_before >= kJobs; }));
  const double written = patches() - patches_before;
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  EXPECT_LE(written, 10 + 5 * time.count() + 1) << "a burst of 10, and 5 per second";
  EXPECT_EQ(info_lines(), lines_before);
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
