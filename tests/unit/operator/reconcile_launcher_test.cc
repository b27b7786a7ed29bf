// When the launcher in a job's pods is decided: before its first pod, and at a resume.
#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kTemplate[] =
    R"({"spec":{"containers":[{"name":"trainer","image":"example.com/mine:1","command":["python3","train.py"]}]}})";

JobBuilder any_image() { return JobBuilder().pod_template(kTemplate); }

Observed seen_by(const std::string& launcher_image, const Job& job, std::vector<Pod> pods = {}) {
  Observed out = seen(job, std::move(pods));
  out.launcher_image = launcher_image;
  return out;
}

std::string image_after(const Observed& observed) {
  const api::Status status = status_after(observed, reconcile(observed));
  return status.launcher ? status.launcher->image + status.launcher->reason : "none";
}

TEST(ReconcileLauncher, TheFirstStatusRecordsTheLauncherOfThePods) {
  const Observed observed = seen_by("launcher:1", any_image());
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), IsSupersetOf({"CreatePod bert-0-0", "CreatePod bert-0-1"}));
  for (const CreatePod& pod : only<CreatePod>(plan)) EXPECT_EQ(pod.images.launcher, "launcher:1");
  Pod first = pod(0, 0);
  first.images.launcher = "launcher:1";
  Observed then = seen_by("launcher:2", any_image(), {first});  // an operator of another version
  for (const CreatePod& pod : only<CreatePod>(reconcile(then))) EXPECT_EQ(pod.images.launcher, "launcher:1");
  then.pods.push_back(pod(0, 1));
  EXPECT_EQ(image_after(then), "launcher:1");
}

TEST(ReconcileLauncher, ACrdWithoutTheFieldMeansNoLauncherInLaterAttempts) {
  const Observed observed = seen_by("launcher:1", any_image());
  Observed then = after(observed, reconcile(observed));
  then.job.status.launcher.reset();  // the API server has dropped it
  then.job.status.start_time = at_second(1);
  then.job.status.phase = Phase::kPending;
  then.pods.clear();
  for (const CreatePod& pod : only<CreatePod>(reconcile(then))) EXPECT_EQ(pod.images.launcher, "");
}

TEST(ReconcileLauncher, TheImageOutlivesTheOperator) {
  const Observed first = seen_by("launcher:1", any_image());
  Observed then = first;
  then.pods = {pod(0, 0), pod(0, 1)};
  for (Pod& pod : then.pods) pod.images.launcher = "launcher:1";
  then = after(then, reconcile(then));
  then.launcher_image = "launcher:2";
  then.pods = {pod(0, 0).ended(1), pod(0, 1).running()};
  for (Pod& pod : then.pods) pod.images.launcher = "launcher:1";
  const Plan restart = reconcile(then);
  EXPECT_THAT(names(restart), Contains("CreatePod bert-1-0"));
  for (const CreatePod& pod : only<CreatePod>(restart)) EXPECT_EQ(pod.images.launcher, "launcher:1");
}

TEST(ReconcileLauncher, PodsOfOneAttemptHaveTheSameImages) {
  Job job = any_image().phase(Phase::kPending);
  job.status.launcher = api::InjectedLauncher{"launcher:1", ""};
  Pod first = pod(0, 0);
  for (const ChosenImages& images : {ChosenImages{"", "launcher:0"}, ChosenImages{"oarlock/trainer:0", "launcher:1"}}) {
    first.images = images;
    const std::vector<CreatePod> created = only<CreatePod>(reconcile(seen_by("launcher:2", job, {first})));
    ASSERT_EQ(created.size(), 1U);
    EXPECT_EQ(created[0].images, images);
  }
  first.images = {};  // of a version before the annotations
  EXPECT_EQ(only<CreatePod>(reconcile(seen_by("launcher:2", job, {first}))).at(0).images.launcher, "launcher:1");
}

TEST(ReconcileLauncher, JobsOfAnEarlierOperatorKeepTheirPods) {
  const Observed running = seen_by("launcher:1", any_image().phase(Phase::kRunning), {pod(0, 0).ended(1)});
  for (const CreatePod& pod : only<CreatePod>(reconcile(running))) EXPECT_EQ(pod.images.launcher, "");
  EXPECT_EQ(image_after(running), "none");
  EXPECT_EQ(image_after(seen_by("launcher:1", any_image(), {pod(0, 0)})), "none") << "its pod precedes its status";
  EXPECT_EQ(image_after(seen_by("launcher:1", any_image().phase(Phase::kSuspended))), "none");
}

TEST(ReconcileLauncher, IsDecidedAgainAtAResume) {
  Job job = any_image().suspend();
  const Observed created = seen_by("launcher:1", job);
  EXPECT_EQ(image_after(created), "none");
  Observed resumed = after(created, reconcile(created));
  resumed.job.spec.suspend = false;
  EXPECT_EQ(image_after(resumed), "launcher:1") << "it has not run yet";

  job = any_image().phase(Phase::kSuspended);
  job.status.launcher = api::InjectedLauncher{"launcher:1", ""};
  EXPECT_EQ(image_after(seen_by("launcher:2", job)), "launcher:2") << "the earlier image may be gone";
  job.spec.pod_template = kMinimalTemplate;
  EXPECT_EQ(image_after(seen_by("launcher:2", job)), "NoCommand");
  job.spec.launcher = api::LauncherInjection::kNever;
  EXPECT_EQ(image_after(seen_by("launcher:2", job)), "Never");
}

TEST(ReconcileLauncher, AResumeUsesThePresentImage) {
  Job job = any_image().phase(Phase::kSuspended);
  job.status.launcher = api::InjectedLauncher{"launcher:1", ""};
  const Plan plan = reconcile(seen_by("launcher:2", job));
  EXPECT_THAT(names(plan), Contains("CreatePod bert-1-0"));
  for (const CreatePod& pod : only<CreatePod>(plan)) EXPECT_EQ(pod.images.launcher, "launcher:2");
}

TEST(ReconcileLauncher, TheReasonIsRecordedAlsoWhenPodsExist) {
  Observed observed = seen_by("launcher:1", JobBuilder());
  EXPECT_THAT(names(reconcile(observed)), Not(Contains("PatchStatus Pending 0")));
  observed.pods = {pod(0, 0), pod(0, 1)};
  EXPECT_EQ(image_after(observed), "NoCommand") << "the reason is recorded";
}

// Any program restarts in its pods, so that a lost pod is replaced while the others remain.
TEST(ReconcileLauncher, LostPodIsReplaced) {
  Job job = any_image().restart_scope(api::RestartScope::kRank).phase(Phase::kRunning);
  job.status.launcher = api::InjectedLauncher{"launcher:1", ""};
  Observed observed = seen_by("launcher:2", job, {pod(0, 0).running(), pod(0, 1).running().deleting()});
  for (Pod& pod : observed.pods) pod.images.launcher = "launcher:0";
  const Plan lost = reconcile(observed);
  ASSERT_EQ(status_after(observed, lost).replacements.size(), 1U);
  observed = after(observed, lost);
  observed.pods.pop_back();
  const Plan replace = reconcile(observed);
  ASSERT_EQ(only<CreatePod>(replace).size(), 1U);
  EXPECT_EQ(only<CreatePod>(replace)[0].images.launcher, "launcher:0") << "as in the pods that remain";
  EXPECT_TRUE(only<CreatePod>(replace)[0].is_replacement);
}

}  // namespace
}  // namespace oarlock::test
