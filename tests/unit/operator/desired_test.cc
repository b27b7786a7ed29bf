#include "operator/core/desired.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "api/rules.h"
#include "tests/support/builders.h"
#include "tests/support/golden.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using nlohmann::json;

// A job that uses every field that the operator adds, overrides or preserves.
constexpr char kFullTemplate[] = R"json({
  "metadata": {
    "creationTimestamp": null, "generateName": "x-", "name": "mine",
    "labels": {"team": "vision", "oarlock.dev/attempt": "99"}, "annotations": {"note": "kept"}},
  "spec": {
    "priorityClassName": "high", "fieldOfNextYear": {"deep": [1, 2.5, null]},
    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
    "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "ckpt"}}],
    "containers": [
      {"name": "exporter", "image": "example/exporter:1", "ports": [{"containerPort": 9100}]},
      {"name": "trainer", "image": "example/trainer:1", "args": ["--node", "$(NODE_RANK)"],
       "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
       "resources": {"limits": {"nvidia.com/gpu": "1"}}, "newContainerField": true,
       "env": [{"name": "MASTER_PORT", "value": "1"}, {"name": "NCCL_DEBUG", "value": "INFO"},
               {"name": "OARLOCK_CHECKPOINT_DIR", "value": "/ckpt/elsewhere"},
               {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
       "volumeMounts": [{"name": "checkpoints", "mountPath": "/ckpt/"}]}]}})json";

json pods_of(const Job& job, int attempt) {
  const PodFactory factory(job, attempt);
  json out = json::array();
  for (int rank = 0; rank < job.spec.nodes; ++rank) out.push_back(factory.pod(rank));
  return out;
}

json variable(const json& pod, size_t container, const std::string& name) {
  for (const json& entry : pod["spec"]["containers"][container]["env"]) {
    if (entry["name"] == name) return entry;
  }
  return nullptr;
}

TEST(Desired, ServiceGolden) {
  expect_golden("operator/service.json", desired_service(JobBuilder().build()).dump(2) + "\n");
}

TEST(Desired, MinimalPodsGolden) {
  expect_golden("operator/pods_minimal.json", pods_of(JobBuilder().build(), 0).dump(2) + "\n");
}

TEST(Desired, FullPodsGolden) {
  const Job job =
      JobBuilder().processes_per_node(2).pod_template(kFullTemplate).trainer(R"({"lr":0.1,"task":"image"})").build();
  expect_golden("operator/pods_full.json", pods_of(job, 3).dump(2) + "\n");
}

TEST(Desired, NamesAreConsistent) {
  const Job job = JobBuilder().build();
  const json pod = PodFactory(job, 4).pod(0);
  EXPECT_EQ(pod["metadata"]["name"], pod_name(job, 4, 0));
  EXPECT_EQ(pod["spec"]["hostname"], pod_name(job, 4, 0));
  EXPECT_EQ(pod["spec"]["subdomain"], service_name(job));
  EXPECT_EQ(desired_service(job)["metadata"]["name"], service_name(job));
  EXPECT_EQ(master_address(job, 4), "bert-4-0.bert.default.svc");
  EXPECT_EQ(variable(PodFactory(job, 4).pod(1), 0, "MASTER_ADDR")["value"], master_address(job, 4));
  const json service = desired_service(job);
  for (const auto& [key, value] : service["spec"]["selector"].items()) EXPECT_EQ(pod["metadata"]["labels"][key], value);
}

TEST(Desired, PreservesUnknownFields) {
  const json pod = PodFactory(JobBuilder().pod_template(kFullTemplate).build(), 0).pod(0);
  EXPECT_EQ(pod["spec"]["fieldOfNextYear"], json::parse(R"({"deep": [1, 2.5, null]})"));
  EXPECT_EQ(pod["spec"]["containers"][1]["newContainerField"], true);
}

TEST(Desired, UserVariablesOverrideOnlyIfSafe) {
  const Job job = JobBuilder().pod_template(kFullTemplate).build();
  EXPECT_EQ(overridden_variables(job), (std::vector<std::string>{"MASTER_PORT", "RANK"}));
  const json pod = PodFactory(job, 0).pod(1);
  EXPECT_EQ(variable(pod, 1, "MASTER_PORT")["value"], "29500");
  EXPECT_EQ(variable(pod, 1, "RANK")["value"], "1");
  EXPECT_EQ(variable(pod, 1, "OARLOCK_CHECKPOINT_DIR")["value"], "/ckpt/elsewhere");
  EXPECT_EQ(variable(pod, 1, "NCCL_DEBUG")["value"], "INFO");
  std::set<std::string> seen;
  for (const json& entry : pod["spec"]["containers"][1]["env"])
    EXPECT_TRUE(seen.insert(entry["name"]).second) << entry["name"];
}

TEST(Desired, CheckpointDirIsMountPathAndJobName) {
  json pod = json::parse(kMinimalTemplate);
  pod["spec"]["containers"][0]["volumeMounts"] = json::array({{{"name", "checkpoints"}, {"mountPath", "/ckpt"}}});
  EXPECT_EQ(PodFactory(JobBuilder().pod_template(pod.dump()).build(), 0).group().checkpoint_dir, "/ckpt/bert");
  EXPECT_EQ(PodFactory(JobBuilder().build(), 0).group().checkpoint_dir, "");
}

TEST(Desired, KeepsUserSharedMemoryTokenPolicyAndPorts) {
  json pod = json::parse(kMinimalTemplate);
  json& trainer = pod["spec"]["containers"][0];
  pod["spec"]["automountServiceAccountToken"] = true;
  trainer["volumeMounts"] = json::array({{{"name", "big"}, {"mountPath", "/dev/shm/"}}});
  trainer["terminationMessagePolicy"] = "File";
  trainer["terminationMessagePath"] = "/tmp/last";
  trainer["ports"] = json::array({{{"name", "prom"}, {"containerPort", 9400}}});
  const json out = PodFactory(JobBuilder().pod_template(pod.dump()).build(), 0).pod(0);
  EXPECT_EQ(out["spec"]["automountServiceAccountToken"], true);
  EXPECT_EQ(out["spec"]["containers"][0]["volumeMounts"], trainer["volumeMounts"]);
  EXPECT_FALSE(out["spec"].contains("volumes"));
  EXPECT_EQ(out["spec"]["containers"][0]["terminationMessagePolicy"], "File");
  EXPECT_EQ(variable(out, 0, "OARLOCK_TERMINATION_LOG")["value"], "/tmp/last");
  const json ports = out["spec"]["containers"][0]["ports"];
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[0], trainer["ports"][0]);
  EXPECT_EQ(ports[1]["name"], "rendezvous");
}

// Only the launcher of the ranks receives the token. A template that sets variables of the launcher keeps them.
TEST(Desired, RanksRestartAloneWithRestartScopeRank) {
  const std::string with_sidecar =
      R"({"metadata":{"annotations":{"a":"b","oarlock.dev/regroup-key-id":"of the template"}},
      "spec":{"containers":[{"name":"trainer","image":"i","env":[{"name":"OARLOCK_RESTART_BACKOFF","value":"1"}]},
      {"name":"sidecar","image":"i"}]}})";
  Job job = JobBuilder().nodes(2).max_restarts(4).pod_template(with_sidecar);
  EXPECT_FALSE(regroups(job));
  EXPECT_TRUE(variable(PodFactory(job, 0, {}, {"secret", "key"}).pod(0), 0, "OARLOCK_REGROUP_TOKEN").is_null());
  job.spec.failure_policy.restart_scope = api::RestartScope::kRank;
  EXPECT_TRUE(regroups(job));
  const json pod = PodFactory(job, 0, {}, {"secret", "key"}).pod(1);
  EXPECT_EQ(pod["metadata"]["annotations"]["oarlock.dev/regroup-key-id"], "key");
  EXPECT_EQ(variable(pod, 0, "OARLOCK_REGROUP_TOKEN")["value"], "secret");
  EXPECT_EQ(variable(pod, 0, "OARLOCK_MAX_RESTARTS")["value"], "4");
  EXPECT_EQ(variable(pod, 0, "OARLOCK_RESTART_BACKOFF")["value"], "1");
  EXPECT_TRUE(variable(pod, 1, "OARLOCK_REGROUP_TOKEN").is_null());
  EXPECT_EQ(variable(pod, 1, "WORLD_SIZE")["value"], "2");
  const json without = PodFactory(job, 0).pod(1);
  EXPECT_TRUE(variable(without, 0, "OARLOCK_MAX_RESTARTS").is_null()) << "a launcher without a token fails";
  EXPECT_FALSE(without["metadata"]["annotations"].contains("oarlock.dev/regroup-key-id"));
  job.spec.failure_policy.max_restarts = 0;
  EXPECT_FALSE(regroups(job));
  job.spec.failure_policy.max_restarts = 1;
  job.spec.nodes = 1;
  EXPECT_FALSE(regroups(job)) << "there is no other rank";
}

// The text is built from one frame with placeholders. Neither quotes nor text that resembles a placeholder may break
// it.
TEST(Desired, TextEqualsPodForAnyTemplate) {
  json pod = json::parse(kFullTemplate);
  for (const char* text : {"~part-", "~part-0-0", "~part-1", "\"~part-2-0\"", "~part-007", "\x01~3", "gap"}) {
    pod["metadata"]["annotations"][text] = text;
    pod["spec"]["containers"][1]["env"].push_back({{"name", text}, {"value", text}});
  }
  const Job job = JobBuilder().pod_template(pod.dump()).trainer(R"({"~part-3-":"~~part-~part-4-0"})").build();
  const PodFactory factory(job, 7);
  for (const int rank : {0, 1}) {
    const json made = json::parse(factory.text(rank));
    EXPECT_EQ(made["metadata"]["name"], pod_name(job, 7, rank));
    EXPECT_EQ(made["metadata"]["labels"][kLabelNodeRank], std::to_string(rank));
    EXPECT_EQ(made["spec"]["hostname"], pod_name(job, 7, rank));
    EXPECT_EQ(made["metadata"]["annotations"][kAnnotationConfig], job.spec.trainer);
    const json& env = made["spec"]["containers"][1]["env"];
    EXPECT_EQ(variable(made, 1, "NODE_RANK")["value"], std::to_string(rank));
    for (size_t i = 1; i <= 7; ++i) {
      EXPECT_EQ(env[env.size() - i],
                pod["spec"]["containers"][1]["env"][pod["spec"]["containers"][1]["env"].size() - i]);
    }
    for (const auto& [key, value] : pod["metadata"]["annotations"].items())
      EXPECT_EQ(made["metadata"]["annotations"][key], value);
  }
}

// A placeholder of the length of a text of the template would be repeated for each container.
TEST(Desired, TextOfAPodIsNotMuchLongerThanItsTemplate) {
  const std::string value = std::string(200'000, '~') + "~part-0-";
  json pod = {{"spec", {{"containers", {{{"name", "trainer"}, {"env", {{{"name", "A"}, {"value", value}}}}}}}}}};
  for (int i = 0; i < 30; ++i) pod["spec"]["containers"].push_back({{"name", fmt::format("sidecar-{}", i)}});
  const PodFactory factory(JobBuilder().pod_template(pod.dump()).build(), 0);
  const std::string text = factory.text(0);
  EXPECT_EQ(json::parse(text)["spec"]["containers"][0]["env"].back()["value"], value);
  EXPECT_LT(text.capacity(), 2 * value.size());
  EXPECT_EQ(factory.text_size(), text.size());
}

TEST(Desired, EnvironmentOfAContainerHasTheSizeOfItsLimit) {
  json pod = json::parse(kFullTemplate);
  const auto size = [&] { return PodFactory(JobBuilder().pod_template(pod.dump()).build(), 0).text_size(); };
  const size_t before = size();
  const json container = {{"name", "further"}, {"image", "i"}};
  pod["spec"]["containers"].push_back(container);
  const size_t environment = size() - before - container.dump().size();
  EXPECT_LE(environment, static_cast<size_t>(api::rules::kEnvironmentBytes));
  EXPECT_GE(environment, static_cast<size_t>(api::rules::kEnvironmentBytes / 2));
}

TEST(Desired, PodsDifferOnlyInRank) {
  const PodFactory factory(JobBuilder().nodes(3).build(), 1);
  std::string one = factory.pod(1).dump();
  const std::string two = factory.pod(2).dump();
  EXPECT_NE(one, two);
  EXPECT_EQ(factory.pod(1), factory.pod(1));
  json second = factory.pod(2);
  json first = factory.pod(1);
  for (json* pod : {&first, &second}) {
    pod->at("metadata").erase("name");
    pod->at("metadata")["labels"].erase(kLabelNodeRank);
    pod->at("spec").erase("hostname");
    for (json& entry : pod->at("spec")["containers"][0]["env"]) {
      const std::set<std::string> of_rank = {"RANK", "NODE_RANK", "PET_NODE_RANK"};
      if (of_rank.contains(entry["name"].get<std::string>())) entry.erase("value");
    }
  }
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace oarlock::test
