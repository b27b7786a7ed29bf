// How many ranks "auto", "gpu" and "cpu" are on this machine; the words are torchrun's.
#pragma once

#include <filesystem>
#include <string>

#include "cli/launch/environment.h"
#include "common/error.h"

namespace oarlock::launch {

struct Processors {
  int gpus = 0;
  int cpus = 1;  // that this process may use
};

// GPUs: NVIDIA's device files, of which a container has those that were given to it; where there are any, as many as
// CUDA_VISIBLE_DEVICES lists (up to the first that is none, as CUDA reads it), if it is set. No CUDA library is asked:
// this program has none.
Processors count_processors(const Environment& environment, const std::filesystem::path& devices = "/dev");

// "4"; "gpu"; "cpu"; "auto": the GPUs, or the CPUs where there is none. kUsage: none of these; kUnavailable: "gpu"
// without one.
Result<int> rank_count(const std::string& text, const Processors& processors);

}  // namespace oarlock::launch
