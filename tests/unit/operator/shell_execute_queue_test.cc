// Actions of jobs with a queue or a gang scheduler against a scripted API server: the requests to their APIs, and where
// a plan stops.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/core/bad_nodes.h"
#include "operator/core/desired.h"
#include "operator/core/workload.h"
#include "tests/unit/operator/executor_fixture.h"

namespace oarlock::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;
using Change = UpdateWorkload::Change;
using Reason = Interruption::Reason;

class ExecuteQueueTest : public ExecutorFixture {
 protected:
  static constexpr char kWorkloads[] = "/apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads";
  static constexpr char kFlavors[] = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors";
  static constexpr char kPods[] = "/api/v1/namespaces/ns/pods";

  static Json object(const std::string& version, const std::string& owner = "job-uid") {
    return {{"metadata",
             {{"uid", "u"},
              {"resourceVersion", version},
              {"labels", {{kLabelJobName, "j"}}},
              {"ownerReferences", {{{"uid", owner}, {"controller", true}}}}}}};
  }

  static Json condition(const char* type, bool is_true, const char* reason = "R") {
    return {{"type", type}, {"status", is_true ? "True" : "False"}, {"reason", reason}, {"message", ""}};
  }

  static Json workload(const std::string& version, const std::vector<Json>& conditions) {
    Json out = object(version);
    out["status"]["conditions"] = conditions;
    return out;
  }

  static Json flavor(const std::string& name, const std::string& pool) {
    return {{"metadata", {{"name", name}}}, {"spec", {{"nodeLabels", {{"pool", pool}}}}}};
  }

  void answer(const Json& body, int status = 200) { transport_->script({.status = status, .pieces = {body.dump()}}); }
  // Without their queries.
  std::vector<std::string> requests() const {
    std::vector<std::string> out = ExecutorFixture::requests();
    for (std::string& request : out) request.resize(std::min(request.find('?'), request.size()));
    return out;
  }
  Json sent(size_t request) const { return Json::parse(transport_->requests().at(request).body); }
};

// ---- CreateWorkload ------------------------------------------------------------------------------------------------

TEST_F(ExecuteQueueTest, CreatesAWorkloadForTheJobsPods) {
  answer(object("11"), 201);
  EXPECT_FALSE(run({CreateWorkload{"w", "team", 3, 2}}));
  EXPECT_THAT(requests(), ElementsAre(std::string("POST ") + kWorkloads));
  EXPECT_EQ(sent(0), desired_workload(job_, {"w", "team", 3, 2}, PodFactory(job_, 0, 3, {}, {}).pod(0), {}));
  EXPECT_TRUE(waits_for(ResourceKind::kWorkload, "11"));
}

TEST_F(ExecuteQueueTest, ReadsThePriorityOfTheClass) {
  job_.metadata.priority_class = "high";
  answer({{"value", 1000}});
  answer(object("11"), 201);
  EXPECT_FALSE(run({CreateWorkload{"w", "team", 2}}));
  EXPECT_THAT(requests(), ElementsAre("GET /apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/high",
                                      std::string("POST ") + kWorkloads));
  EXPECT_FALSE(transport_->requests()[0].metadata_only) << "the value is not part of the metadata";
  EXPECT_EQ(sent(1)["spec"]["priority"], 1000);

  job_.metadata.priority_class.clear();
  job_.spec.pod_template = R"({"spec":{"priorityClassName":"p","containers":[{"name":"trainer","image":"i"}]}})";
  answer({{"value", -7}});
  answer(object("12"), 201);
  EXPECT_FALSE(run({CreateWorkload{"w", "team", 2}}));
  EXPECT_EQ(requests()[2], "GET /apis/scheduling.k8s.io/v1/priorityclasses/p");
  EXPECT_EQ(sent(3)["spec"]["priority"], -7);
}

TEST_F(ExecuteQueueTest, AWorkloadForAGrowthHasThePriorityOfTheOneThatItReplaces) {
  job_.metadata.priority_class = "changed-since";
  const Json reference = {{"group", "kueue.x-k8s.io"}, {"kind", "WorkloadPriorityClass"}, {"name", "low"}};
  answer({{"spec", {{"priorityClassRef", reference}, {"priority", 5}}}});
  answer(object("11"), 201);
  EXPECT_FALSE(run({CreateWorkload{"w-2", "team", 4, {}, "w"}}));
  EXPECT_THAT(requests(), ElementsAre(std::string("GET ") + kWorkloads + "/w", std::string("POST ") + kWorkloads));
  EXPECT_FALSE(transport_->requests()[0].metadata_only);
  EXPECT_EQ(sent(1)["spec"]["priorityClassRef"], reference);
  EXPECT_EQ(sent(1)["spec"]["priority"], 5);
}

TEST_F(ExecuteQueueTest, NamesAMissingPriorityClass) {
  job_.metadata.priority_class = "high";
  transport_->script(failure(404, "NotFound"));
  const auto stop = run({CreateWorkload{"w", "team", 2}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Reason::kApiError);
  EXPECT_EQ(stop->action, "create workload ns/w");
  EXPECT_EQ(stop->error.kind, kube::ApiErrorKind::kInvalid);
  EXPECT_EQ(stop->error.message, "WorkloadPriorityClass high does not exist");
  EXPECT_EQ(requests().size(), 1u);
  transport_->script(failure(403, "Forbidden", "may not read it"));
  EXPECT_EQ(run({CreateWorkload{"w", "team", 2}})->error.message, "may not read it");
}

TEST_F(ExecuteQueueTest, AnExistingWorkloadCountsAsCreatedIfItIsTheJobs) {
  transport_->script(failure(409, "AlreadyExists"));
  answer(object("30"));
  EXPECT_FALSE(run({CreateWorkload{"w", "team", 2}}));
  EXPECT_TRUE(waits_for(ResourceKind::kWorkload, "30"));
}

// No watch reports that it was removed, and the job must not wait without a reason.
TEST_F(ExecuteQueueTest, AWorkloadOfAnotherOwnerIsNamedInTheError) {
  Json unlabeled = object("30");
  unlabeled["metadata"].erase("labels");
  for (const Json& other : {object("30", "another"), unlabeled}) {
    transport_->script(failure(409, "AlreadyExists"));
    answer(other);
    const auto stop = run({CreateWorkload{"w", "team", 2}});
    ASSERT_TRUE(stop);
    EXPECT_EQ(stop->reason, Reason::kApiError);
    EXPECT_EQ(stop->action, "create workload ns/w");
    EXPECT_EQ(stop->error.kind, kube::ApiErrorKind::kForbidden);
    EXPECT_THAT(stop->error.message, HasSubstr("Workload ns/w"));
    EXPECT_THAT(stop->error.message, HasSubstr("delete it"));
    EXPECT_EQ(done_, 0);
  }
}

TEST_F(ExecuteQueueTest, RejectedWorkloadInterruptsThePlan) {
  transport_->script(failure(422, "Invalid", "queueName: bad"));
  const auto stop = run({CreateWorkload{"w", "team", 2}, EmitEvent{}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Reason::kApiError);
  EXPECT_EQ(stop->error.message, "queueName: bad");
  EXPECT_EQ(done_, 0);
}

// ---- ConfirmWorkloadUnchanged --------------------------------------------------------------------------------------

TEST_F(ExecuteQueueTest, NoPodIsCreatedOrStoppedAfterAChangeOfTheWorkload) {
  answer(object("20"));
  EXPECT_FALSE(run({ConfirmWorkloadUnchanged{"w", "20"}}));
  EXPECT_THAT(requests(), ElementsAre(std::string("GET ") + kWorkloads + "/w"));
  answer(object("21"));
  const auto not_created = run({ConfirmWorkloadUnchanged{"w", "20"}, CreatePod{"j-0-0", 0, 0}});
  ASSERT_TRUE(not_created);
  EXPECT_EQ(not_created->reason, Reason::kStaleCache);
  EXPECT_TRUE(waits_for(ResourceKind::kWorkload, "21"));
  transport_->script(failure(404, "NotFound"));
  const auto not_stopped = run({ConfirmWorkloadUnchanged{"w", "20"}, PatchStatus{}, DeletePod{"j-0-0", "u", "", ""}});
  ASSERT_TRUE(not_stopped);
  EXPECT_EQ(not_stopped->reason, Reason::kStaleCache);
  transport_->script({.pieces = {"not JSON"}});
  EXPECT_EQ(run({ConfirmWorkloadUnchanged{"w", "20"}})->reason, Reason::kStaleCache);
  transport_->script({.failure = http::TransportErrorKind::kBroken});
  EXPECT_EQ(run({ConfirmWorkloadUnchanged{"w", "20"}})->reason, Reason::kApiError);
  EXPECT_EQ(requests().size(), 5u) << "one request each";
}

// ---- UpdateWorkload ------------------------------------------------------------------------------------------------

TEST_F(ExecuteQueueTest, UpdatesTheStatusOfTheLiveWorkload) {
  const Json live = workload("20", {condition("QuotaReserved", true), condition("Evicted", true, "Preempted")});
  answer(live);
  answer(object("21"));
  const UpdateWorkload release{"w", "u", Change::kRelease, SystemTime{}};
  EXPECT_FALSE(run({release}));
  EXPECT_THAT(requests(),
              ElementsAre(std::string("GET ") + kWorkloads + "/w", std::string("PATCH ") + kWorkloads + "/w/status"));
  EXPECT_FALSE(transport_->requests()[0].metadata_only) << "the conditions are not part of the metadata";
  EXPECT_EQ(transport_->requests()[1].content_type, "application/merge-patch+json");
  EXPECT_EQ(sent(1), *workload_status_patch(live, release));
  EXPECT_EQ(sent(1)["metadata"]["resourceVersion"], "20");
  EXPECT_TRUE(waits_for(ResourceKind::kWorkload, "21"));
}

TEST_F(ExecuteQueueTest, UpdateOfAnotherStateIsStale) {
  const UpdateWorkload release{"w", "u", Change::kRelease, SystemTime{}};
  const std::vector<Json> evicted = {condition("QuotaReserved", true), condition("Evicted", true, "Preempted")};
  transport_->script(failure(404, "NotFound"));
  EXPECT_EQ(run({release})->reason, Reason::kStaleCache);
  answer(workload("20", {condition("QuotaReserved", true)}));
  EXPECT_EQ(run({release})->reason, Reason::kStaleCache) << "it is not evicted any more";
  Json replaced = workload("20", evicted);
  replaced["metadata"]["uid"] = "v";
  answer(replaced);
  EXPECT_EQ(run({release})->reason, Reason::kStaleCache);
  EXPECT_EQ(requests().size(), 3u) << "no write";
  for (const auto& [status, reason] : {std::pair(409, "Conflict"), std::pair(404, "NotFound")}) {
    answer(workload("20", evicted));
    transport_->script(failure(status, reason));
    EXPECT_EQ(run({release})->reason, Reason::kStaleCache) << reason;
  }
  answer(workload("20", evicted));
  transport_->script(failure(422, "Invalid", "the webhook denied it"));
  const auto rejected = run({release});
  EXPECT_EQ(rejected->reason, Reason::kApiError);
  EXPECT_EQ(rejected->action, "patch the status of workload ns/w");
  EXPECT_EQ(rejected->error.message, "the webhook denied it");
}

// Kueue's webhooks may be down.
TEST_F(ExecuteQueueTest, APlanContinuesWithoutTheReportOfReadiness) {
  for (const Change change : {Change::kReady, Change::kNotReady}) {
    answer(workload("20", {condition("QuotaReserved", true)}));
    transport_->script(failure(500, "InternalError", "failed calling webhook"));
    answer(object("30"), 201);
    EXPECT_FALSE(run({UpdateWorkload{"w", "u", change, SystemTime{}}, CreatePod{"j-0-0", 0, 0}}));
    EXPECT_EQ(done_, 2);
    transport_->script(failure(404, "NotFound"));
    EXPECT_EQ(run({UpdateWorkload{"w", "u", change, SystemTime{}}})->reason, Reason::kStaleCache);
  }
  answer(workload("20", {condition("QuotaReserved", true)}));
  transport_->script(failure(500, "InternalError", "failed calling webhook"));
  EXPECT_EQ(run({UpdateWorkload{"w", "u", Change::kSucceed, SystemTime{}}})->reason, Reason::kApiError);
}

// ---- PodGroups -----------------------------------------------------------------------------------------------------

TEST_F(ExecuteQueueTest, CreatesPodsInTheirPodGroup) {
  const Gang gang{GangApi::kSchedulerPlugins, "j-0"};
  answer(object("11"), 201);
  answer(object("12"), 201);
  EXPECT_FALSE(run({CreatePodGroup{gang.api, gang.pod_group, R"({"spec":{"minMember":2}})"},
                    CreatePod{.name = "j-0-0", .nodes = 2, .gang = gang}}));
  EXPECT_THAT(requests(), ElementsAre("POST /apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups",
                                      std::string("POST ") + kPods));
  EXPECT_EQ(sent(0)["spec"]["minMember"], 2);
  EXPECT_EQ(sent(1)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "j-0");
}

TEST_F(ExecuteQueueTest, CreatesPodsThatAvoidNodesInTheirPodGroup) {
  answer(object("11"), 201);
  EXPECT_FALSE(run({CreatePod{.name = "j-0-0",
                              .nodes = 2,
                              .gang = Gang{GangApi::kSchedulerPlugins, "j-0"},
                              .avoided = AvoidedNodes{.required = {"bad"}}}}));
  EXPECT_EQ(sent(0)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "j-0");
  EXPECT_EQ(sent(0)["metadata"]["annotations"][kAnnotationAvoidedNodes], "bad=Required");
  EXPECT_EQ(sent(0)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                   ["nodeSelectorTerms"][0]["matchFields"][0]["values"][0],
            "bad");
}

TEST_F(ExecuteQueueTest, StopsAtAPodGroupOfAnotherOwner) {
  transport_->script(failure(409, "AlreadyExists"));
  answer(object("5", "another-uid"));
  const auto stop = run({CreatePodGroup{GangApi::kNative, "j-0", "{}"}, CreatePod{.name = "j-0-0"}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Reason::kApiError);
  EXPECT_THAT(stop->error.message, HasSubstr("PodGroup ns/j-0 exists, and does not belong to this job"));
  EXPECT_EQ(done_, 0);
}

TEST_F(ExecuteQueueTest, DeletesAPodGroup) {
  answer(object("11"));
  EXPECT_FALSE(run({DeletePodGroup{GangApi::kVolcano, "j-0", "u"}}));
  EXPECT_THAT(requests(), ElementsAre("DELETE /apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups/j-0"));
  EXPECT_EQ(sent(0)["preconditions"]["uid"], "u");
}

// ---- DeleteWorkload ------------------------------------------------------------------------------------------------

TEST_F(ExecuteQueueTest, DeletesAWorkloadByItsUid) {
  answer(object("11"));
  transport_->script(failure(404, "NotFound"));
  transport_->script(failure(409, "Conflict", "the uid differs"));
  EXPECT_FALSE(run({DeleteWorkload{"w", "u"}, DeleteWorkload{"w", "u"}, DeleteWorkload{"w", "u"}}));
  EXPECT_EQ(requests(), std::vector<std::string>(3, std::string("DELETE ") + kWorkloads + "/w"));
  EXPECT_EQ(sent(0)["preconditions"], Json::parse(R"({"uid": "u"})"));
  EXPECT_TRUE(waits_for(ResourceKind::kWorkload, "11"));
}

// ---- Pods of an admitted job ---------------------------------------------------------------------------------------

TEST_F(ExecuteQueueTest, ReadsEachFlavorOncePerBatch) {
  const Admission admission{"c", 3, {"a", "b"}};
  answer(flavor("a", "h200"));
  answer({{"metadata", {{"name", "b"}}}, {"spec", {{"tolerations", {{{"key", "gpu"}}}}}}});
  for (int i = 0; i < 3; ++i) answer(object(std::to_string(30 + i)), 201);
  std::vector<Action> pods;
  for (int rank = 0; rank < 3; ++rank)
    pods.emplace_back(CreatePod{.name = "j-0-" + std::to_string(rank), .node_rank = rank, .admission = admission});
  EXPECT_FALSE(run(pods));
  const std::string create = std::string("POST ") + kPods;
  EXPECT_THAT(requests(), ElementsAre(std::string("GET ") + kFlavors + "/a", std::string("GET ") + kFlavors + "/b",
                                      create, create, create));
  EXPECT_FALSE(transport_->requests()[0].metadata_only);
  for (size_t i = 2; i < 5; ++i) {
    EXPECT_EQ(sent(i)["spec"]["nodeSelector"], Json::parse(R"({"pool": "h200"})"));
    EXPECT_EQ(sent(i)["spec"]["tolerations"], Json::parse(R"([{"key": "gpu"}])"));
  }
}

TEST_F(ExecuteQueueTest, PodsOfDifferentAdmissionsAreDifferentBatches) {
  answer(flavor("a", "x"));
  answer(object("30"), 201);
  answer(flavor("b", "y"));
  answer(object("31"), 201);
  EXPECT_FALSE(run({CreatePod{.name = "j-0-0", .admission = Admission{"c", 1, {"a"}}},
                    CreatePod{.name = "j-0-1", .node_rank = 1, .admission = Admission{"c", 1, {"b"}}}}));
  EXPECT_EQ(sent(1)["spec"]["nodeSelector"]["pool"], "x");
  EXPECT_EQ(sent(3)["spec"]["nodeSelector"]["pool"], "y");
}

TEST_F(ExecuteQueueTest, JobsThatAreAdmittedTogetherShareTheFlavor) {
  const auto start = [&](const std::string& pool) {
    answer(object("30"), 201);
    EXPECT_FALSE(run({CreatePod{.name = "j-0-0", .admission = Admission{"c", 1, {"a"}}}}));
    EXPECT_EQ(sent(requests().size() - 1)["spec"]["nodeSelector"]["pool"], pool);
  };
  answer(flavor("a", "x"));
  start("x");
  start("x");
  EXPECT_EQ(requests().size(), 3u) << "one request for the flavor";
  clock_->advance(std::chrono::seconds(10));
  answer(flavor("a", "y"));
  start("y");
}

TEST_F(ExecuteQueueTest, APodWithoutAnAdmissionNeedsNoRequestToKueue) {
  answer(object("30"), 201);
  EXPECT_FALSE(run({CreatePod{"j-0-0", 0, 0}}));
  EXPECT_THAT(requests(), ElementsAre(std::string("POST ") + kPods));
}

// A tenant of a worker cluster may have created the job.
TEST_F(ExecuteQueueTest, NoPodRequestsMoreThanTheWorkloadOfMultiKueue) {
  job_.status.queue.emplace().workload = "w";
  const CreatePod pod{.name = "j-0-0", .admission = Admission{"c", 1}};
  const auto create = [&](int gpus) {
    job_.spec.pod_template = R"({"spec":{"containers":[{"name":"trainer","image":"i","resources":{"limits":{"gpu":)" +
                             std::to_string(gpus) + "}}}]}}";
    return run({pod});
  };
  const std::string get = std::string("GET ") + kWorkloads + "/w";
  const Json live = Json::parse(R"({"metadata": {"name": "w"}, "spec": {"podSets": [{"template": {"spec": {
    "containers": [{"resources": {"limits": {"gpu": 4}}}]}}}]}})");
  answer(live);
  answer(object("30"), 201);
  EXPECT_FALSE(create(4));
  EXPECT_THAT(requests(), ElementsAre(get, std::string("POST ") + kPods));
  EXPECT_FALSE(transport_->requests()[0].metadata_only);
  answer(live);
  const auto stop = create(8);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->action, "create pod ns/j-0-0");
  EXPECT_EQ(stop->error.kind, kube::ApiErrorKind::kInvalid);
  EXPECT_THAT(stop->error.message, HasSubstr("requests 8 of gpu, and Workload w was admitted for 4"));
  transport_->script(failure(404, "NotFound"));
  EXPECT_EQ(create(4)->error.message, "Workload w does not exist");
  EXPECT_EQ(requests().size(), 4u) << "no pod";
}

TEST_F(ExecuteQueueTest, NoPodIsCreatedWithoutItsFlavor) {
  const CreatePod pod{.name = "j-0-0", .admission = Admission{"c", 1, {"gone"}}};
  transport_->script(failure(404, "NotFound"));
  const auto missing = run({pod});
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->reason, Reason::kApiError);
  EXPECT_EQ(missing->action, "create pod ns/j-0-0");
  EXPECT_EQ(missing->error.kind, kube::ApiErrorKind::kInvalid);
  EXPECT_EQ(missing->error.message, "ResourceFlavor gone does not exist");
  transport_->script({.failure = http::TransportErrorKind::kBroken});
  EXPECT_EQ(run({pod})->error.kind, kube::ApiErrorKind::kTransport);
  transport_->script({.pieces = {"not JSON"}});
  EXPECT_THAT(run({pod})->error.message, HasSubstr("ResourceFlavor gone cannot be read"));
  job_.spec.pod_template = R"({"spec":{"nodeSelector":{"pool":"mine"}}})";
  answer(flavor("gone", "h200"));
  const auto contradiction = run({pod});
  EXPECT_EQ(contradiction->error.kind, kube::ApiErrorKind::kInvalid);
  EXPECT_THAT(contradiction->error.message, HasSubstr("ResourceFlavor gone requires another value of pool"));
  EXPECT_EQ(requests(), std::vector<std::string>(4, std::string("GET ") + kFlavors + "/gone")) << "no pod";
}

}  // namespace
}  // namespace oarlock::control
