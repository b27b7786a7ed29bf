// Early stopping: rank 0 decides whether the run ends, and all ranks follow.
#pragma once

#include <string>
#include <vector>

#include "ddp/process_group.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/evaluation.h"
#include "trainer/engine/task.h"

namespace oarlock {

// A metric improves if it is better than its best value by more than min_delta. The model improves if all (or any) of
// the metrics do; only then the best values of the improved metrics are updated. An improvement resets the patience.
// Without an improvement the patience decreases by one, unless a metric's grace period was not over before. The run
// stops when the patience is 0. These are the rules of QuantumGrav's DefaultEarlyStopping; with one metric and no grace
// period, those of Ignite's EarlyStopping.
class EarlyStopping final : public Stateful {
 public:
  // The monitor replaces a metric without a name. Without a patience, early stopping is disabled.
  EarlyStopping(EarlyStoppingConfig config, const Monitor& monitor);

  // Called after an evaluation; returns whether the run must stop. Fails with kConfig if a watched metric is missing.
  // NaN does not count as an improvement.
  Result<bool> observe(const Metrics& metrics);

  // The same for all ranks of a group together: rank 0 decides, and the others copy its state.
  Result<bool> observe(const Metrics& metrics, const ProcessGroup& group);

  bool stopped() const { return stopped_; }
  // For users: "no improvement of accuracy (best 0.91) for 5 evaluations".
  std::string reason() const;

  struct Watched {
    double best = 0;            // infinite: none yet
    int64_t grace_left = 0;     // evaluations
    bool has_improved = false;  // at the last evaluation
  };
  const std::vector<Watched>& watched() const { return watched_; }
  bool has_improved() const { return has_improved_; }
  int64_t patience_left() const { return patience_left_; }
  // Restores the initial best values and grace periods (of one metric). The patience is unchanged.
  void reset();
  void reset(size_t metric);

  std::string_view section() const override { return "early-stopping"; }
  TensorMap tensors() const override { return {}; }
  // Contains the lost patience, not the remaining one: a stopped run resumes if the configured patience is raised.
  nlohmann::json values() const override;
  Result<void> restored(const nlohmann::json& values) override;
  Result<void> missing() override { return {}; }

 private:
  EarlyStoppingConfig config_;
  std::vector<Watched> watched_;
  int64_t patience_left_ = 0;
  bool has_improved_ = false;
  bool stopped_ = false;
};

}  // namespace oarlock
