// ProcessGroup::leave() fails the collectives in progress, whatever Gloo does at that moment.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ddp/library_errors.h"
#include "ddp/process_group.h"
#include "tests/support/thread_ranks.h"

namespace oarlock {
namespace {

using std::chrono::seconds;
using test::connect_ranks;
using Clock = std::chrono::steady_clock;

c10::intrusive_ptr<c10d::Work> begin_broadcast(const ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors = {tensor};
  return group.c10d()->broadcast(tensors, {});
}

Error error_of(const c10::intrusive_ptr<c10d::Work>& work) {
  try {
    work->wait();
    return {ExitCode::kOk, "no error"};
  } catch (...) {
    return to_error(std::current_exception());
  }
}

// The sender is lost in the middle of a message: Gloo does not fail the operation that receives it.
TEST(LeaveGroup, FailsACollectiveInTheMiddleOfAMessage) {
  std::vector<ProcessGroup> ranks = connect_ranks(2);
  constexpr int64_t kElements = int64_t{64} << 20;  // 256 MiB, which takes longer than the check below
  const at::Tensor sent = at::ones({kElements}, at::kFloat);
  const at::Tensor received = at::zeros({kElements}, at::kFloat);
  const auto element = [&received](int64_t i) {
    return std::atomic_ref(received.data_ptr<float>()[i]).load(std::memory_order_relaxed);
  };
  const auto receiving = begin_broadcast(ranks[1], received);
  const auto sending = begin_broadcast(ranks[0], sent);
  while (element(0) == 0) std::this_thread::yield();
  ranks[0].leave();
  ASSERT_EQ(element(kElements - 1), 0) << "the message was complete";
  const auto begin = Clock::now();
  ranks[1].leave();
  for (const auto& work : {receiving, sending}) EXPECT_EQ(error_of(work).code, ExitCode::kPeerLost);
  EXPECT_LT(Clock::now() - begin, seconds(20)) << "waited for the time-out";
  ranks.clear();
  EXPECT_LT(Clock::now() - begin, seconds(20)) << "the destructor waited for the time-out";
}

// A bucket of gradients is awaited by its future.
TEST(LeaveGroup, FailsFuturesOfCollectivesThatWaitForAnotherRank) {
  std::vector<ProcessGroup> ranks = connect_ranks(2);
  std::vector<at::Tensor> tensors = {at::ones({4})};
  const auto future = ranks[1].c10d()->allreduce(tensors, {})->getFuture();
  EXPECT_FALSE(future->completed());
  ranks[1].leave();
  future->wait();
  ASSERT_TRUE(future->hasError());
  EXPECT_EQ(to_error(future->exception_ptr()).code, ExitCode::kPeerLost);
}

TEST(LeaveGroup, FailsCollectivesThatBeginLater) {
  std::vector<ProcessGroup> ranks = connect_ranks(2);
  ranks[0].leave();
  try {
    ranks[0].barrier();
    FAIL() << "no exception";
  } catch (...) {
    EXPECT_EQ(to_error(std::current_exception()).code, ExitCode::kPeerLost);
  }
}

TEST(LeaveGroup, CollectivesHaveTheirResults) {
  std::vector<ProcessGroup> ranks = connect_ranks(2);
  const auto run = [](const ProcessGroup& group) {
    std::vector<double> sum = {1.0 + group.rank()};
    group.all_reduce_sum(sum);
    group.barrier();
    const std::vector<std::string> texts = group.all_gather(std::string(static_cast<size_t>(group.rank()) + 1, 'x'));
    const std::vector<at::Tensor> gathered = group.gather_to_rank_0(at::ones({1}) * group.rank());
    at::Tensor own = at::zeros({1});
    group.scatter_from_rank_0(own, gathered);
    return std::tuple(sum[0], texts, group.broadcast(texts.back(), 1), own.item<double>());
  };
  auto other = std::async(std::launch::async, [&] { return run(ranks[1]); });
  EXPECT_EQ(run(ranks[0]), std::tuple(3.0, std::vector<std::string>({"x", "xx"}), "xx", 0.0));
  EXPECT_EQ(other.get(), std::tuple(3.0, std::vector<std::string>({"x", "xx"}), "xx", 1.0));
  EXPECT_EQ(ranks[0].backend_name(), "gloo");
}

}  // namespace
}  // namespace oarlock
