// The checks of a preflight that a node makes without the others: its devices, the checkpoint directory and /dev/shm.
#pragma once

#include <chrono>
#include <filesystem>
#include <vector>

#include "cli/launch/preflight_judgement.h"
#include "cli/launch/process.h"

namespace oarlock::launch {

struct NodeChecks {
  int devices = 0;                          // NVIDIA GPUs that must be visible and answer; 0: none
  std::filesystem::path storage = {};       // the checkpoint directory, which need not exist yet; empty: none
  int64_t min_shared_memory = 0;            // bytes of /dev/shm
  std::chrono::milliseconds limit{20'000};  // of each check
  std::filesystem::path device_directory = "/dev";
  std::filesystem::path shared_memory = "/dev/shm";
};

// Makes the checks, each in a child process with a time limit, because drivers and file servers may block. Call it from
// a process with one thread. `environment` is that of the launcher, whose CUDA_VISIBLE_DEVICES limits the GPUs.
std::vector<CheckFailure> check_node(const NodeChecks& checks, const Environment& environment);

}  // namespace oarlock::launch
