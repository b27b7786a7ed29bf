// reconcile() with objects that this version cannot read, or reads only partly.
#include <gmock/gmock.h>

#include "operator/core/reconcile.h"
#include "operator/core/status.h"
#include "tests/support/builders.h"

namespace oarlock::control {
namespace {

using test::at_second;
using test::JobBuilder;
using test::names;
using test::only;
using test::seen;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Job unreadable() {
  Job job = JobBuilder().phase(api::Phase::kRunning);
  job.report.problem = "spec.nodes: expected an integer, got {}";
  return job;
}

const api::Condition* condition_of(const std::vector<api::Condition>& conditions, const std::string& type) {
  for (const api::Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

// Returns the job after the plan's patch.
Job patched(Job job, const Plan& plan) {
  const auto patches = only<PatchStatus>(plan);
  EXPECT_THAT(patches, SizeIs(1));
  if (patches.empty()) return job;
  EXPECT_TRUE(patches[0].conditions_only);
  job.status.conditions = patches[0].status.conditions;
  return job;
}

TEST(Report, ReportsUnreadableJobOnce) {
  const Plan plan = reconcile(seen(unreadable()));  // without pods, which would otherwise be created
  EXPECT_EQ(plan.state, PlanState::kBlocked);
  const Job after = patched(unreadable(), plan);
  const api::Condition* condition = condition_of(after.status.conditions, "Unreadable");
  ASSERT_NE(condition, nullptr);
  EXPECT_TRUE(condition->status);
  EXPECT_EQ(condition->reason, "InvalidObject");
  EXPECT_THAT(condition->message, AllOf(HasSubstr("spec.nodes: expected an integer"), HasSubstr("ignores the job")));
  EXPECT_EQ(after.status.conditions.size(), unreadable().status.conditions.size() + 1);
  const auto events = only<EmitEvent>(plan);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].type, EmitEvent::Type::kWarning);
  EXPECT_EQ(events[0].reason, "Unreadable");
  EXPECT_THAT(reconcile(seen(after)).actions, IsEmpty());
}

TEST(Report, PreservesUnreadableConditions) {
  Job job = unreadable();
  job.report.has_conditions = false;
  EXPECT_THAT(names(reconcile(seen(job))), ElementsAre("EmitEvent Unreadable"));
}

TEST(Report, SkipsJobsManagedElsewhereAndDeletingJobs) {
  Job job = unreadable();
  job.spec.managed_by = "kueue.x-k8s.io/multikueue";
  EXPECT_THAT(reconcile(seen(job)).actions, IsEmpty());
  job = unreadable();
  job.metadata.deletion_timestamp = at_second(5);
  EXPECT_THAT(reconcile(seen(job)).actions, IsEmpty());
}

TEST(Report, ReportsUnknownFieldsAndManagesJob) {
  Job job = JobBuilder();
  job.report.unknown = {"spec.elastic: unknown field"};
  Plan plan = reconcile(seen(job));
  Job after = patched(job, plan);
  const api::Condition* condition = condition_of(after.status.conditions, "UnknownFields");
  ASSERT_NE(condition, nullptr);
  EXPECT_EQ(condition->reason, "NewerVersion");
  EXPECT_THAT(condition->message, HasSubstr("ignores spec.elastic: unknown field"));
  EXPECT_THAT(only<EmitEvent>(plan), SizeIs(1));
  plan = reconcile(seen(after));
  EXPECT_THAT(only<CreatePod>(plan), SizeIs(static_cast<size_t>(job.spec.nodes)));
  // The condition remains in all phases until the object is readable.
  enter_phase(after.status, api::Phase::kRunning, "R", "m", at_second(9));
  EXPECT_TRUE(condition_of(after.status.conditions, "UnknownFields")->status);
  after.report = {};
  const Job clean = patched(after, reconcile(seen(after)));
  EXPECT_EQ(condition_of(clean.status.conditions, "UnknownFields"), nullptr);
}

TEST(Report, JobInUnknownTerminalPhaseStaysFinished) {
  Job job = JobBuilder().phase(api::Phase::kFailed);
  job.status.unknown_phase = "Cancelled";
  job.report.unknown = {R"(status.phase: unknown value "Cancelled")"};
  job = patched(job, reconcile(seen(job)));
  EXPECT_THAT(only<CreatePod>(reconcile(seen(job))), IsEmpty());
  EXPECT_THAT(only<PatchStatus>(reconcile(seen(job))), IsEmpty());
}

TEST(Report, EnteringPhaseReplacesUnknownPhase) {
  api::Status status;
  status.unknown_phase = "Queued";
  status.conditions = {{"Healthy", true, "Probe", "m", at_second(1)}};
  enter_phase(status, api::Phase::kPending, "PodsStarting", "", at_second(9));
  EXPECT_EQ(status.unknown_phase, "");
  EXPECT_EQ(status.conditions[0], (api::Condition{"Healthy", true, "Probe", "m", at_second(1)}));
}

TEST(Report, BoundsLongReports) {
  Job job = JobBuilder();
  for (int i = 0; i < 1000; ++i) job.report.unknown.push_back("spec.x" + std::string(100, 'y') + ": unknown field\n");
  const Job after = patched(job, reconcile(seen(job)));
  const std::string& message = condition_of(after.status.conditions, "UnknownFields")->message;
  EXPECT_LE(message.size(), 1100U);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace oarlock::control
