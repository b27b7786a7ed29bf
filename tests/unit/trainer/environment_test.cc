// The environment contract as a table: the meaning of each set of variables, or the error message.
#include "trainer/process/job_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace oarlock {
namespace {

using Variables = std::map<std::string, std::string>;

Result<JobEnvironment> read(const Variables& variables) {
  return read_job_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables two_ranks() {
  return {{"RANK", "1"},           {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "0"},     {"LOCAL_WORLD_SIZE", "1"},
          {"NODE_RANK", "1"},      {"MASTER_ADDR", "job-0-0.job"},
          {"MASTER_PORT", "29500"}};
}

TEST(Environment, DefaultsToSingleProcess) {
  const auto environment = read({});
  ASSERT_TRUE(environment);
  EXPECT_EQ(*environment, JobEnvironment{});
}

TEST(Environment, TreatsEmptyValuesAsUnset) {
  const auto environment = read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", ""}, {"OARLOCK_ATTEMPT", ""}});
  ASSERT_TRUE(environment);
  EXPECT_EQ(*environment, JobEnvironment{});
}

TEST(Environment, ReadsAllVariables) {
  Variables variables = two_ranks();
  variables.merge(Variables{{"OARLOCK_JOB", "mnist"},
                            {"OARLOCK_NAMESPACE", "ml"},
                            {"OARLOCK_UID", "u-1"},
                            {"OARLOCK_ATTEMPT", "3"},
                            {"OARLOCK_CONFIG", "/etc/oarlock/trainer.json"},
                            {"OARLOCK_CHECKPOINT_DIR", "/ck/mnist"},
                            {"OARLOCK_METRICS_PORT", "9400"},
                            {"OARLOCK_TERMINATION_LOG", "/tmp/t"}});
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  JobEnvironment expected;
  expected.rank = 1;
  expected.world_size = 2;
  expected.node_rank = 1;
  expected.master_addr = "job-0-0.job";
  expected.master_port = 29500;
  expected.job = "mnist";
  expected.job_namespace = "ml";
  expected.uid = "u-1";
  expected.attempt = 3;
  expected.config = "/etc/oarlock/trainer.json";
  expected.checkpoint_dir = "/ck/mnist";
  expected.metrics_port = 9400;
  expected.termination_log = "/tmp/t";
  EXPECT_EQ(*environment, expected);
}

TEST(Environment, SingleRankNeedsNoMaster) {
  const auto environment = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->world_size, 1);
}

TEST(Environment, LocalRankIsOptional) {
  Variables variables = two_ranks();
  variables.erase("LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->local_rank, 0);
  EXPECT_EQ(environment->local_world_size, 1);
}

// ---- other launchers ---------------------------------------------------------------------------------------------

Variables open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"}};
}

// The variables of srun for the last of six tasks on three nodes.
Variables slurm() {
  return {{"SLURM_PROCID", "5"},
          {"SLURM_NTASKS", "6"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "2"},
          {"SLURM_NTASKS_PER_NODE", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "3,2,1"},
          {"SLURM_STEP_NODELIST", "gpu[07-08],login"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.7"},
          {"SLURM_JOB_ID", "1234567"},
          {"SLURM_STEP_ID", "2"}};
}

// RANK and LOCAL_RANK may be set from Slurm's variables, or not at all.
TEST(Environment, DetectsOwnDevicesOfSlurmTasks) {
  Variables variables = slurm();
  EXPECT_FALSE(read(variables)->has_own_devices);
  variables["SLURM_GPUS_PER_TASK"] = "1";
  EXPECT_TRUE(read(variables)->has_own_devices);
  variables.erase("SLURM_GPUS_PER_TASK");
  variables["SLURM_TRES_PER_TASK"] = "cpu=8,gres/gpu=1";
  EXPECT_TRUE(read(variables)->has_own_devices);
  for (const auto& [name, value] : Variables{{"RANK", "5"},
                                             {"LOCAL_RANK", "0"},
                                             {"WORLD_SIZE", "6"},
                                             {"LOCAL_WORLD_SIZE", "1"},
                                             {"MASTER_ADDR", "a"},
                                             {"MASTER_PORT", "1"}})
    variables[name] = value;
  EXPECT_TRUE(read(variables)->has_own_devices);
  variables["LOCAL_RANK"] = "1";  // as set by `oarlock launch --nproc 2` within one task
  variables["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_FALSE(read(variables)->has_own_devices);
}

TEST(Environment, ReadsOpenMpiVariables) {
  Variables variables = open_mpi();
  variables["MASTER_ADDR"] = "node0";
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->rank, 3);
  EXPECT_EQ(environment->world_size, 4);
  EXPECT_EQ(environment->local_rank, 1);
  EXPECT_EQ(environment->local_world_size, 2);
  EXPECT_EQ(environment->node_rank, 1);
  EXPECT_EQ(environment->master_addr, "node0");
  EXPECT_EQ(environment->master_port, 29500);
}

TEST(Environment, OpenMpiOnSingleNodeNeedsNoMaster) {
  Variables variables = open_mpi();
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "3";
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->master_addr, "127.0.0.1");
  EXPECT_EQ(environment->node_rank, 0);
}

struct MpiLauncher {
  const char* name;
  Variables variables;  // of the last of four ranks, two on each node
};
const std::vector<MpiLauncher> kMpiLaunchers = {
    {"mpich_and_intel",
     {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "9"}}},
    {"mvapich2",
     {{"MV2_COMM_WORLD_RANK", "3"},
      {"MV2_COMM_WORLD_SIZE", "4"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
      {"PMI_RANK", "3"},
      {"PMI_SIZE", "4"}}},
    {"mvapich3",
     {{"MVP_COMM_WORLD_RANK", "3"},
      {"MVP_COMM_WORLD_SIZE", "4"},
      {"MVP_COMM_WORLD_LOCAL_RANK", "1"},
      {"MVP_COMM_WORLD_LOCAL_SIZE", "2"}}},
    {"pals", {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}}},
    {"jsrun",
     {{"JSM_NAMESPACE_RANK", "3"},
      {"JSM_NAMESPACE_SIZE", "4"},
      {"JSM_NAMESPACE_LOCAL_RANK", "1"},
      {"JSM_NAMESPACE_LOCAL_SIZE", "2"},
      {"PMIX_RANK", "3"}}},
    {"hydra_started_with_srun",
     {{"PMI_RANK", "3"},
      {"PMI_SIZE", "4"},
      {"MPI_LOCALRANKID", "1"},
      {"MPI_LOCALNRANKS", "2"},
      {"SLURM_PROCID", "1"},
      {"SLURM_NTASKS", "2"},
      {"SLURM_STEP_NODELIST", "gpu[07-08]"}}}};

TEST(Environment, ReadsVariablesOfMpiLaunchers) {
  for (const MpiLauncher& launcher : kMpiLaunchers) {
    Variables variables = launcher.variables;
    const auto without_master = read(variables);
    ASSERT_FALSE(without_master) << launcher.name;
    EXPECT_THAT(without_master.error().message, testing::HasSubstr("MASTER_ADDR is not set although the job has 4"));
    variables["MASTER_ADDR"] = "node0";
    const auto environment = read(variables);
    ASSERT_TRUE(environment) << launcher.name << ": " << environment.error().message;
    JobEnvironment expected;
    expected.rank = 3;
    expected.local_rank = 1;
    expected.world_size = 4;
    expected.local_world_size = 2;
    expected.node_rank = 1;
    expected.master_addr = "node0";
    expected.master_port = 29500;
    EXPECT_EQ(*environment, expected) << launcher.name;
  }
}

TEST(Environment, MpiOnSingleNodeNeedsNoMaster) {
  const auto environment =
      read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->master_addr, "127.0.0.1");
  EXPECT_EQ(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})->world_size, 1);
}

// srun --mpi=pmi2 sets the variables of PMI, too, and has no local rank among them.
TEST(Environment, SlurmTaskWithPmiHasSlurmsNodes) {
  Variables variables = slurm();
  variables.merge(Variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}, {"PMIX_RANK", "5"}});
  EXPECT_EQ(*read(variables), *read(slurm()));
}

TEST(Environment, ReadsSlurmVariables) {
  const auto environment = read(slurm());
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->rank, 5);
  EXPECT_EQ(environment->world_size, 6);
  EXPECT_EQ(environment->local_rank, 0);
  EXPECT_EQ(environment->local_world_size, 1);
  EXPECT_EQ(environment->node_rank, 2);
  EXPECT_EQ(environment->master_addr, "gpu07");
  EXPECT_EQ(environment->master_fallback, "10.0.0.7") << "where node names do not resolve";
  EXPECT_EQ(environment->master_port, 15000 + (34567 + 2 * 101) % 15000);
}

TEST(Environment, MasterAddressOverridesSlurm) {
  Variables variables = slurm();
  variables["MASTER_ADDR"] = "elsewhere";
  variables["MASTER_PORT"] = "4000";
  const auto environment = read(variables);
  ASSERT_TRUE(environment);
  EXPECT_EQ(environment->master_addr, "elsewhere");
  EXPECT_EQ(environment->master_fallback, "");
  EXPECT_EQ(environment->master_port, 4000);
}

TEST(Environment, ReadsSlurmVariablesOnSingleNode) {
  Variables variables = slurm();
  variables["SLURM_NODEID"] = "0";
  variables["SLURM_LOCALID"] = "5";
  variables["SLURM_STEP_TASKS_PER_NODE"] = "6";
  variables["SLURM_STEP_NODELIST"] = "gpu07";
  const auto environment = read(variables);
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->local_world_size, 6);
  EXPECT_EQ(environment->master_addr, "127.0.0.1");
}

TEST(Environment, PyTorchVariablesTakePrecedence) {  // `oarlock launch` under srun, mpirun inside a Slurm job
  Variables variables = two_ranks();
  variables.merge(slurm());
  variables.merge(open_mpi());
  ASSERT_TRUE(read(variables));
  EXPECT_EQ(*read(variables), *read(two_ranks()));
  Variables both = open_mpi();
  both["MASTER_ADDR"] = "node0";
  both.merge(slurm());
  EXPECT_EQ(read(both)->world_size, 4);
}

TEST(Environment, RanksOfTorchrunHaveNoPort) {
  Variables variables = two_ranks();
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  ASSERT_FALSE(read(variables));
  EXPECT_THAT(read(variables).error().message, testing::HasSubstr("torchrun uses MASTER_PORT itself"));
}

TEST(Environment, SlurmBatchScriptIsSingleProcess) {
  const auto environment = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_LOCALID", "0"}});
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->world_size, 1);
}

TEST(Environment, SlurmShellIsSingleProcess) {
  const auto environment = read({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
  ASSERT_TRUE(environment) << environment.error().message;
  EXPECT_EQ(environment->world_size, 1);
}

TEST(Slurm, ParsesLists) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("node[003-010,12]"), "node003");
  EXPECT_EQ(first_slurm_host("rack[1-2]n[5,7].local,other"), "rack1n5.local");
  EXPECT_EQ(first_slurm_host(""), std::nullopt);
  EXPECT_EQ(first_slurm_host("node[1-2"), std::nullopt);
  EXPECT_EQ(slurm_tasks_by_node("4"), (std::vector<int>{4}));
  EXPECT_EQ(slurm_tasks_by_node("4(x2),3"), (std::vector<int>{4, 4, 3}));
  for (const char* wrong : {"", "x", "4(x", "4(2)", "4,", "4(x-1)", "4;3"})
    EXPECT_EQ(slurm_tasks_by_node(wrong), std::nullopt) << wrong;
}

struct WrongCase {
  const char* name;
  Variables changes;               // an empty value removes the variable
  std::vector<std::string> words;  // in the message: the variable, its value, the remedy
};

class WrongEnvironment : public testing::TestWithParam<WrongCase> {};

TEST_P(WrongEnvironment, MessageNamesVariableValueAndRemedy) {
  Variables variables = two_ranks();
  for (const auto& [name, value] : GetParam().changes) variables[name] = value;
  const auto environment = read(variables);
  ASSERT_FALSE(environment);
  EXPECT_EQ(environment.error().code, ExitCode::kConfig);
  EXPECT_THAT(environment.error().message, testing::Not(testing::HasSubstr("\n")));
  for (const std::string& word : GetParam().words) EXPECT_THAT(environment.error().message, testing::HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WrongEnvironment,
    testing::Values(
        WrongCase{"no_master_addr", {{"MASTER_ADDR", ""}}, {"MASTER_ADDR", "not set", "2 ranks", "rank 0"}},
        WrongCase{"no_master_port", {{"MASTER_PORT", ""}}, {"MASTER_PORT", "not set", "29500"}},
        WrongCase{"no_rank", {{"RANK", ""}}, {"RANK", "not set", "WORLD_SIZE=2", "0 .. 1"}},
        WrongCase{"no_world_size", {{"WORLD_SIZE", ""}}, {"WORLD_SIZE", "not set", "RANK=1"}},
        WrongCase{"rank_too_large", {{"RANK", "2"}}, {"RANK=2", "WORLD_SIZE=2", "the last is 1"}},
        WrongCase{"rank_negative", {{"RANK", "-1"}}, {"RANK='-1'", "at least 0"}},
        WrongCase{"rank_text", {{"RANK", "one"}}, {"RANK='one'", "not an integer"}},
        WrongCase{"rank_with_tail", {{"RANK", "1 "}}, {"RANK='1 '", "not an integer"}},
        WrongCase{"rank_huge", {{"RANK", "99999999999"}}, {"RANK='99999999999'"}},
        WrongCase{"world_size_zero", {{"WORLD_SIZE", "0"}}, {"WORLD_SIZE='0'", "at least 1"}},
        WrongCase{
            "local_rank_too_large", {{"LOCAL_RANK", "1"}}, {"LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1", "the last is 0"}},
        WrongCase{
            "local_rank_alone", {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", ""}}, {"LOCAL_WORLD_SIZE", "LOCAL_RANK=1"}},
        WrongCase{"local_world_size_alone",
                  {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", "2"}},
                  {"LOCAL_RANK", "LOCAL_WORLD_SIZE=2"}},
        WrongCase{"node_larger_than_job", {{"LOCAL_WORLD_SIZE", "4"}}, {"LOCAL_WORLD_SIZE=4", "WORLD_SIZE=2"}},
        WrongCase{"port_zero", {{"MASTER_PORT", "0"}}, {"MASTER_PORT='0'", "from 1 to 65535"}},
        WrongCase{"port_too_large", {{"MASTER_PORT", "70000"}}, {"MASTER_PORT='70000'", "from 1 to 65535"}},
        WrongCase{"attempt_text", {{"OARLOCK_ATTEMPT", "x"}}, {"OARLOCK_ATTEMPT='x'"}},
        WrongCase{"metrics_port_too_large", {{"OARLOCK_METRICS_PORT", "65536"}}, {"OARLOCK_METRICS_PORT='65536'"}}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

TEST(Environment, RejectsRanksWithoutNumberOrNode) {
  const auto pmix = read({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-1"}});
  ASSERT_FALSE(pmix);
  EXPECT_EQ(pmix.error().code, ExitCode::kConfig);
  EXPECT_THAT(pmix.error().message, testing::HasSubstr("PMIX_RANK=1, but no variable has the number of ranks"));
  const auto flux = read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}});
  ASSERT_FALSE(flux);
  EXPECT_THAT(flux.error().message, testing::HasSubstr("PMI_SIZE=2, so that the ranks of one node are not known"));
  const auto half = read({{"PMI_RANK", "1"}, {"MPI_LOCALRANKID", "1"}});
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, testing::HasSubstr("PMI_SIZE is not set although PMI_RANK=1"));
}

class WrongLauncher : public testing::TestWithParam<WrongCase> {};

TEST_P(WrongLauncher, MessageNamesVariableValueAndRemedy) {
  Variables variables = std::string(GetParam().name).starts_with("slurm") ? slurm() : open_mpi();
  for (const auto& [name, value] : GetParam().changes) variables[name] = value;
  const auto environment = read(variables);
  ASSERT_FALSE(environment);
  EXPECT_EQ(environment.error().code, ExitCode::kConfig);
  EXPECT_THAT(environment.error().message, testing::Not(testing::HasSubstr("\n")));
  for (const std::string& word : GetParam().words) EXPECT_THAT(environment.error().message, testing::HasSubstr(word));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, WrongLauncher,
    testing::Values(
        WrongCase{"ompi_no_master", {}, {"MASTER_ADDR", "not set", "4 ranks"}},
        WrongCase{"ompi_no_size", {{"OMPI_COMM_WORLD_SIZE", ""}}, {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK=3"}},
        WrongCase{"ompi_rank", {{"OMPI_COMM_WORLD_RANK", "4"}}, {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4"}},
        WrongCase{"ompi_local",
                  {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}},
                  {"OMPI_COMM_WORLD_LOCAL_RANK=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2"}},
        WrongCase{"slurm_no_procid", {{"SLURM_PROCID", ""}}, {"SLURM_PROCID is not set", "SLURM_NTASKS=6"}},
        WrongCase{"slurm_no_ntasks", {{"SLURM_NTASKS", ""}}, {"SLURM_NTASKS is not set", "SLURM_PROCID=5"}},
        WrongCase{"slurm_text", {{"SLURM_PROCID", "first"}}, {"SLURM_PROCID='first'", "not an integer"}},
        WrongCase{"slurm_rank", {{"SLURM_PROCID", "6"}}, {"SLURM_PROCID=6", "SLURM_NTASKS=6"}},
        WrongCase{"slurm_local", {{"SLURM_LOCALID", "1"}}, {"SLURM_LOCALID=1", "SLURM_STEP_TASKS_PER_NODE=1"}},
        WrongCase{"slurm_node", {{"SLURM_NODEID", "3"}}, {"SLURM_NODEID=3", "3 nodes"}},
        WrongCase{"slurm_tasks", {{"SLURM_NTASKS", "8"}}, {"'3,2,1' are 6 tasks", "SLURM_NTASKS=8"}},
        WrongCase{"slurm_list", {{"SLURM_STEP_TASKS_PER_NODE", "3;2;1"}}, {"SLURM_STEP_TASKS_PER_NODE='3;2;1'"}},
        WrongCase{"slurm_hosts", {{"SLURM_STEP_NODELIST", "gpu[1"}}, {"SLURM_STEP_NODELIST='gpu[1'"}},
        WrongCase{"slurm_batch_script",
                  {{"SLURM_STEP_NODELIST", ""}, {"SLURM_STEP_TASKS_PER_NODE", ""}},
                  {"SLURM_NTASKS=6", "srun"}}),
    [](const auto& test_case) { return std::string(test_case.param.name); });

}  // namespace
}  // namespace oarlock
