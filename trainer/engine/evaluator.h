// Exact evaluation over all ranks: every sample once, and the same bits whatever the world size.
#pragma once

#include "trainer/distributed/process_group.h"
#include "trainer/engine/task.h"

namespace oarlock {

struct EvaluateOptions {
  int64_t batch_size = 1;
  int loader_threads = 1;
  int loader_prefetch = 2;
  uint64_t seed = 0;
};

// Called by all ranks. The data are cut into the same batches for every world size, batch b goes to rank b mod world
// size, and the batches' sums are added in their order, in double precision. The module is in training mode afterwards.
// Throws what the task and the group throw.
Metrics evaluate(Task& task, torch::nn::Module& module, const RankGroup& group, const EvaluateOptions& options);

// The samples of the batches that are this rank's, in order.
std::vector<int64_t> evaluation_indices(int64_t size, int64_t batch_size, int rank, int world_size);

}  // namespace oarlock
