// The section "loader": how batches are made ahead of time.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

struct LoaderConfig {
  std::optional<int64_t> threads;  // of each rank; 0: batches are made by the training thread; none: by the machine
  int prefetch = 2;                // batches per thread
  bool pin_memory = true;          // where the device is CUDA
};

void describe(LoaderConfig& config, Fields& fields);

// min(8, the node's cores shared by its ranks), at least 1, where the configuration does not say.
int loader_threads(const LoaderConfig& config, int cpus, int local_ranks);

}  // namespace oarlock
