#include "operator/shell/cached_objects.h"

#include <gtest/gtest.h>

#include "tests/support/builders.h"

namespace oarlock::control {
namespace {

using api::Phase;
using test::JobBuilder;

constexpr char kTemplate[] =
    R"({"spec":{"containers":[{"name":"trainer","resources":{"limits":{"nvidia.com/gpu":8}}}]}})";

JobBuilder large_job() {
  const api::FailureRule rule{.action = api::FailureAction::kIgnore,
                              .on_exit_codes = api::ExitCodeMatch{.values = std::vector<int64_t>(255, 3)},
                              .on_pod_reasons = {"OOMKilled"},
                              .on_pod_conditions = {}};
  JobBuilder job;
  job.nodes(3).pod_template(kTemplate).trainer(R"({"note":")" + std::string(10000, 'x') + "\"}").rule(rule);
  return job;
}

bool has_spec(const Job& job) {
  return !job.spec.pod_template.empty() && !job.spec.trainer.empty() && !job.spec.failure_policy.rules.empty();
}
bool keeps_no_memory(const Job& job) {
  return job.spec.pod_template.capacity() < 100 && job.spec.trainer.capacity() < 100 &&
         job.spec.failure_policy.rules.capacity() == 0;
}

TEST(CachedJob, CountsTemplateTrainerAndRules) {
  const Job job = large_job();
  EXPECT_GE(spec_bytes(job.spec), 10000 + sizeof kTemplate + 255 * sizeof(int64_t));
  EXPECT_LE(spec_bytes(job.spec), 15000U);
}

TEST(CachedJob, CountsItsMemory) {
  ByteBudget budget(1u << 20);
  const size_t small = make_cached_job(JobBuilder().phase(Phase::kComplete), budget).bytes;
  EXPECT_GE(small, sizeof(CachedJob));
  EXPECT_LE(small, 2900U) << "20,000 jobs would not fit into the limit of the cache";
  EXPECT_GE(make_cached_job(large_job(), budget).bytes, small + 10'000);
  Job job = JobBuilder().phase(Phase::kComplete);
  job.status.conditions.push_back({.type = "Other", .reason = "", .message = "", .verbatim = std::string(20'000, 'm')});
  EXPECT_GE(make_cached_job(job, budget).bytes, small + 20'000);
  EXPECT_TRUE(make_cached_job(job, budget).job.report.problem.empty());
}

TEST(CachedJob, DropsStatusThatIsTooLarge) {
  ByteBudget budget(1u << 20);
  Job foreign = JobBuilder().phase(Phase::kRunning);
  foreign.status.conditions.push_back(
      {.type = "Other", .reason = "", .message = "", .verbatim = std::string(1u << 20, 'm')});
  Job unknown = JobBuilder().phase(Phase::kRunning);
  unknown.status.unknown_phase = std::string(1u << 20, 'p');
  for (const Job& job : {foreign, unknown}) {
    const CachedJob cached = make_cached_job(job, budget);
    EXPECT_EQ(cached.job.report.problem, "status: larger than 128 KiB");
    EXPECT_FALSE(cached.job.report.has_conditions) << "a patch would remove the conditions";
    EXPECT_EQ(cached.job.status.phase, Phase::kRunning);
    EXPECT_LE(cached.bytes, 4000U);
  }
}

TEST(CachedJob, BoundsItsReport) {
  ByteBudget budget(1u << 20);
  Job job = JobBuilder();
  job.report.problem = std::string(1u << 20, 'p');
  job.report.unknown.assign(10'000, std::string(1000, 'u'));
  EXPECT_LE(make_cached_job(job, budget).bytes, 25'000U);
}

TEST(CachedJob, DropsSpecThatNoDecisionNeeds) {
  ByteBudget budget(1 << 20);
  Job unreadable = large_job();
  unreadable.report.problem = "spec.nodes: expected an integer";
  for (const Job& job : {large_job().phase(Phase::kComplete).build(), large_job().phase(Phase::kFailed).build(),
                         unreadable, large_job().managed_by("example.com/other").build()}) {
    const CachedJob cached = make_cached_job(job, budget);
    EXPECT_TRUE(keeps_no_memory(cached.job));
    EXPECT_FALSE(cached.job.report.is_trimmed) << "it needs no look at the API server";
    EXPECT_EQ(cached.job.spec.nodes, 3);
    EXPECT_EQ(cached.accelerators.empty(), is_terminal(job.status.phase));
  }
  EXPECT_EQ(budget.used(), 0U);
  const CachedJob suspended = make_cached_job(large_job().phase(Phase::kSuspended), budget);
  EXPECT_TRUE(has_spec(suspended.job)) << "its pods will be created";
  const CachedJob dispatched = make_cached_job(large_job().managed_by("kueue.x-k8s.io/multikueue"), budget);
  EXPECT_TRUE(has_spec(dispatched.job)) << "its Workload requests the resources of the pods";
}

TEST(CachedJob, TrimsSpecBeyondBudget) {
  const size_t each = spec_bytes(large_job().build().spec);
  ByteBudget budget(2 * each + each / 2);
  std::vector<CachedJob> jobs;
  for (int i = 0; i < 4; ++i) jobs.push_back(make_cached_job(large_job().phase(Phase::kRunning), budget));
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(has_spec(jobs[i].job), i < 2);
    EXPECT_EQ(keeps_no_memory(jobs[i].job), i >= 2);
    EXPECT_EQ(jobs[i].job.report.is_trimmed, i >= 2);
    EXPECT_EQ(jobs[i].job.report.trimmed_kib, i < 2 ? 0 : (each + 1023) / 1024);
    EXPECT_EQ(jobs[i].job.status.phase, Phase::kRunning);
    EXPECT_EQ(jobs[i].accelerators.at("nvidia.com/gpu"), 8) << "the metric does not depend on the budget";
  }
  EXPECT_LE(budget.used(), 2 * each + each / 2);
  jobs.erase(jobs.begin());
  EXPECT_TRUE(has_spec(make_cached_job(large_job(), budget).job)) << "the budget of a destroyed job was not released";
  jobs.clear();
  EXPECT_EQ(budget.used(), 0U);
}

// validate() rejects such jobs, so that anyone could fill the budget with them for ever.
TEST(CachedJob, OversizedSpecTakesNoBudget) {
  ByteBudget budget(16u << 20);
  const std::string text = R"({"note":")" + std::string((512u << 10) + 1, 'x') + "\"}";
  for (const Job& job : {JobBuilder().pod_template(text).build(), JobBuilder().trainer(text).build()}) {
    const CachedJob cached = make_cached_job(job, budget);
    EXPECT_TRUE(cached.job.report.is_trimmed) << "it is read from the API server to report the problem";
    EXPECT_GT(cached.job.report.trimmed_kib, 512U);
    EXPECT_EQ(budget.used(), 0U);
  }
}

TEST(CachedJob, ReservationMayOutliveBudget) {
  CachedJob job;
  {
    ByteBudget budget(1 << 20);
    job = make_cached_job(large_job(), budget);
    EXPECT_GT(budget.used(), 10000U);
  }
  EXPECT_TRUE(has_spec(job.job));
}

TEST(CachedJob, ReadsAtMostEightResources) {
  std::string limits = R"("not a name/x":1)";
  for (int i = 10; i < 60; ++i) limits += ",\"example.com/r" + std::to_string(i) + "\":1";
  ByteBudget budget(1 << 20);
  const CachedJob job = make_cached_job(
      JobBuilder().pod_template(R"({"spec":{"containers":[{"resources":{"limits":{)" + limits + "}}}]}}"), budget);
  EXPECT_EQ(job.accelerators.size(), 8U);
  EXPECT_TRUE(job.accelerators.contains("example.com/r10"));
}

TEST(CachedJob, CountsAcceleratorsWithoutTheDevicesThatAccompanyThem) {
  EXPECT_EQ(count_accelerators({}), 0);
  EXPECT_EQ(count_accelerators({{"nvidia.com/gpu", 8}, {"rdma/hca", 16}}), 8);
  EXPECT_EQ(count_accelerators({{"google.com/tpu", 4}, {"rdma/hca", 1}}), 4);
}

}  // namespace
}  // namespace oarlock::control
