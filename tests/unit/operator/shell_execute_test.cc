// Actions against a scripted API server: the requests, the action at which a plan stops, and the recorded writes.
#include "operator/shell/executor.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <nlohmann/json.hpp>
#include <set>

#include "operator/core/desired.h"
#include "tests/unit/operator/executor_fixture.h"

namespace oarlock::control {
namespace {

using test::Answer;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

std::string object(const std::string& version, const std::string& owner = "job-uid", const std::string& label = "j") {
  return Json{{"metadata",
               {{"uid", "object-uid"},
                {"resourceVersion", version},
                {"labels", {{kLabelJobName, label}}},
                {"ownerReferences", {{{"uid", "other"}}, {{"uid", owner}, {"controller", true}}}}}}}
      .dump();
}

// Answers each request with an object. The second request waits for a third one, which comes only where requests are
// made side by side.
class ParallelTransport final : public http::Transport {
 public:
  http::TransportResult<http::Response> send(const http::Request&, http::Milliseconds, std::stop_token) override {
    std::unique_lock lock(mutex_);
    most_ = std::max(most_, ++in_flight_);
    began_.notify_all();
    if (++requests_ == 2) began_.wait_for(lock, std::chrono::seconds(20), [this] { return requests_ > 2; });
    --in_flight_;
    return http::Response{.status = 200, .body = object("20"), .retry_after = {}};
  }
  http::TransportResult<http::Response> stream(const http::Request& request, http::ByteSink&, http::StreamLimits limits,
                                               std::stop_token cancel) override {
    return send(request, limits.total, cancel);
  }
  size_t most_at_once() const { return most_; }

 private:
  std::mutex mutex_;
  std::condition_variable began_;
  int requests_ = 0;
  size_t in_flight_ = 0;
  size_t most_ = 0;
};

using ExecuteTest = ExecutorFixture;

constexpr char kPod[] = "/api/v1/namespaces/ns/pods/j-0-0";
constexpr char kPods[] = "/api/v1/namespaces/ns/pods?fieldValidation=Strict";

TEST_F(ExecuteTest, PerformsActionsInOrderAndRecordsWrites) {
  for (const char* version : {"11", "12", "13", "14"}) transport_->script({.pieces = {object(version)}});
  transport_->script({.status = 201, .pieces = {"{}"}});
  EXPECT_FALSE(run({PatchStatus{}, CreateService{"j", "service"}, CreatePod{"j-0-0", 0, 0},
                    DeletePod{"j-0-0", "u", "9", "old"}, EmitEvent{}}));
  EXPECT_EQ(done_, 5);
  EXPECT_TRUE(events_->flush());
  EXPECT_THAT(requests(),
              ElementsAre("PATCH /apis/oarlock.dev/v1alpha1/namespaces/ns/trainingjobs/j/status",
                          "POST /api/v1/namespaces/ns/services", std::string("POST ") + kPods,
                          std::string("DELETE ") + kPod, "POST /apis/events.k8s.io/v1/namespaces/ns/events"));
  const auto& sent = transport_->requests();
  EXPECT_EQ(Json::parse(sent[0].body)["metadata"]["resourceVersion"], "10");
  EXPECT_EQ(Json::parse(sent[0].body)["metadata"]["uid"], "job-uid");
  EXPECT_EQ(sent[1].body, "service");
  EXPECT_EQ(sent[2].body, PodFactory(job_, 0).text(0));
  EXPECT_EQ(Json::parse(sent[3].body)["preconditions"], Json::parse(R"({"uid": "u", "resourceVersion": "9"})"));
  EXPECT_TRUE(waits_for(ResourceKind::kJob, "11"));
  EXPECT_TRUE(waits_for(ResourceKind::kService, "12"));
  EXPECT_TRUE(waits_for(ResourceKind::kPod, "14"));
}

TEST_F(ExecuteTest, GivesEachServiceARandomKey) {
  std::set<std::string> keys;
  for (const char* version : {"11", "12"}) {
    transport_->script({.pieces = {object(version)}});
    EXPECT_FALSE(run({CreateService{"j", R"({"metadata":{"name":"j"}})"}}));
    const Json body = Json::parse(transport_->requests().back().body);
    EXPECT_EQ(body["metadata"]["name"], "j");
    const std::string key = body["metadata"]["annotations"]["oarlock.dev/regroup-key"];
    EXPECT_EQ(key.size(), 64u);
    keys.insert(key);
  }
  EXPECT_EQ(keys.size(), 2u);
}

Json service_with_key(const std::string& key, const std::string& owner = "job-uid") {
  Json service = Json::parse(object("30", owner));
  service["metadata"]["annotations"] = {{"oarlock.dev/regroup-key", key}};
  return service;
}

TEST_F(ExecuteTest, DerivesTheTokenFromTheServicesKey) {
  const std::string key = "0123456789abcdef";
  job_.spec.nodes = 2;
  job_.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  const std::string service = "GET /api/v1/namespaces/ns/services/j";
  transport_->script({.pieces = {service_with_key(key).dump()}});
  for (const char* version : {"31", "32"}) transport_->script({.pieces = {object(version)}});
  EXPECT_FALSE(run({CreatePod{"j-3-0", 3, 0, false, 2}, CreatePod{"j-3-1", 3, 1, false, 2}}));
  EXPECT_THAT(requests(), ElementsAre(service, std::string("POST ") + kPods, std::string("POST ") + kPods));
  const std::string token = derive_regroup_token(key, "job-uid", 3);
  const RegroupSecret secret{token, "0123456789ab"};
  EXPECT_EQ(transport_->requests()[1].body, PodFactory(job_, 3, {}, secret).text(0));
  EXPECT_EQ(transport_->requests()[2].body, PodFactory(job_, 3, {}, secret).text(1));
  EXPECT_EQ(token.size(), 64u);
  EXPECT_NE(token, derive_regroup_token(key, "job-uid", 2));
  EXPECT_NE(token, derive_regroup_token("l", "job-uid", 3));
  EXPECT_NE(token, derive_regroup_token(key, "another", 3));
}

TEST_F(ExecuteTest, CreatesNoPodWithoutTheJobsService) {
  job_.spec.nodes = 2;
  job_.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  transport_->script(failure(404, "NotFound"));
  EXPECT_EQ(run({CreatePod{"j-0-0", 0, 0, false, 2}})->reason, Interruption::Reason::kStaleCache);
  transport_->script({.pieces = {service_with_key("k", "another").dump()}});
  EXPECT_EQ(run({CreatePod{"j-0-0", 0, 0, false, 2}})->reason, Interruption::Reason::kNameConflict);
  EXPECT_EQ(requests().size(), 2u);
  // An earlier version of the operator created this Service. The group restarts as a whole.
  transport_->script({.pieces = {object("30")}});
  transport_->script({.pieces = {object("31")}});
  EXPECT_FALSE(run({CreatePod{"j-0-0", 0, 0, false, 2}}));
  EXPECT_EQ(transport_->requests().back().body, PodFactory(job_, 0).text(0));
}

TEST_F(ExecuteTest, CreatesReplacesAndDeletesANetworkPolicy) {
  for (const char* version : {"11", "12", "13"}) transport_->script({.pieces = {object(version)}});
  EXPECT_FALSE(run({CreateNetworkPolicy{"trainingjob-j", "policy"}, ReplaceNetworkPolicy{"trainingjob-j", "other"},
                    DeleteNetworkPolicy{"trainingjob-j", "u"}}));
  const std::string policies = "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies";
  EXPECT_THAT(requests(), ElementsAre("POST " + policies, "PUT " + policies + "/trainingjob-j",
                                      "DELETE " + policies + "/trainingjob-j"));
  EXPECT_EQ(transport_->requests()[0].body, "policy");
  EXPECT_EQ(transport_->requests()[1].body, "other");
  EXPECT_EQ(Json::parse(transport_->requests()[2].body)["preconditions"]["uid"], "u");
  EXPECT_TRUE(waits_for(ResourceKind::kNetworkPolicy, "13"));
}

constexpr char kClaims[] = "/api/v1/namespaces/ns/persistentvolumeclaims";
constexpr char kTriedPod[] = "POST /api/v1/namespaces/ns/pods?dryRun=All&fieldValidation=Strict";

TEST_F(ExecuteTest, UsesTheExistingClaim) {
  transport_->script({.pieces = {object("12", "another")}});
  EXPECT_FALSE(run({CreateClaim{"j-checkpoints", 0, "claim"}})) << "it belongs to no job";
  EXPECT_THAT(requests(), ElementsAre(std::string("GET ") + kClaims + "/j-checkpoints"));
}

TEST_F(ExecuteTest, CreatesAClaimAfterADryRunOfThePod) {
  const Answer answers[] = {{.status = 201, .pieces = {object("11")}},
                            failure(409, "AlreadyExists"),
                            failure(400, "BadRequest", R"(admission webhook "w" does not support dry run)")};
  for (const Answer& answer : answers) {
    transport_->script(failure(404, "NotFound"));
    transport_->script(answer);
    transport_->script({.status = 201, .pieces = {object("12")}});
    EXPECT_FALSE(run({CreateClaim{"j-checkpoints", 2, "claim"}}));
  }
  const std::vector<http::Request>& sent = transport_->requests();
  ASSERT_EQ(sent.size(), 9U);
  EXPECT_THAT(requests(), Contains(kTriedPod).Times(3));
  EXPECT_EQ(sent[1].body, PodFactory(job_, 2).text(0));
  EXPECT_EQ(sent[2].method + " " + sent[2].target, std::string("POST ") + kClaims);
  EXPECT_EQ(sent[2].body, "claim");
}

// explain_invalid_pod() converts the paths of its errors.
TEST_F(ExecuteTest, DryRunIsOfAPodWithARegroupToken) {
  job_.spec.nodes = 2;
  job_.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  transport_->script(failure(404, "NotFound"));
  transport_->script({.status = 201, .pieces = {object("11")}});
  transport_->script({.status = 201, .pieces = {object("12")}});
  EXPECT_FALSE(run({CreateClaim{"j-checkpoints", 2, "claim"}}));
  const std::string body = transport_->requests().at(1).body;
  EXPECT_THAT(body, HasSubstr("OARLOCK_REGROUP_TOKEN"));
  EXPECT_EQ(body, PodFactory(job_, 2, {}, placeholder_secret()).text(0));
}

TEST_F(ExecuteTest, RejectedPodGetsNoClaim) {
  for (const auto& [status, reason] : {std::pair(400, "BadRequest"), std::pair(403, "Forbidden")}) {
    transport_->script(failure(404, "NotFound"));
    transport_->script(failure(status, reason, "no such pods"));
    const auto stop = run({CreateClaim{"j-checkpoints", 0, "claim"}, CreatePod{"j-0-0", 0, 0}});
    ASSERT_TRUE(stop);
    EXPECT_EQ(done_, 0);
    EXPECT_EQ(stop->reason, Interruption::Reason::kApiError);
    EXPECT_EQ(stop->action, "create pod ns/j-0-0");
    EXPECT_EQ(stop->error.message, "no such pods");
  }
}

TEST_F(ExecuteTest, ClaimOfAConcurrentWriterIsReadAgain) {
  transport_->script(failure(404, "NotFound"));
  transport_->script({.status = 201, .pieces = {object("11")}});
  transport_->script(failure(409, "AlreadyExists"));
  const auto stop = run({CreateClaim{"j-checkpoints", 0, "claim"}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kStaleCache);
}

TEST_F(ExecuteTest, ClaimThatIsBeingDeletedStopsThePlan) {
  Json claim = Json::parse(object("12"));
  claim["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z";
  transport_->script({.pieces = {claim.dump()}});
  const auto stop = run({CreateClaim{"j-checkpoints", 0, "claim"}, CreatePod{"j-0-0", 0, 0}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(done_, 0);
  EXPECT_EQ(stop->reason, Interruption::Reason::kApiError);
  EXPECT_THAT(stop->error.message, HasSubstr("j-checkpoints is being deleted"));
}

TEST_F(ExecuteTest, ReplacedNetworkPolicyMustExistUnchanged) {
  for (const auto& [status, reason] : {std::pair(404, "NotFound"), std::pair(409, "Conflict")}) {
    transport_->script(failure(status, reason));
    const auto stop = run({ReplaceNetworkPolicy{"trainingjob-j", "{}"}, CreatePod{"j-0-0", 0, 0}});
    ASSERT_TRUE(stop);
    EXPECT_EQ(stop->reason, Interruption::Reason::kStaleCache) << reason;
    EXPECT_EQ(done_, 0);
  }
}

TEST_F(ExecuteTest, NetworkPolicyOfAnotherOwnerInterruptsPlan) {
  transport_->script(failure(409, "AlreadyExists"));
  transport_->script({.pieces = {object("30", "another")}});
  const auto stop = run({CreateNetworkPolicy{"trainingjob-j", "{}"}, CreatePod{"j-0-0", 0, 0}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kNameConflict);
  EXPECT_EQ(stop->conflicting_kind, ResourceKind::kNetworkPolicy);
  EXPECT_EQ(stop->conflicting_key.name, "trainingjob-j");
}

TEST_F(ExecuteTest, DeletesAServiceByItsUid) {
  transport_->script({.pieces = {object("11")}});
  transport_->script(failure(409, "Conflict", "the uid differs"));
  EXPECT_FALSE(run({DeleteService{"j", "u"}, DeleteService{"j", "v"}})) << "the Service of another job is left alone";
  EXPECT_THAT(requests(),
              ElementsAre("DELETE /api/v1/namespaces/ns/services/j", "DELETE /api/v1/namespaces/ns/services/j"));
  EXPECT_EQ(Json::parse(transport_->requests()[0].body)["preconditions"], Json::parse(R"({"uid": "u"})"));
  EXPECT_TRUE(waits_for(ResourceKind::kService, "11"));
}

TEST_F(ExecuteTest, StopsAtFirstFailure) {
  transport_->script(failure(500, "InternalError", "etcd is away"));
  const auto stop = run({CreatePod{"j-0-0", 0, 0}, CreatePod{"j-0-1", 0, 1}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kApiError);
  EXPECT_EQ(stop->action, "create pod ns/j-0-0");
  EXPECT_EQ(stop->error.message, "etcd is away");
  EXPECT_EQ(requests().size(), 1u);
  EXPECT_EQ(done_, 0);
}

TEST_F(ExecuteTest, StopTakesEffectBetweenActions) {
  stop_.request_stop();
  const auto stop = run({CreatePod{"j-0-0", 0, 0}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kShutdown);
  EXPECT_THAT(requests(), IsEmpty());
}

TEST_F(ExecuteTest, OwnExistingObjectCountsAsCreated) {
  transport_->script(failure(409, "AlreadyExists"));
  transport_->script({.pieces = {object("30")}});
  transport_->script({.pieces = {object("31")}});
  EXPECT_FALSE(run({CreatePod{"j-0-0", 0, 0}, CreatePod{"j-0-1", 0, 1}}));
  EXPECT_THAT(requests(),
              ElementsAre(std::string("POST ") + kPods, std::string("GET ") + kPod, std::string("POST ") + kPods));
  EXPECT_TRUE(waits_for(ResourceKind::kPod, "31"));
}

TEST_F(ExecuteTest, ObjectOfAnotherOwnerInterruptsPlan) {
  transport_->script(failure(409, "AlreadyExists"));
  transport_->script({.pieces = {object("30", "another-job")}});
  const auto stop = run({CreateService{"j", "{}"}, CreatePod{"j-0-0", 0, 0}});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kNameConflict);
  EXPECT_EQ(stop->conflicting_kind, ResourceKind::kService);
  EXPECT_EQ(stop->conflicting_key, (kube::ObjectKey{"ns", "j"}));
  EXPECT_FALSE(waits_for(ResourceKind::kService, "30"));
}

// No watch reports it, so that the plan would be made again and again.
TEST_F(ExecuteTest, ObjectWithoutTheLabelInterruptsPlan) {
  for (const bool is_created : {true, false}) {
    if (is_created) transport_->script(failure(409, "AlreadyExists"));
    transport_->script({.pieces = {object("30", "job-uid", "another")}});
    const Action action = is_created ? Action(CreatePod{"j-0-0", 0, 0}) : Action(ConfirmPodAbsent{"j-0-0"});
    const auto stop = run({action, CreatePod{"j-0-1", 0, 1}});
    ASSERT_TRUE(stop) << is_created;
    EXPECT_EQ(stop->reason, Interruption::Reason::kNameConflict) << is_created;
    EXPECT_EQ(stop->conflicting_kind, ResourceKind::kPod) << is_created;
    EXPECT_EQ(stop->conflicting_key, (kube::ObjectKey{"ns", "j-0-0"})) << is_created;
  }
}

TEST_F(ExecuteTest, ObjectDeletedDuringCreateIsStale) {
  transport_->script(failure(409, "AlreadyExists"));
  transport_->script(failure(404, "NotFound"));
  EXPECT_EQ(run({CreatePod{"j-0-0", 0, 0}})->reason, Interruption::Reason::kStaleCache);
}

TEST_F(ExecuteTest, DeletedOrReplacedPodCountsAsDeleted) {
  transport_->script(failure(404, "NotFound"));
  EXPECT_FALSE(run({DeletePod{"j-0-0", "u", "9", ""}}));
  transport_->script(failure(409, "Conflict"));
  EXPECT_FALSE(run({DeletePod{"j-0-0", "u", "", ""}}));
  transport_->script(failure(409, "Conflict"));
  transport_->script({.pieces = {object("12")}});  // with the uid "object-uid"
  EXPECT_FALSE(run({DeletePod{"j-0-0", "u", "9", ""}}));
  transport_->script(failure(409, "Conflict"));
  transport_->script(failure(404, "NotFound"));
  EXPECT_FALSE(run({DeletePod{"j-0-0", "u", "9", ""}}));
}

TEST_F(ExecuteTest, APodThatHasChangedIsNotDeleted) {
  transport_->script(failure(409, "Conflict"));
  transport_->script({.pieces = {object("12")}});
  EXPECT_EQ(run({DeletePod{"j-0-0", "object-uid", "9", ""}})->reason, Interruption::Reason::kStaleCache);
}

TEST_F(ExecuteTest, ConfirmJobUnchangedReadsLiveObject) {
  const auto job = [](const char* uid, const char* version) {
    return Json{{"metadata", {{"uid", uid}, {"resourceVersion", version}}}}.dump();
  };
  transport_->script({.pieces = {job("job-uid", "10")}});
  EXPECT_FALSE(run({ConfirmJobUnchanged{}}));
  EXPECT_THAT(requests(), ElementsAre("GET /apis/oarlock.dev/v1alpha1/namespaces/ns/trainingjobs/j"));
  transport_->script({.pieces = {job("job-uid", "12")}});
  EXPECT_EQ(run({ConfirmJobUnchanged{}, CreatePod{"j-0-0", 0, 0}})->reason, Interruption::Reason::kStaleCache);
  EXPECT_TRUE(waits_for(ResourceKind::kJob, "12"));
  transport_->script({.pieces = {job("another", "12")}});
  EXPECT_EQ(run({ConfirmJobUnchanged{}})->reason, Interruption::Reason::kJobDeleted);
  transport_->script(failure(404, "NotFound"));
  EXPECT_EQ(run({ConfirmJobUnchanged{}})->reason, Interruption::Reason::kJobDeleted);
  transport_->script({.failure = http::TransportErrorKind::kBroken});
  EXPECT_EQ(run({ConfirmJobUnchanged{}})->reason, Interruption::Reason::kApiError);
}

TEST_F(ExecuteTest, ConfirmPodAbsentReadsLiveObject) {
  transport_->script(failure(404, "NotFound"));
  EXPECT_FALSE(run({ConfirmPodAbsent{"j-0-0"}}));
  EXPECT_THAT(requests(), ElementsAre(std::string("GET ") + kPod));
  transport_->script({.pieces = {object("40")}});
  EXPECT_EQ(run({ConfirmPodAbsent{"j-0-0"}, PatchStatus{}})->reason, Interruption::Reason::kStaleCache);
  EXPECT_TRUE(waits_for(ResourceKind::kPod, "40"));
  transport_->script({.failure = http::TransportErrorKind::kBroken});
  EXPECT_EQ(run({ConfirmPodAbsent{"j-0-0"}})->reason, Interruption::Reason::kApiError);
  transport_->script({.pieces = {object("40")}});
  EXPECT_FALSE(run({ConfirmPodAbsent{"j-0-0", "object-uid"}})) << "this pod is lost";
  transport_->script({.pieces = {object("40")}});
  EXPECT_EQ(run({ConfirmPodAbsent{"j-0-0", "another"}})->reason, Interruption::Reason::kStaleCache);
}

TEST_F(ExecuteTest, DoesNotPatchStatusOfStaleOrDeletedJob) {
  transport_->script(failure(409, "Conflict"));
  EXPECT_EQ(run({PatchStatus{}, CreatePod{"j-0-0", 0, 0}})->reason, Interruption::Reason::kStaleCache);
  transport_->script(failure(404, "NotFound"));
  EXPECT_EQ(run({PatchStatus{}, CreatePod{"j-0-0", 0, 0}})->reason, Interruption::Reason::kJobDeleted);
  EXPECT_EQ(requests().size(), 2u);
}

TEST_F(ExecuteTest, FailedEventDoesNotInterruptPlan) {
  transport_->script({.pieces = {object("11")}});
  EXPECT_FALSE(run({EmitEvent{}, CreatePod{"j-0-0", 0, 0}}));
  EXPECT_EQ(done_, 2);
  transport_->script(failure(403, "Forbidden"));
  EXPECT_FALSE(events_->flush());
}

TEST_F(ExecuteTest, RejectionEndsSlowStartBatches) {
  std::vector<Action> pods;
  for (int i = 0; i < 4096; ++i) pods.emplace_back(CreatePod{"j-0-" + std::to_string(i), 0, i});
  for (int i = 0; i < 1100; ++i) transport_->script({.pieces = {object(std::to_string(1000 + i))}});
  for (int i = 0; i < 4096; ++i) transport_->script(failure(403, "Forbidden", "exceeded quota"));
  const auto stop = run(pods);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kApiError);
  EXPECT_EQ(done_, 1100);
  EXPECT_LE(requests().size(), 1100u + kMaxParallelCalls) << "a quota does not reject each remaining pod";
  EXPECT_TRUE(waits_for(ResourceKind::kPod, "2099"));
}

TEST_F(ExecuteTest, DeletesPodsInBatchesBeforeCreatingNewOnes) {
  std::vector<Action> pods;
  for (int i = 0; i < 300; ++i) pods.emplace_back(DeletePod{"j-0-" + std::to_string(i), "object-uid", "", "old"});
  pods.emplace_back(CreatePod{"j-1-0", 1, 0});
  const auto transport = std::make_shared<ParallelTransport>();
  const Executor executor{kube::Client(transport, std::chrono::seconds(30)), own_writes_, events_, Logger::silent()};
  std::vector<size_t> done;
  EXPECT_FALSE(
      executor.execute(job_, pods, [&](const Action& action) { done.push_back(action.index()); }, stop_.get_token()));
  ASSERT_EQ(done.size(), 301u);
  EXPECT_EQ(done.back(), pods.back().index());
  EXPECT_EQ(std::count(done.begin(), done.end(), pods.back().index()), 1);
  EXPECT_GT(transport->most_at_once(), 1u) << "deletions are serial";
  EXPECT_LE(transport->most_at_once(), kMaxParallelCalls);
}

TEST_F(ExecuteTest, ChangedPodInterruptsBatchOfDeletions) {
  std::vector<Action> pods;
  for (int i = 0; i < 100; ++i) pods.emplace_back(DeletePod{"j-0-" + std::to_string(i), "object-uid", "9", "old"});
  transport_->script({.pieces = {object("11")}});
  transport_->script(failure(409, "Conflict"));
  for (int i = 0; i < 20; ++i) transport_->script({.pieces = {object("12")}});
  const auto stop = run(pods);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->reason, Interruption::Reason::kStaleCache);
  EXPECT_LE(requests().size(), 4u) << "one deletion, two parallel ones, and the read of the changed pod";
  EXPECT_EQ(Json::parse(transport_->requests()[1].body)["preconditions"]["resourceVersion"], "9");
}

TEST(EventBody, DescribesTheOccurrenceAndItsObject) {
  Job job;
  job.metadata.name = "j";
  job.metadata.namespace_name = "ns";
  job.metadata.uid = "job-uid";
  job.metadata.resource_version = "10";
  const EmitEvent event{
      .type = EmitEvent::Type::kWarning, .reason = "Failed", .action = "Fail", .message = "why", .pod = "j-0-1"};
  const SystemTime time = SystemTime(std::chrono::seconds(1'700'000'000)) + std::chrono::microseconds(42);
  const Json body = Json::parse(event_body(job, event, {.controller = "c", .instance = "i"}, time));
  EXPECT_EQ(body["apiVersion"], "events.k8s.io/v1");
  EXPECT_EQ(body["metadata"], Json::parse(R"({"name": "j.17979cfe362aa410", "namespace": "ns"})"));
  EXPECT_EQ(body["eventTime"], "2023-11-14T22:13:20.000042Z");
  EXPECT_EQ(body["type"], "Warning");
  EXPECT_EQ(body["reason"], "Failed");
  EXPECT_EQ(body["action"], "Fail");
  EXPECT_EQ(body["note"], "why");
  EXPECT_EQ(body["reportingController"], "c");
  EXPECT_EQ(body["reportingInstance"], "i");
  EXPECT_EQ(body["regarding"],
            Json::parse(R"({"apiVersion": "oarlock.dev/v1alpha1", "kind": "TrainingJob", "namespace": "ns",
    "name": "j", "uid": "job-uid", "resourceVersion": "10"})"));
  EXPECT_EQ(body["related"]["name"], "j-0-1");
}

TEST(EventBody, LongNamesAndTextsAreCut) {
  Job job;
  job.metadata.name = std::string(253, 'n');
  EmitEvent event;
  event.message = std::string(3000, 'm');
  const Json body =
      Json::parse(event_body(job, event, {.instance = std::string(500, 'i')}, SystemTime(std::chrono::seconds(1))));
  EXPECT_LE(body["metadata"]["name"].get<std::string>().size(), 253u);
  EXPECT_LE(body["note"].get<std::string>().size(), 1024u);
  EXPECT_LE(body["reportingInstance"].get<std::string>().size(), 128u);
  // The limit is in bytes, and a character that is cut would be replaced by a longer one.
  for (const char* unit : {"ä", "\xff", "\x1b", "\n"}) {
    event.message.clear();
    while (event.message.size() < 3000) event.message += unit;
    event.reason = event.action = event.message;
    const Json hostile = Json::parse(event_body(job, event, {.instance = "i"}, SystemTime(std::chrono::seconds(1))));
    EXPECT_LE(hostile["note"].get<std::string>().size(), 1024u) << unit;
    EXPECT_LE(hostile["reason"].get<std::string>().size(), 128u) << unit;
    EXPECT_LE(hostile["action"].get<std::string>().size(), 128u) << unit;
    EXPECT_EQ(hostile["note"].get<std::string>().find_first_of("\x1b\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace oarlock::control
