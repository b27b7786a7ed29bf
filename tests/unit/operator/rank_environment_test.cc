#include "operator/core/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace oarlock::test {
namespace {

using namespace control;  // NOLINT

RankGroup group(int nodes, int processes) {
  RankGroup out;
  out.job = "bert";
  out.namespace_name = "ml";
  out.uid = "u-1";
  out.attempt = 2;
  out.nodes = nodes;
  out.processes_per_node = processes;
  out.master_addr = "bert-2-0.bert.ml.svc";
  return out;
}

std::map<std::string, std::string> as_map(const std::vector<EnvVar>& variables) {
  std::map<std::string, std::string> out;
  for (const EnvVar& variable : variables) {
    EXPECT_TRUE(out.emplace(variable.name, variable.value).second) << variable.name << " occurs twice";
    EXPECT_TRUE(is_contract_variable(variable.name)) << variable.name;
  }
  return out;
}

TEST(Environment, OneProcessPerNode) {
  RankGroup of = group(3, 1);
  of.config_file = "/etc/oarlock/trainer.json";
  of.checkpoint_dir = "/ckpt/bert";
  const std::map<std::string, std::string> expected = {{"RANK", "1"},
                                                       {"LOCAL_RANK", "0"},
                                                       {"WORLD_SIZE", "3"},
                                                       {"LOCAL_WORLD_SIZE", "1"},
                                                       {"NODE_RANK", "1"},
                                                       {"MASTER_ADDR", "bert-2-0.bert.ml.svc"},
                                                       {"MASTER_PORT", "29500"},
                                                       {"PET_NNODES", "3"},
                                                       {"PET_NPROC_PER_NODE", "1"},
                                                       {"PET_NODE_RANK", "1"},
                                                       {"PET_MASTER_ADDR", "bert-2-0.bert.ml.svc"},
                                                       {"PET_MASTER_PORT", "29500"},
                                                       {"OARLOCK_JOB", "bert"},
                                                       {"OARLOCK_NAMESPACE", "ml"},
                                                       {"OARLOCK_UID", "u-1"},
                                                       {"OARLOCK_ATTEMPT", "2"},
                                                       {"OARLOCK_METRICS_PORT", "9400"},
                                                       {"OARLOCK_CONFIG", "/etc/oarlock/trainer.json"},
                                                       {"OARLOCK_CHECKPOINT_DIR", "/ckpt/bert"},
                                                       {"OARLOCK_TERMINATION_LOG", "/dev/termination-log"}};
  EXPECT_EQ(as_map(node_environment(of, 1)), expected);
  EXPECT_EQ(node_environment(of, 1), rank_environment(of, 1, 0));
}

TEST(Environment, OmitsRankForSeveralProcessesPerNode) {
  const auto node = as_map(node_environment(group(2, 4), 1));
  EXPECT_FALSE(node.contains("RANK"));
  EXPECT_FALSE(node.contains("LOCAL_RANK"));
  EXPECT_EQ(node.at("WORLD_SIZE"), "8");
  EXPECT_EQ(node.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(node.at("PET_NPROC_PER_NODE"), "4");
  auto rank = as_map(rank_environment(group(2, 4), 1, 3));
  EXPECT_EQ(rank.at("RANK"), "7");
  EXPECT_EQ(rank.at("LOCAL_RANK"), "3");
  rank.erase("RANK");
  rank.erase("LOCAL_RANK");
  EXPECT_EQ(rank, node);
}

TEST(Environment, OmitsEmptyValues) {
  RankGroup of = group(1, 1);
  of.termination_log.clear();
  const auto variables = as_map(node_environment(of, 0));
  for (const char* name : {"OARLOCK_CONFIG", "OARLOCK_CHECKPOINT_DIR", "OARLOCK_TERMINATION_LOG"})
    EXPECT_FALSE(variables.contains(name)) << name;
}

TEST(Environment, SetsRestartsOfTheLauncher) {
  RankGroup of = group(2, 2);
  of.regroup_token = "secret";
  of.restart_backoff = 10;
  for (const char* name : {"OARLOCK_REGROUP_TOKEN", "OARLOCK_RESTART_POLICY", "OARLOCK_RESTART_BACKOFF"})
    EXPECT_FALSE(as_map(node_environment(of, 0)).contains(name)) << name;
  of.max_restarts = 5;
  auto variables = as_map(node_environment(of, 1));
  EXPECT_EQ(variables["OARLOCK_REGROUP_TOKEN"], "secret");
  EXPECT_EQ(variables["OARLOCK_MAX_RESTARTS"], "5");
  EXPECT_EQ(variables["OARLOCK_RESTART_POLICY"], "rank");
  EXPECT_EQ(variables["OARLOCK_RESTART_BACKOFF"], "10");
  EXPECT_FALSE(variables.contains("OARLOCK_REPLACEMENT"));
  of.is_replacement = true;
  EXPECT_EQ(as_map(node_environment(of, 1))["OARLOCK_REPLACEMENT"], "1");
}

TEST(Environment, UserSettableVariablesCannotContradictOtherRanks) {
  for (const char* name : {"OARLOCK_CONFIG", "OARLOCK_CHECKPOINT_DIR", "OARLOCK_TERMINATION_LOG"}) {
    EXPECT_TRUE(is_contract_variable(name) && is_user_settable(name)) << name;
  }
  for (const EnvVar& variable : rank_environment(group(2, 2), 0, 0)) {
    const bool harmless = variable.name == "OARLOCK_TERMINATION_LOG";
    EXPECT_EQ(is_user_settable(variable.name), harmless) << variable.name;
  }
  EXPECT_FALSE(is_contract_variable("NCCL_DEBUG"));
}

}  // namespace
}  // namespace oarlock::test
