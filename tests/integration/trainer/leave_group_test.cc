// ProcessGroup::leave() fails the collectives in progress, whatever Gloo does at that moment.
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "trainer/distributed/library_errors.h"
#include "trainer/distributed/process_group.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// A test that needs it has failed.
constexpr milliseconds kTimeout = seconds(60);

// A group of two ranks in this process.
std::vector<ProcessGroup> connect() {
  std::signal(SIGPIPE, SIG_IGN);  // as in oarlock-trainer
  // LibTorch's flight recorder has a map without a lock, which the ranks on threads of one process share.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::future<ProcessGroup>> connecting;
  for (int rank = 0; rank < 2; ++rank) {
    connecting.push_back(std::async(std::launch::async, [store, rank] {
      return make_gloo_group(store, {.rank = rank, .world_size = 2, .timeout = kTimeout, .address = "127.0.0.1"});
    }));
  }
  std::vector<ProcessGroup> out;
  for (auto& one : connecting) out.push_back(one.get());
  return out;
}

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
  std::vector<ProcessGroup> ranks = connect();
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
  std::vector<ProcessGroup> ranks = connect();
  std::vector<at::Tensor> tensors = {at::ones({4})};
  const auto future = ranks[1].c10d()->allreduce(tensors, {})->getFuture();
  EXPECT_FALSE(future->completed());
  ranks[1].leave();
  future->wait();
  ASSERT_TRUE(future->hasError());
  EXPECT_EQ(to_error(future->exception_ptr()).code, ExitCode::kPeerLost);
}

TEST(LeaveGroup, FailsCollectivesThatBeginLater) {
  std::vector<ProcessGroup> ranks = connect();
  ranks[0].leave();
  try {
    ranks[0].barrier();
    FAIL() << "no exception";
  } catch (...) {
    EXPECT_EQ(to_error(std::current_exception()).code, ExitCode::kPeerLost);
  }
}

TEST(LeaveGroup, CollectivesHaveTheirResults) {
  std::vector<ProcessGroup> ranks = connect();
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
