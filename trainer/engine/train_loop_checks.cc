// The checks of a run: losses, weights that are not finite, and parameters that differ between ranks.
#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "trainer/engine/nonfinite.h"
#include "trainer/engine/train_loop.h"

namespace oarlock {

Result<void> TrainLoop::sync_loss() {
  if (!state_.has_stepped) return {};
  const int64_t step = state_.position.step;
  // In the last evaluation the epoch has not ended yet.
  const StepPoint at = {.step = step,
                        .is_last = step == state_.target_steps || is_finished(),
                        .epochs = epochs_done(),
                        .learning_rate = scheduler_.learning_rate(parts_.config.optimizer.lr)};
  return end_by(losses_.sync(at, state_.reported));
}

// Waits for the device once, and copies no parameter.
bool TrainLoop::has_finite_weights() const {
  std::vector<at::Tensor> extremes;
  for (const NamedTensor& item : parts_.model.parameters()) {
    if (!item.tensor.requires_grad() || item.tensor.numel() == 0) continue;
    const auto [smallest, largest] = at::aminmax(item.tensor.detach());
    extremes.push_back(smallest.to(at::kDouble));
    extremes.push_back(largest.to(at::kDouble));
  }
  return extremes.empty() || at::stack(extremes).isfinite().all().item<bool>();
}

// The loss of a step is that of the weights before its update. The ranks have equal weights.
Result<void> TrainLoop::check_weights() {
  if (!state_.has_stepped || has_finite_weights()) return {};
  return end_by(NonfiniteStop{
      "NonFiniteGradient",
      {ExitCode::kDataErr,
       fmt::format("the weights are not finite after step {}, because its gradient was not, or its update was too "
                   "large; lower optimizer.lr, or set nonfinite.gradient: skip; the newest checkpoint is from before",
                   state_.position.step)}});
}

Result<void> TrainLoop::end_by(const std::optional<NonfiniteStop>& stop) {
  if (!stop) return {};
  nonfinite_reason_ = stop->reason;
  return tl::make_unexpected(stop->error);
}

// Verifies what DDP guarantees, also against causes that DDP does not see: faulty memory, and state that a rank changes
// by itself.
Result<void> TrainLoop::check_parameters() {
  const Result<void> equal = check_equal_on_all_ranks(parts_.model.parameters(), parts_.group);
  parts_.telemetry.record_parameter_check(equal.has_value());
  diverged_ = !equal;
  return equal;
}

}  // namespace oarlock
