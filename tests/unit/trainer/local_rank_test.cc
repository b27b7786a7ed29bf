// Selection of the device by the launcher's variables.
#include <gtest/gtest.h>

#include <map>

#include "trainer/engine/rank_process.h"

namespace oarlock {
namespace {

// Returns the device of local rank 3 of four tasks on one node of Slurm.
std::optional<int> slurm_device(int visible, std::map<std::string, std::string, std::less<>> variables) {
  variables.insert({{"SLURM_PROCID", "3"},
                    {"SLURM_NTASKS", "4"},
                    {"SLURM_LOCALID", "3"},
                    {"SLURM_NODEID", "0"},
                    {"SLURM_STEP_TASKS_PER_NODE", "4"},
                    {"SLURM_STEP_NODELIST", "gpu07"},
                    {"SLURM_JOB_ID", "1"},
                    {"SLURM_STEP_ID", "0"}});
  const auto environment = read_job_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
  EXPECT_TRUE(environment) << environment.error().message;
  if (!environment) return std::nullopt;
  const auto choice = choose_device({}, local_rank_of(*environment), {.in_build = true, .visible = visible});
  return choice ? choice->cuda : std::nullopt;
}

TEST(LocalRankOf, SelectsDeviceOfSlurmTask) {
  EXPECT_EQ(slurm_device(4, {}), 3);
  EXPECT_EQ(slurm_device(1, {}), std::nullopt);
  EXPECT_EQ(slurm_device(1, {{"SLURM_GPUS_PER_TASK", "1"}}), 0);
}

}  // namespace
}  // namespace oarlock
