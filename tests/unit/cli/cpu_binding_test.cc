// The CPUs of each rank, on machines that a test describes in the files of the kernel and of NVIDIA's driver.
#include "cli/launch/cpu_binding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace oarlock::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text << "\n";
}

// Two sockets with two NUMA nodes of four CPUs each: two cores of two threads with their own cache. The siblings of
// CPU n are n and n + 8. Four GPUs, the first two at node 1.
class Machine {
 public:
  Machine() {
    for (int node = 0; node < 4; ++node) {
      const int first = 2 * node;
      write(system() / fmt::format("devices/system/node/node{}/cpulist", node),
            fmt::format("{}-{},{}-{}", first, first + 1, first + 8, first + 9));
    }
    for (int id = 0; id < 16; ++id) {
      const int core = id % 8;
      const fs::path cpu = system() / fmt::format("devices/system/cpu/cpu{}", id);
      write(cpu / "topology/physical_package_id", std::to_string(core / 4));
      write(cpu / "topology/thread_siblings_list", fmt::format("{},{}", core, core + 8));
      write(cpu / "cache/index0/type", "Data");
      write(cpu / "cache/index0/level", "1");
      write(cpu / "cache/index0/shared_cpu_list", std::to_string(id));
      write(cpu / "cache/index1/type", "Instruction");
      write(cpu / "cache/index1/level", "9");
      write(cpu / "cache/index1/shared_cpu_list", "0-15");
      write(cpu / "cache/index3/type", "Unified");
      write(cpu / "cache/index3/level", "3");
      write(cpu / "cache/index3/shared_cpu_list", fmt::format("{},{}", core, core + 8));
    }
    const std::vector<int> nodes = {1, 1, 3, -1};
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::string address = fmt::format("0000:{}0:00.0", i + 1);
      write(gpus() / address / "information", fmt::format("Model: \t x\nGPU UUID: \t GPU-{}{}\n", i, i));
      write(system() / "bus/pci/devices" / address / "numa_node", std::to_string(nodes[i]));
    }
  }
  CpuTopology read(const Environment& environment = {}) const {
    return read_cpu_topology(parse_cpu_list("0-15"), environment, {.system = system(), .gpus = gpus()});
  }
  CpuTopology without_gpus(const std::string& allowed = "0-15") const {
    return read_cpu_topology(parse_cpu_list(allowed), {}, {.system = system(), .gpus = directory_.path() / "none"});
  }

 private:
  fs::path system() const { return directory_.path() / "sys"; }
  fs::path gpus() const { return directory_.path() / "gpus"; }

  test::TemporaryDirectory directory_;
};

std::vector<std::string> lists(const Result<std::vector<std::vector<int>>>& bound) {
  if (!bound) return {bound.error().message};
  std::vector<std::string> out;
  for (const auto& cpus : *bound) out.push_back(cpu_list(cpus));
  return out;
}

TEST(CpuBinding, FollowsTheGpus) {
  const CpuTopology topology = Machine().read();
  EXPECT_THAT(topology.gpu_nodes, ElementsAre(1, 1, 3, 0));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kNode, topology, 4)),
              ElementsAre("2-3,10-11", "2-3,10-11", "6-7,14-15", "0-1,8-9"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kSocket, topology, 4)),
              ElementsAre("0-3,8-11", "0-3,8-11", "4-7,12-15", "0-3,8-11"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kExclusive, topology, 4)),
              ElementsAre("2,10", "3,11", "6-7,14-15", "0-1,8-9"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kCoreComplex, topology, 4)), ElementsAre("2,10", "3,11", "6,14", "0,8"));
}

TEST(CpuBinding, FollowsVisibleDevices) {
  const Machine machine;
  EXPECT_THAT(machine.read({{"CUDA_VISIBLE_DEVICES", "2,0"}}).gpu_nodes, ElementsAre(3, 1));
  EXPECT_THAT(machine.read({{"CUDA_VISIBLE_DEVICES", "GPU-33,GPU-2"}}).gpu_nodes, ElementsAre(0, 3));
  EXPECT_THAT(machine.read({{"CUDA_VISIBLE_DEVICES", "1,-1,0"}}).gpu_nodes, ElementsAre(1));
  EXPECT_THAT(machine.read({{"CUDA_VISIBLE_DEVICES", "9"}}).gpu_nodes, ElementsAre());
}

TEST(CpuBinding, DistributesRanksWithoutGpus) {
  const Machine machine;
  const CpuTopology topology = machine.without_gpus();
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kNode, topology, 2)), ElementsAre("0-1,8-9", "4-5,12-13"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kExclusive, topology, 8)),
              ElementsAre("0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kExclusive, topology, 9)),
              ElementsAre(HasSubstr("has 2 cores for 3 ranks")));
}

TEST(CpuBinding, KeepsToTheCpusOfTheContainer) {
  const Machine machine;
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kNode, machine.without_gpus("3-5"), 2)), ElementsAre("3", "4-5"));
  CpuTopology topology = machine.read();
  std::erase_if(topology.cpus, [](const Cpu& cpu) { return cpu.node == 3; });
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kNode, topology, 3)),
              ElementsAre(HasSubstr("the GPU of local rank 2 is at NUMA node 3")));
  EXPECT_FALSE(bind_ranks(CpuBinding::kNode, {}, 1).has_value());
}

// As in a container without /sys/devices/system/node.
TEST(CpuBinding, TakesAnUnknownMachineAsOneNode) {
  const test::TemporaryDirectory empty;
  const CpuTopology topology = read_cpu_topology({0, 1, 2, 3}, {}, {.system = empty.path(), .gpus = empty.path()});
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kNode, topology, 2)), ElementsAre("0-3", "0-3"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kExclusive, topology, 2)), ElementsAre("0-1", "2-3"));
  EXPECT_THAT(lists(bind_ranks(CpuBinding::kCoreComplex, topology, 2)), ElementsAre("0", "1"));
}

TEST(CpuBinding, ReadsThisMachine) {
  const CpuTopology topology = read_cpu_topology(usable_cores(), {});
  ASSERT_EQ(topology.cpus.size(), usable_cores().size());
  const auto bound = bind_ranks(CpuBinding::kSocket, topology, 1);
  ASSERT_TRUE(bound.has_value()) << bound.error().message;
  EXPECT_FALSE(bound->front().empty());
}

TEST(CpuBinding, ParsesLists) {
  EXPECT_THAT(parse_cpu_list("0-2,5,9-10\n"), ElementsAre(0, 1, 2, 5, 9, 10));
  EXPECT_THAT(parse_cpu_list(""), ElementsAre());
  EXPECT_THAT(parse_cpu_list("x,3-,4"), ElementsAre(4));
  EXPECT_EQ(cpu_list({0, 1, 2, 5, 9, 10}), "0-2,5,9-10");
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_binding_from("core-complex").value(), CpuBinding::kCoreComplex);
  EXPECT_EQ(cpu_binding_from("numa").error().code, ExitCode::kUsage);
}

}  // namespace
}  // namespace oarlock::launch
