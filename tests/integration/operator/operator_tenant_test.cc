// A tenant who creates many large jobs, against a real kube-apiserver: the operator's memory stays below a limit, the
// jobs of others proceed, and so do the tenant's. 400 jobs by default; 1,000 take a minute or two below the chart's
// default limit:
//   OARLOCK_TENANT_JOBS=1000 OARLOCK_TENANT_MIB=128 BUILD/tests/integration/operator/operator_tenant_test
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "tests/support/job_world.h"
#include "tests/support/measurement.h"

namespace oarlock::test {
namespace {

using Json = nlohmann::json;
using std::chrono::steady_clock;

class Tenant : public ::testing::Test {
 protected:
  static std::string name(int job) { return fmt::format("j{:04}", job); }

  void create_large_job(int job) {
    const Json pod = {{"spec", {{"containers", {{{"name", kTrainerContainer}, {"image", "example.invalid/t"}}}}}}};
    const Json rule = {{"action", "Ignore"}, {"onExitCodes", {{"operator", "In"}, {"values", {3}}}}};
    tenant_.call("POST", tenant_.jobs(),
                 {{"apiVersion", kApiVersion},
                  {"kind", kKind},
                  {"metadata", {{"name", name(job)}}},
                  {"spec",
                   {{"nodes", 1},
                    {"suspend", true},
                    {"template", pod},
                    {"failurePolicy", {{"rules", {rule}}}},
                    {"trainer", {{"note", std::string(240 << 10, 'x')}}}}}});
  }
  void create_large_jobs() {
    std::atomic<int> next = 0;
    std::vector<std::jthread> users;
    for (int i = 0; i < 4; ++i) {
      users.emplace_back([&] {
        for (int job = next++; job < jobs_; job = next++) create_large_job(job);
      });
    }
  }
  double memory(const std::string& which) { return memory_of(operator_.program().pid(), which); }

  const int jobs_ = option("OARLOCK_TENANT_JOBS", 400);
  const int limit_ = option("OARLOCK_TENANT_MIB", 60);
  ApiServer server_{ApiServer::Parts::kWithControllers};  // pods need their service account
  JobWorld tenant_{server_, server_.make_namespace()};
  JobWorld neighbor_{server_, server_.make_namespace()};
  std::optional<MemoryLimit> cgroup_;  // of the operator; removed after the operator's end
  OperatorProcess operator_{{"--kubeconfig", server_.kubeconfig()}};
};

TEST_F(Tenant, ManyLargeJobsFitIntoMemoryLimit) {
  cgroup_.emplace(operator_.program().pid(), limit_);
  create_large_jobs();
  const auto has_status = [&] { return tenant_.status(name(jobs_ - 1)).contains("phase"); };
  for (int minutes = 0; minutes < 5 && !has_status(); ++minutes) eventually(has_status);
  ASSERT_TRUE(has_status());

  const auto created = steady_clock::now();
  neighbor_.create_job("small", 2);
  neighbor_.wait_for_pods({"small-0-0", "small-0-1"});
  const double small = seconds_since(created);
  // The last job's spec does not fit into the cache; it runs nevertheless, and its failure rules apply.
  const std::string pod = name(jobs_ - 1) + "-0-0";
  tenant_.patch_job(name(jobs_ - 1), {{"spec", {{"suspend", false}}}});
  tenant_.wait_for_pods({pod});
  tenant_.set_pod(pod, pod_running());
  tenant_.wait_for_phase(name(jobs_ - 1), "Running");
  tenant_.set_pod(pod, pod_ended(3));
  tenant_.wait_for_phase(name(jobs_ - 1), "Complete");

  EXPECT_GT(operator_.metric("oarlock_cache_trimmed_job_reads_total"), 0);
  EXPECT_EQ(operator_.get("/healthz").status, 200);
  const double most = memory("VmHWM");
  std::printf("%d unfinished jobs of 240 KiB: %.1f MiB, at most %.1f MiB%s; a neighbor's pods exist after %.1f s\n",
              jobs_, memory("VmRSS"), most, cgroup_->is_set() ? " (in a cgroup)" : "", small);
  expect_memory_within(most, limit_);
}

}  // namespace
}  // namespace oarlock::test
