#include "common/cpu.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "common/cgroup.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

TEST(CpuCount, ParsesContainerLimit) {
  EXPECT_EQ(cpus_from_cpu_max("max 100000\n"), 0);
  EXPECT_EQ(cpus_from_cpu_max("200000 100000\n"), 2);
  EXPECT_EQ(cpus_from_cpu_max("150000 100000\n"), 2);
  EXPECT_EQ(cpus_from_cpu_max("50000 100000\n"), 1);
  EXPECT_EQ(cpus_from_cpu_max("-1 100000\n"), 0);  // version 1's "no limit"
  EXPECT_EQ(cpus_from_cpu_max(""), 0);
  EXPECT_GE(usable_cpus(), 1);
}

// Files below a root directory, and the limit of this process.
struct CgroupCase {
  const char* name;
  std::map<std::string, std::string> files;
  int cpus;
};

TEST(CpuCount, FindsTheSmallestLimitOfNestedCgroups) {
  const std::string kV2 = "0::/user.slice/job_7/step_0\n";
  const std::string kV1 = "5:memory:/m\n4:cpu,cpuacct:/slurm/uid:1000/job_7\n";
  for (const CgroupCase& row : std::vector<CgroupCase>{
           {"none", {{"proc/self/cgroup", kV2}}, 0},
           {"container", {{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "200000 100000\n"}}, 2},
           {"nested",
            {{"proc/self/cgroup", kV2}, {"sys/fs/cgroup/user.slice/job_7/step_0/cpu.max", "300000 100000\n"}},
            3},
           {"parent",
            {{"proc/self/cgroup", kV2},
             {"sys/fs/cgroup/user.slice/job_7/cpu.max", "150000 100000\n"},
             {"sys/fs/cgroup/user.slice/job_7/step_0/cpu.max", "max 100000\n"},
             {"sys/fs/cgroup/user.slice/cpu.max", "800000 100000\n"}},
            2},
           {"version_1",
            {{"proc/self/cgroup", kV1},
             {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
             {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
             {"sys/fs/cgroup/cpu/slurm/uid:1000/job_7/cpu.cfs_quota_us", "400000\n"},
             {"sys/fs/cgroup/cpu/slurm/uid:1000/job_7/cpu.cfs_period_us", "100000\n"}},
            4}}) {
    const test::TemporaryDirectory root;
    for (const auto& [name, content] : row.files) {
      std::filesystem::create_directories((root.path() / name).parent_path());
      std::ofstream(root.path() / name) << content;
    }
    EXPECT_EQ(cgroup_cpus(root.path()), row.cpus) << row.name;
  }
}

}  // namespace
}  // namespace oarlock
