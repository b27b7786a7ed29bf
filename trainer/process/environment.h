// The position of this process among the ranks of the job, from the environment contract (common/contract.h) or a batch
// system's variables, and parsers for the lists in Slurm's variables.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock {

// The first host of a host list: "gpu[03-05,7],login" -> "gpu03". nullopt if the text is not a host list.
std::optional<std::string> first_slurm_host(std::string_view node_list);

// Tasks per node: "4(x2),3" -> {4, 4, 3}. nullopt if the text is not such a list.
std::optional<std::vector<int>> slurm_tasks_by_node(std::string_view tasks_per_node);

// Returns the value of a variable, or nullopt if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Looks up the environment of this process.
EnvironmentLookup process_environment();

struct RankEnvironment {
  int rank = 0;              // 0 .. world_size-1
  int local_rank = 0;        // 0 .. local_world_size-1; picks the device
  int world_size = 1;        // ranks in the job
  int local_world_size = 1;  // ranks on this node
  int node_rank = 0;
  bool has_own_devices = false;  // Slurm shows each task only its own GPUs (--gpus-per-task)
  std::string master_addr;       // host of rank 0; empty when world_size is 1
  int master_port = 0;           // TCPStore of rank 0
  std::string master_fallback;   // used if master_addr does not resolve; may be empty

  std::string job;  // name; empty outside a TrainingJob
  std::string job_namespace;
  std::string uid;  // with the attempt, fences checkpoints and distinguishes ranks of different runs
  int attempt = 0;
  std::optional<std::string> config;  // file
  std::optional<std::string> checkpoint_dir;
  std::optional<int> metrics_port;             // of local rank 0; 0 for none
  std::optional<std::string> termination_log;  // file

  bool operator==(const RankEnvironment&) const = default;
};

// Reads the variables of PyTorch's env:// rendezvous, otherwise those of a launcher of MPI (OMPI_COMM_WORLD_*, MV2_*,
// MVP_*, PMI_* with MPI_LOCAL*, JSM_*), otherwise those of Slurm's srun (SLURM_*). Without any of them the process is a
// single rank; PMIX_RANK alone is an error, because the number of ranks is then not known. Empty values count as
// not set. Fails with kConfig if a variable is missing, not a number, out of range or contradicts another one; the
// message is one line that names the variable, its value and the remedy. Pure.
Result<RankEnvironment> read_environment(const EnvironmentLookup& lookup);

}  // namespace oarlock
