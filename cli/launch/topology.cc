#include "cli/launch/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <set>
#include <sstream>
#include <utility>

#include "common/contract.h"
#include "common/cpu.h"
#include "common/files.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

constexpr char kVisibleDevices[] = "CUDA_VISIBLE_DEVICES";

bool all_digits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Returns the digits at the beginning of an entry, as CUDA reads "1gpu2"; empty if it has none, as in "-1".
std::string leading_digits(std::string_view entry) {
  entry = trim(entry);
  if (entry.starts_with('+')) entry.remove_prefix(1);
  return std::string(entry.substr(0, std::min(entry.find_first_not_of("0123456789"), entry.size())));
}

// Counts the entries up to the first one that is not one of `devices` devices, as CUDA and PyTorch do: 2 for
// "0,2,-1,3", 1 for "0,abc,1", 0 for "NoDevFiles". An entry that occurs twice hides all devices.
int listed_devices(const std::string& list, int devices) {
  std::istringstream stream(list);
  std::set<std::string> seen;
  const bool has_ids = list.starts_with("GPU-") || list.starts_with("MIG-");
  const std::string kind = list.substr(0, 4);
  for (std::string entry; std::getline(stream, entry, ',');) {
    if (has_ids && !entry.starts_with(kind)) break;
    if (!has_ids) {
      const std::optional<int> index = parse_integer<int>(leading_digits(entry));
      if (!index || *index >= devices) break;
      entry = std::to_string(*index);
    }
    if (!seen.insert(entry).second) return 0;
  }
  return static_cast<int>(seen.size());
}

// Counts nvidia0, nvidia1 ..., but not nvidiactl or nvidia-uvm.
int device_files(const std::filesystem::path& directory) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  visit_directory(directory, [&](const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    if (name.starts_with(kPrefix) && all_digits(name.substr(kPrefix.size()))) ++count;
  });
  return count;
}

std::optional<std::string> find(const Environment& environment, const char* name) {
  std::string value = value_of(environment, name);
  return value.empty() ? std::nullopt : std::optional(std::move(value));  // an empty value counts as not set
}

struct Range {
  int smallest;
  int largest;
  const char* words;
};
constexpr Range kCount{1, 1'000'000, "a number from 1 to 1000000"};
constexpr Range kIndex{0, 999'999, "a number from 0 to 999999"};
constexpr Range kPort{1, 65535, "a port from 1 to 65535"};

// A number that a flag or one of two environment variables sets.
class Setting {
 public:
  Setting(const char* flag, const char* bare, const char* pet, Range range)
      : flag_(flag), bare_(bare), pet_(pet), range_(range) {}

  // Returns an empty value if none of the three is set.
  Result<std::optional<int>> read(const std::optional<int>& flag_value, const Environment& environment) const {
    if (flag_value) {
      if (!in_range(*flag_value)) {
        return fail(ExitCode::kUsage, fmt::format("{}={} is not {}", flag_, *flag_value, range_.words));
      }
      return flag_value;
    }
    std::optional<int> result;
    for (const char* name : {bare_, pet_}) {
      if (name == nullptr) continue;
      const std::optional<std::string> text = find(environment, name);
      if (!text) continue;
      const std::optional<int> value = parse_integer<int>(*text);
      if (!value || !in_range(*value)) {
        return fail(ExitCode::kConfig, fmt::format("environment variable {}='{}' is not {}; correct it, or give {}",
                                                   name, *text, range_.words, flag_));
      }
      if (result && result != value) {
        return fail(ExitCode::kConfig,
                    fmt::format("environment variables {}={} and {}={} contradict each other; correct one, or give {}",
                                bare_, *result, name, *value, flag_));
      }
      result = value;
    }
    return result;
  }

 private:
  bool in_range(int value) const { return value >= range_.smallest && value <= range_.largest; }

  const char* flag_;
  const char* bare_;
  const char* pet_;
  Range range_;
};

// The number of processes that mpirun or srun has started together with this one.
constexpr const char* kTaskCounts[] = {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MVP_COMM_WORLD_SIZE", "PMI_SIZE",
                                       "JSM_NAMESPACE_SIZE",   "SLURM_STEP_NUM_TASKS"};

// Each of several launchers without the number of nodes would start a separate job, with the same checkpoints.
Result<void> reject_separate_jobs(const Environment& environment) {
  for (const char* name : kTaskCounts) {
    const std::optional<std::string> text = find(environment, name);
    const std::optional<int> count = text ? parse_integer<int>(*text) : std::nullopt;
    if (count.value_or(1) <= 1) continue;
    return fail(ExitCode::kConfig,
                fmt::format("{}={}: {} launchers run, and each would start a separate job; give --nnodes, "
                            "--node-rank and --master-addr, or --standalone for separate jobs",
                            name, *count, *count));
  }
  return {};
}

}  // namespace

Processors count_processors(const Environment& environment, const std::filesystem::path& devices) {
  const int files = device_files(devices);
  const auto visible = environment.find(kVisibleDevices);
  const bool chosen = files > 0 && visible != environment.end();
  return {.gpus = chosen ? listed_devices(visible->second, files) : files, .cpus = usable_cpus()};
}

Result<int> rank_count(const std::string& text, const Processors& processors) {
  if (text == "cpu") return processors.cpus;
  if (text == "gpu" && processors.gpus == 0) {
    return fail(ExitCode::kUnavailable,
                "--nproc gpu: no GPU is visible (no /dev/nvidia0, or CUDA_VISIBLE_DEVICES hides it); give a number, "
                "cpu, or auto");
  }
  if (text == "gpu") return processors.gpus;
  if (text == "auto") return processors.gpus > 0 ? processors.gpus : processors.cpus;
  const std::optional<int> value = parse_integer<int>(text);
  if (!value || *value < 1)
    return fail(ExitCode::kUsage, fmt::format("--nproc={} is not a number of at least 1, auto, gpu or cpu", text));
  return *value;
}

Result<Topology> resolve_topology(const TopologyFlags& flags, const Environment& environment,
                                  const std::function<Result<int>()>& reserve_port) {
  Topology topology;
  ASSIGN_OR_RETURN(const std::optional<int> nproc,
                   Setting("--nproc", kEnvLocalWorldSize, kEnvPetNprocPerNode, kCount).read(flags.nproc, environment));
  topology.nproc = nproc.value_or(1);

  ASSIGN_OR_RETURN(const std::optional<int> nnodes,
                   Setting("--nnodes", nullptr, kEnvPetNnodes, kCount).read(flags.nnodes, environment));
  // If a flag is given, an inherited WORLD_SIZE describes another job.
  const bool use_world_size = !flags.nproc && !flags.nnodes;
  std::optional<int> world_size;
  if (use_world_size) {
    ASSIGN_OR_RETURN(world_size,
                     Setting("--nnodes and --nproc", kEnvWorldSize, nullptr, kCount).read(std::nullopt, environment));
  }
  if (!nnodes && !world_size) RETURN_IF_ERROR(reject_separate_jobs(environment));
  if (nnodes) {
    topology.nnodes = *nnodes;
  } else if (world_size) {
    topology.nnodes = std::max(1, *world_size / topology.nproc);
  }
  if (static_cast<int64_t>(topology.nproc) * topology.nnodes > kCount.largest) {
    return fail(ExitCode::kUsage, fmt::format("{} times {} are more than {} ranks", counted(topology.nnodes, "node"),
                                              counted(topology.nproc, "rank"), kCount.largest));
  }
  if (world_size && *world_size != topology.world_size()) {
    return fail(ExitCode::kConfig, fmt::format("environment variable {}={} is not {} times {} per node "
                                               "({}, {}); correct them, or give --nnodes and --nproc",
                                               kEnvWorldSize, *world_size, counted(topology.nnodes, "node"),
                                               counted(topology.nproc, "rank"), kEnvPetNnodes, kEnvLocalWorldSize));
  }

  ASSIGN_OR_RETURN(const std::optional<int> node_rank,
                   Setting("--node-rank", kEnvNodeRank, kEnvPetNodeRank, kIndex).read(flags.node_rank, environment));
  const bool several_nodes = topology.nnodes > 1;
  if (several_nodes && !node_rank) {
    return fail(ExitCode::kConfig, fmt::format("with {} nodes, this node's index is needed: set {} or give --node-rank",
                                               topology.nnodes, kEnvNodeRank));
  }
  topology.node_rank = node_rank.value_or(0);
  if (topology.node_rank >= topology.nnodes) {
    return fail(
        flags.node_rank ? ExitCode::kUsage : ExitCode::kConfig,
        fmt::format(
            "node rank {} is not below the number of nodes, {}; nodes count from 0 (--node-rank or {}, --nnodes or {})",
            topology.node_rank, topology.nnodes, kEnvNodeRank, kEnvPetNnodes));
  }

  std::optional<std::string> address;
  if (!flags.master_addr.empty()) address = flags.master_addr;
  if (!address) address = find(environment, kEnvMasterAddr);
  if (!address) address = find(environment, kEnvPetMasterAddr);
  if (!address && several_nodes) {
    return fail(ExitCode::kConfig,
                fmt::format("with {} nodes, the address of the one with rank 0 is needed: set {} or give --master-addr",
                            topology.nnodes, kEnvMasterAddr));
  }
  const bool address_given = address.has_value();
  topology.master_addr = address.value_or("127.0.0.1");

  ASSIGN_OR_RETURN(
      const std::optional<int> port,
      Setting("--master-port", kEnvMasterPort, kEnvPetMasterPort, kPort).read(flags.master_port, environment));
  if (port) {
    topology.master_port = *port;
  } else if (several_nodes || address_given) {
    topology.master_port = kDefaultMasterPort;
  } else {
    ASSIGN_OR_RETURN(topology.master_port, reserve_port());
  }
  return topology;
}

Environment rank_environment(const Topology& topology, int local_rank) {
  const std::string port = std::to_string(topology.master_port);
  return {
      {kEnvRank, std::to_string(topology.rank(local_rank))},
      {kEnvLocalRank, std::to_string(local_rank)},
      {kEnvWorldSize, std::to_string(topology.world_size())},
      {kEnvLocalWorldSize, std::to_string(topology.nproc)},
      {kEnvNodeRank, std::to_string(topology.node_rank)},
      {kEnvMasterAddr, topology.master_addr},
      {kEnvMasterPort, port},
      {kEnvPetNnodes, std::to_string(topology.nnodes)},
      {kEnvPetNprocPerNode, std::to_string(topology.nproc)},
      {kEnvPetNodeRank, std::to_string(topology.node_rank)},
      {kEnvPetMasterAddr, topology.master_addr},
      {kEnvPetMasterPort, port},
  };
}

}  // namespace oarlock::launch
