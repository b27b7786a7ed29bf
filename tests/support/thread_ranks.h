// Ranks of one group on threads of this process, for tests that need no process of a rank.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "ddp/process_group.h"

namespace oarlock::test {

// Connects the ranks of a Gloo group over loopback, and returns their groups in the order of the ranks. A test in which
// a collective reaches its time-out of a minute has failed.
inline std::vector<ProcessGroup> connect_ranks(int world_size) {
  std::signal(SIGPIPE, SIG_IGN);  // as in oarlock-trainer
  // LibTorch's flight recorder has a map without a lock, which the ranks on threads of one process share.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::future<ProcessGroup>> connecting;
  for (int rank = 0; rank < world_size; ++rank) {
    connecting.push_back(std::async(std::launch::async, [=] {
      return make_gloo_group(
          store, {.rank = rank, .world_size = world_size, .timeout = std::chrono::minutes(1), .address = "127.0.0.1"});
    }));
  }
  std::vector<ProcessGroup> out;
  for (auto& one : connecting) out.push_back(one.get());
  return out;
}

}  // namespace oarlock::test
