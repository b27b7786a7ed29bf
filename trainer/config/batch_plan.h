// Batch sizes of one optimizer step for a world size, and the learning rate and warm-up that follow from them.
#pragma once

#include <cstdint>
#include <optional>

#include "common/error.h"
#include "trainer/config/config.h"

namespace oarlock {

struct BatchPlan {
  int64_t micro_batch = 0;      // samples of one rank's forward pass
  int64_t per_rank = 0;         // samples of one rank's step: micro_batch * accumulation steps
  int64_t effective_batch = 0;  // samples of the step over all ranks
  double lr_factor = 1;         // on every learning rate
  int64_t warmup_steps = 0;     // schedule.warmup_steps, scaled and rounded
};

// Computes the plan of a configuration.
//
// The factors are f = effective_batch / reference (linear; Goyal et al., arXiv 1706.02677) or its square root, at most
// scaling.cap. The reference is scaling.reference_batch, or batch.size * accumulation steps * reference_world.
//
// `samples` is the size of the training data, if known: a step larger than an epoch is planned, and scaled from, with
// the samples that it really has (not with batch.drop_last, where such a step does not exist).
//
// Fails with kConfig if a global batch is not divisible by ranks times accumulation steps, or has no reference to scale
// from.
Result<BatchPlan> plan_batches(const TrainerConfig& config, int world_size, std::optional<int64_t> samples = {});

// Returns the configuration with the plan's learning rates and warm-up.
TrainerConfig apply_plan(TrainerConfig config, const BatchPlan& plan);

}  // namespace oarlock
