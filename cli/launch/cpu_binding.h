// Binding of the ranks of a node to CPUs near their GPUs: the modes of torchrun's --numa-binding
// (torch/numa/binding.py). Threads then allocate memory on their own NUMA node.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/launch/process.h"
#include "common/error.h"

namespace oarlock::launch {

enum class CpuBinding {
  kNode,         // all CPUs of the NUMA node of the rank's GPU
  kSocket,       // all CPUs of its socket
  kExclusive,    // an equal part of the cores of the node, for this rank alone
  kCoreComplex,  // the CPUs of the node that share a last-level cache, one such group for each rank
};

// Parses "node", "socket", "exclusive" or "core-complex"; otherwise fails with kUsage.
Result<CpuBinding> cpu_binding_from(const std::string& name);

struct Cpu {
  int id = 0;
  int node = 0;    // NUMA node
  int socket = 0;  // physical package
  int core = 0;    // the lowest id of the CPUs of this core
  int cache = 0;   // the lowest id of the CPUs that share its last-level cache
};

struct CpuTopology {
  std::vector<Cpu> cpus;       // those that this process may use, by id
  std::vector<int> gpu_nodes;  // NUMA node of each visible GPU; empty if there is none, or it is not known
};

// The directories in which the kernel and the driver describe the machine; tests replace them.
struct MachineDirectories {
  std::filesystem::path system = "/sys";
  std::filesystem::path gpus = "/proc/driver/nvidia/gpus";
};

// Reads the topology of the CPUs `allowed`. CUDA_VISIBLE_DEVICES in `environment` selects the GPUs, by index in the
// order of the bus or by UUID. Defaults for files that cannot be read: one node, one socket, and a core and a cache per
// CPU.
CpuTopology read_cpu_topology(const std::vector<int>& allowed, const Environment& environment,
                              const MachineDirectories& directories = {});

// Returns the CPUs of each local rank, in ascending order. Rank i uses GPU i; without GPUs, the ranks are distributed
// over the NUMA nodes in blocks of equal size. Fails with kUnavailable if a rank would have no CPU. Pure.
Result<std::vector<std::vector<int>>> bind_ranks(CpuBinding binding, const CpuTopology& topology, int ranks);

// Returns the ids of a list such as "0-3,8,10-11", as the kernel writes it; ignores items that are not numbers.
std::vector<int> parse_cpu_list(const std::string& text);

// The inverse of parse_cpu_list() for ids in ascending order.
std::string cpu_list(const std::vector<int>& cpus);

}  // namespace oarlock::launch
