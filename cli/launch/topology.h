// The topology of a job for `oarlock launch`: the number of ranks on this node, and the environment of each.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cli/launch/process.h"
#include "common/error.h"

namespace oarlock::launch {

struct Processors {
  int gpus = 0;
  int cpus = 1;  // that this process may use
};

// Counts the GPUs and CPUs. GPUs are NVIDIA's device files, of which a container has only those that are assigned to
// it. If there are any and CUDA_VISIBLE_DEVICES is set, the result is the number of its entries up to the first invalid
// one, as CUDA reads it. No CUDA library is called, since this program does not link one.
Processors count_processors(const Environment& environment, const std::filesystem::path& devices = "/dev");

// Returns the number of ranks for torchrun's values of --nproc: "4", "gpu", "cpu", or "auto", which selects the GPUs if
// there are any, else the CPUs. Fails with kUsage for any other text, and with kUnavailable for "gpu" without a GPU.
Result<int> rank_count(const std::string& text, const Processors& processors);

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

// Combines flags and environment variables. A flag takes precedence over the variable without a prefix, and that over
// torchrun's PET_ variable. The defaults are 1 rank and 1 node, and for one node the address 127.0.0.1 and a port from
// `reserve_port`. With several nodes, the node rank and the address are required, and the default port is 29500. Fails
// with kConfig if variables contradict each other or are not numbers, or if mpirun or srun has started several
// launchers without the number of nodes, and with kUsage for invalid flags.
Result<Topology> resolve_topology(const TopologyFlags& flags, const Environment& environment,
                                  const std::function<Result<int>()>& reserve_port);

// Returns the variables that a rank receives in addition to the environment of the launcher.
Environment rank_environment(const Topology& topology, int local_rank);

}  // namespace oarlock::launch
