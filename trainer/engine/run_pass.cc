#include "trainer/engine/run_pass.h"

#include <optional>

#include "trainer/engine/data_options.h"
#include "trainer/optim/autocast.h"

namespace oarlock {

Result<Evaluation> run_pass(const TrainParts& parts, const EvalPass& pass, int64_t step) {
  parts.telemetry.enter(Phase::kEval);
  std::optional<MovingAverage::Exchange> averaged;
  if (parts.step.average() != nullptr && parts.config.ema.evaluate) {
    if (parts.checkpointer != nullptr) parts.checkpointer->wait_for_copy();
    averaged.emplace(*parts.step.average());
  }
  parts.model.broadcast_buffers();  // running statistics are rank 0's, as in the checkpoint
  const Autocast autocast(parts.config.amp, parts.group.device());
  return evaluate(pass, parts.model.module(), parts.group,
                  {loader_options(parts.config, parts.group.device(), pass.batch_size, parts.config.seed),
                   feed_options(parts.config, parts.group.world_size()), &parts.stop},
                  step);
}

}  // namespace oarlock
