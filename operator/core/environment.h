// The environment contract, in one place: the operator's pods and `oarlock run` get it from here.
#pragma once

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

// One attempt of a job, as its ranks see it.
struct Group {
  std::string job;
  std::string name_space;
  std::string uid;
  int attempt = 0;
  int nodes = 1;
  int processes_per_node = 1;
  std::string master_addr;  // host of rank 0
  int master_port = kDefaultMasterPort;
  int metrics_port =
      kDefaultMetricsPort;     // of local rank 0 of the node asked for; nodes on one host need different ones
  std::string config_file;     // empty: no OARLOCK_CONFIG
  std::string checkpoint_dir;  // empty: no OARLOCK_CHECKPOINT_DIR
  std::string termination_log = kDefaultTerminationLog;  // empty: no OARLOCK_TERMINATION_LOG

  int world_size() const { return nodes * processes_per_node; }
};

// What a node (a pod, or `oarlock launch`) gets, in a fixed order. RANK and LOCAL_RANK are there only when the node has
// one process: with more, the launcher (`oarlock launch`, torchrun) gives them to each, and a trainer started without
// one says that they are missing instead of waiting for ranks that nobody starts.
std::vector<EnvVar> node_environment(const Group& group, int node_rank);

// What one rank gets: node_environment with RANK and LOCAL_RANK.
std::vector<EnvVar> rank_environment(const Group& group, int node_rank, int local_rank);

// Is this name given by the contract?
bool is_contract_variable(std::string_view name);

// May a value that the user set for a contract variable stand? True where it cannot contradict the other ranks:
// OARLOCK_CONFIG, OARLOCK_CHECKPOINT_DIR, OARLOCK_TERMINATION_LOG.
bool user_may_set(std::string_view name);

}  // namespace oarlock::control
