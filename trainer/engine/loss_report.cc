#include "trainer/engine/loss_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "trainer/device/device.h"
#include "trainer/device/device_prefetcher.h"

namespace oarlock {

void LossReport::start_tracking(int64_t step) {
  tracked_step_ = step;
  tracked_phases_ = parts_.telemetry.phase_seconds();
}

std::optional<NonfiniteStop> LossReport::sync(const StepPoint& at, ReportedSteps& reported) {
  if (reported.synced == at.step) return {};
  // Not on a rank that has received the state of a step that it did not complete.
  const bool has_loss = parts_.step.loss().defined();
  StepReading reading = has_loss ? parts_.step.read() : StepReading{};
  std::array<double, 3> sums = {reading.loss / parts_.group.world_size(),
                                has_loss ? static_cast<double>(reading.nonfinite_losses - nonfinite_losses_seen_) : 0.0,
                                has_loss ? 1.0 : 0.0};
  const double own_losses = sums[1];
  parts_.group.all_reduce_sum(sums);
  reported.synced = at.step;
  if (has_loss) nonfinite_losses_seen_ = reading.nonfinite_losses;
  if (sums[2] == 0) return {};
  double loss = sums[0];
  if (sums[2] < parts_.group.world_size()) loss *= parts_.group.world_size() / sums[2];
  if (std::isnan(loss)) loss = std::abs(loss);  // the sign of a NaN has no meaning, but would be printed
  if (reported.shown != at.step) parts_.telemetry.record_loss(loss);
  reported.shown = at.step;
  // Only at steps that do not depend on when the run is interrupted.
  if (parts_.tracking != nullptr && (at.step % parts_.config.log_every_steps == 0 || at.is_last))
    track(at, loss, reading);
  if (sums[1] > 0) report_nonfinite_losses(at.step, own_losses, reading);
  report_device_memory();
  if (reading.gradient_norm) parts_.telemetry.record_gradient_norm(*reading.gradient_norm);
  if (reading.skipped > skipped_seen_) {
    parts_.telemetry.record_skipped_steps(reading.skipped - skipped_seen_, reading.first_skipped.value_or(at.step));
  }
  if (has_loss) skipped_seen_ = reading.skipped;
  std::optional<NonfiniteStop> stop = check_finite(parts_.config.nonfinite, at.step, loss, reading);
  if (!stop) stop = check_share(parts_.config.nonfinite, at.step, parts_.step.skipped_in_run(), /*ended=*/false);
  return stop;
}

bool LossReport::is_first(int64_t step, const ReportedSteps& reported) const {
  const int64_t every = parts_.config.log_every_steps;
  if (reported.shown == step || step % every == 0) return false;
  return reported.shown < 0 || (step < every && std::has_single_bit(static_cast<uint64_t>(step)));
}

// Only reports the loss: the checks of sync() count on the steps between its calls.
void LossReport::show(int64_t step, ReportedSteps& reported) {
  synchronize_device(parts_.group.device(), feed_options(parts_.config, parts_.group.world_size()).timeout);
  const at::Tensor& loss = parts_.step.loss();
  // A rank that was replaced after its last step has none.
  std::array<double, 2> sums = {loss.defined() ? loss.item<double>() : 0, loss.defined() ? 1.0 : 0.0};
  parts_.group.all_reduce_sum(sums);
  reported.shown = step;
  const double loss_of_all = sums[0] / sums[1];
  if (sums[1] > 0) parts_.telemetry.record_loss(std::isnan(loss_of_all) ? std::abs(loss_of_all) : loss_of_all);
}

// Times are seconds per step since the last point.
void LossReport::track(const StepPoint& at, double loss, const StepReading& reading) {
  const std::array<double, kPhaseNames.size()> phases = parts_.telemetry.phase_seconds();
  const auto steps = static_cast<double>(std::max<int64_t>(at.step - tracked_step_, 1));
  Scalars out{{{"loss", loss},
               {"epoch", at.epochs},
               {"learning_rate", at.learning_rate},
               {"samples_per_second", parts_.telemetry.samples_per_second()}}};
  if (reading.gradient_norm) out.values.emplace_back("gradient_norm", *reading.gradient_norm);
  if (reading.loss_scale) out.values.emplace_back("loss_scale", *reading.loss_scale);
  for (const Phase phase :
       {Phase::kDataWait, Phase::kForward, Phase::kBackward, Phase::kComm, Phase::kOptimizer, Phase::kCheckpoint}) {
    const auto index = static_cast<size_t>(phase);
    out.values.emplace_back(fmt::format("time/{}", kPhaseNames[index]),
                            (phases[index] - tracked_phases_[index]) / steps);
  }
  parts_.tracking->add_scalars(at.step, std::move(out));
  tracked_step_ = at.step;
  tracked_phases_ = phases;
}

// Called by all ranks. The loss of a step may be non-finite on several ranks, which are not informed of each other, so
// the largest count of a rank is reported.
void LossReport::report_nonfinite_losses(int64_t step, double own_losses, StepReading& reading) {
  const auto own_first = static_cast<double>(reading.first_nonfinite_loss.value_or(step));
  std::array<double, 2> largest = {own_losses, -own_first};
  parts_.group.all_reduce_max(largest);
  reading.first_nonfinite_loss = static_cast<int64_t>(-largest[1]);
  parts_.telemetry.record_nonfinite_losses(static_cast<int64_t>(largest[0]), *reading.first_nonfinite_loss);
}

void LossReport::report_device_memory() {
  const std::optional<DeviceMemory> memory = device_memory(parts_.group.device());
  if (!memory) return;
  parts_.telemetry.set_device_memory({memory->allocated_bytes, memory->reserved_bytes, memory->peak_bytes,
                                      memory->limit_bytes, memory->retries, memory->out_of_memory});
}

}  // namespace oarlock
