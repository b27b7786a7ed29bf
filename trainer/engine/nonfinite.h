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

}  // namespace oarlock
