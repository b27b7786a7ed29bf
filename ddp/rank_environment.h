// The position of this process among the ranks, from the variables of PyTorch's env:// rendezvous (Kubernetes,
// oarlock launch, but not torchrun) or of a batch system, and parsers for the lists in Slurm's variables.
// LibTorch-free.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "ddp/environment_variables.h"

namespace oarlock {

// The first host of a host list: "gpu[03-05,7],login" -> "gpu03". nullopt if the text is not a host list.
std::optional<std::string> first_slurm_host(std::string_view node_list);

// Tasks per node: "4(x2),3" -> {4, 4, 3}. nullopt if the text is not such a list.
std::optional<std::vector<int>> slurm_tasks_by_node(std::string_view tasks_per_node);

struct RankEnvironment {
  int rank = 0;              // 0 .. world_size-1
  int local_rank = 0;        // 0 .. local_world_size-1; picks the device
  int world_size = 1;        // ranks in the job
  int local_world_size = 1;  // ranks on this node
  int node_rank = 0;
  bool has_own_devices = false;   // Slurm shows each task only its own GPUs (--gpus-per-task)
  std::string master_addr{};      // host of rank 0; empty when world_size is 1
  int master_port = 0;            // TCPStore of rank 0
  std::string master_fallback{};  // used if master_addr does not resolve; may be empty
  std::string uid{};              // OARLOCK_UID: with the attempt, distinguishes ranks of different runs; may be empty
  int attempt = 0;                // OARLOCK_ATTEMPT

  bool operator==(const RankEnvironment&) const = default;
};

// Reads the variables of PyTorch's env:// rendezvous, otherwise those of a launcher of MPI (OMPI_COMM_WORLD_*, MV2_*,
// MVP_*, PMI_* with MPI_LOCAL*, JSM_*), otherwise those of Slurm's srun (SLURM_*). Without any of them the process is a
// single rank; PMIX_RANK alone is an error, because the number of ranks is then not known. Empty values count as
// not set. Fails with kConfig if a variable is missing, not a number, out of range or contradicts another one; the
// message is one line that names the variable, its value and the remedy. Pure.
Result<RankEnvironment> read_rank_environment(const EnvironmentLookup& lookup);

}  // namespace oarlock
