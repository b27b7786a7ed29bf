// Objects that an earlier version of the operator wrote. tests/data/operator/older_objects.json has a job after one
// group restart, its Service and its pods, from the sources of 2026-11-22 (7a58ea1).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "common/files.h"
#include "operator/core/reconcile.h"
#include "operator/shell/projection.h"
#include "tests/support/builders.h"
#include "tests/support/paths.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using ::testing::ElementsAre;
using Json = nlohmann::json;

Json older_objects() { return Json::parse(read_file(test::data_path("operator/older_objects.json")).value_or("")); }

// Returns the objects as the informers would show them.
Observed observe(const Json& objects) {
  Observed out;
  out.job = project_job(*job_fields().parse(objects["job"].dump()));
  for (const Json& pod : objects["pods"]) out.pods.push_back(project_pod(*pod_fields().parse(pod.dump()))->object);
  Json service = objects["service"];
  service["metadata"]["uid"] = "service-uid";
  out.services = {project_service(*service_fields().parse(service.dump()))->object};
  out.now = *out.job.status.attempt_start_time + std::chrono::seconds(60);
  return out;
}

TEST(OlderObjects, AreRead) {
  const Json objects = older_objects();
  const Observed observed = observe(objects);
  EXPECT_EQ(observed.job.report.problem, "");
  EXPECT_EQ(observed.job.status.phase, api::Phase::kRunning);
  EXPECT_EQ(observed.job.status.attempt, 1);
  EXPECT_EQ(observed.job.status.restarts, (api::Restarts{1, 1, {{"PodFailed", 1}}}));
  ASSERT_EQ(observed.job.status.attempts.size(), 1U);
  EXPECT_EQ(observed.job.status.attempts[0].pod, "bert-0-1");
  EXPECT_EQ(observed.job.status.attempts[0].exit_code, 137);
  // No member of the object is lost when it is written, and attempts of earlier versions count as crashed.
  Json expected = objects["job"]["status"];
  expected["attempts"][0]["stopped"] = false;
  EXPECT_EQ(api::status_to_json(observed.job.status), expected);
}

TEST(OlderObjects, RunningJobIsNotDisturbed) {
  const Observed observed = observe(older_objects());
  const Plan plan = reconcile(observed);
  EXPECT_EQ(plan.state, PlanState::kWait) << plan.reason;
  EXPECT_THAT(names(plan), ElementsAre());
}

TEST(OlderObjects, FailureRestartsTheGroupAndCounts) {
  Json objects = older_objects();
  objects["pods"][0]["status"] = Json::parse(R"({"phase": "Failed", "containerStatuses": [
      {"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]})");
  const Observed observed = observe(objects);
  const api::Status next = status_after(observed, reconcile(observed));
  EXPECT_EQ(next.phase, api::Phase::kRestarting);
  EXPECT_EQ(next.attempt, 2);
  EXPECT_EQ(next.restarts.charged, 2);
  EXPECT_EQ(next.attempts.back().pod, "bert-1-0");
}

}  // namespace
}  // namespace oarlock::test
