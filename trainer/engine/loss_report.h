// Reads the results of the steps from the device and reports them: the loss of all ranks, the norm of the gradient,
// steps that were skipped, and values that are not finite.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "trainer/engine/evaluator.h"
#include "trainer/engine/nonfinite.h"
#include "trainer/engine/run_state.h"
#include "trainer/engine/train_step.h"

namespace oarlock {

// The position of the run after a step.
struct StepPoint {
  int64_t step = 0;
  bool is_last = false;
  double epochs = 0;  // completed, with the fraction of the current one
  double learning_rate = 0;
};

// All ranks call the methods together, from the training thread, except where noted. `reported` is equal on all ranks.
class LossReport {
 public:
  explicit LossReport(const TrainParts& parts) : parts_(parts) {}

  // Called once by each process, when the step at which it begins is known. May be called by one rank.
  void start_tracking(int64_t step);

  // Reads and reports the results of the steps since the last call, unless that was at this step. Returns why the run
  // ends, on all ranks, if nonfinite.* requires that: a NaN of one rank reaches all ranks through the averaged gradient
  // and the averaged loss.
  std::optional<NonfiniteStop> sync(const StepPoint& at, ReportedSteps& reported);

  // Whether the loss is reported between the steps of log.every_steps: after the first step of this process, and after
  // the steps 1, 2, 4 ... of the run, so that the first values appear soon. Does not communicate.
  bool is_first(int64_t step, const ReportedSteps& reported) const;
  void show(int64_t step, ReportedSteps& reported);

 private:
  void track(const StepPoint& at, double loss, const StepReading& reading);
  void report_nonfinite_losses(int64_t step, double own_losses, StepReading& reading);
  void report_device_memory();

  TrainParts parts_;
  int64_t skipped_seen_ = 0;           // StepReading::skipped at the last sync()
  int64_t nonfinite_losses_seen_ = 0;  // StepReading::nonfinite_losses at the last sync()
  int64_t tracked_step_ = 0;           // of the last track(), or where this process began
  std::array<double, kPhaseNames.size()> tracked_phases_{};
};

}  // namespace oarlock
