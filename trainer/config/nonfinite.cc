#include "trainer/config/nonfinite.h"

namespace oarlock {

void describe(NonfiniteConfig& config, Fields& fields) {
  fields.choice<NonfiniteLoss>("loss", config.loss, {{"stop", NonfiniteLoss::kStop}, {"skip", NonfiniteLoss::kSkip}},
                               "a loss that is not finite on any rank: stop the run when it is logged or would be "
                               "saved, or skip the step on all ranks");
  fields.choice<NonfiniteGradient>(
      "gradient", config.gradient,
      {{"ignore", NonfiniteGradient::kIgnore}, {"skip", NonfiniteGradient::kSkip}, {"stop", NonfiniteGradient::kStop}},
      "a gradient that is not finite: do nothing about it, skip the step on all ranks, or "
      "skip it and stop the run when the loss is logged or the weights would be saved");
  fields.field("max_consecutive", config.max_consecutive, at_least(1),
               "skipped steps in a row after which the run stops, looked at when the loss is logged");
  fields.field("max_share", config.max_share, above_to(0, 1),
               "share of the run's steps that may be skipped: the run fails with more of them, when it ends, or when "
               "the loss is logged after max_consecutive steps or more");
}

}  // namespace oarlock
