#include "cli/launch/topology.h"

#include <gmock/gmock.h>

#include <fstream>

#include "common/cpu.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Devices : public testing::Test {
 protected:
  void make(const std::vector<std::string>& names) {
    for (const std::string& name : names) std::ofstream(directory_.path() / name).flush();
  }
  int gpus(const Environment& environment = {}) { return count_processors(environment, directory_.path()).gpus; }

  test::TemporaryDirectory directory_;
};

TEST_F(Devices, CountsGpuDeviceFiles) {
  EXPECT_EQ(gpus(), 0);
  make({"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "null"});
  EXPECT_EQ(gpus(), 0);
  make({"nvidia0", "nvidia1", "nvidia10"});
  EXPECT_EQ(gpus(), 3);
  EXPECT_EQ(count_processors({}, directory_.path() / "none").gpus, 0);
}

TEST_F(Devices, CountsVisibleDevices) {
  make({"nvidia0", "nvidia1", "nvidia2", "nvidia3"});
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "1,3"}}), 2);
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "0,-1,2"}}), 1) << "CUDA stops at the first that is none";
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", ""}}), 0);
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "NoDevFiles"}}), 0) << "Slurm, for a task without GPUs";
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "0,abc,1"}}), 1);
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "0,4,1"}}), 1) << "there are four";
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "0,,1"}}), 1);
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "1,2,1"}}), 0) << "a repeated device hides all";
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", " 1, 2"}}), 2);
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "GPU-8932f937,1"}}), 1);
  EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "GPU-8932f937,GPU-5a1"}}), 2);
}

TEST_F(Devices, IgnoresVisibleDevicesWithoutGpu) { EXPECT_EQ(gpus({{"CUDA_VISIBLE_DEVICES", "0,1"}}), 0); }

TEST_F(Devices, CountsUsableCpus) { EXPECT_EQ(count_processors({}, directory_.path()).cpus, usable_cpus()); }

TEST(RankCount, ParsesKeywords) {
  EXPECT_EQ(rank_count("3", {.gpus = 8, .cpus = 16}), 3);
  EXPECT_EQ(rank_count("gpu", {.gpus = 8, .cpus = 16}), 8);
  EXPECT_EQ(rank_count("cpu", {.gpus = 8, .cpus = 16}), 16);
  EXPECT_EQ(rank_count("auto", {.gpus = 8, .cpus = 16}), 8);
  EXPECT_EQ(rank_count("auto", {.gpus = 0, .cpus = 16}), 16);
}

TEST(RankCount, RejectsInvalidText) {
  const auto none = rank_count("gpu", {.gpus = 0, .cpus = 16});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(none.error().message, AllOf(HasSubstr("no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("auto")));
  for (const char* text : {"0", "-1", "two", "3x", "99999999999", "GPU"}) {
    const auto bad = rank_count(text, {.gpus = 8, .cpus = 16});
    ASSERT_FALSE(bad) << text;
    EXPECT_EQ(bad.error().code, ExitCode::kUsage);
    EXPECT_THAT(bad.error().message, HasSubstr(text));
  }
}

}  // namespace
}  // namespace oarlock::launch
