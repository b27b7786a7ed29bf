// Which ranks run on this node, from the flags of `oarlock launch` and the environment that the operator gave the pod.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/launch/environment.h"
#include "common/error.h"

namespace oarlock::launch {

struct TopologyFlags {
  std::optional<int> nproc = {};
  std::optional<int> nnodes = {};
  std::optional<int> node_rank = {};
  std::string master_addr = {};  // empty: not given
  std::optional<int> master_port = {};
};

struct Topology {
  int nproc = 1;   // ranks on this node
  int nnodes = 1;  // every node has the same number of ranks
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;

  int world_size() const { return nproc * nnodes; }
  int rank(int local_rank) const { return node_rank * nproc + local_rank; }
  bool operator==(const Topology&) const = default;
};

// A flag wins over the bare variable and that over torchrun's PET_ one. Missing: 1 rank, 1 node, and for one node the
// address 127.0.0.1 and a port from `reserve_port`; for more nodes the node rank and the address are required and the
// port is 29500. Variables that contradict each other or are not numbers fail with kConfig, flags with kUsage.
Result<Topology> resolve_topology(const TopologyFlags& flags, const Environment& environment,
                                  const std::function<Result<int>()>& reserve_port);

// The variables that one rank gets on top of the launcher's own environment.
Environment rank_environment(const Topology& topology, int local_rank);

}  // namespace oarlock::launch
