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

enum class Collective { kAllReduce, kBroadcast, kAllGather, kBarrier };

// All methods are thread-safe. Every series has the constant label rank.
class TrainerMetrics {
 public:
  TrainerMetrics(int rank, int world_size, const BuildInfo& build, const RunInfo& run);

  std::shared_ptr<prometheus::Registry> registry() const { return registry_; }

  void set_target_steps(int64_t steps);
  void set_step(int64_t step);  // after a restore
  void step_done(int64_t step, int64_t local_samples, double seconds, double learning_rate, SystemTime now);
  void set_loss(double loss);
  void set_validation_loss(double loss);
  void set_phases(const std::array<double, kPhaseNames.size()>& seconds);
  void rendezvous_done(double seconds);
  void collective(Collective op, int64_t operations, int64_t bytes);
  void checkpoint_done(bool save, bool success, int64_t bytes, double seconds);  // save, or else restore
  void steps_lost(int64_t steps);
  void set_last_checkpoint(int64_t step, SystemTime time);
  void nonfinite_loss();
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
  prometheus::Histogram* step_duration_;
  prometheus::Histogram* rendezvous_duration_;
  prometheus::Counter* nonfinite_loss_;
  prometheus::Counter* nonfinite_gradient_;
  prometheus::Counter* communication_errors_;
  prometheus::Counter* parameters_equal_;
  prometheus::Counter* parameters_diverged_;
  prometheus::Counter* recomputed_steps_;
  std::array<prometheus::Counter*, kPhaseNames.size()> phases_{};
  std::array<prometheus::Counter*, 4> collective_operations_{};
  std::array<prometheus::Counter*, 4> collective_bytes_{};
  // Families whose series appear with their first value, so that no dashboard shows a loss of 0 that never was.
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
