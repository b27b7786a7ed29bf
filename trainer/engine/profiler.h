// Measurements of training steps: traces of some steps by LibTorch's profiler (Kineto) in the Chrome trace format
// (section "profile"), and the number of floating-point operations.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/log.h"
#include "trainer/config/tracking.h"

namespace oarlock {

// Called from the training thread. A failure is logged and does not end the run.
class StepProfiler {
 public:
  // Writes <directory>/<run>/<host>-rank-<rank>.pt.trace.json; `run` is "attempt-<attempt>-step-<first traced step>".
  StepProfiler(const ProfileConfig& config, std::filesystem::path directory, int rank, int attempt, c10::Device device,
               const Logger& logger);

  // Called before the step that follows `step` completed ones, and after it.
  void before_step(int64_t step);
  void after_step();

  // Writes the trace of a run that ends before its last traced step.
  void finish();

 private:
  void start(int64_t step);
  void save();

  ProfileConfig config_;
  std::filesystem::path directory_;
  int rank_;
  int attempt_;
  c10::Device device_;
  Logger logger_;
  int64_t steps_done_ = 0;                   // by this process
  int64_t traced_from_ = -1;                 // step of the run; -1: not tracing
  std::string scope_name_;                   // referenced by scope_
  std::optional<at::RecordFunction> scope_;  // of the step
};

// ---- Floating-point operations -----------------------------------------------------------------------------------

// Counts the floating-point operations of LibTorch on this thread during its lifetime, from the shapes, as
// torch.utils.flop_counter does: two for each multiply-add of matrix products, convolutions and attention. Element-wise
// operations are not counted. A thread can have one counter at a time.
class FlopCounter {
 public:
  FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  int64_t flops() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace oarlock
