// One job of many nodes with a large spec.trainer against a real kube-apiserver, the group restarted in the middle: the
// operator's memory stays below a limit, and all pods are replaced. 256 nodes of 200 KiB by default; the largest job
// that the operator accepts takes some minutes:
//   OARLOCK_LARGE_JOB_NODES=4096 OARLOCK_LARGE_JOB_KIB=60 OARLOCK_LARGE_JOB_MIB=128 BUILD/bin/operator_large_job_test
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "api/rules.h"
#include "tests/support/job_world.h"
#include "tests/support/measurement.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;
using std::chrono::steady_clock;

class LargeJob : public ::testing::Test {
 protected:
  std::string pod(int attempt, int rank) const { return fmt::format("j-{}-{}", attempt, rank); }
  bool exists(const std::string& name) { return server_.call("GET", world_.pods() + "/" + name).status == 200; }

  // Longer than one `eventually`, whose minute is meant for small jobs.
  void wait(const std::string& what, const std::function<bool()>& condition) {
    for (int minutes = 0; minutes < 10; ++minutes) {
      ASSERT_TRUE(alive(operator_.program().pid())) << "the operator has ended:\n" << operator_.log();
      if (eventually([&] { return condition() || !alive(operator_.program().pid()); }) && condition()) return;
    }
    FAIL() << "waited for " << what << "; the job: " << world_.status("j").dump();
  }

  // Sets the status of all pods concurrently, as kubelets do.
  void set_all(int attempt, const Json& status) {
    std::atomic<int> next = 0;
    std::vector<std::jthread> kubelets;
    for (int i = 0; i < 8; ++i) {
      kubelets.emplace_back([&] {
        for (int rank = next++; rank < nodes_; rank = next++) {
          const auto set = [&] {
            return server_.call("PATCH", world_.pods() + "/" + pod(attempt, rank) + "/status", {{"status", status}})
                .ok();
          };
          EXPECT_TRUE(eventually(set)) << pod(attempt, rank);
        }
      });
    }
  }

  const int nodes_ = option("OARLOCK_LARGE_JOB_NODES", 256);
  const int kib_ = option("OARLOCK_LARGE_JOB_KIB", 200);
  const int limit_ = option("OARLOCK_LARGE_JOB_MIB", 48);
  ApiServer server_{ApiServer::Parts::kWithControllers};  // pods need their service account
  JobWorld world_{server_, server_.make_namespace()};
  std::optional<MemoryLimit> cgroup_;  // of the operator; removed after the operator's end
  OperatorProcess operator_{{"--kubeconfig", server_.kubeconfig(), "--namespace", world_.namespace_name()}};
};

TEST_F(LargeJob, RestartsWithinItsMemoryLimit) {
  cgroup_.emplace(operator_.program().pid(), limit_);
  const bool is_limit_given = std::getenv("OARLOCK_LARGE_JOB_MIB") != nullptr;
  ASSERT_TRUE(cgroup_->is_set() || !is_limit_given) << "this program cannot create a memory cgroup";
  const Json pod_template = {
      {"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/t"}}}}}}};
  const auto created = steady_clock::now();
  world_.call("POST", world_.jobs(),
              {{"apiVersion", kApiVersion},
               {"kind", kKind},
               {"metadata", {{"name", "j"}}},
               {"spec",
                {{"nodes", nodes_},
                 {"template", pod_template},
                 {"trainer", {{"note", std::string(static_cast<size_t>(kib_) << 10, 'x')}}}}}});
  wait("the last pod", [&] { return exists(pod(0, nodes_ - 1)); });
  const double started = seconds_since(created);
  set_all(0, pod_running());
  wait("phase Running", [&] { return world_.status("j").value("phase", "") == "Running"; });

  const auto failed = steady_clock::now();
  world_.set_pod(pod(0, nodes_ / 2), pod_ended(1));
  wait("the first new pod", [&] { return exists(pod(1, 0)); });
  const double first = seconds_since(failed);
  wait("the last new pod", [&] { return exists(pod(1, nodes_ - 1)); });
  const double last = seconds_since(failed);
  set_all(1, pod_ended(0));
  wait("phase Complete", [&] { return world_.status("j").value("phase", "") == "Complete"; });

  EXPECT_EQ(world_.status("j")["restarts"]["total"], 1);
  EXPECT_EQ(world_.status("j")["nodes"]["succeeded"], nodes_);
  EXPECT_EQ(operator_.get("/healthz").status, 200);
  const double most = memory_of(operator_.program().pid(), "VmHWM");
  std::printf(
      "%d nodes of %d KiB: created in %.1f s; from the failure to the first new pod %.1f s, to the last %.1f s; "
      "memory at most %.1f MiB%s\n",
      nodes_, kib_, started, first, last, most, cgroup_->is_set() ? ", in a cgroup" : "");
  expect_memory_within(most, limit_);
}

// The condition of a job that is too large reports it, and none of its objects is created.
TEST_F(LargeJob, RejectsTooLargeJobWithMessage) {
  const Json pod_template = {
      {"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/t"}}}}}}};
  world_.call("POST", world_.jobs(),
              {{"apiVersion", kApiVersion},
               {"kind", kKind},
               {"metadata", {{"name", "j"}}},
               {"spec",
                {{"nodes", api::rules::kMaxNodes},
                 {"template", pod_template},
                 {"trainer", {{"note", std::string(240 << 10, 'x')}}}}}});
  wait("the condition", [&] { return world_.status("j").contains("conditions"); });
  const Json condition = world_.status("j")["conditions"][0];
  EXPECT_EQ(condition["reason"], "InvalidSpec");
  EXPECT_THAT(condition["message"].get<std::string>(), ::testing::HasSubstr("the maximum is 256 MiB"));
  EXPECT_FALSE(exists(pod(0, 0)));
  expect_memory_within(memory_of(operator_.program().pid(), "VmHWM"), 48);
}

}  // namespace
}  // namespace oarlock::test
