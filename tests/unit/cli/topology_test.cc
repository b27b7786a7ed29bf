#include "cli/launch/topology.h"

#include <gmock/gmock.h>

namespace oarlock::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Pair;

Result<Topology> resolve(const TopologyFlags& flags, const Environment& environment) {
  return resolve_topology(flags, environment, [] { return Result<int>(4711); });
}

struct Good {
  std::string name;
  TopologyFlags flags{};
  Environment environment{};
  Topology expected;
};
class GoodTest : public testing::TestWithParam<Good> {};
TEST_P(GoodTest, Resolves) {
  const auto topology = resolve(GetParam().flags, GetParam().environment);
  ASSERT_TRUE(topology.has_value()) << topology.error().message;
  EXPECT_EQ(*topology, GetParam().expected);
}

const Environment kPod = {{"WORLD_SIZE", "6"},
                          {"LOCAL_WORLD_SIZE", "3"},
                          {"NODE_RANK", "1"},
                          {"MASTER_ADDR", "j-0-0.j.ns.svc"},
                          {"MASTER_PORT", "29500"},
                          {"PET_NNODES", "2"},
                          {"PET_NPROC_PER_NODE", "3"},
                          {"PET_NODE_RANK", "1"},
                          {"PET_MASTER_ADDR", "j-0-0.j.ns.svc"},
                          {"PET_MASTER_PORT", "29500"}};

INSTANTIATE_TEST_SUITE_P(
    Table, GoodTest,
    testing::Values(
        Good{.name = "Nothing", .expected = {1, 1, 0, "127.0.0.1", 4711}},  //
        Good{.name = "NodesGivenUnderSrun",
             .flags = {.nproc = 2, .nnodes = 2, .node_rank = 1, .master_addr = "h"},
             .environment = {{"SLURM_STEP_NUM_TASKS", "2"}},
             .expected = {2, 2, 1, "h", 29500}},
        Good{.name = "SingleTaskOfMpi",
             .environment = {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
             .expected = {1, 1, 0, "127.0.0.1", 4711}},
        Good{.name = "Nproc", .flags = {.nproc = 4}, .expected = {4, 1, 0, "127.0.0.1", 4711}},
        Good{.name = "Nodes",
             .flags = {.nproc = 2, .nnodes = 3, .node_rank = 2, .master_addr = "h"},
             .expected = {2, 3, 2, "h", 29500}},
        Good{.name = "OperatorsPod", .environment = kPod, .expected = {3, 2, 1, "j-0-0.j.ns.svc", 29500}},
        Good{.name = "TorchrunNamesOnly",
             .environment = {{"PET_NNODES", "2"},
                             {"PET_NPROC_PER_NODE", "8"},
                             {"PET_NODE_RANK", "1"},
                             {"PET_MASTER_ADDR", "h"},
                             {"PET_MASTER_PORT", "1"}},
             .expected = {8, 2, 1, "h", 1}},
        Good{.name = "NodesFromWorldSize",
             .environment = {{"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "h"}},
             .expected = {2, 2, 1, "h", 29500}},
        Good{.name = "FlagsWin",
             .flags = {.nproc = 1, .nnodes = 1, .node_rank = 0, .master_addr = "a", .master_port = 5},
             .environment = kPod,
             .expected = {1, 1, 0, "a", 5}},
        Good{.name = "EmptyIsNotSet",
             .environment = {{"LOCAL_WORLD_SIZE", ""}, {"MASTER_ADDR", ""}},
             .expected = {1, 1, 0, "127.0.0.1", 4711}},
        Good{.name = "AddressWithoutPort", .environment = {{"MASTER_ADDR", "h"}}, .expected = {1, 1, 0, "h", 29500}}),
    [](const auto& row) { return row.param.name; });

struct Bad {
  std::string name;
  TopologyFlags flags{};
  Environment environment{};
  ExitCode code;
  std::vector<std::string> words;  // of the message
};
class BadTest : public testing::TestWithParam<Bad> {};
TEST_P(BadTest, ReportsSourceOfValue) {
  const auto topology = resolve(GetParam().flags, GetParam().environment);
  ASSERT_FALSE(topology.has_value());
  EXPECT_EQ(topology.error().code, GetParam().code);
  for (const std::string& word : GetParam().words) EXPECT_THAT(topology.error().message, HasSubstr(word));
  EXPECT_EQ(topology.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadTest,
    testing::Values(Bad{.name = "NoProcesses",
                        .flags = {.nproc = 0},
                        .code = ExitCode::kUsage,
                        .words = {"--nproc=0", "from 1 to 1000000"}},
                    Bad{.name = "NotANumber",
                        .environment = {{"LOCAL_WORLD_SIZE", "two"}},
                        .code = ExitCode::kConfig,
                        .words = {"LOCAL_WORLD_SIZE='two'", "--nproc"}},
                    Bad{.name = "NumberWithRest",
                        .environment = {{"PET_NNODES", "1:4"}},
                        .code = ExitCode::kConfig,
                        .words = {"PET_NNODES='1:4'", "--nnodes"}},
                    Bad{.name = "Contradiction",
                        .environment = {{"LOCAL_WORLD_SIZE", "2"}, {"PET_NPROC_PER_NODE", "4"}},
                        .code = ExitCode::kConfig,
                        .words = {"LOCAL_WORLD_SIZE=2", "PET_NPROC_PER_NODE=4"}},
                    Bad{.name = "WorldSize",
                        .environment = {{"WORLD_SIZE", "5"}, {"LOCAL_WORLD_SIZE", "2"}, {"NODE_RANK", "0"}},
                        .code = ExitCode::kConfig,
                        .words = {"WORLD_SIZE=5", "2 nodes", "2 ranks"}},
                    Bad{.name = "NoNodeRank",
                        .flags = {.nnodes = 2},
                        .code = ExitCode::kConfig,
                        .words = {"NODE_RANK", "--node-rank"}},
                    Bad{.name = "NodeRankTooHigh",
                        .flags = {.nnodes = 2, .node_rank = 2},
                        .code = ExitCode::kUsage,
                        .words = {"node rank 2", "2"}},
                    Bad{.name = "NodeRankTooHighInEnvironment",
                        .environment = {{"NODE_RANK", "1"}},
                        .code = ExitCode::kConfig,
                        .words = {"node rank 1", "NODE_RANK"}},
                    Bad{.name = "SeveralLaunchersOfMpi",
                        .flags = {.nproc = 2},
                        .environment = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
                        .code = ExitCode::kConfig,
                        .words = {"PMI_SIZE=2", "--nnodes", "--standalone"}},
                    Bad{.name = "SeveralLaunchersOfSrun",
                        .environment = {{"SLURM_STEP_NUM_TASKS", "4"}},
                        .code = ExitCode::kConfig,
                        .words = {"SLURM_STEP_NUM_TASKS=4", "4 launchers"}},
                    Bad{.name = "NoAddress",
                        .flags = {.nnodes = 2, .node_rank = 0},
                        .code = ExitCode::kConfig,
                        .words = {"MASTER_ADDR", "--master-addr"}},
                    Bad{.name = "Port",
                        .environment = {{"MASTER_PORT", "70000"}},
                        .code = ExitCode::kConfig,
                        .words = {"MASTER_PORT='70000'", "65535"}},
                    Bad{.name = "TooMany",
                        .flags = {.nproc = 1'000'000, .nnodes = 1'000'000, .node_rank = 0},
                        .code = ExitCode::kUsage,
                        .words = {"1000000"}}),
    [](const auto& row) { return row.param.name; });

TEST(RankEnvironment, NumbersRanksAcrossNodes) {
  const Topology topology{.nproc = 3, .nnodes = 2, .node_rank = 1, .master_addr = "h", .master_port = 7};
  EXPECT_THAT(rank_environment(topology, 2),
              IsSupersetOf({Pair("RANK", "5"), Pair("LOCAL_RANK", "2"), Pair("WORLD_SIZE", "6"),
                            Pair("LOCAL_WORLD_SIZE", "3"), Pair("NODE_RANK", "1"), Pair("MASTER_ADDR", "h"),
                            Pair("MASTER_PORT", "7"), Pair("PET_NNODES", "2")}));
}

TEST(Environment, RoundTrip) {
  const char* entries[] = {"A=1", "B=", "C=x=y", "no value", nullptr};
  const Environment environment = environment_of(entries);
  EXPECT_EQ(environment, (Environment{{"A", "1"}, {"B", ""}, {"C", "x=y"}}));
  EXPECT_EQ(to_entries(environment), (std::vector<std::string>{"A=1", "B=", "C=x=y"}));
}

}  // namespace
}  // namespace oarlock::launch
