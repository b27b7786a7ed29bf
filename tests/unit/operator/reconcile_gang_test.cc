// Gang scheduling: the PodGroup of each attempt, which pods belong to it, and its end.
#include "operator/core/gang.h"

#include <nlohmann/json.hpp>

#include "tests/unit/operator/reconcile_support.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::Phase;
using Json = nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

const Gang kFirst{GangApi::kNative, "bert-0"};

// A job whose API server serves these APIs.
Observed with_apis(const Job& job, std::vector<Pod> pods, std::vector<GangApi> apis = {GangApi::kNative}) {
  Observed out = seen(job, std::move(pods));
  out.gang_apis = std::move(apis);
  return out;
}

PodGroup group(const std::string& name, GangApi api = GangApi::kNative) { return {api, name, "g", kJobUid}; }

Pod in(const Gang& gang, Pod pod) {
  pod.gang = gang;
  return pod;
}

std::optional<GangApi> api_for(const std::string& pod_template, std::vector<GangApi> served) {
  const Plan plan = reconcile(with_apis(JobBuilder().pod_template(pod_template), {}, std::move(served)));
  const std::vector<CreatePodGroup> groups = only<CreatePodGroup>(plan);
  for (const CreatePod& create : only<CreatePod>(plan)) {
    EXPECT_EQ(create.gang, groups.empty() ? std::nullopt : std::optional(Gang{groups[0].api, "bert-0"}));
  }
  return groups.empty() ? std::nullopt : std::optional(groups[0].api);
}

std::string scheduled_by(const std::string& name) {
  return R"({"spec":{"schedulerName":")" + name + R"(","containers":[{"image":"i","name":"trainer"}]}})";
}

TEST(ReconcileGang, ThePodGroupPrecedesThePodsOfANewJob) {
  Observed observed = with_apis(JobBuilder().nodes(3), {});
  observed.untouched = true;
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan),
              ElementsAre("CreatePodGroup bert-0", "CreatePod bert-0-0", "CreatePod bert-0-1", "CreatePod bert-0-2"));
  for (const CreatePod& create : only<CreatePod>(plan)) EXPECT_EQ(create.gang, kFirst);
  const Json body = Json::parse(only<CreatePodGroup>(plan).at(0).body);
  EXPECT_EQ(body["apiVersion"], "scheduling.k8s.io/v1beta1");
  EXPECT_EQ(body["kind"], "PodGroup");
  EXPECT_EQ(body["metadata"]["labels"]["oarlock.dev/job-name"], "bert");
  EXPECT_EQ(body["metadata"]["ownerReferences"][0]["uid"], kJobUid);
  EXPECT_EQ(body["spec"], Json::parse(R"({"schedulingPolicy":{"gang":{"minCount":3}}})"));
}

TEST(ReconcileGang, ADomainForAllPodsIsAConstraintOfTheGroup) {
  const auto spec_with = [](std::optional<api::TopologyMode> mode, GangApi served = GangApi::kNative) {
    Job job = JobBuilder();
    if (mode) job.spec.scheduling.topology.emplace() = {"rack", *mode};
    const Plan plan = reconcile(with_apis(job, {}, {served}));
    return Json::parse(only<CreatePodGroup>(plan).at(0).body)["spec"];
  };
  const Json rack = Json::parse(R"({"topology":[{"key":"rack"}]})");
  EXPECT_EQ(spec_with(api::TopologyMode::kRequired)["schedulingConstraints"], rack);
  EXPECT_EQ(spec_with(api::TopologyMode::kExclusive)["schedulingConstraints"], rack);
  EXPECT_FALSE(spec_with(api::TopologyMode::kPreferred).contains("schedulingConstraints"));
  EXPECT_FALSE(spec_with(std::nullopt).contains("schedulingConstraints"));
  EXPECT_EQ(spec_with(api::TopologyMode::kRequired, GangApi::kSchedulerPlugins), Json::parse(R"({"minMember":2})"));
}

TEST(ReconcileGang, AClusterWithoutTheseApisIsAsBefore) {
  Observed observed = with_apis(JobBuilder(), {}, {});
  observed.untouched = true;
  EXPECT_THAT(names(reconcile(observed)), ElementsAre("CreatePod bert-0-0", "CreatePod bert-0-1"));
  EXPECT_EQ(only<CreatePod>(reconcile(observed)).at(0).gang, std::nullopt);
}

TEST(ReconcileGang, TheSchedulerOfTheTemplateDeterminesTheApi) {
  const std::vector<GangApi> all = {GangApi::kNative, GangApi::kSchedulerPlugins, GangApi::kVolcano};
  const std::vector<GangApi> crds = {GangApi::kSchedulerPlugins, GangApi::kVolcano};
  EXPECT_EQ(api_for(kMinimalTemplate, all), GangApi::kNative);
  EXPECT_EQ(api_for(kMinimalTemplate, crds), GangApi::kSchedulerPlugins);
  EXPECT_EQ(api_for(kMinimalTemplate, {GangApi::kVolcano}), std::nullopt) << "its scheduler must be named";
  EXPECT_EQ(api_for(scheduled_by("default-scheduler"), all), GangApi::kNative);
  EXPECT_EQ(api_for(scheduled_by("coscheduling"), all), GangApi::kSchedulerPlugins);
  EXPECT_EQ(api_for(scheduled_by("profile"), {GangApi::kNative}), GangApi::kNative);
  EXPECT_EQ(api_for(scheduled_by("volcano"), all), GangApi::kVolcano);
  EXPECT_EQ(api_for(scheduled_by("volcano"), {GangApi::kNative, GangApi::kSchedulerPlugins}), std::nullopt);
}

TEST(ReconcileGang, ThePodGroupHasThePriorityAndTheQueueOfTheTemplate) {
  const auto spec_for = [](const char* scheduler, GangApi api) {
    const std::string text =
        std::string(R"({"metadata":{"annotations":{"scheduling.volcano.sh/queue-name":"team"}},"spec":{)") + scheduler +
        R"("priorityClassName":"high","containers":[{"image":"i","name":"trainer"}]}})";
    const Plan plan = reconcile(with_apis(JobBuilder().pod_template(text), {}, {api}));
    return Json::parse(only<CreatePodGroup>(plan).at(0).body)["spec"];
  };
  EXPECT_EQ(spec_for("", GangApi::kNative),
            Json::parse(R"({"schedulingPolicy":{"gang":{"minCount":2}},"priorityClassName":"high"})"));
  EXPECT_EQ(spec_for("", GangApi::kSchedulerPlugins), Json::parse(R"({"minMember":2})"));
  EXPECT_EQ(spec_for(R"("schedulerName":"volcano",)", GangApi::kVolcano),
            Json::parse(R"({"minMember":2,"queue":"team","priorityClassName":"high"})"));
}

TEST(ReconcileGang, AGroupThatNeedsOnePodHasNoPodGroup) {
  EXPECT_THAT(only<CreatePodGroup>(reconcile(with_apis(JobBuilder().nodes(1), {}))), IsEmpty());
  EXPECT_THAT(only<CreatePodGroup>(reconcile(with_apis(JobBuilder().nodes(3).elastic(1), {}))), IsEmpty());
  const Plan plan = reconcile(with_apis(JobBuilder().nodes(3).elastic(2), {}));
  ASSERT_THAT(only<CreatePod>(plan), ::testing::SizeIs(3));
  EXPECT_EQ(only<CreatePod>(plan)[2].gang, kFirst);
  EXPECT_EQ(Json::parse(only<CreatePodGroup>(plan).at(0).body)["spec"]["schedulingPolicy"]["gang"]["minCount"], 2);
}

TEST(ReconcileGang, ATemplateMayNameAnotherGroup) {
  for (const char* metadata : {R"("metadata":{"labels":{"scheduling.x-k8s.io/pod-group":"bert-0"}},"spec":{)",
                               R"("metadata":{"annotations":{"scheduling.k8s.io/group-name":"mine"}},"spec":{)",
                               R"("spec":{"schedulingGroup":{"podGroupName":"mine"},)"}) {
    const std::string text = std::string("{") + metadata + R"("containers":[{"image":"i","name":"trainer"}]}})";
    const Job job = JobBuilder().pod_template(text).phase(Phase::kPending);
    const std::vector<GangApi> apis = {GangApi::kNative, GangApi::kSchedulerPlugins};
    for (const bool has_peer : {false, true}) {
      std::vector<Pod> pods;
      if (has_peer) pods.push_back(in({GangApi::kSchedulerPlugins, "bert-0"}, pod(0, 0)));
      const Plan plan = reconcile(with_apis(job, pods, apis));
      EXPECT_THAT(only<CreatePodGroup>(plan), IsEmpty()) << text;
      EXPECT_EQ(only<CreatePod>(plan).back().gang, std::nullopt) << text;
    }
  }
}

// A watch of PodGroups that lags, or an API that has been installed meanwhile, must not divide a group.
TEST(ReconcileGang, MissingPodsAreInTheGroupOfTheirPeers) {
  const Job job = JobBuilder().phase(Phase::kPending);
  const Plan same = reconcile(with_apis(job, {in(kFirst, pod(0, 0))}));
  EXPECT_THAT(names(same), ElementsAre("PatchStatus Pending 0", "CreatePodGroup bert-0", "CreatePod bert-0-1"));
  EXPECT_EQ(only<CreatePod>(same).at(0).gang, kFirst);

  Observed unserved = with_apis(job, {in(kFirst, pod(0, 0))}, {});
  EXPECT_EQ(only<CreatePod>(reconcile(unserved)).at(0).gang, kFirst);
  EXPECT_THAT(only<CreatePodGroup>(reconcile(unserved)), IsEmpty());

  const Plan none = reconcile(with_apis(job, {pod(0, 0)}));
  EXPECT_EQ(only<CreatePod>(none).at(0).gang, std::nullopt);
  EXPECT_THAT(only<CreatePodGroup>(none), IsEmpty());

  Observed existing = with_apis(job, {}, {GangApi::kNative, GangApi::kSchedulerPlugins});
  existing.pod_groups = {group("bert-0", GangApi::kSchedulerPlugins)};
  EXPECT_EQ(only<CreatePod>(reconcile(existing)).at(0).gang, (Gang{GangApi::kSchedulerPlugins, "bert-0"}));
  EXPECT_THAT(only<CreatePodGroup>(reconcile(existing)), IsEmpty());
}

TEST(ReconcileGang, AMissingPodGroupIsCreatedAgainWhileItsPodsWait) {
  const Job job = JobBuilder().phase(Phase::kPending);
  EXPECT_THAT(names(reconcile(with_apis(job, {in(kFirst, pod(0, 0)), in(kFirst, pod(0, 1))}))),
              Contains("CreatePodGroup bert-0"));
  Observed placed = with_apis(job, {in(kFirst, pod(0, 0).scheduled()), in(kFirst, pod(0, 1).scheduled())});
  EXPECT_THAT(only<CreatePodGroup>(reconcile(placed)), IsEmpty());
}

// Schedulers count the members that have not finished. A pod that is created after the first placement is placed
// singly.
TEST(ReconcileGang, AReplacementIsPlacedSingly) {
  Job job = JobBuilder().phase(Phase::kRunning).restart_scope(api::RestartScope::kRank);
  job.status.replacements.push_back(
      {.node_rank = 1, .attempt = 0, .pod_uid = "lost", .time = at_second(50), .reason = "", .message = ""});
  Observed observed = with_apis(job, {in(kFirst, pod(0, 0).running())});
  observed.pod_groups = {group("bert-0")};
  const Plan plan = reconcile(observed);
  ASSERT_THAT(only<CreatePod>(plan), ::testing::SizeIs(1));
  EXPECT_EQ(only<CreatePod>(plan)[0].gang, std::nullopt);

  const Job pending = JobBuilder().phase(Phase::kPending);
  EXPECT_EQ(only<CreatePod>(reconcile(with_apis(pending, {in(kFirst, pod(0, 0).scheduled())}))).at(0).gang,
            std::nullopt);
}

// The other rank has finished, and both pods are gone.
TEST(ReconcileGang, APodDoesNotWaitForAFinishedPeer) {
  Observed observed = with_apis(JobBuilder().phase(Phase::kPending).finished(0, "0"), {});
  observed.pod_groups = {group("bert-0")};
  ASSERT_THAT(only<CreatePod>(reconcile(observed)), ::testing::SizeIs(1));
  EXPECT_EQ(only<CreatePod>(reconcile(observed))[0].gang, std::nullopt);
}

// A part of an elastic group has nodes; the others wait in the PodGroup, which a user has deleted.
TEST(ReconcileGang, AMissingPodGroupIsCreatedAgainForThePodsThatWait) {
  const Job job = JobBuilder().nodes(3).elastic(2).phase(Phase::kPending);
  Observed observed =
      with_apis(job, {in(kFirst, pod(0, 0).scheduled()), in(kFirst, pod(0, 1).scheduled()), in(kFirst, pod(0, 2))});
  EXPECT_THAT(names(reconcile(observed)), Contains("CreatePodGroup bert-0"));
  observed.pods[2] = in(kFirst, pod(0, 2).scheduled());
  EXPECT_THAT(only<CreatePodGroup>(reconcile(observed)), IsEmpty());
}

TEST(ReconcileGang, EachAttemptHasItsPodGroup) {
  const Job job = JobBuilder().phase(Phase::kRestarting, 1);
  Observed observed = with_apis(job, {in(kFirst, pod(0, 0).running().deleting())});
  observed.pod_groups = {group("bert-0")};
  const Plan waiting = reconcile(observed);
  EXPECT_THAT(names(waiting), Not(Contains("DeletePodGroup bert-0"))) << "a pod still runs";

  observed.pods = {in(kFirst, pod(0, 0).ended(1))};
  observed.now = at_second(600);
  const Plan plan = reconcile(observed);
  EXPECT_THAT(names(plan), Contains("DeletePodGroup bert-0"));
  EXPECT_THAT(names(plan), Contains("CreatePodGroup bert-1"));
  EXPECT_EQ(only<CreatePod>(plan).at(0).gang, (Gang{GangApi::kNative, "bert-1"}));
  EXPECT_EQ(only<DeletePodGroup>(plan).at(0), (DeletePodGroup{GangApi::kNative, "bert-0", "g"}));

  observed.pod_groups[0].deleting = true;
  EXPECT_THAT(only<DeletePodGroup>(reconcile(observed)), IsEmpty());
}

TEST(ReconcileGang, AJobThatHasEndedOrIsSuspendedHasNoPodGroup) {
  Observed ended = with_apis(JobBuilder().phase(Phase::kComplete), {in(kFirst, pod(0, 0).running())});
  ended.pod_groups = {group("bert-0")};
  EXPECT_THAT(only<DeletePodGroup>(reconcile(ended)), IsEmpty()) << "a pod still runs";
  ended.pods = {in(kFirst, pod(0, 0).ended(0))};
  EXPECT_THAT(names(reconcile(ended)), Contains("DeletePodGroup bert-0"));

  Observed suspended = with_apis(JobBuilder().suspend().phase(Phase::kSuspended), {});
  suspended.pod_groups = {group("bert-0")};
  EXPECT_THAT(names(reconcile(suspended)), ElementsAre("PatchStatus Suspended 0", "DeletePodGroup bert-0"))
      << "the patch is a fence";
}

TEST(ReconcileGang, OtherPodGroupsAreLeftAlone) {
  Observed observed = with_apis(JobBuilder().phase(Phase::kRunning, 1), {pod(1, 0).running(), pod(1, 1).running()});
  PodGroup foreign = group("bert-0");
  foreign.owner_uid = "another";
  observed.pod_groups = {foreign, group("bert-1"), group("bert-2"), group("bert-x"), group("other-0")};
  EXPECT_THAT(only<DeletePodGroup>(reconcile(observed)), IsEmpty());
}

TEST(Gang, PodsNameTheGroupAsTheirSchedulerReadsIt) {
  const Job job = JobBuilder();
  for (const GangApiNames& names : gang_apis()) {
    const Gang gang{names.api, "bert-3"};
    const Json pod = Json::parse(with_gang(job, gang).spec.pod_template);
    EXPECT_EQ(read_gang(pod), gang);
    EXPECT_EQ(pod["spec"]["containers"], Json::parse(kMinimalTemplate)["spec"]["containers"]);
  }
  EXPECT_EQ(read_gang(Json::parse(kMinimalTemplate)), std::nullopt);
  EXPECT_EQ(read_gang(Json::parse(R"({"metadata":[],"spec":{"schedulingGroup":7}})")), std::nullopt);
  const Json native = Json::parse(with_gang(job, kFirst).spec.pod_template);
  EXPECT_EQ(native["spec"]["schedulingGroup"]["podGroupName"], "bert-0");
  const Json plugins = Json::parse(with_gang(job, {GangApi::kSchedulerPlugins, "a"}).spec.pod_template);
  EXPECT_EQ(plugins["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "a");
  const Json volcano = Json::parse(with_gang(job, {GangApi::kVolcano, "a"}).spec.pod_template);
  EXPECT_EQ(volcano["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "a");
}

}  // namespace
}  // namespace oarlock::test
