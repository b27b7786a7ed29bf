// What a step takes in a world of so many ranks, and what follows from it for learning rate and warm-up. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "common/error.h"
#include "trainer/config/config.h"

namespace oarlock {

struct BatchPlan {
  int64_t micro_batch = 0;      // samples of one rank's forward pass
  int64_t per_rank = 0;         // of one rank's step: micro_batch * accumulation steps
  int64_t effective_batch = 0;  // of the step of all ranks
  double lr_factor = 1;         // on every learning rate
  int64_t warmup_steps = 0;     // schedule.warmup_steps, scaled and rounded
};

// The factors are f = effective_batch / reference (linear; Goyal et al., arXiv 1706.02677) or its square root, at most
// scaling.cap. The reference is scaling.reference_batch, or batch.size * accumulation steps * reference_world.
// kConfig when a global batch does not divide by ranks and accumulation steps, or has no reference to scale from.
// `samples`, where it is known, is the size of the training data: a step that would take more than an epoch has is
// planned, and scaled from, as what it really takes (not with batch.drop_last, where such a step does not exist).
Result<BatchPlan> plan_batches(const TrainerConfig& config, int world_size, std::optional<int64_t> samples = {});

// The configuration with the plan's learning rates and warm-up in place.
TrainerConfig scaled(TrainerConfig config, const BatchPlan& plan);

}  // namespace oarlock
