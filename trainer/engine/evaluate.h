// Exact distributed evaluation: every sample is evaluated once, and the result is bitwise equal for every world size.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/device/device_prefetcher.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

struct EvaluateOptions {
  DataLoaderOptions loader;  // batch_size is replaced by the pass's
  PrefetchOptions feed;
  StopAgreement* stop = nullptr;  // checked between batches; null: the pass cannot be interrupted
};

struct Evaluation {
  Metrics metrics;
  EvalRows rows;             // on rank 0; empty if the task returns none
  bool interrupted = false;  // the ranks have agreed to stop: there are no results, and pass.finish was not called
};

// The evaluation of a task as a pass. The task must outlive it.
EvalPass evaluation_of(Task& task);

// Called by all ranks together. The data are split into the same batches for every world size; batch b is evaluated by
// rank b mod world size; the sums of the batches are added in the order of the batches, in double precision, and rows
// are sorted by id. Rank 0 therefore computes the metrics from the same numbers whatever the world size.
//
// The module is in training mode afterwards. `steps` is passed to pass.finish, whose failure is returned on all ranks.
// Throws what the task and the group throw.
Result<Evaluation> evaluate(const EvalPass& pass, torch::nn::Module& module, const ProcessGroup& group,
                            const EvaluateOptions& options, int64_t steps);

// The indices of the samples that this rank evaluates, in order.
std::vector<int64_t> evaluation_indices(int64_t size, int64_t batch_size, int rank, int world_size);

}  // namespace oarlock
