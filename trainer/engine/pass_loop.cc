#include "trainer/engine/pass_loop.h"

#include "trainer/engine/data_options.h"
#include "trainer/engine/eval_weights.h"
#include "trainer/engine/evaluator.h"
#include "trainer/optim/autocast.h"

namespace oarlock {

Result<void> PassLoop::run_due(int64_t step) {
  for (const EvalPass& pass : passes_) {
    if (!due(pass, step)) continue;
    if (const Result<void> done = run(pass, step); !done) return done;
  }
  ran_at_ = step;
  return {};
}

Result<void> PassLoop::run_all(int64_t step) {
  for (const EvalPass& pass : passes_) {
    if (ran_at_ == step && due(pass, step)) continue;
    if (const Result<void> done = run(pass, step); !done) return done;
  }
  return {};
}

Result<void> PassLoop::run(const EvalPass& pass, int64_t step) {
  parts_.telemetry.enter(Phase::kEval);
  const EvalWeights weights(parts_);
  const Autocast autocast(parts_.config.amp, parts_.group.device());
  const Result<Evaluation> evaluation =
      evaluate(pass, parts_.model.module(), parts_.group,
               {loader_options(parts_.config, parts_.group.device(), pass.batch_size, parts_.config.seed),
                feed_options(parts_.config, parts_.group.world_size())},
               step);
  if (!evaluation) return tl::make_unexpected(evaluation.error());
  parts_.telemetry.pass_done(pass.name, evaluation->metrics);
  parts_.telemetry.enter(Phase::kOther);
  return {};
}

}  // namespace oarlock
