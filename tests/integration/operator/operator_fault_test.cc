// The operator behind a proxy that injects faults: it is killed after each single write of a job, responses are lost,
// watches freeze, end or restart from an older version, and the API server returns stale lists. The cluster must reach
// the same state every time, and afterwards nothing is written any more.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/support/empty_cluster.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/job_world.h"

namespace oarlock::test {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Fate = FaultProxy::Fate;
using Names = std::set<std::string>;

// An operator behind a proxy, in a separate namespace. It is restarted whenever it has been killed.
class Stage {
 public:
  Stage(ApiServer& server, const std::string& namespace_name)
      : proxy_(server.transport()), world_(server, namespace_name, [this] { revive(); }) {
    write_kubeconfig(directory_.path(), proxy_.url());
  }

  FaultProxy& proxy() { return proxy_; }
  JobWorld& world() { return world_; }
  OperatorProcess& process() { return *operator_; }

  void revive() {
    if (operator_ != nullptr && alive(pid_)) return;
    if (operator_ != nullptr) ++kills_;
    pid_ = 0;
    operator_ = std::make_unique<OperatorProcess>(
        std::vector<std::string>{"--kubeconfig", (directory_.path() / "kubeconfig").string(), "--namespace",
                                 world_.namespace_name(), "--log-level", "debug"},
        false);
    pid_ = operator_->program().pid();
  }
  void kill() {
    if (const pid_t pid = pid_; pid > 0) ::kill(pid, SIGKILL);
  }
  int kills() const { return kills_; }

 private:
  TemporaryDirectory directory_;
  FaultProxy proxy_;
  JobWorld world_;
  std::atomic<pid_t> pid_ = 0;
  int kills_ = 0;
  std::unique_ptr<OperatorProcess> operator_;
};

// Returns the state that every scenario must reach, as JSON text: everything but times, uids and versions.
std::string picture(JobWorld& world) {
  Json out;
  const Json status = world.status("j");
  for (const char* key : {"phase", "attempt", "worldSize", "restarts", "nodes", "finishedRanks", "observedGeneration"})
    out[key] = status.value(key, Json());
  out["nodes"].erase("scheduled");  // the real scheduler sets PodScheduled=False in between, at some time
  for (const Json& condition : status.value("conditions", Json::array()))
    out["conditions"][condition["type"].get<std::string>()] = condition["status"];
  for (const Json& record : status.value("attempts", Json::array()))
    out["attempts"].push_back({record.value("attempt", -1), record.value("pod", ""), record.value("exitCode", -1)});
  for (const Json& pod : world.all_pods())
    out["pods"][pod["metadata"]["name"].get<std::string>()] = pod["status"]["phase"];
  return out.dump();
}

// Returns the number of reconciles of the operator; -1 if it has just been killed.
double looks_of(Stage& stage) {
  try {
    return stage.process().metric("controller_runtime_reconcile_total");
  } catch (const std::runtime_error&) {
    return -1;
  }
}

// Irrelevant changes of the job cause further reconciles. Once the operator has completed its work, it must write
// nothing in four consecutive reconciles.
void expect_rest(Stage& stage) {
  JobWorld& world = stage.world();
  world.wait("the operator", [&] { return stage.process().logged("\"msg\":\"ready\""); });
  int quiet = 0;
  for (int i = 0; i < 20 && quiet < 4; ++i) {
    const int before = stage.proxy().writes();
    const int kills = stage.kills();
    double looks = -1;
    world.wait("its metrics", [&] { return (looks = looks_of(stage)) >= 0; });
    world.patch_job("j", {{"metadata", {{"annotations", {{"n", std::to_string(i)}}}}}});
    world.wait("a look", [&] { return looks_of(stage) > looks || stage.kills() != kills; });
    quiet = stage.proxy().writes() == before ? quiet + 1 : 0;
  }
  if (quiet < 4) throw std::runtime_error("it writes at rest: " + stage.proxy().written().back());
}

// Create, a failure and the restart, suspend, resume, success, delete. Returns the picture before the delete.
std::string play(Stage& stage) {
  JobWorld& world = stage.world();
  stage.revive();
  world.create_job("j");
  world.wait_for_pods({"j-0-0", "j-0-1"});
  world.set_pod("j-0-0", pod_running());
  world.set_pod("j-0-1", pod_running());
  world.wait_for_phase("j", "Running");
  world.set_pod("j-0-1", pod_ended(137));
  world.wait_for_pods({"j-1-0", "j-1-1"});
  world.set_pod("j-1-0", pod_running());
  world.set_pod("j-1-1", pod_running());
  world.wait_for_phase("j", "Running");
  world.patch_job("j", {{"spec", {{"suspend", true}}}});
  world.wait_for_phase("j", "Suspended");
  world.wait_for_pods({});
  world.patch_job("j", {{"spec", {{"suspend", false}}}});
  world.wait("two live pods", [&] { return world.live_pods().size() == 2; });
  const Names last = world.live_pods();
  world.set_pods(last, pod_running());
  world.wait_for_phase("j", "Running");
  world.set_pods(last, pod_ended(0));
  world.wait_for_phase("j", "Complete");
  expect_rest(stage);
  const std::string seen = picture(world);
  world.call("DELETE", world.jobs() + "/j", {{"propagationPolicy", "Background"}});
  world.wait("all pods to go", [&] { return world.all_pods().empty(); });
  return seen;
}

class Fault : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<ApiServer>(ApiServer::Parts::kWithControllers); }
  static void TearDownTestSuite() { server_.reset(); }

  static std::unique_ptr<ApiServer> server_;
};
std::unique_ptr<ApiServer> Fault::server_;

// The writes that every run has: Service and pods; Running; Restarting, the other pod's deletion, two pods; Running;
// Suspended and two deletions; Pending and two pods; Running; Complete. The number of further status writes depends on
// timing: two changes that are observed together cause one write.
constexpr int kMinWrites = 3 + 1 + 4 + 1 + 3 + 3 + 1 + 1;

TEST_F(Fault, SurvivesKillsAndLostResponsesAnywhere) {
  std::string wanted;
  int writes = 0;
  {
    Stage calm(*server_, server_->make_namespace());
    wanted = play(calm);
    writes = calm.proxy().writes();
    EXPECT_EQ(calm.kills(), 0);
  }
  ASSERT_GE(writes, kMinWrites);

  // One fault for each write, because all kinds of faults for all writes would take minutes: the operator is killed
  // after each write, and in every third run a response or a request is lost before.
  std::mutex mutex;
  std::vector<std::string> namespaces;
  for (int n = 1; n <= writes; ++n) namespaces.push_back(server_->make_namespace());
  std::atomic<int> next = 1;
  std::vector<std::string> problems;
  const auto work = [&] {
    for (int n = next++; n <= writes; n = next++) {
      try {
        Stage stage(*server_, namespaces[static_cast<size_t>(n - 1)]);
        stage.proxy().on_write(
            [n](int number, const auto&) {
              if (number == n + 1 && n % 3 == 0) return Fate::kAnswerLost;
              if (number == n + 1 && n % 3 == 1) return Fate::kLost;
              return Fate::kPass;
            },
            [n, &stage](int number) {
              if (number == n) stage.kill();
            });
        const std::string seen = play(stage);
        const std::lock_guard lock(mutex);
        if (seen != wanted) problems.push_back("killed after write " + std::to_string(n) + ": " + seen);
        // A run may have fewer writes than the one without faults; then it ends without a kill.
        const bool has_write = n <= kMinWrites || stage.proxy().writes() > n;
        if (stage.kills() < 1 && has_write) problems.push_back("not killed after write " + std::to_string(n));
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        problems.push_back("killed after write " + std::to_string(n) + ": " + error.what());
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  }
  EXPECT_THAT(problems, ::testing::IsEmpty()) << "without faults: " << wanted;
}

// A webhook that takes a second for each DELETE, unless eight of them arrive at the same time.
TEST_F(Fault, DeletesPodsInParallel) {
  constexpr int kNodes = 32;
  constexpr int kTogether = 8;
  std::mutex mutex;
  std::condition_variable changed;
  int in_progress = 0;
  int most = 0;
  Stage stage(*server_, server_->make_namespace());
  stage.proxy().on_write(
      [&](int, const HostileServer::Received& request) {
        if (request.method != "DELETE") return Fate::kPass;
        std::unique_lock lock(mutex);
        most = std::max(most, ++in_progress);
        changed.notify_all();
        changed.wait_for(lock, std::chrono::seconds(1), [&] { return most >= kTogether; });
        --in_progress;
        return Fate::kPass;
      },
      {});
  stage.revive();
  JobWorld& world = stage.world();
  world.create_job("j", kNodes);
  world.wait("all pods", [&] { return world.live_pods().size() == kNodes; });
  world.set_pods(world.live_pods(), pod_running());
  world.wait_for_phase("j", "Running");
  world.set_pod("j-0-5", pod_ended(137));
  world.wait("the pods of attempt 1", [&] {
    const Names live = world.live_pods();
    return live.size() == kNodes && live.contains(fmt::format("j-1-{}", kNodes - 1));
  });
  const std::lock_guard lock(mutex);
  EXPECT_GE(most, kTogether);
}

TEST_F(Fault, FrozenWatchCausesNoDuplicates) {
  Stage stage(*server_, server_->make_namespace());
  stage.revive();
  stage.world().wait("the operator", [&] { return stage.process().logged("\"msg\":\"ready\""); });
  stage.proxy().freeze("pods");
  stage.world().create_job("j");
  stage.world().wait_for_pods({"j-0-0", "j-0-1"});
  const int before = stage.proxy().writes();
  // It reconciles the job while its cache lacks the pods that it created.
  for (int i = 0; i < 5; ++i) {
    const double looks = stage.process().metric("controller_runtime_reconcile_total");
    stage.world().patch_job("j", {{"metadata", {{"annotations", {{"n", std::to_string(i)}}}}}});
    stage.world().wait("a look", [&] { return stage.process().metric("controller_runtime_reconcile_total") > looks; });
  }
  EXPECT_EQ(stage.proxy().writes(), before) << stage.proxy().written().back();
  stage.proxy().thaw(false);
  stage.world().set_pods({"j-0-0", "j-0-1"}, pod_running());
  stage.world().wait_for_phase("j", "Running");
  expect_rest(stage);
}

TEST_F(Fault, MissedEventsMakeNoDifference) {
  Stage stage(*server_, server_->make_namespace());
  stage.revive();
  stage.world().create_job("j");
  stage.world().wait_for_pods({"j-0-0", "j-0-1"});
  stage.world().set_pods({"j-0-0", "j-0-1"}, pod_running());
  stage.world().wait_for_phase("j", "Running");
  // A pod fails and is deleted. The operator can observe only that it does not exist.
  stage.proxy().freeze("");
  stage.world().set_pod("j-0-1", pod_ended(137));
  stage.world().call("DELETE", stage.world().pods() + "/j-0-1", {{"gracePeriodSeconds", 0}});
  stage.proxy().thaw(true);
  stage.world().wait_for_pods({"j-1-0", "j-1-1"});
  stage.world().set_pods({"j-1-0", "j-1-1"}, pod_running());
  stage.world().wait_for_phase("j", "Running");
  EXPECT_EQ(stage.world().status("j")["restarts"]["total"], 1);
  expect_rest(stage);
}

TEST_F(Fault, AWatchThatGoesBackIsNoticed) {
  Stage stage(*server_, server_->make_namespace());
  stage.revive();
  stage.world().create_job("j");
  stage.world().wait_for_pods({"j-0-0", "j-0-1"});
  Json old = stage.world().call("GET", stage.world().pods() + "/j-0-0");
  stage.world().set_pods({"j-0-0", "j-0-1"}, pod_running());
  stage.world().wait_for_phase("j", "Running");
  old["status"] = pod_ended(137);  // must be ignored
  stage.proxy().inject("pods", Json{{"type", "MODIFIED"}, {"object", old}}.dump() + "\n");
  stage.world().call("PATCH", stage.world().pods() + "/j-0-0", {{"metadata", {{"annotations", {{"a", "b"}}}}}});
  stage.world().wait("the notice", [&] { return stage.process().logged("the watch went back"); });
  expect_rest(stage);
  EXPECT_EQ(stage.world().status("j")["restarts"]["total"], 0);
  EXPECT_EQ(stage.world().status("j")["phase"], "Running");
}

// The operator restarts and reads from a stale API server, which returns the job before a restart of the group.
TEST_F(Fault, ToleratesStaleApiServer) {
  Stage stage(*server_, server_->make_namespace());
  stage.revive();
  stage.world().create_job("j");
  stage.world().wait_for_pods({"j-0-0", "j-0-1"});
  stage.world().set_pods({"j-0-0", "j-0-1"}, pod_running());
  stage.world().wait_for_phase("j", "Running");
  const std::string then = stage.world().call("GET", stage.world().pods())["metadata"]["resourceVersion"];
  stage.world().set_pod("j-0-1", pod_ended(137));
  stage.world().wait_for_pods({"j-1-0", "j-1-1"});
  stage.world().set_pods({"j-1-0", "j-1-1"}, pod_running());
  stage.world().wait_for_phase("j", "Running");
  const std::string wanted = picture(stage.world());

  stage.proxy().show_the_past(then);
  stage.kill();
  stage.world().wait("the new one", [&] { return stage.kills() == 1 && stage.process().logged("\"msg\":\"ready\""); });
  // In the stale state that the operator reads, a pod has failed. It may only read the current state, more than once,
  // and must not change it.
  stage.world().wait("looks", [&] { return stage.process().metric("controller_runtime_reconcile_total") > 0; });
  EXPECT_EQ(picture(stage.world()), wanted);
  stage.proxy().present();
  expect_rest(stage);
  EXPECT_EQ(picture(stage.world()), wanted);
}

// The first pods of a job are created before its status is written, so the status does not show them.
TEST_F(Fault, ConfirmsJobBeforeStartUnlessCreatedUnderOwnLeadership) {
  Stage stage(*server_, server_->make_namespace());
  const auto reads = [&](const char* job) { return stage.proxy().questions(stage.world().jobs() + "/" + job); };
  stage.world().create_job("j");
  stage.world().wait_for_pods({"j-0-0", "j-0-1"});
  EXPECT_EQ(reads("j"), 1);
  stage.world().create_job("new");
  stage.world().wait_for_pods({"j-0-0", "j-0-1", "new-0-0", "new-0-1"});
  EXPECT_EQ(reads("new"), 0);
  expect_rest(stage);
}

TEST_F(Fault, DoesNotRestartFinishedJobFromStaleCache) {
  Stage stage(*server_, server_->make_namespace());
  stage.world().create_job("j");
  const std::string then = stage.world().call("GET", stage.world().jobs())["metadata"]["resourceVersion"];
  stage.world().patch_job("j", {{"spec", {{"cleanPodPolicy", "All"}}}});
  stage.world().wait_for_pods({"j-0-0", "j-0-1"});
  stage.world().set_pods({"j-0-0", "j-0-1"}, pod_running());
  stage.world().set_pods({"j-0-0", "j-0-1"}, pod_ended(0));
  stage.world().wait_for_phase("j", "Complete");
  stage.world().wait("the pods to go", [&] { return stage.world().all_pods().empty(); });
  const std::string wanted = picture(stage.world());

  stage.proxy().show_the_past(then);
  stage.kill();
  const int reads = stage.proxy().questions(stage.world().jobs() + "/j");
  stage.world().wait("a live read", [&] { return stage.proxy().questions(stage.world().jobs() + "/j") > reads; });
  stage.world().wait("looks", [&] { return stage.process().metric("controller_runtime_reconcile_total") > 1; });
  EXPECT_EQ(picture(stage.world()), wanted);
  stage.proxy().present();
  expect_rest(stage);
  EXPECT_EQ(picture(stage.world()), wanted);
}

}  // namespace
}  // namespace oarlock::test
