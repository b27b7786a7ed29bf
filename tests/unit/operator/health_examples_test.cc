// TrainingJobs in each state, with the status that reconcile() writes: the inputs of the health checks of Argo CD and
// Flux in packaging, whose tests are argocd_health_test and flux_health_test.
#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "api/codec.h"
#include "operator/core/workload.h"
#include "tests/support/golden.h"
#include "tests/unit/operator/reconcile_support.h"
#include "yaml/writer.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT

// Returns the state in which reconcile() does not change the status any more.
Observed settled(Observed observed) {
  for (int round = 0; round < 5; ++round) {
    Observed next = after(observed, reconcile(observed));
    if (next.job.status == observed.job.status) return next;
    observed = std::move(next);
  }
  throw std::runtime_error("the status is not stable");
}

// Returns the next settled state, after a minute in which the pods changed.
Observed then(Observed observed, std::vector<Pod> pods) {
  observed.now += std::chrono::minutes(1);
  observed.pods = std::move(pods);
  return settled(std::move(observed));
}

Observed running(const Job& job = JobBuilder()) {
  Observed observed = then(settled(seen(job)), {pod(0, 0).running(), pod(0, 1).running()});
  observed.progress.emplace().attempt = 0;
  observed.progress->step = 1200;
  observed.progress->phase = "train";
  observed.step_received_at = observed.now;
  return settled(std::move(observed));
}

Observed suspending() {
  Observed observed = running();
  observed.job.spec.suspend = true;
  ++observed.job.metadata.generation;
  const SystemTime end = observed.now + std::chrono::seconds(90);
  return then(observed, {pod(0, 0).running().deleting_until(end), pod(0, 1).running().deleting_until(end)});
}

void expect_example(const std::string& name, const Observed& observed) {
  SCOPED_TRACE(name);
  const std::string directory = "../../packaging/argocd/oarlock.dev/TrainingJob/testdata/";
  expect_golden(directory + name + ".yaml", yaml::to_yaml(api::to_json(observed.job)));
}

TEST(HealthExamples, JobsThatWait) {
  expect_example("created", seen(JobBuilder()));
  const std::string reason = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.";
  expect_example("unschedulable",
                 then(settled(seen(JobBuilder())), {pod(0, 0).scheduled(), pod(0, 1).unschedulable(reason)}));
  Observed queued = seen(JobBuilder().queue("team-a"));
  Workload workload{.name = workload_name(queued.job),
                    .uid = "w",
                    .resource_version = "7",
                    .owner_uid = queued.job.metadata.uid,
                    .queue = "team-a"};
  workload.nodes = queued.job.spec.nodes;
  workload.reason = "WaitingForQuota";
  workload.message = "insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed";
  queued.workloads = {workload};
  expect_example("queued", settled(queued));
  Observed invalid = seen(JobBuilder().pod_template(R"({"spec":{"containers":[{"image":"i","name":"main"}]}})"));
  expect_example("invalid_spec", settled(invalid));
  Observed invalid_profile = seen(JobBuilder());
  invalid_profile.profile = api::AppliedProfile{"team", "default", "uid-1", 1, R"({"nodes":3})"};
  expect_example("invalid_profile", settled(invalid_profile));
  expect_example("name_taken", then(settled(seen(JobBuilder())), {pod(0, 0).owner("another").running(), pod(0, 1)}));
}

TEST(HealthExamples, JobsThatRun) {
  expect_example("running", running());
  Observed stalled = running(JobBuilder().stall_seconds(60));
  stalled.now += std::chrono::minutes(5);
  stalled.last_poll = StatusPoll{stalled.now, true, true};
  expect_example("stalled", settled(stalled));
  expect_example("restarting", then(running(), {pod(0, 0).running(), pod(0, 1).ended(1, "CUDA out of memory")}));
  Observed unreadable = running();
  unreadable.job.report.problem = "spec.nodes: expected an integer, got {}";
  unreadable.job.status.conditions = status_after(unreadable, reconcile(unreadable)).conditions;
  expect_example("unreadable", unreadable);
}

TEST(HealthExamples, JobsThatAreSuspended) {
  expect_example("suspending", suspending());
  Observed suspended = then(suspending(), {});
  expect_example("suspended", suspended);
  suspended.job.spec.suspend = false;
  ++suspended.job.metadata.generation;
  expect_example("resume_not_observed", suspended);
  suspended.job.spec.profile = "team";
  expect_example("resumed_without_profile", settled(suspended));
}

TEST(HealthExamples, JobsThatEnded) {
  expect_example("complete", then(running(), {pod(0, 0).ended(0), pod(0, 1).ended(0)}));
  expect_example("failed", then(running(), {pod(0, 0).ended(66, "train.csv: no such file"), pod(0, 1).ended(76)}));
  expect_example("failed_max_restarts",
                 then(running(JobBuilder().max_restarts(0)), {pod(0, 0).ended(1), pod(0, 1).running()}));
}

}  // namespace
}  // namespace oarlock::test
