// Whether the section "nonfinite" ends a run. Pure.
#pragma once

#include <optional>
#include <string>

#include "common/error.h"
#include "trainer/config/nonfinite.h"
#include "trainer/engine/train_step.h"

namespace oarlock {

struct NonfiniteStop {
  std::string reason;  // "NonFiniteLoss", "NonFiniteGradient"
  Error error;         // kDataErr
};

// `loss`: the mean over all ranks at this step, so that all of them decide alike.
std::optional<NonfiniteStop> check_finite(const NonfiniteConfig& policy, int64_t step, double loss,
                                          const StepReading& reading);

// Whether too many of the run's steps were skipped: once as many were made as may be skipped in a row, or where the run
// has `ended`.
std::optional<NonfiniteStop> check_share(const NonfiniteConfig& policy, int64_t step, int64_t skipped_in_run,
                                         bool ended);

}  // namespace oarlock
