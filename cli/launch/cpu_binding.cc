#include "cli/launch/cpu_binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "common/files.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, CpuBinding> kBindings[] = {{"node", CpuBinding::kNode},
                                                            {"socket", CpuBinding::kSocket},
                                                            {"exclusive", CpuBinding::kExclusive},
                                                            {"core-complex", CpuBinding::kCoreComplex}};

std::optional<int> number_of(std::string_view text) { return parse_integer<int>(trim(text, " \t\n")); }

std::optional<int> number_in(const fs::path& file) { return number_of(read_file(file).value_or("")); }

// Returns the lowest id in a file with a list of CPUs.
int lowest_in(const fs::path& file, int otherwise) {
  const std::vector<int> cpus = parse_cpu_list(read_file(file).value_or(""));
  return cpus.empty() ? otherwise : *std::ranges::min_element(cpus);
}

int last_level_cache(const fs::path& cpu, int id) {
  int out = id;
  int highest = -1;
  visit_directory(cpu / "cache", [&](const fs::path& cache) {
    if (!cache.filename().string().starts_with("index")) return;
    const std::string type(trim(read_file(cache / "type").value_or(""), " \n"));
    const int level = number_in(cache / "level").value_or(-1);
    if ((type != "Unified" && type != "Data") || level <= highest) return;
    highest = level;
    out = lowest_in(cache / "shared_cpu_list", id);
  });
  return out;
}

std::map<int, int> nodes_by_cpu(const fs::path& system) {
  std::map<int, int> out;
  visit_directory(system / "devices/system/node", [&out](const fs::path& path) {
    const std::string name = path.filename().string();
    const std::optional<int> node = name.starts_with("node") ? number_of(name.substr(4)) : std::nullopt;
    if (!node) return;
    for (const int cpu : parse_cpu_list(read_file(path / "cpulist").value_or(""))) out[cpu] = *node;
  });
  return out;
}

struct Gpu {
  std::string address;  // on the PCI bus, such as "0000:dc:00.0"
  std::string uuid;
};

// Returns the GPUs in the order of the bus. The names of the directories are their addresses.
std::vector<Gpu> gpus_in(const fs::path& directory) {
  constexpr std::string_view kUuid = "GPU UUID:";
  std::vector<Gpu> out;
  visit_directory(directory, [&](const fs::path& path) {
    Gpu gpu{.address = path.filename().string(), .uuid = {}};
    std::istringstream lines(read_file(path / "information").value_or(""));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(kUuid)) gpu.uuid = std::string(trim(line.substr(kUuid.size()), " \t"));
    }
    out.push_back(std::move(gpu));
  });
  std::ranges::sort(out, {}, &Gpu::address);
  return out;
}

// Returns those that CUDA_VISIBLE_DEVICES selects, in its order, up to the first entry that selects none.
std::vector<Gpu> visible_gpus(const std::vector<Gpu>& all, const Environment& environment) {
  const auto variable = environment.find("CUDA_VISIBLE_DEVICES");
  if (variable == environment.end()) return all;
  std::vector<Gpu> out;
  std::istringstream entries(variable->second);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::optional<int> index = number_of(entry);
    const auto found = index ? all.end() : std::ranges::find_if(all, [&](const Gpu& gpu) {
      return entry.starts_with("GPU-") && gpu.uuid.starts_with(entry);
    });
    if (index && *index >= 0 && *index < std::ssize(all)) {
      out.push_back(all[static_cast<size_t>(*index)]);
    } else if (found != all.end()) {
      out.push_back(*found);
    } else {
      break;
    }
  }
  return out;
}

std::vector<int> nodes_of(const CpuTopology& topology) {
  std::set<int> nodes;
  for (const Cpu& cpu : topology.cpus) nodes.insert(cpu.node);
  return {nodes.begin(), nodes.end()};
}

// Returns the NUMA node of each rank.
std::vector<int> nodes_of_ranks(const CpuTopology& topology, int ranks) {
  std::vector<int> out;
  const std::vector<int> nodes = nodes_of(topology);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank < std::ssize(topology.gpu_nodes)) {
      out.push_back(topology.gpu_nodes[static_cast<size_t>(rank)]);
    } else {
      out.push_back(nodes[static_cast<size_t>(rank) * nodes.size() / static_cast<size_t>(ranks)]);
    }
  }
  return out;
}

std::vector<Cpu> cpus_of_node(const CpuTopology& topology, int node) {
  std::vector<Cpu> out;
  std::ranges::copy_if(topology.cpus, std::back_inserter(out), [node](const Cpu& cpu) { return cpu.node == node; });
  return out;
}

std::vector<int> sorted_ids(const std::vector<Cpu>& cpus) {
  std::vector<int> out;
  for (const Cpu& cpu : cpus) out.push_back(cpu.id);
  std::ranges::sort(out);
  return out;
}

std::vector<int> cpus_of_socket(const CpuTopology& topology, int node) {
  const int socket = cpus_of_node(topology, node).front().socket;
  std::vector<Cpu> out;
  std::ranges::copy_if(topology.cpus, std::back_inserter(out),
                       [socket](const Cpu& cpu) { return cpu.socket == socket; });
  return sorted_ids(out);
}

// Returns part `index` of `parts` of the cores of a node. The first parts have one core more if the cores are not
// divisible.
Result<std::vector<int>> exclusive_part(const CpuTopology& topology, int node, size_t index, size_t parts) {
  std::map<int, std::vector<Cpu>> cores;
  for (const Cpu& cpu : cpus_of_node(topology, node)) cores[cpu.core].push_back(cpu);
  if (cores.size() < parts) {
    return fail(ExitCode::kUnavailable,
                fmt::format("--numa-binding exclusive: NUMA node {} has {} for {}; use node, or fewer ranks", node,
                            counted(cores.size(), "core"), counted(parts, "rank")));
  }
  const size_t size = cores.size() / parts;
  const size_t larger = cores.size() % parts;
  const size_t begin = index * size + std::min(index, larger);
  const size_t end = begin + size + (index < larger ? 1 : 0);
  std::vector<Cpu> out;
  size_t at = 0;
  for (const auto& [core, cpus] : cores) {
    if (at >= begin && at < end) out.insert(out.end(), cpus.begin(), cpus.end());
    ++at;
  }
  return sorted_ids(out);
}

// Returns the group of CPUs with a common cache at `index`, the largest groups first.
std::vector<int> core_complex(const CpuTopology& topology, int node, size_t index) {
  std::map<int, std::vector<Cpu>> by_cache;
  for (const Cpu& cpu : cpus_of_node(topology, node)) by_cache[cpu.cache].push_back(cpu);
  std::vector<std::vector<Cpu>> groups;
  for (auto& [cache, cpus] : by_cache) groups.push_back(std::move(cpus));
  std::ranges::stable_sort(groups, [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return sorted_ids(groups[index % groups.size()]);
}

}  // namespace

Result<CpuBinding> cpu_binding_from(const std::string& name) {
  for (const auto& [known, binding] : kBindings) {
    if (name == known) return binding;
  }
  return fail(ExitCode::kUsage,
              fmt::format("--numa-binding={} is not one of node, socket, exclusive, core-complex", shortened(name)));
}

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const std::optional<int> first = number_of(part.substr(0, dash));
    const std::optional<int> last = dash == std::string::npos ? first : number_of(part.substr(dash + 1));
    if (!first || !last) continue;
    for (int cpu = *first; cpu <= *last; ++cpu) out.push_back(cpu);
  }
  return out;
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += end == i + 1 ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[end - 1]);
    i = end;
  }
  return out;
}

CpuTopology read_cpu_topology(const std::vector<int>& allowed, const Environment& environment,
                              const MachineDirectories& directories) {
  CpuTopology out;
  const std::map<int, int> nodes = nodes_by_cpu(directories.system);
  for (const int id : allowed) {
    const fs::path cpu = directories.system / "devices/system/cpu" / fmt::format("cpu{}", id);
    const auto node = nodes.find(id);
    out.cpus.push_back({.id = id,
                        .node = node == nodes.end() ? 0 : node->second,
                        .socket = number_in(cpu / "topology/physical_package_id").value_or(0),
                        .core = lowest_in(cpu / "topology/thread_siblings_list", id),
                        .cache = last_level_cache(cpu, id)});
  }
  for (const Gpu& gpu : visible_gpus(gpus_in(directories.gpus), environment)) {
    // A machine with a single node may report -1.
    const int node = number_in(directories.system / "bus/pci/devices" / gpu.address / "numa_node").value_or(0);
    out.gpu_nodes.push_back(std::max(node, 0));
  }
  return out;
}

Result<std::vector<std::vector<int>>> bind_ranks(CpuBinding binding, const CpuTopology& topology, int ranks) {
  if (topology.cpus.empty())
    return fail(ExitCode::kUnavailable, "--numa-binding: the CPUs of this machine are unknown");
  const std::vector<int> nodes = nodes_of_ranks(topology, ranks);
  std::vector<std::vector<int>> out;
  for (int rank = 0; rank < ranks; ++rank) {
    const int node = nodes[static_cast<size_t>(rank)];
    if (cpus_of_node(topology, node).empty()) {
      return fail(
          ExitCode::kUnavailable,
          fmt::format("--numa-binding: the GPU of local rank {} is at NUMA node {}, of which this process may use "
                      "no CPU; check the CPU set of the container",
                      rank, node));
    }
    const auto before = static_cast<size_t>(std::count(nodes.begin(), nodes.begin() + rank, node));
    const auto on_node = static_cast<size_t>(std::count(nodes.begin(), nodes.end(), node));
    switch (binding) {
      case CpuBinding::kNode:
        out.push_back(sorted_ids(cpus_of_node(topology, node)));
        break;
      case CpuBinding::kSocket:
        out.push_back(cpus_of_socket(topology, node));
        break;
      case CpuBinding::kExclusive: {
        ASSIGN_OR_RETURN(std::vector<int> part, exclusive_part(topology, node, before, on_node));
        out.push_back(std::move(part));
        break;
      }
      case CpuBinding::kCoreComplex:
        out.push_back(core_complex(topology, node, before));
        break;
    }
  }
  return out;
}

}  // namespace oarlock::launch
