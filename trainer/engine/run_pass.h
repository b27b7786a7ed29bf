// A pass of a run: with the weights, the precision and the loader that its configuration says.
#pragma once

#include "trainer/engine/evaluator.h"
#include "trainer/engine/train_parts.h"

namespace oarlock {

// Called by all ranks: evaluates, with the averaged weights where the section "ema" says so. A stop interrupts it
// between batches. Fails and throws as evaluate().
Result<Evaluation> run_pass(const TrainParts& parts, const EvalPass& pass, int64_t step);

}  // namespace oarlock
