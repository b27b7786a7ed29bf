// Runs on a GPU (scripts/bench gpu run): the NCCL group, as far as one GPU goes.
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>

#include "trainer/device/device.h"
#include "trainer/distributed/collective_watch.h"
#include "trainer/distributed/failure.h"
#include "trainer/distributed/process_group.h"
#include "trainer/process/termination.h"

namespace oarlock {
namespace {

const at::Device kGpu(at::kCUDA, 0);

Result<RankGroup> group_of_one(std::chrono::milliseconds timeout) {
  GroupOptions options;
  options.device = kGpu;
  options.timeout = timeout;
  return make_nccl_group(c10::make_intrusive<c10d::HashStore>(), options);
}

TEST(Nccl, AGroupOfOneGpu) {
  const Result<RankGroup> group = group_of_one(std::chrono::seconds(30));
  ASSERT_TRUE(group) << group.error().message;
  std::array<double, 2> values = {1.5, -2};
  group->sum(values);
  EXPECT_EQ(values[0], 1.5);
  EXPECT_EQ(group->gather(7), std::vector<int64_t>{7});
  EXPECT_EQ(group->gather(std::string("a text")), std::vector<std::string>{"a text"});
  EXPECT_EQ(group->broadcast(std::string("hello")), "hello");
  group->barrier();
  EXPECT_GT(group->sequence(), 0);
  EXPECT_EQ(nccl_state(*group), GroupState::kWorks);
}

TEST(Nccl, AnotherGroupAfterTheFirstHasEnded) {
  for (int i = 0; i < 2; ++i) {
    const Result<RankGroup> group = group_of_one(std::chrono::seconds(30));
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ(group->gather(i), std::vector<int64_t>{i});
  }
}

// The device is busy for longer than a collective may take, which is what a rank that does not come looks like.
[[noreturn]] void be_late() {
  silence_libtorch_log();
  exit_on_terminate({}, [](const std::exception_ptr& exception) {
    const Error error = to_error(exception);
    return LastWord{error.code, {0, 0, -1, reason_of(error.code), error.message}};
  });
  Result<RankGroup> group = group_of_one(std::chrono::seconds(1));
  if (!group) std::_Exit(1);
  const CollectiveWatch watch([&] { return nccl_state(*group); }, std::chrono::seconds(1));
  const at::Tensor a = at::randn({8192, 8192}, at::TensorOptions(kGpu));
  std::vector<at::Tensor> value = {at::ones({1}, a.options())};
  for (int i = 0; i < 900; ++i) at::mm(a, a);  // an H100 takes some 20 s
  group->c10d()->allreduce(value);
  value[0].item();  // waits for the device
  std::_Exit(2);
}

// In a process of its own, started afresh: CUDA does not survive a fork. It ends long before the minute that NCCL's
// watchdog leaves for its dump.
TEST(NcclDeathTest, ALateCollectiveEndsTheProcessWith76) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EXIT(be_late(), testing::ExitedWithCode(to_int(ExitCode::kPeerLost)), "a collective timed out");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
}

}  // namespace
}  // namespace oarlock
