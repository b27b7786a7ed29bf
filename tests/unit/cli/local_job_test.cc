// Local processes have the same environment as the containers of the operator's pods.
#include "cli/run/local_job.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/contract.h"
#include "operator/core/desired.h"

namespace oarlock::run {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

api::TrainingJob job(int nodes, int per_node, const Json& container, const std::string& trainer = R"({"task":"t"})") {
  api::TrainingJob out;
  out.metadata.name = "j";
  out.spec.nodes = nodes;
  out.spec.processes_per_node = per_node;
  out.spec.trainer = trainer;
  Json whole = container;
  whole["name"] = kTrainerContainer;
  whole["image"] = "i";
  out.spec.pod_template = Json{{"spec", {{"containers", Json::array({whole})}}}}.dump();
  return out;
}

HostSettings place(int nodes) {
  HostSettings out;
  out.attempt = 2;
  out.master_port = 4000;
  for (int node = 0; node < nodes; ++node) out.metrics_ports.push_back(5000 + 10 * node);
  out.config_file = "/home/me/job.yaml";
  out.checkpoint_dir = "/runs/j/checkpoints";
  return out;
}

const Json kMount = {{"volumeMounts", Json::array({{{"name", "checkpoints"}, {"mountPath", "/ckpt"}}})}};

std::map<std::string, std::string> operators_environment(const api::TrainingJob& job, int attempt, int node) {
  const Json pod = control::PodFactory(job, attempt).pod(node);
  std::map<std::string, std::string> out;
  for (const Json& variable : pod["spec"]["containers"][0]["env"]) out[variable["name"]] = variable.value("value", "");
  return out;
}

// The variables that may differ: addresses and paths.
const std::set<std::string> kLocal = {"MASTER_ADDR",           "MASTER_PORT",          "PET_MASTER_ADDR",
                                      "PET_MASTER_PORT",       "OARLOCK_METRICS_PORT", "OARLOCK_CONFIG",
                                      "OARLOCK_CHECKPOINT_DIR"};

TEST(LocalJob, EnvironmentMatchesOperatorsPods) {
  Json container = kMount;
  container["env"] = Json::array({{{"name", "MINE"}, {"value", "rank $(NODE_RANK) of $(WORLD_SIZE)"}},
                                  {{"name", "RANK"}, {"value", "77"}},
                                  {{"name", "EMPTY"}}});
  const api::TrainingJob of_two = job(2, 1, container);
  const std::vector<LocalProcess> processes = local_processes(of_two, place(2));
  ASSERT_EQ(processes.size(), 2u);
  for (int node = 0; node < 2; ++node) {
    auto expected = operators_environment(of_two, 2, node);
    EXPECT_EQ(expected.erase(kEnvTerminationLog), 1u);            // each local process has its own file
    expected["MINE"] = "rank " + std::to_string(node) + " of 2";  // what the kubelet makes of it
    const Environment& actual = processes[static_cast<size_t>(node)].environment;
    std::set<std::string> expected_names;
    std::set<std::string> actual_names;
    for (const auto& [name, value] : expected) expected_names.insert(name);
    for (const auto& [name, value] : actual) actual_names.insert(name);
    EXPECT_EQ(actual_names, expected_names);
    for (const auto& [name, value] : expected) {
      if (kLocal.contains(name)) continue;
      EXPECT_EQ(actual.at(name), value) << name;
    }
    EXPECT_EQ(actual.at("RANK"), std::to_string(node));
    EXPECT_EQ(actual.at("MASTER_ADDR"), "127.0.0.1");
    EXPECT_EQ(actual.at("PET_MASTER_PORT"), "4000");
    EXPECT_EQ(actual.at("OARLOCK_METRICS_PORT"), std::to_string(5000 + 10 * node));
    EXPECT_EQ(actual.at("OARLOCK_CONFIG"), "/home/me/job.yaml");
    EXPECT_EQ(actual.at("OARLOCK_CHECKPOINT_DIR"), "/runs/j/checkpoints");
    EXPECT_EQ(actual.at("OARLOCK_ATTEMPT"), "2");
  }
}

TEST(LocalJob, StartsSeveralRanksPerNode) {
  const std::vector<LocalProcess> processes = local_processes(job(2, 3, kMount), place(2));
  ASSERT_EQ(processes.size(), 6u);
  for (int rank = 0; rank < 6; ++rank) {
    const LocalProcess& process = processes[static_cast<size_t>(rank)];
    EXPECT_EQ(process.rank, rank);
    EXPECT_EQ(process.node, rank / 3);
    EXPECT_THAT(process.argv, ElementsAre("oarlock-trainer"));
    EXPECT_EQ(process.environment.at("RANK"), std::to_string(rank));
    EXPECT_EQ(process.environment.at("LOCAL_RANK"), std::to_string(rank % 3));
    EXPECT_EQ(process.environment.at("LOCAL_WORLD_SIZE"), "3");
    EXPECT_EQ(process.environment.at("WORLD_SIZE"), "6");
    EXPECT_EQ(process.environment.at("OARLOCK_METRICS_PORT"), std::to_string(5000 + 10 * (rank / 3)));  // the base
  }
}

TEST(LocalJob, StartsCommandOncePerNode) {
  Json container = kMount;
  container["command"] = {"torchrun", "--node-rank=$(PET_NODE_RANK)"};
  container["args"] = {"train.py", "$$(NOT)"};
  const std::vector<LocalProcess> processes = local_processes(job(2, 4, container), place(2));
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_THAT(processes[1].argv, ElementsAre("torchrun", "--node-rank=1", "train.py", "$(NOT)"));
  EXPECT_EQ(processes[1].rank, -1);
  EXPECT_FALSE(processes[1].environment.contains("RANK"));  // the command gives it to each
  EXPECT_EQ(processes[1].environment.at("PET_NPROC_PER_NODE"), "4");
}

TEST(LocalJob, ArgsReplaceCommandOfImage) {
  Json container;
  container["args"] = {"python3", "train.py"};
  const std::vector<LocalProcess> processes = local_processes(job(1, 2, container), place(1));
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_THAT(processes[1].argv, ElementsAre("python3", "train.py"));
  EXPECT_EQ(processes[1].rank, 1);
}

TEST(LocalJob, OmitsUnusedVariables) {
  const std::vector<LocalProcess> processes = local_processes(job(1, 1, Json::object(), ""), place(1));
  EXPECT_FALSE(processes[0].environment.contains("OARLOCK_CONFIG"));
  EXPECT_FALSE(processes[0].environment.contains("OARLOCK_CHECKPOINT_DIR"));
  EXPECT_FALSE(saves_checkpoints(job(1, 1, Json::object())));
  EXPECT_TRUE(saves_checkpoints(job(1, 1, kMount)));
}

TEST(LocalJob, IgnoresContractVariablesOfTheShell) {
  HostSettings here = place(1);
  here.base = {{"HOME", "/home/me"}, {"RANK", "9"}, {"OARLOCK_CONFIG", "/old"}, {"OARLOCK_TERMINATION_LOG", "/old"}};
  const std::vector<LocalProcess> processes = local_processes(job(1, 1, Json::object(), ""), here);
  EXPECT_EQ(processes[0].environment.at("HOME"), "/home/me");
  EXPECT_EQ(processes[0].environment.at("RANK"), "0");
  EXPECT_FALSE(processes[0].environment.contains("OARLOCK_CONFIG"));
  EXPECT_FALSE(processes[0].environment.contains("OARLOCK_TERMINATION_LOG"));
}

TEST(LocalJob, TemplateOverridesConfigButNotCheckpointDir) {
  Json container = kMount;
  container["env"] = Json::array({{{"name", "OARLOCK_CONFIG"}, {"value", "/mine.yaml"}},
                                  {{"name", "OARLOCK_CHECKPOINT_DIR"}, {"value", "/ckpt/elsewhere"}}});
  const std::vector<LocalProcess> processes = local_processes(job(1, 1, container), place(1));
  EXPECT_EQ(processes[0].environment.at("OARLOCK_CONFIG"), "/mine.yaml");
  EXPECT_EQ(processes[0].environment.at("OARLOCK_CHECKPOINT_DIR"), "/runs/j/checkpoints");
}

TEST(Differences, AreReportedIfRelevant) {
  Json container = {{"volumeMounts", Json::array({{{"name", "data"}, {"mountPath", "/data/"}}})},
                    {"args", {"train", "/data/list.txt"}},
                    {"workingDir", "/app"},
                    {"envFrom", Json::array({Json::object()})},
                    {"env", Json::array({{{"name", "KEY"}, {"valueFrom", Json::object()}},
                                         {{"name", "HAVE"}, {"valueFrom", Json::object()}},
                                         {{"name", "DIR"}, {"value", "/data"}}})}};
  api::TrainingJob with =
      job(1, 1, container, R"({"data":{"path":"/data/images","other":"/database"},"list":["/data/x"]})");
  Json pod = Json::parse(with.spec.pod_template);
  pod["spec"]["containers"].push_back({{"name", "sidecar"}});
  pod["spec"]["initContainers"] = Json::array({{{"name", "fetch"}}});
  with.spec.pod_template = pod.dump();
  with.spec.suspend = true;
  const std::vector<std::string> notes = describe_differences(with, {{"HAVE", "1"}});
  EXPECT_THAT(notes, Contains(HasSubstr("spec.trainer.data.path is '/data/images', on the volume 'data'")));
  EXPECT_THAT(notes, Contains(HasSubstr("spec.trainer.list[0]")));
  EXPECT_THAT(notes, Contains(HasSubstr("args[1] is '/data/list.txt'")));
  EXPECT_THAT(notes, Contains(HasSubstr("env.DIR is '/data'")));
  EXPECT_THAT(notes, Contains(HasSubstr("env.KEY comes from the cluster")));
  EXPECT_THAT(notes, Contains(HasSubstr("envFrom")));
  EXPECT_THAT(notes, Contains(HasSubstr("workingDir '/app'")));
  EXPECT_THAT(notes, Contains(HasSubstr("not: fetch, sidecar")));
  EXPECT_THAT(notes, Contains(HasSubstr("suspend")));
  EXPECT_EQ(notes.size(), 9u) << "'/database' is not on the volume, and HAVE is set";
  EXPECT_THAT(describe_differences(job(2, 1, kMount), {}), IsEmpty());
}

}  // namespace
}  // namespace oarlock::run
