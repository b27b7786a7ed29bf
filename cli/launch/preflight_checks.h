// The checks of a preflight that a node makes without the others: its devices, the checkpoint directory and /dev/shm.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/launch/preflight_judgement.h"

namespace oarlock::launch {

struct NodeChecks {
  int devices = 0;                     // NVIDIA GPUs, or MIG devices, that must be visible and answer; 0: none
  std::filesystem::path storage = {};  // the checkpoint directory, which need not exist yet; empty: none
  int64_t min_shared_memory = 0;       // bytes of /dev/shm
  // Of the file that is written to each directory. A later launcher of the node replaces the file of a killed one.
  std::string file_name = ".oarlock-preflight";
  std::chrono::milliseconds limit{20'000};         // of each directory
  std::chrono::milliseconds device_limit{60'000};  // of nvidia-smi, which first initializes the GPUs
  std::filesystem::path device_directory = "/dev";
  std::filesystem::path shared_memory = "/dev/shm";
};

// Makes the checks, each in a child process with a time limit, because drivers and file servers may block. Call it from
// a process with one thread. Ends early, with failures that mean nothing, if a signal that stops the launcher arrives.
std::vector<CheckFailure> check_node(const NodeChecks& checks);

}  // namespace oarlock::launch
