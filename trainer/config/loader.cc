#include "trainer/config/loader.h"

#include <algorithm>

namespace oarlock {

void describe(LoaderConfig& config, Fields& fields) {
  fields.field(
      "threads", config.threads, from_to(0, 1024),
      "threads of each rank that make batches; 0: the training thread does. Default: the node's cores shared by "
      "its ranks, at most 8");
  fields.field("prefetch", config.prefetch, at_least(1), "batches per thread that may lie ready");
  fields.field("pin_memory", config.pin_memory,
               "batches in page-locked memory where the device is CUDA, so that copying them does not wait");
}

int loader_threads(const LoaderConfig& config, int cpus, int local_ranks) {
  if (config.threads) return static_cast<int>(*config.threads);
  return std::clamp(cpus / std::max(local_ranks, 1), 1, 8);
}

}  // namespace oarlock
