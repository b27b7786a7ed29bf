// Runs on a GPU (scripts/bench gpu run): an NCCL group of one rank.
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>

#include "ddp/library_errors.h"
#include "ddp/process_group.h"
#include "ddp/watchdog.h"
#include "trainer/device/device.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);

Result<ProcessGroup> group_of_one(std::chrono::milliseconds timeout) {
  ProcessGroupOptions options;
  options.device = kGpu;
  options.timeout = timeout;
  return make_nccl_group(c10::make_intrusive<c10d::HashStore>(), options);
}

TEST(Nccl, RunsCollectivesOnOneGpu) {
  const Result<ProcessGroup> group = group_of_one(std::chrono::seconds(30));
  ASSERT_TRUE(group) << group.error().message;
  std::array<double, 2> values = {1.5, -2};
  group->all_reduce_sum(values);
  EXPECT_EQ(values[0], 1.5);
  EXPECT_EQ(group->all_gather(7), std::vector<int64_t>{7});
  EXPECT_EQ(group->all_gather(std::string("a text")), std::vector<std::string>{"a text"});
  EXPECT_EQ(group->broadcast(std::string("hello")), "hello");
  group->barrier();
  EXPECT_GT(group->sequence_number(), 0);
  EXPECT_EQ(nccl_group_state(*group), GroupState::kHealthy);
}

TEST(Nccl, CreatesSecondGroupAfterFirst) {
  for (int i = 0; i < 2; ++i) {
    const Result<ProcessGroup> group = group_of_one(std::chrono::seconds(30));
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ(group->all_gather(i), std::vector<int64_t>{i});
  }
}

// Keeps the device busy for longer than the timeout of a collective, as if another rank did not arrive.
[[noreturn]] void exceed_collective_timeout() {
  silence_libtorch_log();
  disable_nccl_watchdog_exit();
  install_terminate_handler({}, [](const std::exception_ptr& exception) {
    const Error error = to_error(exception);
    return ProcessExit{error.code, {0, 0, -1, exit_reason(error.code), error.message}};
  });
  Result<ProcessGroup> group = group_of_one(std::chrono::seconds(1));
  if (!group) std::_Exit(1);
  const Watchdog watchdog(collective_check([&] { return nccl_group_state(*group); }, std::chrono::seconds(1)));
  const at::Tensor a = at::randn({8192, 8192}, at::TensorOptions(kGpu));
  std::vector<at::Tensor> value = {at::ones({1}, a.options())};
  for (int i = 0; i < 900; ++i) at::mm(a, a);  // an H100 takes some 20 s
  group->c10d()->allreduce(value);
  value[0].item();  // waits for the device
  std::_Exit(2);
}

// Runs in a new process, since CUDA does not survive a fork.
TEST(NcclDeathTest, TimedOutCollectiveExitsWithCode76) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EXIT(exceed_collective_timeout(), testing::ExitedWithCode(to_int(ExitCode::kPeerLost)),
              "a collective timed out");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

}  // namespace
}  // namespace oarlock
