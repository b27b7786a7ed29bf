// What a program with oarlock::ddp reports when a rank stops inside its step, or has other settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "tests/support/rank_harness.h"

namespace oarlock {
namespace {

using test::run_ranks;
using testing::AllOf;
using testing::HasSubstr;

// Trains two steps; rank 1 stops between the forward and the backward pass of the second one. Returns the message of
// rank 0, as docs/guides/ddp.md makes it.
std::string diagnosis_of_stop(const DistributedContext& ranks, const DdpOptions& options) {
  const ProcessGroup& group = ranks.group;
  torch::nn::Linear net(3, 2);
  DistributedDataParallel model(net, group, options);
  try {
    for (int step = 0; step < 2; ++step) {
      const at::Tensor loss = model.forward(torch::ones({4, 3})).pow(2).mean();
      if (step == 1 && group.rank() == 1) {
        std::raise(SIGSTOP);
        return "";
      }
      loss.backward();
    }
  } catch (...) {
    return with_peer_diagnosis(to_error(std::current_exception()), ranks.peers.get()).message;
  }
  return "";
}

TEST(DdpDiagnosis, NamesRankThatStops) {
  const PortReservation port = test::reserve_ports();
  for (const bool shared_memory : {true, false}) {
    SCOPED_TRACE(shared_memory);
    run_ranks(2, [&](const ProcessGroup& harness) {
      const std::vector<int64_t> processes = harness.all_gather(int64_t{::getpid()});
      const DistributedContext ranks = init_process_group(
          {.rank = harness.rank(), .world_size = 2, .master_addr = "127.0.0.1", .master_port = port.first()},
          {.timeout = std::chrono::seconds(2)});
      const std::string message = diagnosis_of_stop(ranks, {.shared_memory = shared_memory});
      if (harness.rank() != 0) return;
      EXPECT_THAT(message, AllOf(HasSubstr("rank 1 does not respond (stopped, or the host is cut off)"),
                                 HasSubstr("this rank is at training, collective ")));
      ::kill(static_cast<pid_t>(processes[1]), SIGCONT);
    });
  }
}

TEST(DdpDiagnosis, NamesRankThatIsBehind) {
  const PortReservation port = test::reserve_ports();
  run_ranks(2, [&](const ProcessGroup& harness) {
    const DistributedContext ranks = init_process_group(
        {.rank = harness.rank(), .world_size = 2, .master_addr = "127.0.0.1", .master_port = port.first()},
        {.timeout = std::chrono::seconds(2)});
    if (harness.rank() == 0) {
      try {
        ranks.group.barrier();
        ADD_FAILURE() << "nothing was thrown";
      } catch (...) {
        EXPECT_THAT(with_peer_diagnosis(to_error(std::current_exception()), ranks.peers.get()).message,
                    HasSubstr("rank 1 has not arrived (it is at training, collective "));
      }
    }
    harness.barrier();  // rank 1 waits here, outside of the group
  });
}

TEST(DdpDiagnosis, NamesSettingThatDiffers) {
  run_ranks(3, [](const ProcessGroup& group) {
    EXPECT_TRUE(check_equal_on_all_ranks(AgreedKind::kSettings, {{"lr", "0.1"}, {"seed", "1"}}, group));
    const std::string rate = group.rank() == 2 ? "0.2" : "0.1";
    const Result<void> same = check_equal_on_all_ranks(AgreedKind::kSettings, {{"lr", rate}, {"seed", "1"}}, group);
    ASSERT_FALSE(same);
    EXPECT_EQ(same.error(), (Error{ExitCode::kConfig,
                                   "the ranks differ: lr is 0.2 on rank 2, but 0.1 on rank 0; give all ranks the same "
                                   "configuration"}));
    const Result<void> data = check_equal_on_all_ranks(AgreedKind::kData, {{"images", rate}}, group);
    ASSERT_FALSE(data);
    EXPECT_EQ(data.error().code, ExitCode::kDataErr);
  });
}

}  // namespace
}  // namespace oarlock
