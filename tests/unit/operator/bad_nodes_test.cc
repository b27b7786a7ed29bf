#include "operator/core/bad_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "operator/core/desired.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using api::BadNode;
using api::NodeAvoidance;
using ::testing::ElementsAre;
using Json = nlohmann::json;

constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";

Json exclusion(const std::string& node) {
  return {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node}}};
}

Json affinity_of(const std::string& pod_template, const AvoidedNodes& nodes) {
  const Job job = with_avoided_nodes(JobBuilder().pod_template(pod_template), nodes);
  return PodFactory(job, 0).pod(0)["spec"]["affinity"]["nodeAffinity"];
}

std::string template_with(const Json& affinity) {
  Json out = Json::parse(kMinimalTemplate);
  out["spec"]["affinity"] = affinity;
  return out.dump();
}

PodFailure failure_of(const Pod& pod, FailureCause cause = FailureCause::kExit) {
  PodFailure out;
  out.cause = cause;
  out.pod = &pod;
  out.record.reason = "PodFailed";
  return out;
}

Pod pod_on(const std::string& node, int exit_code, const std::string& message = "") {
  Pod out = PodBuilder("bert", 0, 0).ended(exit_code, message);
  out.node_name = node;
  return out;
}

api::FailurePolicy limit_of(int failures) {
  api::FailurePolicy out;
  out.avoid_nodes_after = failures;
  return out;
}

std::vector<BadNode> after_failures(const api::FailurePolicy& policy, const std::vector<PodFailure>& failures) {
  api::Status status;
  for (const PodFailure& failure : failures) record_node_failures(policy, {failure}, at_second(5), status);
  return status.bad_nodes;
}

// ---- Failures ------------------------------------------------------------------------------------------------------

TEST(BadNodes, RequiresOtherNodesAtTheLimit) {
  const Pod pod = pod_on("a", 1);
  const PodFailure failure = failure_of(pod);
  const std::vector<BadNode> once = after_failures({}, {failure});
  ASSERT_EQ(once.size(), 1U);
  EXPECT_EQ(once[0], (BadNode{.name = "a",
                              .failures = 1,
                              .last_time = at_second(5),
                              .reason = "PodFailed",
                              .avoidance = NodeAvoidance::kPreferred}));
  EXPECT_EQ(after_failures({}, {failure, failure})[0].avoidance, NodeAvoidance::kRequired);
  EXPECT_EQ(after_failures(limit_of(1), {failure})[0].avoidance, NodeAvoidance::kRequired);
  EXPECT_TRUE(after_failures(limit_of(0), {failure}).empty());
}

TEST(BadNodes, HardwareFailuresCountImmediately) {
  struct HardwareRow {
    int exit_code;
    const char* message;
    bool is_hardware;
  };
  const HardwareRow rows[] = {
      {79, "", true},
      {1, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", true},
      {1, "CUDA error: uncorrectable ECC error encountered", true},
      {1, "CUDA error: uncorrectable NVLink error detected during the execution", true},
      {134, R"({"rank":3,"step":5,"checkpointStep":-1,"reason":"Failed","message":"nvlink error on GPU 2"})", true},
      {1, "ncclSystemError: System call failed", false},
      {1, "CUDA error: an illegal memory access was encountered", false},
      {1, "duplicate key of txid (4711)", false},
      {137, "", false}};
  for (const HardwareRow& row : rows) {
    const Pod pod = pod_on("a", row.exit_code, row.message);
    const PodFailure failure = failure_of(pod);
    EXPECT_EQ(is_hardware_failure(failure), row.is_hardware) << row.exit_code << row.message;
    const BadNode node = after_failures(limit_of(3), {failure}).at(0);
    EXPECT_EQ(node.failures, row.is_hardware ? 3 : 1);
    EXPECT_EQ(node.avoidance, row.is_hardware ? NodeAvoidance::kRequired : NodeAvoidance::kPreferred);
  }
  Pod init = pod_on("a", 79);
  init.trainer->init_container = "setup";
  EXPECT_FALSE(is_hardware_failure(failure_of(init))) << "its codes have no defined meaning";
}

TEST(BadNodes, OnlyFailuresOfTheNodeItselfCount) {
  const Pod exited = pod_on("a", 1);
  for (const FailureCause cause : {FailureCause::kCollateral, FailureCause::kDisconnected, FailureCause::kInterrupted})
    EXPECT_TRUE(after_failures({}, {failure_of(exited, cause)}).empty());
  PodFailure lost;
  lost.cause = FailureCause::kLost;
  EXPECT_TRUE(after_failures({}, {lost}).empty());
  PodFailure free = failure_of(exited);
  free.action = api::FailureAction::kRestartFree;
  EXPECT_TRUE(after_failures({}, {free}).empty()) << "by a rule";
  const Pod device = pod_on("a", 79);
  free.pod = &device;
  EXPECT_EQ(after_failures({}, {free}).size(), 1U);
}

TEST(BadNodes, RejectionsOfTheKubeletCount) {
  const auto is_counted = [](const std::string& reason) {
    Pod pod = PodBuilder("bert", 0, 0).scheduled("a");
    pod.phase = PodPhase::kFailed;
    pod.reason = reason;
    PodFailure failure = failure_of(pod, FailureCause::kRemoved);
    failure.action = api::FailureAction::kRestartFree;
    return !after_failures({}, {failure}).empty();
  };
  for (const char* reason : {"UnexpectedAdmissionError", "OutOfnvidia.com/gpu", "OutOfcpu", "TopologyAffinityError"})
    EXPECT_TRUE(is_counted(reason)) << reason;
  for (const char* reason : {"NodeAffinity", "Evicted", "NodeShutdown", "Shutdown", "Preempting", ""})
    EXPECT_FALSE(is_counted(reason)) << reason;
}

TEST(BadNodes, TheNewestNodesAreKept) {
  api::Status status;
  for (int i = 0; i < 20; ++i) {
    const Pod pod = pod_on("node-" + std::to_string(i % 18), 1);
    record_node_failures({}, {failure_of(pod)}, at_second(i), status);
  }
  EXPECT_EQ(status.bad_nodes.size(), api::kMaxBadNodes);
  EXPECT_EQ(status.bad_nodes.back().name, "node-1");
  EXPECT_EQ(status.bad_nodes.back().failures, 1) << "its first failure was forgotten";
}

// ---- Affinity ------------------------------------------------------------------------------------------------------

TEST(AvoidedNodes, AreExcludedByName) {
  const Json affinity = affinity_of(kMinimalTemplate, {.required = {"a", "b"}, .preferred = {"c"}});
  EXPECT_EQ(affinity[kRequired]["nodeSelectorTerms"],
            Json::array({{{"matchFields", {exclusion("a"), exclusion("b")}}}}));
  EXPECT_EQ(affinity[kPreferred],
            Json::array({{{"weight", 100}, {"preference", {{"matchFields", {exclusion("c")}}}}}}));
  EXPECT_FALSE(affinity_of(kMinimalTemplate, {.preferred = {"c"}}).contains(kRequired));
  EXPECT_EQ(affinity_of("", {.required = {"a"}})[kRequired]["nodeSelectorTerms"].size(), 1U) << "without a template";
}

// A node must match one of the terms.
TEST(AvoidedNodes, AreExcludedFromEachTermOfTheTemplate) {
  const Json zone = {{"key", "zone"}, {"operator", "In"}, {"values", {"z"}}};
  const Json given = {{"nodeAffinity",
                       {{kRequired,
                         {{"nodeSelectorTerms",
                           {{{"matchExpressions", {zone}}},
                            {{"matchExpressions", Json::array()}},
                            {{"matchFields", {exclusion("x")}}}}}}},
                        {kPreferred, {{{"weight", 1}, {"preference", {{"matchExpressions", {zone}}}}}}}}},
                      {"podAntiAffinity", {{kPreferred, Json::array()}}}};
  const std::string pod_template = template_with(given);
  const Json affinity = affinity_of(pod_template, {.required = {"a"}, .preferred = {"c"}});
  EXPECT_EQ(affinity[kRequired]["nodeSelectorTerms"],
            Json::array({{{"matchExpressions", {zone}}, {"matchFields", {exclusion("a")}}},
                         {{"matchExpressions", Json::array()}},
                         {{"matchFields", {exclusion("x"), exclusion("a")}}}}))
      << "a term without requirements matches no node";
  ASSERT_EQ(affinity[kPreferred].size(), 2U);
  EXPECT_EQ(affinity[kPreferred][0]["weight"], 1);
  const Job job = with_avoided_nodes(JobBuilder().pod_template(pod_template), AvoidedNodes{.required = {"a"}});
  EXPECT_TRUE(PodFactory(job, 0).pod(0)["spec"]["affinity"].contains("podAntiAffinity"));
}

TEST(AvoidedNodes, LeaveMalformedAffinitiesToTheApiServer) {
  for (const Json& given :
       {Json("text"), Json{{"nodeAffinity", "text"}}, Json{{"nodeAffinity", {{kPreferred, "text"}}}},
        Json{{"nodeAffinity", {{kRequired, Json::array()}}}}, Json{{"nodeAffinity", {{kRequired, Json::object()}}}}}) {
    const Job job =
        with_avoided_nodes(JobBuilder().pod_template(template_with(given)), AvoidedNodes{.required = {"a"}});
    const Json pod = Json::parse(job.spec.pod_template);
    EXPECT_EQ(pod["spec"]["affinity"], given);
    EXPECT_FALSE(pod["metadata"]["annotations"].contains(kAnnotationAvoidedNodes));
  }
}

// The kubelet checks the affinity, too.
TEST(AvoidedNodes, LeaveTemplatesWithANodeNameAsTheyAre) {
  Json pod_template = Json::parse(kMinimalTemplate);
  pod_template["spec"]["nodeName"] = "a";
  const Job job = with_avoided_nodes(JobBuilder().pod_template(pod_template.dump()), AvoidedNodes{.required = {"a"}});
  EXPECT_FALSE(Json::parse(job.spec.pod_template)["spec"].contains("affinity"));
}

// Each term would have each exclusion: pods of megabytes.
TEST(AvoidedNodes, AreOnlyPreferredBesidesManyTerms) {
  const Json term = {{"matchExpressions", {{{"key", "zone"}, {"operator", "Exists"}}}}};
  const auto required_size = [&](size_t terms) {
    const Json given = {{"nodeAffinity", {{kRequired, {{"nodeSelectorTerms", Json(terms, term)}}}}}};
    const Json affinity = affinity_of(template_with(given), {.required = {"a", "b"}});
    EXPECT_EQ(affinity.contains(kPreferred), terms > 64);
    return affinity[kRequired].dump().size();
  };
  EXPECT_LT(required_size(65), required_size(64));
}

TEST(AvoidedNodes, AreReadFromTheAnnotation) {
  const AvoidedNodes nodes{.required = {"a", "b"}, .preferred = {"c"}};
  EXPECT_EQ(to_annotation(nodes), "a=Required,b=Required,c=Preferred");
  const BoxedOptional<AvoidedNodes> read = parse_avoided_nodes(to_annotation(nodes));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, nodes);
  for (const std::string& text : {std::string(), std::string("a"), std::string("=Required"), std::string("a=Never"),
                                  std::string(",,,"), std::string(300, 'x') + "=Required"})
    EXPECT_FALSE(parse_avoided_nodes(text)) << text;
  std::string many;
  for (int i = 0; i < 100; ++i) many += "n" + std::to_string(i) + "=Required,";
  EXPECT_EQ(parse_avoided_nodes(many)->required.size(), api::kMaxBadNodes);
}

TEST(AvoidedNodes, AnAnnotationOfTheTemplateHasNoEffect) {
  Json given = Json::parse(kMinimalTemplate);
  given["metadata"]["annotations"] = {{kAnnotationAvoidedNodes, "x=Required"}, {"other", "kept"}};
  const Job job = JobBuilder().pod_template(given.dump());
  ASSERT_TRUE(changes_template(job, {}));
  const Json annotations = PodFactory(with_avoided_nodes(job, {}), 0).pod(0)["metadata"]["annotations"];
  EXPECT_FALSE(annotations.contains(kAnnotationAvoidedNodes));
  EXPECT_EQ(annotations["other"], "kept");
  EXPECT_FALSE(changes_template(JobBuilder(), {}));
}

TEST(AvoidedNodes, AreOnlyPreferredWhereKueueSelectsTheNodes) {
  Job job = JobBuilder().avoid_nodes(1);
  job.status.bad_nodes = {
      {.name = "a", .failures = 1, .last_time = at_second(0), .reason = "", .avoidance = NodeAvoidance::kRequired}};
  EXPECT_THAT(avoided_nodes(job, {}, at_second(1))->required, ElementsAre("a"));
  const auto by_kueue = avoided_nodes(job, Admission{.cluster_queue = "q", .has_topology = true}, at_second(1));
  EXPECT_EQ(*by_kueue, (AvoidedNodes{.preferred = {"a"}}));
  EXPECT_FALSE(avoided_nodes(job, {}, at_second(86'400))) << "it has expired";
  EXPECT_TRUE(avoided_nodes(job, {}, at_second(86'399)));
  job.spec.failure_policy.avoid_nodes_after = 0;
  EXPECT_FALSE(avoided_nodes(job, {}, at_second(1)));
}

// An entry of another version of the operator.
TEST(BadNodes, StatusesOfOtherVersionsAreRead) {
  const Json object = {
      {"apiVersion", kApiVersion},
      {"kind", kKind},
      {"metadata", {{"name", "j"}}},
      {"spec", {{"nodes", 1}}},
      {"status", {{"badNodes", {{{"name", "a"}, {"avoidance", "Forever"}, {"severity", 3}}, {{"name", "b"}}}}}}};
  const Job job = api::read_training_job(object);
  EXPECT_EQ(job.report.problem, "");
  ASSERT_EQ(job.status.bad_nodes.size(), 2U);
  EXPECT_EQ(job.status.bad_nodes[0].avoidance, NodeAvoidance::kPreferred);
  EXPECT_THAT(job.status.bad_nodes[0].unknown_members, ::testing::HasSubstr("severity"));
  EXPECT_EQ(api::status_to_json(job.status)["badNodes"][0]["severity"], 3) << "it is written back";
}

}  // namespace
}  // namespace oarlock::test
