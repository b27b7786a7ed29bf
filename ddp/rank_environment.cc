#include "ddp/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <numeric>

#include "common/contract.h"
#include "ddp/environment_variables.h"

namespace oarlock {
namespace {

// Removes a number from the front of the text.
std::optional<int> consume_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool consume_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

constexpr int kMaxNodes = 1'000'000;

}  // namespace

std::optional<std::string> first_slurm_host(std::string_view node_list) {
  std::string host;
  while (!node_list.empty() && node_list.front() != ',') {
    if (node_list.front() != '[') {
      host += node_list.front();
      node_list.remove_prefix(1);
      continue;
    }
    const size_t close = node_list.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view range = node_list.substr(1, close - 1);
    host += range.substr(0, range.find_first_of(",-"));
    node_list.remove_prefix(close + 1);
  }
  if (host.empty()) return std::nullopt;
  return host;
}

std::optional<std::vector<int>> slurm_tasks_by_node(std::string_view tasks_per_node) {
  std::vector<int> out;
  do {
    const std::optional<int> tasks = consume_number(tasks_per_node);
    if (!tasks) return std::nullopt;
    std::optional<int> nodes = 1;
    if (consume_prefix(tasks_per_node, "(x")) {
      nodes = consume_number(tasks_per_node);
      if (!nodes || *nodes > kMaxNodes || !consume_prefix(tasks_per_node, ")")) return std::nullopt;
    }
    out.insert(out.end(), static_cast<size_t>(*nodes), *tasks);
  } while (consume_prefix(tasks_per_node, ","));
  if (!tasks_per_node.empty()) return std::nullopt;
  return out;
}

namespace {

constexpr int kMaxPort = 65535;
constexpr int kUnbounded = VariableReader::kUnbounded;
// Ports of Slurm jobs without a MASTER_PORT: below the range of ephemeral ports.
constexpr int kFirstJobPort = 15000;
constexpr int kJobPorts = 15000;

// The names of the variables of a launcher.
struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};
constexpr Names kPyTorch = {kEnvRank, kEnvWorldSize, kEnvLocalRank, kEnvLocalWorldSize};
constexpr Names kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
// The launchers of MPI other than Open MPI's, each with variables that number the ranks of a node. Hydra is the
// launcher of MPICH, Intel MPI and MVAPICH, PALS that of Cray, and JSM that of Spectrum LSF.
constexpr Names kMpi[] = {
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK", "MVP_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
};
// Set by each launcher that supports PMIx, which does not pass the number of ranks in a variable.
constexpr char kPmixRank[] = "PMIX_RANK";
constexpr Names kSlurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};

void check_rank(VariableReader& reader, const Names& names, const RankEnvironment& out) {
  if (!reader.has(names.world_size) && reader.has(names.rank)) {
    reader.problem(
        fmt::format("{} is not set although {}={} is; set it to the number of ranks, or unset both to run alone",
                    names.world_size, names.rank, out.rank));
  }
  if (out.world_size > 1 && !reader.has(names.rank)) {
    reader.problem(fmt::format("{} is not set although {}={}; set it to 0 .. {}, a different one for each process",
                               names.rank, names.world_size, out.world_size, out.world_size - 1));
  }
  if (out.rank >= out.world_size) {
    reader.problem(fmt::format("{}={} is not below {}={}; ranks are numbered from 0, so the last is {}", names.rank,
                               out.rank, names.world_size, out.world_size, out.world_size - 1));
  }
}

void check_local_rank(VariableReader& reader, const Names& names, const RankEnvironment& out) {
  if (!reader.has(names.local_world_size) && out.local_rank > 0) {
    reader.problem(fmt::format("{} is not set although {}={} is; set it to the number of ranks on this node",
                               names.local_world_size, names.local_rank, out.local_rank));
  }
  if (out.local_world_size > 1 && !reader.has(names.local_rank)) {
    reader.problem(
        fmt::format("{} is not set although {}={}; set it to 0 .. {}, a different one for each process of the node",
                    names.local_rank, names.local_world_size, out.local_world_size, out.local_world_size - 1));
  }
  if (out.local_rank >= out.local_world_size) {
    reader.problem(fmt::format("{}={} is not below {}={}; local ranks are numbered from 0, so the last is {}",
                               names.local_rank, out.local_rank, names.local_world_size, out.local_world_size,
                               out.local_world_size - 1));
  }
  if (out.local_world_size > out.world_size) {
    reader.problem(fmt::format("{}={} is more than {}={}; a node cannot have more ranks than the job",
                               names.local_world_size, out.local_world_size, names.world_size, out.world_size));
  }
}

void read_rank(VariableReader& reader, const Names& names, RankEnvironment& out) {
  out.world_size = reader.integer(names.world_size, 1, kUnbounded).value_or(1);
  out.rank = reader.integer(names.rank, 0, kUnbounded).value_or(0);
  out.local_rank = reader.integer(names.local_rank, 0, kUnbounded).value_or(0);
  check_rank(reader, names, out);
}

void read_local_size(VariableReader& reader, const Names& names, RankEnvironment& out) {
  out.local_world_size = reader.integer(names.local_world_size, 1, kUnbounded).value_or(1);
  check_local_rank(reader, names, out);
}

// The variables of PyTorch's env:// rendezvous.
void read_pytorch(VariableReader& reader, RankEnvironment& out) {
  read_rank(reader, kPyTorch, out);
  // The agent of torchrun itself listens on MASTER_PORT, and the ranks share its store.
  if (out.world_size > 1 && reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    return reader.problem("torchrun uses MASTER_PORT itself; start the ranks with oarlock launch");
  read_local_size(reader, kPyTorch, out);
  out.node_rank = reader.integer(kEnvNodeRank, 0, kUnbounded).value_or(0);
}

// Launchers of MPI set no master address, but on a single node it is known.
void read_mpi(VariableReader& reader, const Names& names, RankEnvironment& out) {
  read_rank(reader, names, out);
  if (out.world_size > 1 && !reader.has(names.local_world_size)) {
    return reader.problem(
        fmt::format("{} is not set although {}={}, so that the ranks of one node are not known; set {}, {}, {} and {} "
                    "for each process, or start it with oarlock launch",
                    names.local_world_size, names.world_size, out.world_size, kEnvRank, kEnvWorldSize, kEnvLocalRank,
                    kEnvLocalWorldSize));
  }
  read_local_size(reader, names, out);
  out.node_rank = out.rank / std::max(out.local_world_size, 1);  // Open MPI's NODE_RANK counts processes, not nodes
  out.master_port = kDefaultMasterPort;
  if (out.local_world_size == out.world_size) out.master_addr = "127.0.0.1";
}

void read_slurm_node(VariableReader& reader, RankEnvironment& out) {
  const auto text = reader.text(kSlurm.local_world_size);
  if (!text) {  // only srun's steps set it
    out.local_world_size = reader.integer("SLURM_NTASKS_PER_NODE", 1, kUnbounded).value_or(out.world_size);
    return check_local_rank(reader, kSlurm, out);
  }
  const auto tasks = slurm_tasks_by_node(*text);
  if (!tasks) {
    return reader.problem(
        fmt::format("{}='{}' is not a list of tasks by node; start with srun", kSlurm.local_world_size, *text));
  }
  if (const int sum = std::accumulate(tasks->begin(), tasks->end(), 0); sum != out.world_size) {
    return reader.problem(
        fmt::format("{}='{}' are {} tasks, but {}={}; start with srun, and unset variables that were set by hand",
                    kSlurm.local_world_size, *text, sum, kSlurm.world_size, out.world_size));
  }
  if (static_cast<size_t>(out.node_rank) >= tasks->size()) {
    return reader.problem(fmt::format("SLURM_NODEID={} is not among the {} nodes of {}='{}'", out.node_rank,
                                      tasks->size(), kSlurm.local_world_size, *text));
  }
  out.local_world_size = (*tasks)[static_cast<size_t>(out.node_rank)];
  check_local_rank(reader, kSlurm, out);
}

// Enough digits of an id to distinguish jobs; the ids of special steps exceed an int.
int last_digits(const std::optional<std::string>& id) {
  constexpr size_t kDigits = 5;
  if (!id) return 0;
  return std::max(std::atoi(id->substr(id->size() - std::min(id->size(), kDigits)).c_str()), 0);
}

// Slurm's srun. Rank 0 is on the first node of the step. If node names do not resolve, the address from which srun was
// started usually belongs to that node.
void read_slurm(VariableReader& reader, RankEnvironment& out) {
  read_rank(reader, kSlurm, out);
  const auto nodes = reader.text("SLURM_STEP_NODELIST");
  if (!nodes && out.world_size > 1) {
    return reader.problem(fmt::format("{}={}, but srun did not start this process; start it with srun, or unset {}",
                                      kSlurm.world_size, out.world_size, kSlurm.rank));
  }
  out.node_rank = reader.integer("SLURM_NODEID", 0, kUnbounded).value_or(0);
  read_slurm_node(reader, out);
  if (!nodes || out.world_size == 1) return;
  const auto host = first_slurm_host(*nodes);
  if (!host) return reader.problem(fmt::format("SLURM_STEP_NODELIST='{}' is not a list of hosts", *nodes));
  out.master_addr = out.local_world_size == out.world_size ? "127.0.0.1" : *host;
  out.master_fallback = reader.text("SLURM_LAUNCH_NODE_IPADDR").value_or("");
  const int mixed = last_digits(reader.text("SLURM_JOB_ID")) + 101 * last_digits(reader.text("SLURM_STEP_ID"));
  out.master_port = kFirstJobPort + mixed % kJobPorts;
}

// Whether Slurm binds GPUs to tasks and each rank is a task, including ranks whose RANK and LOCAL_RANK were set from
// Slurm's numbers. The ranks of `oarlock launch` share the GPUs of its single task.
bool has_own_devices(VariableReader& reader, const RankEnvironment& out) {
  const bool binds = reader.has("SLURM_GPUS_PER_TASK") ||
                     reader.text("SLURM_TRES_PER_TASK").value_or("").find("gpu") != std::string::npos;
  if (!binds) return false;
  return reader.text(kSlurm.rank) == std::to_string(out.rank) &&
         reader.text(kSlurm.local_rank) == std::to_string(out.local_rank);
}

// Returns the variables of a launcher of MPI; null without any. Of several rows with the same rank, it is the one whose
// local variables are set.
const Names* find_mpi(const VariableReader& reader) {
  const auto is_set = [&](const Names& names) { return reader.has(names.rank) || reader.has(names.world_size); };
  if (is_set(kOpenMpi)) return &kOpenMpi;
  const Names* found = nullptr;
  for (const Names& names : kMpi) {
    if (!is_set(names)) continue;
    if (reader.has(names.local_rank) || reader.has(names.local_world_size)) return &names;
    found = &names;
  }
  return found;
}

// Returns whether srun started this process as this rank. With --mpi=pmi2 it also sets the variables of PMI, which say
// less than its own. A launcher of MPI that starts its daemons with srun has other numbers.
bool is_task_of_srun(const VariableReader& reader, const Names& mpi) {
  return &mpi != &kOpenMpi && reader.has("SLURM_STEP_NODELIST") && reader.text(mpi.rank) == reader.text(kSlurm.rank) &&
         reader.text(mpi.world_size) == reader.text(kSlurm.world_size);
}

// Uses the first launcher whose variables are set. PyTorch's variables take precedence: `oarlock launch` sets them
// under srun.
void read_launcher(VariableReader& reader, RankEnvironment& out) {
  const auto any = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return reader.has(name); });
  };
  if (any({kPyTorch.rank, kPyTorch.world_size, kPyTorch.local_rank, kPyTorch.local_world_size}))
    return read_pytorch(reader, out);
  const Names* mpi = find_mpi(reader);
  if (mpi != nullptr && !is_task_of_srun(reader, *mpi)) return read_mpi(reader, *mpi, out);
  if (any({kSlurm.rank, "SLURM_STEP_NODELIST"})) return read_slurm(reader, out);
  if (const auto rank = reader.text(kPmixRank)) {
    return reader.problem(fmt::format(
        "{}={}, but no variable has the number of ranks; set {}, {}, {}, {} and {} for each process, start "
        "it with oarlock launch, or unset {} to run alone",
        kPmixRank, *rank, kEnvRank, kEnvWorldSize, kEnvLocalRank, kEnvLocalWorldSize, kEnvMasterAddr, kPmixRank));
  }
  read_pytorch(reader, out);
}

// MASTER_ADDR and MASTER_PORT take precedence over the launcher's variables.
void read_master(VariableReader& reader, RankEnvironment& out) {
  const std::optional<int> port = reader.integer(kEnvMasterPort, 1, kMaxPort);
  if (out.world_size == 1) {  // no rendezvous
    out.master_addr.clear();
    out.master_fallback.clear();
    out.master_port = 0;
    return;
  }
  if (const auto address = reader.text(kEnvMasterAddr)) {
    out.master_addr = *address;
    out.master_fallback.clear();
  }
  out.master_port = port.value_or(out.master_port);
  if (out.master_addr.empty()) {
    reader.problem(
        fmt::format("{} is not set although the job has {} ranks; set it to the host name or address of "
                    "rank 0",
                    kEnvMasterAddr, out.world_size));
  }
  if (out.master_port == 0) {
    reader.problem(
        fmt::format("{} is not set although the job has {} ranks; set it to a free TCP port of rank 0's "
                    "host, such as {}",
                    kEnvMasterPort, out.world_size, kDefaultMasterPort));
  }
}

void read_attempt(VariableReader& reader, RankEnvironment& out) {
  out.uid = reader.text(kEnvUid).value_or("");
  out.attempt = reader.integer(kEnvAttempt, 0, kUnbounded).value_or(0);
}

}  // namespace

Result<RankEnvironment> read_rank_environment(const EnvironmentLookup& lookup) {
  RankEnvironment out;
  VariableReader reader(lookup);
  read_launcher(reader, out);
  out.has_own_devices = has_own_devices(reader, out);
  read_master(reader, out);
  read_attempt(reader, out);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return out;
}

}  // namespace oarlock
