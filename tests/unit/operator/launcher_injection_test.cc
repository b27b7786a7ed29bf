#include "operator/core/launcher_injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/core/desired.h"
#include "tests/support/builders.h"

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kImage[] = "registry.example.com/oarlock/launcher:1";

// A job whose template has this pod spec.
JobBuilder job_of(const Json& pod_spec) { return JobBuilder().pod_template(Json{{"spec", pod_spec}}.dump()); }

Json pod_spec(const Json& trainer = Json::object(), const Json& others = Json::object()) {
  Json container = {{"name", "trainer"}, {"image", "example.com/mine:1"}, {"command", {"python3", "train.py"}}};
  container.merge_patch(trainer);
  Json out = {{"containers", Json::array({container})}};
  out.merge_patch(others);
  return out;
}

// The pod of a job whose status has the decision.
Json injected(Job job, int nodes = 1) {
  job.spec.nodes = nodes;
  job = with_launcher_decision(job, kImage);
  return PodFactory(job, 0, {}, placeholder_secret()).pod(0);
}

Json variable(const Json& container, const std::string& name) {
  for (const Json& one : container.value("env", Json::array())) {
    if (one["name"] == name) return one["value"];
  }
  return nullptr;
}

struct DecisionRow {
  const char* name;
  Json spec;
  const char* expected;  // the image, the reason, or "" for no decision
};

TEST(LauncherInjection, NeedsAnotherImageAndACommand) {
  const Json side = {{"name", "oarlock-launcher"}, {"image", "i"}};
  const DecisionRow rows[] = {
      {.name = "a command", .spec = pod_spec(), .expected = kImage},
      {.name = "one word", .spec = pod_spec({{"command", {"/train"}}}), .expected = kImage},
      {.name = "torchrun", .spec = pod_spec({{"command", {"torchrun", "train.py"}}}), .expected = kImage},
      {.name = "no command", .spec = pod_spec({{"command", nullptr}}), .expected = "NoCommand"},
      {.name = "arguments only", .spec = pod_spec({{"command", nullptr}, {"args", {"a"}}}), .expected = "NoCommand"},
      {.name = "a command of a wrong type", .spec = pod_spec({{"command", "python3"}}), .expected = "NoCommand"},
      {.name = "Windows", .spec = pod_spec({}, {{"os", {{"name", "windows"}}}}), .expected = ""},
      {.name = "the operator's image", .spec = pod_spec({{"image", nullptr}}), .expected = ""},
      {.name = "the trainer's image",
       .spec = pod_spec({{"image", "r:5000/oarlock/trainer:2@sha256:0"}}),
       .expected = ""},
      {.name = "a launcher", .spec = pod_spec({{"command", {"/usr/bin/oarlock", "launch", "--"}}}), .expected = ""},
      {.name = "a launcher in a script",
       .spec = pod_spec({{"command", {"sh", "-c"}}, {"args", {"exec oarlock launch -- ./train"}}}),
       .expected = ""},
      {.name = "a volume", .spec = pod_spec(Json::object(), {{"volumes", {side}}}), .expected = "NameTaken"},
      {.name = "an init container",
       .spec = pod_spec(Json::object(), {{"initContainers", {side}}}),
       .expected = "NameTaken"},
      {.name = "a mount",
       .spec = pod_spec({{"volumeMounts", {{{"name", "v"}, {"mountPath", "/.oarlock/data"}}}}}),
       .expected = "NameTaken"},
      {.name = "a similar path",
       .spec =
           pod_spec({{"workingDir", "/oarlock"}, {"volumeMounts", {{{"name", "v"}, {"mountPath", "/.oarlock-data"}}}}}),
       .expected = kImage},
      {.name = "a program", .spec = pod_spec({{"command", {"/.oarlock/train"}}}), .expected = "NameTaken"},
      {.name = "a directory", .spec = pod_spec({{"workingDir", "/.oarlock"}}), .expected = "NameTaken"},
      {.name = "no list of containers", .spec = {{"containers", "x"}}, .expected = ""}};
  for (const DecisionRow& row : rows) {
    const auto decided = decide_launcher(job_of(row.spec), kImage);
    ASSERT_EQ(decided.has_value(), *row.expected != '\0') << row.name;
    if (decided) {
      EXPECT_EQ(decided->image + decided->reason, row.expected) << row.name;
    }
    EXPECT_FALSE(decide_launcher(job_of(row.spec), "")) << row.name << ": the operator has no image";
  }
}

TEST(LauncherInjection, FollowsTheFieldsOfTheSpec) {
  Job job = job_of(pod_spec({{"image", nullptr}}));
  job.spec.image = "example.com/mine:1";
  EXPECT_EQ(decide_launcher(job, kImage)->image, kImage);
  job.spec.launcher = api::LauncherInjection::kNever;
  EXPECT_EQ(decide_launcher(job, kImage)->reason, "Never");
  EXPECT_EQ(explain_missing_launcher("Never"), "");
  Job several = job_of(pod_spec());
  several.spec.processes_per_node = 2;
  EXPECT_EQ(decide_launcher(several, kImage)->reason, "SeveralRanks");
  several.spec.launcher = api::LauncherInjection::kAlways;
  EXPECT_EQ(decide_launcher(several, kImage)->image, kImage);
  for (const Json& command : {Json({"/opt/bin/torchrun", "train.py"}), Json({"accelerate", "launch", "train.py"}),
                              Json({"python3", "-m", "torch.distributed.run", "train.py"})}) {
    several = job_of(pod_spec({{"command", command}}));
    several.spec.processes_per_node = 2;
    EXPECT_EQ(decide_launcher(several, kImage)->image, kImage) << command;
  }
  for (const char* reason : {"NoCommand", "NameTaken", "SeveralRanks"})
    EXPECT_THAT(explain_missing_launcher(reason), AnyOf(HasSubstr("spec.launcher: Never"), HasSubstr("or Never")));
}

TEST(LauncherInjection, AResumedJobGetsThePresentImage) {
  Job job = job_of(pod_spec());
  job.status.start_time = at_second(1);
  EXPECT_FALSE(decide_launcher(job, kImage)) << "an earlier operator has started it";
  job.status.launcher = api::InjectedLauncher{"earlier:1", ""};
  EXPECT_EQ(decide_launcher(job, kImage)->image, kImage);
  EXPECT_FALSE(decide_launcher(job, ""));
  job.spec.launcher = api::LauncherInjection::kNever;
  EXPECT_EQ(decide_launcher(job, kImage)->reason, "Never");
  job.status.phase = api::Phase::kRunning;
  EXPECT_EQ(launcher_image(with_launcher_decision(job, kImage)), "earlier:1") << "it is not decided again";
  job.spec.pod_template =
      Json{{"spec", pod_spec({{"command", {"oarlock", "launch", "--", "python3", "train.py"}}})}}.dump();
  EXPECT_EQ(launcher_image(job), "") << "an operator without status.launcher has resumed the job";
}

TEST(LauncherInjection, InitContainerInstallsTheLauncher) {
  const Json other = {{"name", "fetch"}, {"image", "i"}, {"restartPolicy", "Always"}};
  const Json pod = injected(job_of(pod_spec({{"args", {"--lr", "$(LR)"}}}, {{"initContainers", {other}}})));
  const Json& trainer = pod["spec"]["containers"][0];
  EXPECT_EQ(trainer["command"], Json({"/.oarlock/oarlock", "launch", "--", "python3", "train.py"}));
  EXPECT_EQ(trainer["args"], Json({"--lr", "$(LR)"}));
  EXPECT_EQ(trainer["volumeMounts"][0], Json({{"name", "oarlock-launcher"}, {"mountPath", "/.oarlock"}}));
  EXPECT_EQ(pod["spec"]["volumes"][0], Json::parse(R"({"name":"oarlock-launcher","emptyDir":{"sizeLimit":"64Mi"}})"));
  ASSERT_EQ(pod["spec"]["initContainers"].size(), 2U);
  EXPECT_EQ(pod["spec"]["initContainers"][1]["name"], "fetch");
  EXPECT_EQ(variable(pod["spec"]["initContainers"][1], "WORLD_SIZE"), "1");
  EXPECT_EQ(pod["spec"]["initContainers"][0], Json::parse(R"json({
    "name": "oarlock-launcher", "image": "registry.example.com/oarlock/launcher:1",
    "command": ["/oarlock", "install", "/launcher"],
    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
      "readOnlyRootFilesystem": true, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "volumeMounts": [{"name": "oarlock-launcher", "mountPath": "/launcher"}]})json"));
}

// The QoS class follows from the resources of all containers, and a LimitRange applies to each of them.
TEST(LauncherInjection, InitContainerHasTheResourcesOfTheTrainer) {
  const std::pair<const char*, const char*> rows[] = {
      {R"({})", R"(null)"},  // BestEffort
      {R"({"limits":{"nvidia.com/gpu":8}})", R"(null)"},
      {R"({"requests":{"cpu":"2"}})", R"({"requests":{"cpu":"2"}})"},
      {R"({"requests":{"cpu":2,"memory":"1Gi","nvidia.com/gpu":1},
           "limits":{"cpu":2,"memory":"1Gi","nvidia.com/gpu":1}})",
       R"({"requests":{"cpu":2,"memory":"1Gi"},"limits":{"cpu":2,"memory":"1Gi"}})"}};
  for (const auto& [given, expected] : rows) {
    const Json pod = injected(job_of(pod_spec({{"resources", Json::parse(given)}})));
    EXPECT_EQ(pod["spec"]["initContainers"][0].value("resources", Json()), Json::parse(expected)) << given;
  }
  Job job = job_of(pod_spec());
  job.spec.resources_per_node = api::Resources{.requests = "", .limits = R"({"cpu":"3"})"};
  EXPECT_EQ(injected(job)["spec"]["initContainers"][0]["resources"], Json::parse(R"({"limits":{"cpu":"3"}})"));
}

TEST(LauncherInjection, InitContainerIsNeverRoot) {
  const auto user_of = [](const Json& context) {
    const Json pod = injected(job_of(pod_spec(Json::object(), {{"securityContext", context}})));
    return pod["spec"]["initContainers"][0]["securityContext"].value("runAsUser", -1);
  };
  EXPECT_EQ(user_of({{"runAsUser", 0}}), 65532);
  EXPECT_EQ(user_of({{"runAsUser", 1000}, {"fsGroup", 2000}}), -1) << "that of the pod";
  EXPECT_EQ(user_of(Json::object()), -1) << "that of the image, or of the cluster";
}

TEST(LauncherInjection, LauncherEndsBeforeTheKubeletDoes) {
  const auto command = [](int seconds) {
    return injected(job_of(
        pod_spec(Json::object(), {{"terminationGracePeriodSeconds", seconds}})))["spec"]["containers"][0]["command"];
  };
  EXPECT_EQ(command(600), Json({"/.oarlock/oarlock", "launch", "--grace", "595", "--", "python3", "train.py"}));
  EXPECT_EQ(command(2)[3], "1");
}

TEST(LauncherInjection, AllRanksRestartInTheirPods) {
  const auto trainer = [](int nodes, const std::string& template_image, api::RestartScope scope) {
    Job job = job_of(pod_spec({{"image", template_image}}));
    job.spec.failure_policy.restart_scope = scope;
    return injected(job, nodes)["spec"]["containers"][0];
  };
  const Json several = trainer(2, "mine", api::RestartScope::kRank);
  EXPECT_EQ(variable(several, "OARLOCK_RESTART_POLICY"), "group");
  EXPECT_EQ(variable(several, "OARLOCK_REGROUP_TOKEN"), "token");
  EXPECT_EQ(variable(several, "OARLOCK_MAX_RESTARTS"), "3");
  const Json one = trainer(1, "mine", api::RestartScope::kRank);
  EXPECT_EQ(variable(one, "OARLOCK_RESTART_POLICY"), "group");
  EXPECT_TRUE(variable(one, "OARLOCK_REGROUP_TOKEN").is_null()) << "there is no other launcher";
  EXPECT_TRUE(variable(trainer(2, "mine", api::RestartScope::kGroup), "OARLOCK_MAX_RESTARTS").is_null());
  EXPECT_EQ(variable(trainer(2, "oarlock/trainer", api::RestartScope::kRank), "OARLOCK_RESTART_POLICY"), "rank");
}

// A group that restarts all ranks does not continue with fewer nodes.
TEST(LauncherInjection, ElasticGroupNeedsAllNodes) {
  Job job = job_of(pod_spec()).nodes(2).elastic(1).restart_scope(api::RestartScope::kRank);
  EXPECT_TRUE(make_launcher_bounds(job, 2));
  EXPECT_FALSE(make_launcher_bounds(with_launcher_decision(job, kImage), 2));
}

TEST(LauncherInjection, PodsOfALargeJobShareOneText) {
  Job job = with_launcher_decision(job_of(pod_spec()).nodes(4096), kImage);
  const PodFactory factory(job, 0);
  EXPECT_LT(factory.text_size(), 6000U);
  EXPECT_EQ(factory.pod(4095)["spec"]["initContainers"], factory.pod(0)["spec"]["initContainers"]);
}

}  // namespace
}  // namespace oarlock::test
