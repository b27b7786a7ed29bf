// Shared memory of the ranks: its barrier, ranks that exit or do not arrive, and ranks that cannot open it.
#include "ddp/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <random>

#include "ddp/distributed_data_parallel_base.h"
#include "ddp/library_errors.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

int64_t number_in(const SharedMemory& memory, int rank, int slot) {
  int64_t out = 0;
  std::memcpy(&out, memory.slot(rank, slot).data(), sizeof out);
  return out;
}

// Returns the message with which barrier() fails, or an empty string.
std::string failure_of(SharedMemory& memory) {
  try {
    memory.barrier();
    return "";
  } catch (const ErrorException& failure) {
    EXPECT_EQ(failure.error().code, ExitCode::kPeerLost);
    return failure.error().message;
  }
}

// Without the guarantees of the barrier, or with a single slot, a rank would read the previous or the next number.
TEST(SharedMemory, BarrierPublishesWritesOfAllRanks) {
  for (const int world_size : {2, 3, 5}) {
    run_ranks(world_size, [&](const ProcessGroup& group) {
      const auto memory = SharedMemory::open(group, 100, seconds(60));
      ASSERT_TRUE(memory);
      EXPECT_GE(memory->slot_bytes(), 100U);
      std::minstd_rand random(static_cast<unsigned>(group.rank()));
      for (int64_t round = 0; round < 3000; ++round) {
        const int slot = static_cast<int>(round) % SharedMemory::kSlots;
        const int64_t own = round * 100 + group.rank();
        std::memcpy(memory->slot(group.rank(), slot).data(), &own, sizeof own);
        if (random() % 500 == 0) ::usleep(200);  // longer than a rank spins, so that the others sleep
        memory->barrier();
        for (int rank = 0; rank < world_size; ++rank)
          ASSERT_EQ(number_in(*memory, rank, slot), round * 100 + rank) << "round " << round;
      }
    });
  }
}

TEST(SharedMemory, ReportsRankThatExits) {
  run_ranks(2, [](const ProcessGroup& group) {
    auto memory = SharedMemory::open(group, 8, seconds(600));
    ASSERT_TRUE(memory);
    memory->barrier();
    if (group.rank() == 0) {
      memory.reset();
    } else {
      EXPECT_THAT(failure_of(*memory), HasSubstr("another rank was lost (rank 0 has exited)"));
    }
  });
}

// The signal of a rank that exits right after it is not lost, whichever rank arrives first or sleeps.
TEST(SharedMemory, RankMayExitAfterLastBarrier) {
  run_ranks(2, [](const ProcessGroup& group) {
    for (int round = 0; round < 200; ++round) {
      auto memory = SharedMemory::open(group, 8, seconds(600));
      ASSERT_TRUE(memory);
      EXPECT_EQ(failure_of(*memory), "") << "round " << round;
      memory.reset();
    }
  });
}

TEST(SharedMemory, NamesRankThatTimesOut) {
  run_ranks(2, [](const ProcessGroup& group) {
    const auto memory = SharedMemory::open(group, 8, milliseconds(300));
    ASSERT_TRUE(memory);
    if (group.rank() == 1) {
      const auto begin = steady_clock::now();
      EXPECT_THAT(failure_of(*memory), AllOf(HasSubstr("timed out"), HasSubstr("no signal from rank 0 for 0.3 s")));
      EXPECT_GE(steady_clock::now() - begin, milliseconds(300));
    }
    group.barrier();  // keeps rank 0 alive until here
  });
}

// While in scope, no file can be opened, as on a rank in another pod, which cannot open the memory of rank 0.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{.rlim_cur = 3, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

#ifndef OARLOCK_SANITIZED  // UndefinedBehaviorSanitizer itself needs descriptors to check the types of objects
TEST(SharedMemory, UnusedIfOneRankCannotOpenIt) {
  for (const int stranger : {0, 1}) {
    run_ranks(3, [stranger](const ProcessGroup& group) {
      torch::nn::Linear layer(4, 2);
      std::optional<NoMoreDescriptors> far_away;
      if (group.rank() == stranger) far_away.emplace();
      EXPECT_EQ(SharedMemory::open(group, 8, seconds(60)), nullptr);
      auto model = DistributedDataParallelBase::create(layer.ptr(), group, {});
      far_away.reset();
      ASSERT_TRUE(model);
      EXPECT_FALSE((*model)->uses_shared_memory());
      const at::Tensor x = torch::full({1, 4}, static_cast<double>(group.rank()));
      (*model)->backward((*model)->forward([&] { return layer(x).sum(); }));
      EXPECT_TRUE(layer->weight.grad().equal(torch::ones({2, 4}))) << "the mean of 0, 1 and 2";
    });
  }
}
#endif

TEST(SharedMemory, LeavesNoFilesBehind) {
  run_ranks(2, [](const ProcessGroup& group) {
    auto memory = SharedMemory::open(group, 8, seconds(60));
    const auto mappings = [] {
      std::ifstream file("/proc/self/maps");
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    EXPECT_THAT(mappings(), HasSubstr("oarlock-gradients"));
    memory.reset();
    EXPECT_THAT(mappings(), testing::Not(HasSubstr("oarlock-gradients")));
  });
}

}  // namespace
}  // namespace oarlock
