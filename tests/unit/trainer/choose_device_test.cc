// Selection of the device and of the backend.
#include "trainer/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "tests/support/temporary_directory.h"
#include "trainer/device/backend.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr CudaDevices kNotInBuild = {.in_build = false, .visible = 0};
constexpr CudaDevices kNoGpu = {.in_build = true, .visible = 0};
constexpr CudaDevices kFour = {.in_build = true, .visible = 4};

TEST(ChooseDevice, AssignsOneDevicePerLocalRank) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto choice = choose_device({}, {rank, 4}, kFour);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->cuda, rank);
    EXPECT_EQ(choice->warning, "");
  }
}

TEST(ChooseDevice, IndexesGpuIdsByLocalRank) {
  const DeviceRequest request = {.kind = DeviceKind::kAuto, .gpu_ids = {3, 1}};
  EXPECT_EQ(choose_device(request, {0, 2}, kFour)->cuda, 3);
  EXPECT_EQ(choose_device(request, {1, 2}, kFour)->cuda, 1);
  EXPECT_EQ(choose_device(request, {0, 1}, kFour)->cuda, 3) << "more than the ranks need";
}

TEST(ChooseDevice, RejectsInvalidGpuIds) {
  const auto few = choose_device({.gpu_ids = {2}}, {0, 2}, kFour);
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().code, ExitCode::kConfig);
  EXPECT_THAT(few.error().message, AllOf(HasSubstr("gpu_ids: [2]"), HasSubstr("2 ranks")));
  const auto beyond = choose_device({.gpu_ids = {2, 7}}, {1, 2}, kFour);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(beyond.error().message,
              AllOf(HasSubstr("device 7"), HasSubstr("4 are visible"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(ChooseDevice, AutoSelectsCpuWithoutGpu) {
  EXPECT_EQ(choose_device({}, {0, 1}, kNotInBuild)->cuda, std::nullopt);
  EXPECT_EQ(choose_device({}, {0, 1}, kNotInBuild)->warning, "");
  EXPECT_EQ(choose_device({}, {0, 1}, kNoGpu)->cuda, std::nullopt);
  EXPECT_THAT(choose_device({}, {0, 1}, kNoGpu)->warning, HasSubstr("on the CPU")) << "a warning is logged";
  EXPECT_EQ(choose_device({.kind = DeviceKind::kCpu}, {0, 1}, kFour)->cuda, std::nullopt);
}

TEST(ChooseDevice, MissingDeviceIsErrorWithoutFallback) {
  for (const CudaDevices& devices : {kNotInBuild, kNoGpu}) {
    for (const DeviceRequest& request :
         {DeviceRequest{.kind = DeviceKind::kCuda}, DeviceRequest{.kind = DeviceKind::kAuto, .gpu_ids = {0}}}) {
      const auto choice = choose_device(request, {0, 1}, devices);
      ASSERT_FALSE(choice);
      EXPECT_EQ(choice.error().code, ExitCode::kUnavailable);
      EXPECT_THAT(choice.error().message, HasSubstr("device: cuda"));
      DeviceRequest with_fallback = request;
      with_fallback.fallback = Fallback::kCpu;
      const auto fallback = choose_device(with_fallback, {0, 1}, devices);
      ASSERT_TRUE(fallback);
      EXPECT_EQ(fallback->cuda, std::nullopt);
      EXPECT_THAT(fallback->warning, AllOf(HasSubstr("device: cuda"), HasSubstr("on the CPU")));
    }
  }
}

// CUDA shows three devices of a machine with four device files.
TEST(ChooseDevice, LostDeviceIsDeviceFailure) {
  constexpr CudaDevices kLost = {.in_build = true, .visible = 3, .files = 4};
  EXPECT_EQ(choose_device({}, {2, 4}, kLost)->cuda, 2);
  for (const auto& [request, local] : {std::pair<DeviceRequest, LocalRank>{{}, {3, 4}},
                                       {{.kind = DeviceKind::kCuda}, {3, 4}},
                                       {{.gpu_ids = {3}}, {0, 1}}}) {
    const auto choice = choose_device(request, local, kLost);
    ASSERT_FALSE(choice);
    EXPECT_EQ(choice.error().code, ExitCode::kDeviceFailed);
    EXPECT_THAT(choice.error().message, AllOf(HasSubstr("CUDA device 3, but CUDA shows 3 of the 4 GPUs"),
                                              HasSubstr("a GPU or its driver failed")));
    CudaDevices filtered = kLost;
    filtered.is_filtered = true;
    EXPECT_EQ(choose_device(request, local, filtered).error().code, ExitCode::kUnavailable);
    DeviceRequest with_fallback = request;
    with_fallback.fallback = Fallback::kCpu;
    EXPECT_EQ(choose_device(with_fallback, local, kLost)->cuda, std::nullopt);
  }
  const auto more_ranks = choose_device({}, {4, 5}, kLost);
  ASSERT_FALSE(more_ranks);
  EXPECT_EQ(more_ranks.error().code, ExitCode::kUnavailable) << "the machine does not have a fifth GPU";
}

TEST(ChooseDevice, LostSingleDeviceIsDeviceFailure) {
  CudaDevices devices = {.in_build = true, .visible = 0, .files = 1};
  const DeviceRequest cuda = {.kind = DeviceKind::kCuda};
  EXPECT_EQ(choose_device(cuda, {0, 1}, devices).error().code, ExitCode::kDeviceFailed);
  devices.has_driver = false;
  EXPECT_EQ(choose_device(cuda, {0, 1}, devices).error().code, ExitCode::kUnavailable) << "the driver is too old";
  EXPECT_EQ(choose_device(cuda, {0, 1}, {.in_build = false, .files = 1}).error().code, ExitCode::kUnavailable);
}

TEST(ChooseDevice, AutoReportsLostDevice) {
  const auto lost = choose_device({}, {0, 1}, {.in_build = true, .visible = 0, .files = 1});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->cuda, std::nullopt);
  EXPECT_TRUE(lost->has_lost_gpu);
  EXPECT_THAT(lost->warning, AllOf(HasSubstr("a GPU or its driver failed"), HasSubstr("on the CPU")));
  EXPECT_FALSE(choose_device({}, {0, 1}, kNoGpu)->has_lost_gpu);
}

TEST(CountDeviceFiles, CountsGpusOnly) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(count_device_files(directory.path() / "missing"), 0);
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidia", "nvidiactl", "nvidia-uvm", "nvidia0a", "tty0"})
    std::ofstream(directory.path() / name) << "";
  EXPECT_EQ(count_device_files(directory.path()), 3);
}

TEST(WithLocation, NamesHostAndDevice) {
  const Error failed = {ExitCode::kDeviceFailed, "uncorrectable ECC error"};
  EXPECT_EQ(with_location(failed, "gpu07", c10::Device(c10::kCUDA, 3)).message,
            "host gpu07, cuda:3: uncorrectable ECC error");
  EXPECT_EQ(with_location(failed, "gpu07", c10::kCPU).message, "host gpu07: uncorrectable ECC error");
  const Error other = {ExitCode::kUnavailable, "no CUDA device"};
  EXPECT_EQ(with_location(other, "gpu07", c10::Device(c10::kCUDA, 3)), other);
}

TEST(ChooseDevice, RejectsMoreRanksThanDevices) {
  const auto choice = choose_device({}, {4, 8}, kFour);
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(choice.error().message, AllOf(HasSubstr("local rank 4 of 8"), HasSubstr("at most 4 ranks")));
}

// srun --gpus-per-task=1 --ntasks-per-node=4.
TEST(ChooseDevice, SelectsFirstOfOwnDevices) {
  constexpr CudaDevices kOne = {.in_build = true, .visible = 1};
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(choose_device({}, {.rank = rank, .world_size = 4, .has_own_devices = true}, kOne)->cuda, 0);
  // --gpu-bind=none shows all devices to all.
  EXPECT_EQ(choose_device({}, {.rank = 3, .world_size = 4, .has_own_devices = true}, kFour)->cuda, 3);
  EXPECT_FALSE(choose_device({}, {.rank = 3, .world_size = 4}, kOne)) << "one device is shared by all";
}

TEST(ChooseBackend, SelectsNcclForCudaAndGlooOtherwise) {
  EXPECT_TRUE(choose_backend({}, true, true)->nccl);
  EXPECT_FALSE(choose_backend({}, false, true)->nccl);
  EXPECT_FALSE(choose_backend({}, false, false)->nccl);
  EXPECT_FALSE(choose_backend({.backend = BackendKind::kGloo}, true, true)->nccl);
  EXPECT_TRUE(choose_backend({.backend = BackendKind::kNccl}, true, true)->nccl);
}

TEST(ChooseBackend, UnavailableNcclIsErrorWithoutFallback) {
  const auto on_cpu = choose_backend({.backend = BackendKind::kNccl}, false, true);
  ASSERT_FALSE(on_cpu);
  EXPECT_EQ(on_cpu.error().code, ExitCode::kConfig);
  EXPECT_THAT(on_cpu.error().message, AllOf(HasSubstr("distributed.backend: nccl"), HasSubstr("device: cuda")));
  const auto not_built = choose_backend({.backend = BackendKind::kNccl}, false, false);
  ASSERT_FALSE(not_built);
  EXPECT_EQ(not_built.error().code, ExitCode::kUnavailable);
  EXPECT_THAT(not_built.error().message, HasSubstr("not in this build"));
  const auto fallback = choose_backend({.backend = BackendKind::kNccl, .fallback = Fallback::kCpu}, false, false);
  ASSERT_TRUE(fallback);
  EXPECT_FALSE(fallback->nccl);
  EXPECT_THAT(fallback->warning, HasSubstr("gloo"));
}

}  // namespace
}  // namespace oarlock
