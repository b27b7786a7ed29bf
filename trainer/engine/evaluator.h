// Exact evaluation over all ranks: every sample once, and the same bits whatever the world size.
#pragma once

#include "trainer/data/loader.h"
#include "trainer/device/batch_feed.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/stop_agreement.h"
#include "trainer/engine/task.h"

namespace oarlock {

struct EvaluateOptions {
  LoaderOptions loader;  // batch_size is the pass's
  BatchFeedOptions feed;
  StopAgreement* stop = nullptr;  // checked between batches; null: nothing interrupts the pass
};

// The evaluation of a task, as a pass. The task must outlive it.
EvalPass evaluation_of(Task& task);

struct Evaluation {
  Metrics metrics;
  EvalRows rows;             // on rank 0; empty where the task gives none
  bool interrupted = false;  // the ranks have agreed to stop: there is no result, and pass.finish was not called
};

// Called by all ranks. The data are cut into the same batches for every world size, batch b goes to rank b mod world
// size, and the batches' sums are added in their order, in double precision; rows are put in the order of their ids. So
// rank 0 computes the metrics from the same numbers whatever the world size. The module is in training mode afterwards.
// A failure of pass.finish is everybody's. Throws what the task and the group throw.
Result<Evaluation> evaluate(const EvalPass& pass, torch::nn::Module& module, const RankGroup& group,
                            const EvaluateOptions& options, int64_t steps);

// The samples of the batches that are this rank's, in order.
std::vector<int64_t> evaluation_indices(int64_t size, int64_t batch_size, int rank, int world_size);

}  // namespace oarlock
