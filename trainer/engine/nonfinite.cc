#include "trainer/engine/nonfinite.h"

#include <fmt/format.h>

#include <cmath>

namespace oarlock {
namespace {

NonfiniteStop stop(const char* reason, std::string message) {
  return {reason, {ExitCode::kDataErr, std::move(message)}};
}

}  // namespace

std::optional<NonfiniteStop> check_finite(const NonfiniteConfig& policy, int64_t step, double loss,
                                          const StepReading& reading) {
  if (!std::isfinite(loss) && policy.loss == NonfiniteLoss::kStop) {
    const int64_t first = reading.first_nonfinite_loss.value_or(step);
    const std::string seen = first < step ? fmt::format(", and was not finite at step {} first", first) : "";
    return stop("NonFiniteLoss",
                fmt::format("the training loss is {} at step {}{}; lower optimizer.lr, or look for values in the data "
                            "that are not finite; the newest checkpoint is from before",
                            loss, step, seen));
  }
  if (policy.gradient == NonfiniteGradient::kStop && reading.skipped > 0) {
    return stop("NonFiniteGradient",
                fmt::format("a gradient was not finite in {} of the steps up to {}, which were not taken; lower "
                            "optimizer.lr, set gradient.clip_norm, or set nonfinite.gradient: skip",
                            reading.skipped, step));
  }
  if (reading.skipped_in_a_row >= policy.max_consecutive) {
    return stop("NonFiniteGradient",
                fmt::format("the last {} steps up to {} were skipped, as loss or gradient was not finite "
                            "(nonfinite.max_consecutive is {}); lower optimizer.lr, or look for values in the data "
                            "that are not finite",
                            reading.skipped_in_a_row, step, policy.max_consecutive));
  }
  return std::nullopt;
}

std::optional<NonfiniteStop> check_share(const NonfiniteConfig& policy, int64_t step, int64_t skipped_in_run,
                                         bool ended) {
  if (!ended && step < policy.max_consecutive) return std::nullopt;
  if (static_cast<double>(skipped_in_run) <= policy.max_share * static_cast<double>(step)) return std::nullopt;
  return stop("NonFiniteGradient",
              fmt::format("{} of the {} steps of the run were skipped, as loss or gradient was not finite "
                          "(nonfinite.max_share is {}); lower optimizer.lr, or look for values in the data that are "
                          "not finite",
                          skipped_in_run, step, policy.max_share));
}

}  // namespace oarlock
