// The trainer_* metrics of one rank. Names and labels are an interface to dashboards and alerts:
// docs/metrics-trainer.md.
#pragma once

#include <prometheus/registry.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "common/clock.h"
#include "trainer/telemetry/progress.h"

namespace oarlock {

struct BuildInfo {
  std::string version;
  std::string revision;
  std::string libtorch;
  std::string cuda;  // empty in a build without CUDA
  std::string nccl;
};

struct RunInfo {
  std::string run_id;
  std::string model;
  std::string strategy;   // ddp | single
  std::string precision;  // fp32 | fp16 | bf16
};

struct StepReport {
  int64_t step = 0;   // optimizer steps done, including this one
  int64_t epoch = 0;  // from 0
  int64_t local_samples = 0;
  int64_t global_samples = 0;  // of all ranks
  double seconds = 0;          // including the wait for data
  double learning_rate = 0;
  int64_t collective_sequence = 0;
  // The following are of this rank.
  int64_t tokens = 0;         // 0 if samples are not sequences
  int64_t data_bytes = 0;     // of the batches
  double flops = 0;           // of the model, derived from the operations of one forward pass; 0 if unknown
  int64_t batches_ready = 0;  // prefetched by the loader at the moment
};

// Memory of a CUDA device according to LibTorch's allocator.
struct DeviceMemoryReport {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t limit_bytes = 0;
  int64_t retries = 0;        // allocations that succeeded only after cached memory was released
  int64_t out_of_memory = 0;  // allocations that failed
};

// Thread-safe. Every series has the constant label "rank".
class TrainerMetrics {
 public:
  TrainerMetrics(int rank, int world_size, const BuildInfo& build, const RunInfo& run);
  ~TrainerMetrics();

  std::shared_ptr<prometheus::Registry> registry() const { return registry_; }

  void set_target_steps(int64_t steps);
  void set_step(int64_t step);  // after a restore
  void record_step(const StepReport& report, SystemTime now);
  void set_data_queue_capacity(int64_t batches);
  void set_peak_flops(double flops);  // of the device, per second
  void set_device_memory(const DeviceMemoryReport& memory);
  void record_data_error();
  void set_loss(double loss);
  void set_validation_loss(double loss);
  void set_phases(const std::array<double, kPhaseNames.size()>& seconds);
  void record_rendezvous(double seconds);
  void record_recovery(double seconds);
  void set_world_size(int world_size);
  void record_gradient_reduction(int64_t buckets, int64_t bytes);
  void record_checkpoint(bool save, bool success, int64_t bytes, double seconds);  // `save` is false for a restore
  void record_recomputed_steps(int64_t steps);
  void set_last_checkpoint(int64_t step, SystemTime time);
  void record_nonfinite_losses(int64_t steps);
  void record_nonfinite_gradients(int64_t steps);
  void set_gradient_norm(double norm);
  void record_communication_error();
  void record_parameter_check(bool equal);

 private:
  struct Series;

  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<Series> series_;
};

}  // namespace oarlock
