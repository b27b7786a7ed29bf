#include "operator/core/environment.h"

#include <algorithm>
#include <iterator>

namespace oarlock::control {
namespace {

constexpr std::string_view kContractVariables[] = {
    kEnvRank,          kEnvLocalRank,     kEnvWorldSize,     kEnvLocalWorldSize,  kEnvNodeRank,
    kEnvMasterAddr,    kEnvMasterPort,    kEnvPetNnodes,     kEnvPetNprocPerNode, kEnvPetNodeRank,
    kEnvPetMasterAddr, kEnvPetMasterPort, kEnvJob,           kEnvNamespace,       kEnvUid,
    kEnvAttempt,       kEnvConfig,        kEnvCheckpointDir, kEnvMetricsPort,     kEnvTerminationLog,
    kEnvRegroupToken,  kEnvMaxRestarts,   kEnvRestartPolicy, kEnvRestartBackoff,  kEnvReplacement,
    kEnvMinNodes,      kEnvShrinkAfter,   kEnvPreflight};

constexpr std::string_view kUserSettable[] = {kEnvConfig,      kEnvCheckpointDir, kEnvTerminationLog, kEnvRegroupToken,
                                              kEnvMaxRestarts, kEnvRestartPolicy, kEnvRestartBackoff, kEnvMinNodes,
                                              kEnvShrinkAfter, kEnvPreflight};

bool contains(const auto& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::vector<EnvVar> environment(const RankGroup& group, int node_rank, std::optional<int> local_rank) {
  const auto text = [](int value) { return std::to_string(value); };
  std::vector<EnvVar> out;
  if (local_rank) {
    out.push_back({kEnvRank, text(node_rank * group.processes_per_node + *local_rank)});
    out.push_back({kEnvLocalRank, text(*local_rank)});
  }
  out.push_back({kEnvWorldSize, text(group.world_size())});
  out.push_back({kEnvLocalWorldSize, text(group.processes_per_node)});
  out.push_back({kEnvNodeRank, text(node_rank)});
  out.push_back({kEnvMasterAddr, group.master_addr});
  out.push_back({kEnvMasterPort, text(group.master_port)});
  out.push_back({kEnvPetNnodes, text(group.nodes)});
  out.push_back({kEnvPetNprocPerNode, text(group.processes_per_node)});
  out.push_back({kEnvPetNodeRank, text(node_rank)});
  out.push_back({kEnvPetMasterAddr, group.master_addr});
  out.push_back({kEnvPetMasterPort, text(group.master_port)});
  out.push_back({kEnvJob, group.job});
  out.push_back({kEnvNamespace, group.namespace_name});
  out.push_back({kEnvUid, group.uid});
  out.push_back({kEnvAttempt, text(group.attempt)});
  out.push_back({kEnvMetricsPort, text(group.metrics_port)});
  if (!group.config_file.empty()) out.push_back({kEnvConfig, group.config_file});
  if (!group.checkpoint_dir.empty()) out.push_back({kEnvCheckpointDir, group.checkpoint_dir});
  if (!group.termination_log.empty()) out.push_back({kEnvTerminationLog, group.termination_log});
  const bool needs_token = group.max_restarts > 0 || !group.preflight.empty();
  if (needs_token && !group.regroup_token.empty()) out.push_back({kEnvRegroupToken, group.regroup_token});
  if (!group.preflight.empty()) out.push_back({kEnvPreflight, group.preflight});
  if (group.max_restarts > 0) {
    out.push_back({kEnvMaxRestarts, text(group.max_restarts)});
    out.push_back({kEnvRestartPolicy, group.restart_policy});
    out.push_back({kEnvRestartBackoff, text(group.restart_backoff)});
    if (group.min_nodes) {
      out.push_back({kEnvMinNodes, text(*group.min_nodes)});
      out.push_back({kEnvShrinkAfter, text(group.shrink_after)});
    }
  }
  if (needs_token && group.is_replacement) out.push_back({kEnvReplacement, "1"});
  return out;
}

}  // namespace

std::vector<EnvVar> node_environment(const RankGroup& group, int node_rank) {
  return environment(group, node_rank, group.processes_per_node == 1 ? std::optional<int>(0) : std::nullopt);
}

std::vector<EnvVar> rank_environment(const RankGroup& group, int node_rank, int local_rank) {
  return environment(group, node_rank, local_rank);
}

bool is_contract_variable(std::string_view name) { return contains(kContractVariables, name); }
bool is_user_settable(std::string_view name) { return contains(kUserSettable, name); }

}  // namespace oarlock::control
