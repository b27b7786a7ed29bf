// The trainer_* series of one rank. Names and labels are a contract with dashboards and alerts: docs/metrics.md.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "common/clock.h"
#include "trainer/telemetry/phase_clock.h"

namespace oarlock {

struct BuildInfo {
  std::string version;
  std::string revision;
  std::string libtorch;
  std::string cuda;  // empty: built without
  std::string nccl;
};

struct RunInfo {
  std::string run_id;
  std::string model;
  std::string strategy;   // ddp | single
  std::string precision;  // fp32 | fp16 | bf16
};

struct StepReport {
  int64_t step = 0;   // optimizer steps done, this one included
  int64_t epoch = 0;  // from 0
  int64_t local_samples = 0;
  int64_t global_samples = 0;  // of all ranks
  double seconds = 0;          // waiting for data included
  double learning_rate = 0;
  int64_t collective_sequence = 0;
  // Of this rank.
  int64_t tokens = 0;         // of sequences; 0 where samples are none
  int64_t data_bytes = 0;     // of the batches
  double flops = 0;           // of the model, by the operations of one forward; 0: not known
  int64_t batches_ready = 0;  // that wait in the loader now
};

// Of a CUDA device, as LibTorch's allocator says.
struct DeviceMemoryReport {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t limit_bytes = 0;
  int64_t retries = 0;        // allocations that worked only when cached memory was given back
  int64_t out_of_memory = 0;  // allocations that failed
};

// All methods are thread-safe. Every series has the constant label rank.
class TrainerMetrics {
 public:
  TrainerMetrics(int rank, int world_size, const BuildInfo& build, const RunInfo& run);

  std::shared_ptr<prometheus::Registry> registry() const { return registry_; }

  void set_target_steps(int64_t steps);
  void set_step(int64_t step);  // after a restore
  void step_done(const StepReport& report, SystemTime now);
  void set_data_queue_capacity(int64_t batches);
  void set_peak_flops(double flops);  // of the device, a second
  void set_device_memory(const DeviceMemoryReport& memory);
  void data_failed();
  void set_loss(double loss);
  void set_validation_loss(double loss);
  void set_phases(const std::array<double, kPhaseNames.size()>& seconds);
  void rendezvous_done(double seconds);
  void gradients_reduced(int64_t buckets, int64_t bytes);
  void checkpoint_done(bool save, bool success, int64_t bytes, double seconds);  // save, or else restore
  void steps_lost(int64_t steps);
  void set_last_checkpoint(int64_t step, SystemTime time);
  void nonfinite_losses(int64_t steps);
  void nonfinite_gradients(int64_t steps);
  void set_gradient_norm(double norm);
  void communication_error();
  void parameters_checked(bool equal);

 private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Gauge* target_steps_;
  prometheus::Gauge* current_step_;
  prometheus::Gauge* last_step_timestamp_;
  prometheus::Gauge* learning_rate_;
  prometheus::Counter* steps_;
  prometheus::Counter* samples_;
  prometheus::Counter* data_bytes_;
  prometheus::Counter* data_errors_;
  prometheus::Gauge* data_queue_;
  prometheus::Gauge* data_queue_capacity_;
  prometheus::Counter* all_reduce_seconds_;
  prometheus::Histogram* step_duration_;
  prometheus::Histogram* rendezvous_duration_;
  prometheus::Counter* nonfinite_loss_;
  prometheus::Counter* nonfinite_gradient_;
  prometheus::Counter* communication_errors_;
  prometheus::Counter* parameters_equal_;
  prometheus::Counter* parameters_diverged_;
  prometheus::Counter* recomputed_steps_;
  std::array<prometheus::Counter*, kPhaseNames.size()> phases_{};
  prometheus::Counter* all_reduce_operations_;
  prometheus::Counter* all_reduce_bytes_;
  // Families whose series appear with their first value, so that no dashboard shows a loss of 0 that never was.
  prometheus::Family<prometheus::Counter>* tokens_;
  prometheus::Family<prometheus::Counter>* flops_;
  prometheus::Family<prometheus::Gauge>* peak_flops_;
  prometheus::Family<prometheus::Gauge>* device_allocated_;
  prometheus::Family<prometheus::Gauge>* device_reserved_;
  prometheus::Family<prometheus::Gauge>* device_peak_;
  prometheus::Family<prometheus::Gauge>* device_limit_;
  prometheus::Family<prometheus::Counter>* device_retries_;
  prometheus::Family<prometheus::Counter>* device_ooms_;
  prometheus::Family<prometheus::Gauge>* loss_;
  prometheus::Family<prometheus::Gauge>* validation_loss_;
  prometheus::Family<prometheus::Gauge>* gradient_norm_;
  prometheus::Family<prometheus::Gauge>* last_checkpoint_step_;
  prometheus::Family<prometheus::Gauge>* last_checkpoint_timestamp_;
  prometheus::Family<prometheus::Counter>* checkpoint_operations_;
  prometheus::Family<prometheus::Counter>* checkpoint_bytes_;
  prometheus::Family<prometheus::Histogram>* checkpoint_duration_;
};

}  // namespace oarlock
