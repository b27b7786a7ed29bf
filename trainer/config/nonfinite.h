// The section "nonfinite": what happens when a loss or a gradient is NaN or infinite.
#pragma once

#include "trainer/config/fields.h"

namespace oarlock {

enum class NonfiniteLoss { kStop, kSkip };
enum class NonfiniteGradient { kIgnore, kSkip, kStop };

struct NonfiniteConfig {
  NonfiniteLoss loss = NonfiniteLoss::kStop;
  NonfiniteGradient gradient = NonfiniteGradient::kIgnore;
  int64_t max_consecutive = 100;  // skipped steps in a row that end the run
  double max_share = 0.5;         // of all steps; more skipped ones than that end the run

  // Whether every step looks at its gradients before the update.
  bool checks_gradients() const { return loss == NonfiniteLoss::kSkip || gradient != NonfiniteGradient::kIgnore; }
};

void describe(NonfiniteConfig& config, Fields& fields);

}  // namespace oarlock
