// The weights that are evaluated, while it lives: the averaged ones where the section "ema" says so.
#pragma once

#include <optional>

#include "trainer/engine/train_parts.h"

namespace oarlock {

class EvalWeights {
 public:
  explicit EvalWeights(const TrainParts& parts) {
    if (parts.step.average() != nullptr && parts.config.ema.evaluate) {
      if (parts.checkpointer != nullptr) parts.checkpointer->wait_for_copy();
      averaged_.emplace(*parts.step.average());
    }
    parts.model.broadcast_buffers();  // running statistics are rank 0's, as in the checkpoint
  }

 private:
  std::optional<MovingAverage::Exchange> averaged_;
};

}  // namespace oarlock
