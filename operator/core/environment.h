// Environment variables of the ranks (the contract of common/contract.h), for the pods of the operator and for the
// processes of `oarlock run`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract.h"

namespace oarlock::control {

struct EnvVar {
  std::string name;
  std::string value;

  bool operator==(const EnvVar&) const = default;
};

// The ranks of one attempt of a job, and the values that they all receive.
struct RankGroup {
  std::string job;
  std::string namespace_name;
  std::string uid;
  int attempt = 0;
  int nodes = 1;
  int processes_per_node = 1;
  std::string master_addr;  // host of rank 0
  int master_port = kDefaultMasterPort;
  // Port of local rank 0 of the node whose environment is built. Nodes that share a host need different ports.
  int metrics_port = kDefaultMetricsPort;
  std::string config_file;                               // empty: OARLOCK_CONFIG is not set
  std::string checkpoint_dir;                            // empty: OARLOCK_CHECKPOINT_DIR is not set
  std::string termination_log = kDefaultTerminationLog;  // empty: OARLOCK_TERMINATION_LOG is not set
  // Settings of the launchers for restarts in the pods. With max_restarts 0, none of these variables is set, except for
  // the token, which a preflight needs, too.
  int max_restarts = 0;
  std::string regroup_token{};  // empty: the launcher has no others
  std::string restart_policy = "rank";
  int restart_backoff = 0;         // seconds
  std::optional<int> min_nodes{};  // absent: the launchers need all nodes
  int shrink_after = 0;            // seconds; only with min_nodes
  bool is_replacement = false;     // of a lost pod of the attempt
  std::string preflight{};         // OARLOCK_PREFLIGHT; empty: it is not set

  int world_size() const { return nodes * processes_per_node; }
};

// Returns the variables of a node (a pod, or `oarlock launch`) in a fixed order. RANK and LOCAL_RANK are included only
// if the node has one process. With more processes, the launcher (`oarlock launch`, torchrun) sets them for each
// process, and a trainer that is started without a launcher fails because they are missing, instead of waiting for
// ranks that no launcher starts.
std::vector<EnvVar> node_environment(const RankGroup& group, int node_rank);

// Returns the variables of one rank: node_environment() with RANK and LOCAL_RANK.
std::vector<EnvVar> rank_environment(const RankGroup& group, int node_rank, int local_rank);

// Returns whether the contract defines a variable of this name.
bool is_contract_variable(std::string_view name);

// Returns whether a user's value of a contract variable takes precedence over the operator's. True for variables whose
// values cannot contradict the other ranks: OARLOCK_CONFIG, OARLOCK_CHECKPOINT_DIR, OARLOCK_TERMINATION_LOG, and the
// variables of the launcher's restarts, which are the same for all pods.
bool is_user_settable(std::string_view name);

}  // namespace oarlock::control
