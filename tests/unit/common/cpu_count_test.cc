#include "common/cpu.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace oarlock
